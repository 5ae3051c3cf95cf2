//! The owner, and its keeper.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use clap::Args;
use color_eyre::eyre::{Result, WrapErr};
use poolscope_tensors::{DeviceChoice, Options, Owner, default_socket, keep};
use poolscope_wire::quantity::parse_bytes;

use super::failed;
use crate::args::{parse_seconds, token};
use crate::sink;

/// How long a client may take for what it has begun.
const STALL: Duration = Duration::from_secs(10);
/// Bytes of a simulated device, if nothing else is asked for.
const SIMULATED: u64 = 16 << 30;

fn parse_device(text: &str) -> Result<DeviceChoice, String> {
    let wrong = || "not a device: write its number, or sim, or sim:BYTES for one that is not there".to_owned();
    match text.split_once(':') {
        None if text == "sim" => Ok(DeviceChoice::Simulated(SIMULATED)),
        Some(("sim", bytes)) => parse_bytes(bytes.as_bytes()).map(DeviceChoice::Simulated).ok_or_else(wrong),
        _ => text.parse().map(DeviceChoice::Cuda).map_err(|_| wrong()),
    }
}

/// Own named tensors: keep the memory and the names, and serve those who ask
///
/// Memory and names outlive this process: a keeper beside it has them for as long as --linger says, and the next owner
/// on the same socket takes them over. SIGTERM ends the owner alone; ctrl-c ends the keeper, too, and frees everything.
///
/// The socket is for its user alone, and so must its folder be. A container whose programs use the tensors needs that
/// folder, and the GPU.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  poolscope tensors serve --redis redis://127.0.0.1 --device 0 --device 1")]
pub(super) struct Serve {
    /// Take commands from this Redis, and keep an entry for each tensor there
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
    /// A CUDA device by its number, or sim:BYTES for a simulated one; several are numbered from 0 in their order
    #[arg(long, value_name = "DEVICE", value_parser = parse_device, default_value = "0")]
    device: Vec<DeviceChoice>,
    /// The socket to listen on
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Clients at once
    #[arg(long, value_name = "N", default_value_t = 1024)]
    clients: usize,
    /// File with the token that requests over Redis must have to delete
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Serve /metrics for Prometheus here; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
    /// How long memory and names stay after the owner's end
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, default_value = "600")]
    linger: Duration,
    /// Wait for the end of the owner that there is, and follow it
    #[arg(long)]
    standby: bool,
}

impl Serve {
    pub(super) fn run(self) -> Result<u8> {
        let socket = self.socket.unwrap_or_else(default_socket);
        let socket = std::path::absolute(&socket).unwrap_or(socket);
        let folder = socket.parent().map(PathBuf::from).unwrap_or_default();
        let token = self.token_file.as_deref().map(token::read);
        let exe = std::env::current_exe().wrap_err("the command's own file can't be found")?;
        let linger = self.linger.as_secs_f64().to_string();
        let keeper: [OsString; 7] = [
            exe.into(),
            "tensors".into(),
            "keep".into(),
            "--folder".into(),
            folder.into(),
            "--linger".into(),
            linger.into(),
        ];
        let options = Options {
            redis: self.redis,
            devices: self.device,
            socket: socket.clone(),
            keeper: keeper.into(),
            clients: self.clients,
            stall: STALL,
            token: token.transpose()?,
            metrics: self.metrics,
            standby: self.standby,
        };
        let owner = Owner::start(options).map_err(failed)?;
        let (frees, ends) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&frees))?;
        signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::clone(&ends))?;
        let adopted = match owner.adopted() {
            0 => String::new(),
            count => format!(", with {} of the owner before", super::tables::tensors(count as usize)),
        };
        sink::say(&format!("serving tensors at {}{adopted}", socket.display()));
        if let Some(at) = owner.metrics_at() {
            sink::say(&format!("metrics at http://{at}/metrics"));
        }
        while !frees.load(Ordering::Relaxed) && !ends.load(Ordering::Relaxed) && !owner.is_stopping() {
            sleep(Duration::from_millis(50));
        }
        let was_followed = owner.is_stopping();
        owner.end(frees.load(Ordering::Relaxed)).map_err(failed)?;
        Ok(if was_followed { 2 } else { 0 })
    }
}

/// Keep what the owner of a folder has, beyond its end.
#[derive(Debug, Args)]
pub(super) struct Keep {
    #[arg(long)]
    folder: PathBuf,
    #[arg(long, value_parser = parse_seconds)]
    linger: Duration,
}

impl Keep {
    pub(super) fn run(self) -> Result<u8> {
        keep(&self.folder, self.linger).wrap_err_with(|| format!("cannot keep in {}", self.folder.display()))?;
        Ok(0)
    }
}
