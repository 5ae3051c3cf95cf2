//! Which processor the rows of one thread run on.
//!
//! On a virtual machine some processors do half as much as others for seconds at a time, because other machines use the
//! cores that they are threads of. Contestants that the scheduler puts on different ones can't be compared in a few
//! rounds. So all contestants of a row take turns on one processor: the one that did the most work just before.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// How long a processor shows what it can do.
const TRIAL: Duration = Duration::from_millis(1);
/// Chains of operations that don't wait for each other: what a core shares with another thread are the units that do
/// them.
const CHAINS: usize = 6;

/// The processors that this process may use.
pub struct Processors(libc::cpu_set_t);

impl Processors {
    /// To be called before any thread is bound to one.
    pub fn of_this_process() -> Processors {
        // SAFETY: a set of processors is plain bits, which the call overwrites; it is told their size.
        let set = unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::sched_getaffinity(0, size_of_val(&set), &mut set);
            set
        };
        Processors(set)
    }

    /// The one that does the most work now. Takes a few milliseconds, and leaves the calling thread free to run on all.
    pub fn fastest(&self) -> Option<usize> {
        // SAFETY: the set is a valid one, and the number below its size.
        let usable = (0..libc::CPU_SETSIZE as usize).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &self.0) });
        let fastest = usable.filter(|cpu| self.bind(Some(*cpu))).max_by_key(|_| work());
        self.bind(None);
        fastest
    }

    /// Has the calling thread, and those that it starts, run on one processor, or on all again.
    /// Returns whether it does.
    pub fn bind(&self, processor: Option<usize>) -> bool {
        // SAFETY: as above; `CPU_SET` ignores a number beyond the set's size.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            match processor {
                Some(processor) => libc::CPU_SET(processor, &mut set),
                None => set = self.0,
            }
            libc::sched_setaffinity(0, size_of_val(&set), &set) == 0
        }
    }
}

/// How much is done in a while.
fn work() -> u64 {
    let (start, mut rounds, mut chains) = (Instant::now(), 0, [1u64; CHAINS]);
    while start.elapsed() < TRIAL {
        for _ in 0..256 {
            for (step, chain) in chains.iter_mut().enumerate() {
                *chain = (*chain ^ (*chain << 13)).wrapping_add(step as u64);
            }
        }
        black_box(&mut chains);
        rounds += 1;
    }
    rounds
}

#[cfg(test)]
mod tests {
    use super::Processors;

    #[test]
    fn a_bound_thread_runs_on_its_processor_alone_until_it_is_let_go() {
        let processors = Processors::of_this_process();
        let fastest = processors.fastest().expect("this runs on one");
        assert!(processors.bind(Some(fastest)));
        // SAFETY: it takes nothing.
        assert_eq!(unsafe { libc::sched_getcpu() }, fastest as i32);
        assert_eq!(std::thread::available_parallelism().map_or(0, usize::from), 1);
        assert!(processors.bind(None));
        assert!(Processors::of_this_process().fastest().is_some());
    }
}
