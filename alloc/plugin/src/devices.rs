//! The pools of the process: one for each device, made when it is first asked for, and there until the process ends.
//!
//! Their blocks are recorded in the process's segment: that of a preloaded `libpoolscope.so`,
//! or one that this library makes.

use std::env;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use poolscope_alloc::gpu;
use poolscope_gpu::{Config, Cuda, Pool, Simulated};
use poolscope_wire::quantity::parse_bytes;

use crate::any_device::AnyDevice;
use crate::graphs::Graphs;
use crate::refusal::Refusal;

/// Devices that a process may use.
const DEVICES: usize = 64;

/// Names the devices: `cuda`, which is the default, or `sim` for one that is not there, with as many bytes of memory as
/// follow a colon, and as many of them as follow another.
const VARIABLE: &str = "POOLSCOPE_GPU_DEVICE";

/// Bytes of a simulated device's memory, if nothing else is asked for, and the fewest.
const SIMULATED_BYTES: u64 = 16 << 30;
const SIMULATED_LEAST: u64 = 4 << 20;

/// A device of the process.
pub struct Opened {
    pub pool: Pool<AnyDevice>,
    pub graphs: Graphs,
    /// Whether the other devices of a framework were let in ([`device_among_peers`]).
    among_peers: AtomicBool,
}

static OPENED: [OnceLock<Result<Opened, Refusal>>; DEVICES] = [const { OnceLock::new() }; DEVICES];

/// The device with this number, from 0, if it was used before.
#[inline]
pub fn known(ordinal: i32) -> Option<&'static Opened> {
    OPENED.get(ordinal as usize)?.get()?.as_ref().ok()
}

/// The device with this number.
#[inline]
pub fn device(ordinal: i32) -> Result<&'static Opened, Refusal> {
    known(ordinal).map_or_else(|| open_now(ordinal), Ok)
}

/// The device with this number, for a framework: PyTorch and CuPy copy from one device to another as from the driver's own
/// memory, and expect that to work wherever the devices reach each other. What is mapped is closed to other devices until
/// its pool lets them in, so each device that a framework uses lets the others in, and they let it in.
#[inline]
pub fn device_among_peers(ordinal: i32) -> Result<&'static Opened, Refusal> {
    let it = device(ordinal)?;
    if !it.among_peers.load(Ordering::Relaxed) {
        meet_peers(it);
    }
    Ok(it)
}

#[cold]
fn meet_peers(it: &'static Opened) {
    static FRAMEWORKS: Mutex<Vec<&Opened>> = Mutex::new(Vec::new());
    let mut met = FRAMEWORKS.lock().unwrap_or_else(PoisonError::into_inner);
    if it.among_peers.load(Ordering::Relaxed) {
        return;
    }
    for other in met.iter() {
        // Devices that can't reach each other stay apart: a copy between them goes through the host, or is refused by
        // the driver, with its own words.
        let _ = it.pool.enable_peer(other.pool.device());
        let _ = other.pool.enable_peer(it.pool.device());
    }
    met.push(it);
    it.among_peers.store(true, Ordering::Relaxed);
}

#[cold]
fn open_now(ordinal: i32) -> Result<&'static Opened, Refusal> {
    let place = usize::try_from(ordinal).ok().and_then(|ordinal| OPENED.get(ordinal));
    let Some(place) = place else {
        return Err(Refusal::new(format!("no device {ordinal}: devices have numbers from 0 to {}", DEVICES - 1)));
    };
    match place.get_or_init(|| open(ordinal as u32)) {
        Ok(opened) => Ok(opened),
        Err(refusal) => Err(refusal.clone()),
    }
}

/// The devices that were used so far.
pub fn opened() -> impl Iterator<Item = &'static Opened> {
    OPENED.iter().filter_map(|place| place.get()?.as_ref().ok())
}

/// How many devices there are.
pub fn count() -> Result<usize, Refusal> {
    match simulated()? {
        Some(simulated) => Ok(simulated.devices),
        None => Ok(Cuda::devices().map_err(Refusal::new)?.len()),
    }
}

fn open(ordinal: u32) -> Result<Opened, Refusal> {
    let device = match simulated()? {
        Some(Wanted { devices, .. }) if ordinal as usize >= devices => {
            let are = if devices == 1 { "one device is".to_owned() } else { format!("{devices} devices are") };
            return Err(Refusal::new(format!("no device {ordinal}: {are} simulated")));
        }
        Some(Wanted { bytes, .. }) => AnyDevice::Simulated(Box::new(Simulated::in_process(bytes, ordinal))),
        None => AnyDevice::Cuda(Cuda::open(ordinal).map_err(Refusal::new)?),
    };
    let pool = gpu::pool(Arc::new(device), ordinal, Config::default()).map_err(Refusal::new)?;
    Ok(Opened { pool, graphs: Graphs::default(), among_peers: AtomicBool::new(false) })
}

/// Simulated devices that are asked for.
#[derive(Clone, Copy)]
struct Wanted {
    bytes: u64,
    devices: usize,
}

fn simulated() -> Result<Option<Wanted>, Refusal> {
    let Some(value) = env::var_os(VARIABLE) else { return Ok(None) };
    let value = value.to_string_lossy();
    let mut parts = value.split(':');
    let kind = parts.next().unwrap_or_default();
    let bytes = parts.next().map_or(Some(SIMULATED_BYTES), |bytes| parse_bytes(bytes.as_bytes()));
    let devices = parts.next().map_or(Some(1), |devices| devices.parse().ok());
    match (kind, bytes, devices, parts.next()) {
        ("" | "cuda", ..) if !value.contains(':') => Ok(None),
        ("sim", Some(bytes), Some(devices), None) if bytes >= SIMULATED_LEAST && (1..=DEVICES).contains(&devices) => {
            Ok(Some(Wanted { bytes, devices }))
        }
        _ => Err(Refusal::new(format!(
            "{VARIABLE}={value}: it takes cuda, sim, sim:BYTES with at least 4M of memory, or sim:BYTES:DEVICES"
        ))),
    }
}
