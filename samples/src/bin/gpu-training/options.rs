//! What the program is asked for.

use std::path::PathBuf;

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
    /// Reads the arguments.
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
        let (devices, memory, step_ms) = (1, 16 << 30, 20);
        let mut options = Options { devices, memory, steps: None, step_ms, trace: None, leak: 0, pinned: 0 };
        while let Some(name) = arguments.next() {
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
                _ => {
                    return Err(format!(
                        "{name}: --devices, --memory, --steps, --step-ms, --trace, --leak or --pinned"
                    ));
                }
            }
        }
        Ok(options)
    }
}
