//! What the program is asked for.

use std::path::PathBuf;

/// What `--help` prints.
pub const USAGE: &str = "\
A made-up training run on devices that are not there: something for the GPU view of poolscope top on any machine.

usage: gpu-training [--devices N] [--memory BYTES] [--steps N] [--step-ms MS] [--trace FILE] [--leak BYTES] [--pinned BYTES]

  --devices N      devices, each with a pool and a thread that trains on it (1)
  --memory BYTES   memory of each (17179869184)
  --steps N        stop after N steps; without it, when the standard input ends
  --step-ms MS     milliseconds between two steps (20)
  --trace FILE     the last device replays a recorded trace instead
  --leak BYTES     every step forgets so many bytes (0)
  --pinned BYTES   pinned host memory that each device's batches come through (0)
";

/// The options, with what they are where nobody says otherwise.
#[derive(Clone, Debug)]
pub struct Options {
    /// Devices.
    pub devices: u32,
    /// Bytes of memory of each.
    pub memory: u64,
    /// Steps; without a number, until the standard input ends.
    pub steps: Option<u64>,
    /// Milliseconds between two steps.
    pub step_ms: u64,
    /// A recorded trace for the last device.
    pub trace: Option<PathBuf>,
    /// Bytes that every step forgets.
    pub leak: u64,
    /// Bytes of pinned host memory that batches come through, for each device.
    pub pinned: u64,
}

impl Options {
    /// Reads the arguments; `None` means that help was asked for.
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Option<Options>, String> {
        let (devices, memory, step_ms) = (1, 16 << 30, 20);
        let mut options = Options { devices, memory, steps: None, step_ms, trace: None, leak: 0, pinned: 0 };
        while let Some(name) = arguments.next() {
            if name == "--help" || name == "-h" {
                return Ok(None);
            }
            let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
            let number = || value.parse::<u64>().map_err(|_| format!("{name} {value}: not a number"));
            match name.as_str() {
                "--devices" => options.devices = number()?.clamp(1, 16) as u32,
                "--memory" => options.memory = number()?,
                "--steps" => options.steps = Some(number()?),
                "--step-ms" => options.step_ms = number()?,
                "--trace" => options.trace = Some(value.into()),
                "--leak" => options.leak = number()?,
                "--pinned" => options.pinned = number()?,
                _ => return Err(format!("unknown option {name}; --help shows those that there are")),
            }
        }
        Ok(Some(options))
    }
}
