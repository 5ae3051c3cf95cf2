//! Named tensors of the owner that the process is or asks: how large, who uses them, and what is held without a name.

mod draw;

use std::cmp::Ordering;
use std::sync::Arc;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::listing::{Asked, Listing, Nothing, TablePane, key_of, ordering};
use super::rows::Rows;
use super::sort::Sort;
use super::{Reply, Scene, Source, View};
use crate::dashboard::events::tensors::{Tensor, Tensors};
use crate::dashboard::input::key::Binding;
use crate::dashboard::model::Model;

/// Its line in the table of views.
pub(crate) const VIEW: View = View {
    name: "tensors",
    title: "Tensors",
    help: "Named tensors: sizes, users, and what is held without a name",
    source: Source::NamedTensors,
    make: || Box::new(TablePane::new(draw::rows(Sort::falling(draw::SIZE)), Named::default())),
};

/// The tensors as the owner listed them last.
#[derive(Debug, Default)]
struct Named(Arc<Tensors>);

impl Listing for Named {
    type Row = Tensor;
    type Own = Nothing;
    const KEYS: &'static [Binding<Asked<Nothing>>] = &ordering();

    fn listed(&mut self, tensors: &Arc<Tensors>) {
        self.0 = Arc::clone(tensors);
    }

    fn rows<'a>(&'a self, _model: &'a Model) -> &'a [Tensor] {
        &self.0.all
    }

    const CALLED: Option<&'static str> = Some("tensor");

    fn keeps(&self, model: &Model, tensor: &Tensor) -> bool {
        model.filter.has_words(&tensor.name)
    }

    fn compare(a: &Tensor, b: &Tensor, column: usize) -> Ordering {
        draw::compare(a, b, column)
    }

    fn key(tensor: &Tensor) -> u64 {
        key_of((&tensor.name, tensor.generation))
    }

    const FIELDS: &'static [&'static str] =
        &["name", "bytes", "type", "shape", "device", "references", "users", "age_seconds", "state"];

    fn record(tensor: &Tensor) -> Vec<String> {
        let users: Vec<String> = tensor.users.iter().map(|user| user.pid.to_string()).collect();
        let state = if tensor.freed.is_some() {
            "freed"
        } else if tensor.is_draft {
            "draft"
        } else {
            "named"
        };
        vec![
            tensor.name.clone(),
            tensor.bytes.to_string(),
            tensor.dtype.clone(),
            tensor.shape.clone(),
            tensor.device.to_string(),
            tensor.references.to_string(),
            users.join(" "),
            format!("{:.1}", tensor.age.as_secs_f64()),
            state.to_owned(),
        ]
    }

    fn own(&mut self, nothing: Nothing, _scene: &Scene<'_>) -> Reply {
        match nothing {}
    }

    fn place(&self, _model: &Model, body: Rect) -> Rect {
        draw::table_area(body)
    }

    fn copied(&self, tensor: &Tensor) -> Option<String> {
        Some(tensor.name.clone())
    }

    fn draw(&self, rows: &Rows, scene: &Scene<'_>, buf: &mut Buffer) {
        draw::view(&self.0, rows, scene, buf);
    }
}
