//! The thread that does a pool's background work: it starts with the pool and ends with it.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Set when the thread is to end.
#[derive(Default)]
struct Stop {
    stopped: Mutex<bool>,
    changed: Condvar,
}

/// A thread that does something again and again.
pub struct Background {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Starts it; `round` is called after each interval, and returns whether it may be called again. `None` where the
    /// system has no thread to give: the work is then left to who calls [`crate::Pool::maintain`].
    pub fn start(interval: Duration, mut round: impl FnMut() -> bool + Send + 'static) -> Option<Background> {
        let stop = Arc::new(Stop::default());
        let seen = stop.clone();
        let run = move || {
            loop {
                let stopped = seen.stopped.lock().unwrap_or_else(PoisonError::into_inner);
                let waited = seen.changed.wait_timeout_while(stopped, interval, |stopped| !*stopped);
                let (stopped, _) = waited.unwrap_or_else(PoisonError::into_inner);
                if *stopped {
                    return;
                }
                drop(stopped);
                if !round() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("poolscope-gpu".to_owned()).spawn(run).ok()?;
        Some(Background { stop, thread: Some(thread) })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        *self.stop.stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A thread that has panicked has ended, too.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::{Duration, Instant};

    use super::Background;

    #[test]
    fn it_runs_until_it_is_dropped_and_not_a_round_longer() {
        let rounds = Arc::new(AtomicU32::new(0));
        let counted = rounds.clone();
        let background = Background::start(Duration::from_millis(1), move || {
            counted.fetch_add(1, Ordering::Relaxed);
            true
        });
        let begin = Instant::now();
        while rounds.load(Ordering::Relaxed) < 3 && begin.elapsed() < Duration::from_secs(20) {
            std::thread::yield_now();
        }
        drop(background);
        let seen = rounds.load(Ordering::Relaxed);
        assert!(seen >= 3);
        assert_eq!(Arc::strong_count(&rounds), 1, "the thread is gone");
    }

    #[test]
    fn dropping_does_not_wait_for_the_interval() {
        let background = Background::start(Duration::from_secs(1000), || true);
        let begin = Instant::now();
        drop(background);
        assert!(begin.elapsed() < Duration::from_secs(100));
    }
}
