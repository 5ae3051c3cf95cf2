//! The workloads that `bench-cpu` measures, on whatever `malloc` this process has: the calls go through the dynamic
//! linker, so a preloaded library takes them. Prints lines of a name and a figure: `ns` for each operation; `peak`, the
//! largest resident memory in bytes; `waste`, the part of the resident memory that the program did not ask for.
//!
//! usage: `workloads time WARM-UP DURATION NAME ARGS...`, in milliseconds; [`time`] lists the names.
//! `workloads churn steady|shifting` measures fragmentation, `workloads phases` a program whose sizes change; it prints
//! `mean` and `worst`, the resident memory to the live bytes.
//! `workloads count OPERATIONS 'NAME ARGS...'...` is for callgrind.
//! `workloads program LIBRARY PROGRAM ARGS...` measures another program.
//! `workloads busy MILLISECONDS` runs beside a dashboard.

mod busy;
mod by_name;
mod calls;
mod clock;
mod concurrent;
#[cfg(target_arch = "x86_64")]
mod counted;
mod exchange;
mod fixed;
mod fragmentation;
mod growing;
mod handover;
mod large;
mod numbers;
mod other_program;
mod pairs;
mod phases;
mod random;
mod resident;
mod single;
mod suite;
mod table;
mod thread_churn;

use std::time::Duration;

use calls::Linked;
use clock::Stretch;
use fragmentation::Churned;
use growing::{Growing, Growth};
use large::{Large, Touch};
use phases::Phased;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    if run(&args).is_none() {
        eprintln!("workloads: not a workload: {}", args.join(" "));
        std::process::exit(2);
    }
}

/// `None` if there is no such workload.
fn run(args: &[&str]) -> Option<()> {
    let milliseconds = |text: &str| text.parse().ok().map(Duration::from_millis);
    match *args {
        ["time", warm_up, duration, ref workload @ ..] => {
            let stretch = Stretch { warm_up: milliseconds(warm_up)?, duration: milliseconds(duration)? };
            println!("ns {:.4}\npeak {}", time(stretch, workload)?, resident::peak());
        }
        ["churn", kind] => {
            let Churned { nanoseconds, peak, waste } = fragmentation::measure(kind)?;
            println!("ns {nanoseconds:.4}\npeak {peak}\nwaste {waste:.4}");
        }
        ["phases"] => {
            let Phased { nanoseconds, peak, mean, worst } = phases::measure();
            println!("ns {nanoseconds:.4}\npeak {peak}\nmean {mean:.4}\nworst {worst:.4}");
        }
        #[cfg(target_arch = "x86_64")]
        ["count", operations, ref workloads @ ..] => counted::run(operations.parse().ok()?, workloads)?,
        ["program", library, program, ref args @ ..] => match other_program::run(library, program, args) {
            Some((nanoseconds, peak)) => println!("ns {nanoseconds}\npeak {peak}"),
            None => {
                eprintln!("{program} failed");
                std::process::exit(1);
            }
        },
        ["busy", duration] => busy::run(milliseconds(duration)?),
        _ => return None,
    }
    Some(())
}

/// Nanoseconds per operation.
fn time(stretch: Stretch, workload: &[&str]) -> Option<f64> {
    Some(match *workload {
        ["pairs", pairs] => pairs::time(pairs.parse().ok()?, stretch),
        ["threads", threads] => random::time(threads.parse().ok()?, stretch),
        ["exchange", threads] => exchange::time(threads.parse().ok()?, stretch),
        ["handover", threads] => handover::time(threads.parse().ok()?, stretch),
        ["inherited", threads] => handover::time_of_heirs(threads.parse().ok()?, stretch),
        ["suite", name, threads] => suite::time(name, threads.parse().ok()?, stretch)?,
        ["thread-churn", threads] => thread_churn::time(threads.parse().ok()?, stretch),
        ["large", "first"] => single::time(&mut Large::new(Touch::First), stretch),
        ["large", "every"] => single::time(&mut Large::new(Touch::Every), stretch),
        ["realloc", "double"] => single::time(&mut Growing(Growth::Doubling), stretch),
        ["realloc", "4096"] => single::time(&mut Growing(Growth::Pages), stretch),
        _ => single::time(&mut *by_name::one_thread::<Linked>(workload)?, stretch),
    })
}
