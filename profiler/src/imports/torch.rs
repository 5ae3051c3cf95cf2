//! Snapshots of PyTorch's allocator (`torch.cuda.memory._dump_snapshot`, the file that memory_viz shows): a pickle of
//! plain lists and dictionaries, described in PyTorch's documentation ("Understanding CUDA Memory Usage").
//!
//! What is in use are the blocks of the segments; what was allocated are the events of the trace, if one was kept.

use std::collections::HashMap;

use serde_pickle::{DeOptions, HashableValue, Value};

use crate::imports::sites::Sites;
use crate::imports::{ImportError, Imported};
use crate::model::memory::Place;
use crate::model::profile::Frame;
use crate::model::snapshot::Amount;
use crate::words::printable::printable_str;

const FORMAT: &str = "snapshot of PyTorch";

fn damaged(why: impl Into<String>) -> ImportError {
    ImportError::Damaged { format: FORMAT, why: why.into() }
}

/// A field of a dictionary.
fn field<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    match value {
        Value::Dict(fields) => fields.get(&HashableValue::String(name.to_owned())),
        _ => None,
    }
}

fn items(value: Option<&Value>) -> &[Value] {
    match value {
        Some(Value::List(items) | Value::Tuple(items)) => items,
        _ => &[],
    }
}

fn number(value: Option<&Value>) -> Option<u64> {
    match value? {
        Value::I64(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

fn text(value: Option<&Value>) -> &str {
    match value {
        Some(Value::String(text)) => text,
        _ => "",
    }
}

/// Reads a snapshot.
pub(super) fn read(bytes: &[u8]) -> Result<Imported, ImportError> {
    let options = DeOptions::new().replace_unresolved_globals();
    let snapshot = serde_pickle::value_from_slice(bytes, options).map_err(|error| damaged(error.to_string()))?;
    if field(&snapshot, "segments").is_none() {
        return Err(damaged("it is a pickle without segments"));
    }
    let mut sites = Sites::default();
    // A site may be in both.
    let mut traced: HashMap<usize, Amount> = HashMap::new();
    for segment in items(field(&snapshot, "segments")) {
        let device = device(segment)?;
        for block in items(field(segment, "blocks")) {
            // What waits for a stream is not in use any more, and what is inactive is free.
            if text(field(block, "state")) != "active_allocated" {
                continue;
            }
            let size = number(field(block, "requested_size")).or_else(|| number(field(block, "size")));
            let size = size.ok_or_else(|| damaged("a block has no size"))?;
            // Snapshots before PyTorch 2.1 have a history of each block.
            let frames = field(block, "frames").or_else(|| field(items(field(block, "history")).first()?, "frames"));
            let site = site(&mut sites, frames, device);
            sites.at(site).in_use += one(size);
        }
    }
    let traces = items(field(&snapshot, "device_traces"));
    for (device, trace) in traces.iter().enumerate() {
        for event in items(Some(trace)).iter().filter(|event| text(field(event, "action")) == "alloc") {
            let size = number(field(event, "size")).ok_or_else(|| damaged("an event has no size"))?;
            let site = site(&mut sites, field(event, "frames"), device as u32);
            *traced.entry(site).or_default() += one(size);
        }
    }
    let has_trace = !traced.is_empty();
    sites.each(|at, site| {
        let traced = traced.get(&at).copied().unwrap_or_default();
        // A block may be older than the trace.
        site.allocated = if traced.bytes > site.in_use.bytes { traced } else { site.in_use };
    });
    let lacks = (!has_trace).then_some("what was allocated and freed: no trace was kept");
    Ok(Imported { profile: sites.finish(String::new()), format: FORMAT, lacks })
}

fn device(segment: &Value) -> Result<u32, ImportError> {
    let number = number(field(segment, "device")).and_then(|number| u32::try_from(number).ok());
    number.ok_or_else(|| damaged("a segment names no device"))
}

fn one(size: u64) -> Amount {
    Amount { objects: 1.0, bytes: size as f64, samples: 1 }
}

/// The site of a stack, whose frames are innermost first.
fn site(sites: &mut Sites, frames: Option<&Value>, device: u32) -> usize {
    let locations = items(frames).iter().map(|frame| {
        let file = printable_str(text(field(frame, "filename")).to_owned());
        sites.location(Frame {
            name: printable_str(text(field(frame, "name")).to_owned()),
            // C++ has its names only.
            file: Some(file).filter(|file| !["", "??"].contains(&file.as_str())),
            line: number(field(frame, "line")).and_then(|line| u32::try_from(line).ok()).filter(|&line| line > 0),
            ..Frame::default()
        })
    });
    let locations = locations.collect();
    sites.site(locations, Place::Device(device))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::memory::Memory;

    fn dict(fields: &[(&str, Value)]) -> Value {
        let fields = fields.iter().map(|(name, value)| (HashableValue::String((*name).to_owned()), value.clone()));
        Value::Dict(fields.collect())
    }

    fn frames() -> Value {
        let frame = |name: &str, line| {
            dict(&[
                ("name", Value::String(name.to_owned())),
                ("filename", Value::String("train.py".to_owned())),
                ("line", Value::I64(line)),
            ])
        };
        Value::List(vec![frame("forward", 12), frame("train", 40)])
    }

    fn block(size: i64, state: &str) -> Value {
        dict(&[
            ("size", Value::I64(512)),
            ("requested_size", Value::I64(size)),
            ("frames", frames()),
            ("state", Value::String(state.to_owned())),
        ])
    }

    #[test]
    fn blocks_in_use_and_the_trace_become_sites_of_the_device() {
        let segment = dict(&[
            ("device", Value::I64(1)),
            (
                "blocks",
                Value::List(vec![
                    block(500, "active_allocated"),
                    block(0, "inactive"),
                    block(9, "active_pending_free"),
                ]),
            ),
        ]);
        let event =
            dict(&[("action", Value::String("alloc".into())), ("size", Value::I64(2000)), ("frames", frames())]);
        let traces = Value::List(vec![Value::List(vec![]), Value::List(vec![event])]);
        let snapshot = dict(&[("segments", Value::List(vec![segment])), ("device_traces", traces)]);
        let bytes = serde_pickle::value_to_vec(&snapshot, serde_pickle::SerOptions::new()).expect("is written");
        let Imported { profile, lacks, .. } = read(&bytes).expect("is read");
        assert_eq!(lacks, None);
        assert_eq!(profile.sites.len(), 1);
        let site = &profile.sites[0];
        assert_eq!((profile.path(site).as_str(), site.memory()), ("train;forward", Memory::Device(Some(1))));
        assert_eq!((site.in_use.bytes, site.allocated.bytes), (500.0, 2000.0));
    }

    #[test]
    fn another_pickle_is_refused() {
        let bytes = serde_pickle::value_to_vec(&dict(&[]), serde_pickle::SerOptions::new()).expect("is written");
        assert!(read(&bytes).expect_err("has no segments").to_string().contains("without segments"));
        assert!(read(b"\x80\x04garbage").is_err());
    }
}
