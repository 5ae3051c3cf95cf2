//! What a recording says of the memory of devices, as traces: read from it to be replayed, or written as text.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use color_eyre::eyre::Result;
use flate2::Compression;
use flate2::write::GzEncoder;
use poolscope_profiler::model::memory::{Kind, Place};
use poolscope_profiler::recording::file::reader::RecordingReader;
use poolscope_profiler::recording::replay::device_trace::{
    LeftOut, Operation, TextError, for_each, places, write_text,
};
use poolscope_profiler::words::figures;
use poolscope_replay::{Trace, TraceBuilder};

use crate::failure::Failure;
use crate::sink;

fn failed(error: &dyn std::fmt::Display) -> Failure {
    Failure::usage(error.to_string())
}

/// The operations of one device's memory: of the device with this number, or of the only one.
pub(super) fn read(path: &Path, of_device: Option<u32>) -> Result<Trace> {
    let mut reader = RecordingReader::open(path).map_err(|e| failed(&e))?;
    let found = places(&mut reader).map_err(|e| failed(&e))?;
    let devices: Vec<u32> = found.iter().filter(|it| it.kind() == Kind::Device).filter_map(|it| it.device()).collect();
    let path = path.display();
    let list = devices.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    let device = match (of_device, devices.as_slice()) {
        (_, []) => {
            return Err(Failure::usage(format!("{path}: the recording has no event of a device's memory")).into());
        }
        (Some(device), known) if known.contains(&device) => device,
        (Some(device), _) => {
            let message = format!("{path}: the recording has no event of device {device}, but of {list}");
            return Err(Failure::usage(message).into());
        }
        (None, [device]) => *device,
        (None, _) => {
            let message = format!("{path}: the recording is of devices {list}: name one by --of-device");
            return Err(Failure::usage(message).into());
        }
    };
    let mut builder = TraceBuilder::default();
    let mut wrong = None;
    let left_out = for_each(&mut reader, Place::Device(device), |operation| {
        let done = match operation {
            Operation::Allocate { id, size, stream } => builder.allocate(id, size, stream),
            Operation::Free { id } => builder.free(id),
        };
        wrong = wrong.take().or(done.err());
    });
    let left_out = left_out.map_err(|e| failed(&e))?;
    if let Some(wrong) = wrong {
        return Err(Failure::usage(format!("{path}: {wrong}")).into());
    }
    say(&left_out);
    Ok(builder.finish())
}

/// Writes the text of each device of a recording: of the first one to `to`, of others beside it,
/// with the device in the name.
pub(super) fn write(recording: &Path, to: &Path, quiet: bool) -> Result<()> {
    let mut reader = RecordingReader::open(recording).map_err(|e| failed(&e))?;
    let places = places(&mut reader).map_err(|e| failed(&e))?;
    if places.is_empty() {
        sink::say(&format!("no memory of a device was allocated or freed: {} is not written", to.display()));
    }
    for (at, place) in places.into_iter().enumerate() {
        let path = if at == 0 { to.to_owned() } else { beside(to, place) };
        let mut left_out = LeftOut::default();
        sink::write(&path, |out| {
            let mut text = |out: &mut dyn Write| match write_text(&mut reader, place, out) {
                Err(TextError::Write(error)) => Err(error),
                Err(TextError::Recording(error)) => Err(io::Error::other(error)),
                Ok(left) => Ok(left),
            };
            if path.extension().is_some_and(|extension| extension == "gz") {
                let mut packed = GzEncoder::new(out, Compression::default());
                left_out = text(&mut packed)?;
                packed.finish()?;
            } else {
                left_out = text(out)?;
            }
            Ok(())
        })?;
        if !quiet && path != Path::new("-") {
            sink::say(&format!("the trace {} is in {}", place.memory().describe(), path.display()));
        }
        say(&left_out);
    }
    Ok(())
}

fn say(left_out: &LeftOut) {
    if left_out.unknown_frees > 0 {
        let frees = figures::count(left_out.unknown_frees, "free");
        sink::say(&format!("left out of the trace: {frees} of blocks from before the recording"));
    }
    if left_out.unfollowed > 0 {
        let blocks = figures::count(left_out.unfollowed, "allocation");
        sink::say(&format!("left out of the trace: {blocks} that the recorder did not follow"));
    }
}

/// `model.trace.gz` as `model.device1.trace.gz`.
fn beside(path: &Path, place: Place) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let packed = name.strip_suffix(".gz").unwrap_or(&name);
    let end = packed.rfind('.').filter(|at| *at > 0).unwrap_or(packed.len());
    let (stem, extensions) = name.split_at(end);
    let of = format!(".{}{}", place.kind().name(), place.device().unwrap_or(0));
    path.with_file_name(OsString::from(format!("{stem}{of}{extensions}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_of_another_device_has_it_in_its_name() {
        let device = Place::Device(1);
        let cases = [
            ("a/model.trace.gz", "a/model.device1.trace.gz"),
            ("model.gz", "model.device1.gz"),
            ("model", "model.device1"),
            (".hidden", ".hidden.device1"),
        ];
        for (name, expected) in cases {
            assert_eq!(beside(Path::new(name), device), Path::new(expected));
        }
        assert_eq!(beside(Path::new("m.txt"), Place::Pinned(0)), Path::new("m.pinned0.txt"));
    }
}
