//! Counts the instructions of the workloads under callgrind. Valgrind watches for a sequence of instructions that
//! changes nothing, with the request in registers (`valgrind.h` describes it); outside valgrind it does nothing.

use crate::by_name::one_thread;
use crate::calls::{Empty, Linked};
use crate::single::Workload;

const ZERO_STATS: u64 = 0x4354_0001;
const DUMP_STATS: u64 = 0x4354_0000;
const START_INSTRUMENTATION: u64 = 0x4354_0004;
const STOP_INSTRUMENTATION: u64 = 0x4354_0005;

fn request(number: u64) {
    let arguments = [number, 0, 0, 0, 0, 0];
    // SAFETY: the rotations add up to 128 bits and the exchange is of a register with itself. Valgrind reads the
    // arguments and puts its answer into rdx.
    unsafe {
        std::arch::asm!(
            "rol rdi, 3", "rol rdi, 13", "rol rdi, 61", "rol rdi, 51", "xchg rbx, rbx",
            in("rax") &arguments, inout("rdx") 0_u64 => _,
        );
    }
}

/// Runs the workload once to warm up and once counted, and leaves the count in callgrind's next dump.
fn count(mut workload: Box<dyn Workload>, operations: u64) -> u64 {
    workload.run(operations);
    request(START_INSTRUMENTATION);
    request(ZERO_STATS);
    let done = workload.run(operations);
    request(DUMP_STATS);
    request(STOP_INSTRUMENTATION);
    done
}

/// For each workload two dumps, the first on the linked functions, the second on the empty ones, and a line with the
/// number of operations and the instructions that the empty functions take in each.
pub fn run(operations: u64, workloads: &[&str]) -> Option<()> {
    for workload in workloads {
        let args: Vec<&str> = workload.split(' ').collect();
        let empty = if let ["lifo" | "batch", _, _align] = *args { Empty::ALIGNED_PAIR } else { Empty::PAIR };
        let done = count(one_thread::<Linked>(&args)?, operations);
        count(one_thread::<Empty>(&args)?, operations);
        println!("{done} {empty}");
    }
    Some(())
}
