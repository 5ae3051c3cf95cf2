//! Checks the pool on a real device, with real kernels: what is written on one stream must not be overwritten by who
//! gets the memory next.
//!
//! `gpu_check [--device N] [--seconds N] [--only TEXT] [--list]`; exit code 0: all is well, 1: something is not, 3:
//! there is no device. Each check is a sentence; a line says whether it holds, and what was seen.

mod checks;
mod gpu;

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use checks::{CHECKS, Settings};
use gpu::Gpu;
use poolscope_gpu::Cuda;

fn main() {
    let mut settings = Settings { ordinal: 0, seconds: 60 };
    let (mut only, mut list) = (None, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|text| text.parse().ok());
        match argument.as_str() {
            "--device" => settings.ordinal = number().unwrap_or_else(|| usage("--device takes a number")) as u32,
            "--seconds" => settings.seconds = number().unwrap_or_else(|| usage("--seconds takes a number")),
            "--only" => only = arguments.next(),
            "--list" => list = true,
            _ => usage(&format!("{argument} is no option")),
        }
    }
    let wanted = |name: &str| only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    if list {
        CHECKS.iter().filter(|(name, _)| wanted(name)).for_each(|(name, _)| println!("{name}"));
        return;
    }
    let devices = Cuda::devices().unwrap_or_else(|error| {
        eprintln!("{error}");
        std::process::exit(3)
    });
    for device in &devices {
        println!("device {}: {}, {} MiB, virtual memory: {}", device.ordinal, device.name, device.memory >> 20, {
            device.virtual_memory
        });
    }
    println!("driver: CUDA {}", Cuda::driver_version().unwrap_or(0));
    let gpu = Gpu::open(settings.ordinal).unwrap_or_else(|error| {
        eprintln!("{error}");
        std::process::exit(3)
    });
    let mut failed = 0;
    let (progress, seen) = channel::<Option<&str>>();
    let patience = Duration::from_secs(settings.seconds + 60);
    std::thread::spawn(move || watch(&seen, patience));
    for (name, check) in CHECKS.iter().filter(|(name, _)| wanted(name)) {
        let _ = progress.send(Some(name));
        let start = Instant::now();
        let result = gpu.enter().and_then(|()| check(&gpu, &settings));
        let time = start.elapsed().as_secs_f64();
        match result {
            Ok(seen) => println!("ok    {name} ({time:.1} s){}{seen}", if seen.is_empty() { "" } else { ": " }),
            Err(error) => {
                failed += 1;
                println!("FAIL  {name} ({time:.1} s): {error}");
            }
        }
    }
    let _ = progress.send(None);
    println!("{failed} failed");
    std::process::exit(i32::from(failed > 0));
}

/// Ends the program if a check takes for ever.
fn watch(seen: &Receiver<Option<&str>>, patience: Duration) {
    let mut now = None;
    loop {
        match seen.recv_timeout(patience) {
            Ok(Some(name)) => now = Some(name),
            Err(RecvTimeoutError::Timeout) => {
                println!("FAIL  {}: it hangs", now.unwrap_or("the start"));
                std::process::exit(1);
            }
            Ok(None) | Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn usage(what: &str) -> ! {
    eprintln!("{what}\nusage: gpu_check [--device N] [--seconds N] [--only TEXT] [--list]");
    std::process::exit(2)
}
