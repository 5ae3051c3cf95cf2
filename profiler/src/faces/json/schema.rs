//! The schemas of what is written as JSON (draft 2020-12), made of the types that are written.
//!
//! They are for tests and for docs/schemas, and the command does not have them.

use poolscope_wire::{CounterInfo, DEVICE_COUNTERS, TIER_COUNTERS};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// The schema of a type, as it is written. Fields that it does not have may be there: later versions add some.
pub fn schema_of<T: JsonSchema>(title: &str) -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    schema.insert("title".to_owned(), title.into());
    schema.into()
}

pub(super) fn tier_counters(_: &mut SchemaGenerator) -> Schema {
    counters(TIER_COUNTERS)
}

pub(super) fn device_counters(_: &mut SchemaGenerator) -> Schema {
    counters(DEVICE_COUNTERS)
}

/// An object with a field for each counter of a table.
fn counters(table: &[CounterInfo]) -> Schema {
    let field = |info: &CounterInfo| {
        let field = json!({ "type": "integer", "minimum": 0, "description": info.help });
        (info.name.to_owned(), field)
    };
    let fields: serde_json::Map<String, Value> = table.iter().map(field).collect();
    let names: Vec<&str> = table.iter().map(|info| info.name).collect();
    json_schema!({ "type": "object", "properties": fields, "required": names })
}
