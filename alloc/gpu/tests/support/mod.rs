//! A program on a pool on the simulated device: every block it gets is known to the access checker, and all work it
//! does is in the order that the pool asks of programs.

#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use poolscope_gpu::{
    Config, Device, Kernel, Picture, Pool, PoolError, Recorder, Sample, Simulated, Stream, Token, Violation,
};

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;
pub const US: u64 = 1_000;
pub const MS: u64 = 1_000_000;

pub struct Program {
    pub device: Arc<Simulated>,
    pub pool: Pool<Simulated>,
}

impl Program {
    /// A program on a device with so much memory.
    pub fn new(memory: u64) -> Program {
        Program::with(memory, Config::default())
    }

    pub fn with(memory: u64, config: Config) -> Program {
        Program::on(Simulated::new(memory), config)
    }

    pub fn on(device: Simulated, config: Config) -> Program {
        let device = Arc::new(device);
        let pool = Pool::new(device.clone(), config).unwrap();
        Program { device, pool }
    }

    /// A program on a pool that a recorder is told of.
    pub fn recorded(device: Simulated, config: Config, book: Arc<Book>) -> Program {
        let device = Arc::new(device);
        let pool = Pool::with_recorder(device.clone(), config, book).unwrap();
        Program { device, pool }
    }

    /// A program on a device whose driver has no virtual memory.
    pub fn plain(memory: u64) -> Program {
        Program::on(Simulated::without_virtual_memory(memory), Config::default())
    }

    pub fn try_alloc(&self, size: u64, stream: Stream) -> Result<u64, PoolError> {
        let address = self.pool.allocate(size, stream)?;
        self.device.lend(address, size);
        Ok(address)
    }

    pub fn alloc(&self, size: u64, stream: Stream) -> u64 {
        self.try_alloc(size, stream).unwrap()
    }

    pub fn free(&self, address: u64, stream: Stream) {
        self.device.take_back(address);
        self.pool.free(address, stream).unwrap();
    }

    /// Writes some of a block on a stream.
    pub fn write(&self, address: u64, bytes: u64, stream: Stream, duration: u64) {
        self.device.launch(stream, Kernel::writing(address, bytes, duration));
    }

    /// A block that is allocated, written and freed on a stream.
    pub fn churn(&self, size: u64, stream: Stream, duration: u64) -> u64 {
        let address = self.alloc(size, stream);
        self.write(address, size, stream, duration);
        self.free(address, stream);
        address
    }

    /// Lets the second stream's later work come after all that the first one has.
    pub fn order(&self, first: Stream, second: Stream) {
        if first == second {
            return;
        }
        // The test's own events never fail: a program whose events do can't be in order.
        let event = self.device.untroubled(|device| {
            let event = device.create_event().unwrap();
            device.record(event, first).unwrap();
            device.wait(second, event).unwrap();
            event
        });
        self.device.untroubled(|device| device.destroy_event(event).unwrap());
    }

    pub fn assert_in_order(&self) {
        assert_eq!(self.device.violations(), Vec::<Violation>::new());
    }
}

/// Keeps what it is told.
#[derive(Default)]
pub struct Book {
    pub period: AtomicU64,
    pub live: Mutex<HashMap<u64, (Token, Sample)>>,
    pub samples: AtomicU64,
    pub objects: AtomicU64,
    pub pictures: Mutex<Vec<Picture>>,
    pub closed: AtomicU64,
}

impl Recorder for Book {
    fn period(&self) -> Option<u64> {
        Some(self.period.load(Ordering::Relaxed))
    }

    fn samples_per_second(&self) -> u64 {
        0
    }

    fn allocated(&self, sample: &Sample) -> Option<Token> {
        let token = Token(self.samples.fetch_add(1, Ordering::Relaxed) as u32);
        self.objects.fetch_add(sample.weight, Ordering::Relaxed);
        let before = self.live.lock().unwrap().insert(sample.address, (token, *sample));
        assert_eq!(before, None, "a block is given out that was not freed");
        Some(token)
    }

    fn freed(&self, token: Token, address: u64, _: [u64; 2]) {
        let sample = self.live.lock().unwrap().remove(&address);
        assert_eq!(sample.map(|(token, _)| token), Some(token));
    }

    fn publish(&self, picture: &Picture) {
        self.pictures.lock().unwrap().push(picture.clone());
    }

    fn closed(&self) {
        self.closed.fetch_add(1, Ordering::Relaxed);
    }
}

impl Book {
    /// One that asks for samples so many bytes apart.
    pub fn new(period: u64) -> Arc<Book> {
        Arc::new(Book { period: AtomicU64::new(period), ..Book::default() })
    }

    /// Sizes of the blocks that are recorded now.
    pub fn sizes(&self) -> Vec<u64> {
        let mut sizes: Vec<u64> = self.live.lock().unwrap().values().map(|(_, sample)| sample.size).collect();
        sizes.sort_unstable();
        sizes
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// Threads that do what they are told, one at a time: each has caches of its own,
/// and a program is the same in every run.
pub struct Threads(Vec<(Sender<Job>, JoinHandle<()>)>);

impl Threads {
    pub fn new(count: usize) -> Threads {
        let start = |_| {
            let (sender, jobs) = channel::<Job>();
            (sender, std::thread::spawn(move || jobs.into_iter().for_each(|job| job())))
        };
        Threads((0..count).map(start).collect())
    }

    /// Does something on a thread, and waits for it.
    pub fn on<R: Send + 'static>(&self, thread: usize, work: impl FnOnce() -> R + Send + 'static) -> R {
        let (answer, answers) = channel();
        let job = Box::new(move || answer.send(work()).unwrap());
        self.0[thread].0.send(job).unwrap();
        answers.recv().unwrap()
    }

    /// Ends a thread, whose caches go home, and starts another in its place.
    pub fn renew(&mut self, thread: usize) {
        let new = Threads::new(1).0.pop().unwrap();
        let (sender, old) = std::mem::replace(&mut self.0[thread], new);
        drop(sender);
        old.join().unwrap();
    }

    pub fn end(self) {
        for (sender, thread) in self.0 {
            drop(sender);
            thread.join().unwrap();
        }
    }
}

/// Where threads wait for each other. One that has failed keeps the others there for a minute, and not for ever, so
/// that the test fails and says why.
pub struct Meeting {
    threads: usize,
    /// Times that a thread has come.
    arrivals: Mutex<usize>,
    arrived: Condvar,
}

impl Meeting {
    pub fn of(threads: usize) -> Meeting {
        Meeting { threads, arrivals: Mutex::new(0), arrived: Condvar::new() }
    }

    pub fn wait(&self) {
        let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        *arrivals += 1;
        let enough = arrivals.next_multiple_of(self.threads);
        self.arrived.notify_all();
        let missing = |arrivals: &mut usize| *arrivals < enough;
        let (arrivals, waited) = self
            .arrived
            .wait_timeout_while(arrivals, Duration::from_secs(60), missing)
            .unwrap_or_else(PoisonError::into_inner);
        drop(arrivals);
        assert!(!waited.timed_out(), "another thread has not come");
    }
}
