//! CuPy's pool. Its blocks are objects of Python and nothing else can make one, so that its process is a program of
//! Python's, and its figures have the interpreter in them.

use std::process::Command;

use poolscope_bench::Result;

use crate::contestants::Place;
use crate::rows::Extent;

const PROGRAM: &str = include_str!("cupy_worker.py");

pub fn command(extent: &Extent) -> Result<Command> {
    let Place::Cuda(ordinal) = extent.place else { return Err("it needs a card".to_owned()) };
    let mut command = Command::new("python3");
    command.args(["-c", PROGRAM, &ordinal.to_string()]);
    command.args(extent.traces.iter().map(|path| path.as_os_str()));
    Ok(command)
}
