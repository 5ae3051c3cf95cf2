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
use crate::symbols::function_name::path;
use crate::words::printable::printable_str;

const FORMAT: &str = "snapshot of PyTorch";

/// Beginnings of the paths of functions that write a stack down, and so stand in it, innermost.
const WRITE_STACKS: &[&str] =
    &["torch::unwind::", "torch::CapturedTraceback::", "torch::cuda::(anonymous namespace)::gather"];

/// The same of what lies between a function of Python and the memory of the tensor that it asked for, or between the
/// process's start and Python: the interpreter, PyTorch's dispatch and its allocator. Kernels (`at::native`) that take
/// memory for their own work are none of it.
const BETWEEN: &[&str] = &[
    "Py",
    "_Py",
    "method_vectorcall",
    "cfunction_",
    "slot_tp_",
    "_start",
    "__libc_",
    "torch::autograd::THP",
    "torch::autograd::VariableType::",
    "at::(anonymous namespace)::",
    "at::_ops::",
    "at::detail::",
    "at::native::empty",
    "c10::impl::",
    "c10::StorageImpl::",
    "c10::cuda::CUDACachingAllocator::",
];

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
    let frames = frames.into_iter().flat_map(Value::items).map(|frame| {
        let text = |name| printable_str(frame.field(name).map_or("", Value::text).to_owned());
        let line = frame.field("line").and_then(Value::number).and_then(|line| u32::try_from(line).ok());
        Frame {
            name: text("name"),
            // C++ has its names only.
            file: Some(text("filename")).filter(|file| !["", "??"].contains(&file.as_str())),
            line: line.filter(|&line| line > 0),
            ..Frame::default()
        }
    });
    let frames: Vec<Frame> = frames.skip_while(|frame| is_of(WRITE_STACKS, frame)).collect();
    let has_python = frames.iter().any(is_python);
    let shown = frames.into_iter().filter(|frame| !has_python || is_python(frame) || !is_of(BETWEEN, frame));
    let locations = shown.map(|frame| sites.location(frame)).collect();
    sites.site(locations, Place::Device(device))
}

/// Python has lines, of files or of what has no file (`<string>`).
fn is_python(frame: &Frame) -> bool {
    frame.line.is_some() && frame.file.as_deref().is_some_and(|file| file.ends_with(".py") || file.starts_with('<'))
}

fn is_of(beginnings: &[&str], frame: &Frame) -> bool {
    let path = path(&frame.name);
    beginnings.iter().any(|beginning| path.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(name: &str, file: &str, line: u32) -> Frame {
        Frame {
            name: name.to_owned(),
            file: Some(file.to_owned()).filter(|file| !file.is_empty()),
            line: Some(line).filter(|&line| line > 0),
            ..Frame::default()
        }
    }

    #[test]
    fn what_lies_between_python_and_its_memory_is_known_and_kernels_are_none_of_it() {
        let wrapper = "at::(anonymous namespace)::(anonymous namespace)::wrapper_CUDA_memory_format_empty(long)";
        let boxed = "c10::impl::wrap_kernel_functor_unboxed_<c10::impl::detail::WrapFunctionIntoFunctor_<at::Tensor (long), \
                     &at::(anonymous namespace)::empty> >::call(c10::OperatorKernel*, c10::DispatchKeySet)";
        for name in [wrapper, boxed, "_PyEval_EvalFrameDefault", "at::native::empty_cuda(c10::ArrayRef<long>)"] {
            assert!(is_of(BETWEEN, &frame(name, "", 0)), "{name}");
        }
        for name in ["at::native::cudnn_convolution(at::Tensor const&)", "extension::gather(at::Tensor)", "weights"] {
            assert!(!is_of(BETWEEN, &frame(name, "", 0)), "{name}");
        }
        assert!(is_python(&frame("PyClass", "model.py", 3)) && is_python(&frame("f", "<string>", 1)));
        assert!(!is_python(&frame("at::x()", "RegisterCUDA_0.cpp", 3)) && !is_python(&frame("_PyEval", "", 0)));
        assert!(is_of(WRITE_STACKS, &frame("torch::cuda::(anonymous namespace)::gather_with_cpp()", "", 0)));
    }

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
