//! Snapshots of PyTorch's allocator (`torch.cuda.memory._dump_snapshot`, the file that memory_viz shows): a pickle of
//! plain lists and dictionaries, described in PyTorch's documentation ("Understanding CUDA Memory Usage").
//!
//! What is in use are the blocks of the segments; what was allocated are the events of the trace, if one was kept.

use std::collections::HashMap;

use crate::imports::pickle::{Pickle, Value};
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

/// Reads a snapshot.
pub(super) fn read(bytes: &[u8]) -> Result<Imported, ImportError> {
    let pickle = Pickle::read(bytes).map_err(damaged)?;
    let snapshot = pickle.root();
    let segments = snapshot.field("segments").ok_or_else(|| damaged("it is a pickle without segments"))?;
    let mut sites = Sites::default();
    for segment in segments.items() {
        let device = segment.field("device").and_then(Value::number).and_then(|number| u32::try_from(number).ok());
        let device = device.ok_or_else(|| damaged("a segment names no device"))?;
        for block in segment.field("blocks").into_iter().flat_map(Value::items) {
            // What waits for a stream is not in use any more, and what is inactive is free.
            if block.field("state").map_or("", Value::text) != "active_allocated" {
                continue;
            }
            let size = ["requested_size", "size"].into_iter().find_map(|name| block.field(name)?.number());
            let size = size.ok_or_else(|| damaged("a block has no size"))?;
            // Snapshots before PyTorch 2.1 have a history of each block.
            let first = || block.field("history")?.items().next()?.field("frames");
            let site = site(&mut sites, block.field("frames").or_else(first), device);
            sites.at(site).in_use += one(size);
        }
    }
    // A site may be in both.
    let mut traced: HashMap<usize, Amount> = HashMap::new();
    let traces = snapshot.field("device_traces");
    for (device, trace) in traces.into_iter().flat_map(Value::items).enumerate() {
        for event in trace.items().filter(|event| event.field("action").map_or("", Value::text) == "alloc") {
            let size = event.field("size").and_then(Value::number).ok_or_else(|| damaged("an event has no size"))?;
            let site = site(&mut sites, event.field("frames"), device as u32);
            *traced.entry(site).or_default() += one(size);
        }
    }
    sites.each(|at, site| {
        let traced = traced.get(&at).copied().unwrap_or_default();
        // A block may be older than the trace.
        site.allocated = if traced.bytes > site.in_use.bytes { traced } else { site.in_use };
    });
    let lacks = traced.is_empty().then_some("what was allocated and freed: no trace was kept");
    Ok(Imported { profile: sites.finish(String::new()), format: FORMAT, lacks })
}

fn one(size: u64) -> Amount {
    Amount { objects: 1.0, bytes: size as f64, samples: 1 }
}

/// The site of a stack, whose frames are innermost first.
fn site(sites: &mut Sites, frames: Option<Value<'_>>, device: u32) -> usize {
    let locations = frames.into_iter().flat_map(Value::items).map(|frame| {
        let text = |name| printable_str(frame.field(name).map_or("", Value::text).to_owned());
        let line = frame.field("line").and_then(Value::number).and_then(|line| u32::try_from(line).ok());
        sites.location(Frame {
            name: text("name"),
            // C++ has its names only.
            file: Some(text("filename")).filter(|file| !["", "??"].contains(&file.as_str())),
            line: line.filter(|&line| line > 0),
            ..Frame::default()
        })
    });
    let locations = locations.collect();
    sites.site(locations, Place::Device(device))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `pickle.dumps({'segments': []}, protocol=4)`, and the same of `{}`. A snapshot with blocks is in the tests of
    /// the command, by Python itself.
    #[test]
    fn a_snapshot_without_blocks_is_empty_and_another_pickle_is_refused() {
        let empty = read(b"\x80\x04\x95\x11\0\0\0\0\0\0\0}\x94\x8c\x08segments\x94]\x94s.").expect("is read");
        assert!(empty.profile.sites.is_empty() && empty.lacks.is_some());
        assert!(read(b"\x80\x04}\x94.").expect_err("has no segments").to_string().contains("without segments"));
        assert!(read(b"\x80\x04garbage").is_err());
    }
}
