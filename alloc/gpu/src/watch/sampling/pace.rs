//! How fast a thread's samples may come: what its period is raised by.
//!
//! A thread has a bucket of samples that fills up at its share of a rate, and while it is empty the period rises, by as
//! much as the latest samples came too fast; before that, too, where the thread allocates without pauses. Rate and
//! buckets are those of all threads together, for samples take locks: sixteen threads that each took all of it would
//! wait for these locks for most of their time, and so never be too fast. What a sample takes is measured, because a
//! stack of ten frames and one of a hundred, with an interpreter's among them, are not the same: where it takes twice
//! as long, half as many may come.

/// Samples that the buckets of all threads hold together, and each at least.
pub const BURST: u64 = 256;
pub const BURST_MIN: u64 = 16;
/// Samples that are in them at first: a program's beginning is to be short, too.
const BURST_AT_FIRST: u64 = 192;
/// Samples a second that a thread may take, however many there are, if all together may take so many.
const THREAD_MIN: u64 = 256;
/// Nanoseconds of a sample and of its free, where they may come as often as the rate says; those that take longer come
/// the less often, and others the more often. At 10,000 a second both are an eightieth of the time. What they leave in the
/// caches costs a program time as well, and is not measured.
const USUAL: [u64; 2] = [750, 500];
const USUAL_BOTH: u64 = USUAL[0] + USUAL[1];
/// What both together are taken to cost at least, and each at most: some are interrupted.
const CHEAPEST: u64 = USUAL_BOTH / 5;
const DEAREST: u64 = 10_000;
/// Half doublings of the period, at most: from 512 KiB to 16 TiB.
pub const LEVEL_MAX: u8 = 50;
/// Samples in a row that come too fast, after which the period is raised: at first, and once it has fallen. Programs
/// allocate in bursts, and it is to follow the mean of some of them.
pub const PATIENCE: [u8; 2] = [4, 16];
/// So many samples' time lies between two falls.
const FALLS_APART: u64 = 48;
/// Half doublings at once, at most. So few samples say little of how fast they come: once it has fallen it is one at
/// first, and twice as many each time that all samples since the last have come too fast, as in no burst.
const STEPS: u32 = 8;
/// What a pause counts for at most, in nanoseconds. A server that waits for its next request, or a step for the next
/// batch, is not to pay for the time in which nothing ran by what runs then: it would be slowed by as many times more as
/// it is idle. Pauses of a program that waits for a device are shorter.
const PAUSE: u64 = 2_000_000;
/// Samples in a row that say whether a thread allocates without pauses: where every block is one, and at least.
const RUN: u32 = 128;
const RUN_MIN: u32 = 8;
/// So many times too fast they come if it does.
const WITHOUT_PAUSES: u64 = 16;
pub const SECOND: u64 = 1_000_000_000;

/// What samples cost a program time by.
#[derive(Clone, Copy)]
pub enum Charged {
    /// Taking one.
    Sample,
    /// Its free, by the thread that frees.
    Free,
}

/// How fast a thread's samples come.
#[derive(Default)]
pub struct Pace {
    /// When the latest one was taken, or the budgets were made.
    latest: u64,
    /// Nanoseconds that were the thread's share then.
    apart: u64,
    /// Nanoseconds that a sample takes, and its free, by the latest ones.
    cost: [u64; 2],
    /// Nanoseconds that it takes to fill the bucket. What was taken from an empty one is owed, up to another bucket.
    missing: u64,
    /// Whether there was a sample.
    has_begun: bool,
    /// When the level changed last, and whether it has fallen since the thread began.
    changed: u64,
    has_fallen: bool,
    /// Samples in a row that came while it was empty, and how often the level has risen in that time.
    haste: u8,
    rises: u8,
    /// The time before the first of them.
    hasty_since: u64,
    /// Samples that came while there was something in it, as many as may say whether there are pauses, and the time
    /// before the first of them.
    run: u32,
    run_since: u64,
}

impl Pace {
    pub fn new(now: u64) -> Pace {
        Pace { latest: now, cost: USUAL, ..Pace::default() }
    }

    /// The latest sample, or the latest free of one, has taken so many nanoseconds.
    pub fn charge(&mut self, of: Charged, ns: u64) {
        let cost = &mut self.cost[of as usize];
        // Never 0, or it would stay so.
        *cost = ((31 * *cost + ns.min(4 * *cost).min(DEAREST)) / 32).max(32);
    }

    /// The level after a sample that was taken at the time `now`;
    /// all `threads` threads together may take `rate` a second.
    ///
    /// It rises while the bucket is empty, by as much as the last samples came too fast, and before that where there
    /// are no pauses. It falls by one with a sample that came late while there is something in the bucket, but not
    /// twice within the time of a few samples.
    pub fn level(&mut self, level: u8, rate: u64, threads: u64, now: u64) -> u8 {
        let before = std::mem::replace(&mut self.latest, now);
        let usual = SECOND / (rate / threads).max(THREAD_MIN.min(rate)).min(SECOND);
        let apart = usual * (self.cost[0] + self.cost[1]).max(CHEAPEST) / USUAL_BOTH;
        let full = |burst: u64| (burst / threads).max(BURST_MIN) * apart;
        let empty = full(BURST);
        self.apart = apart;
        if !std::mem::replace(&mut self.has_begun, true) {
            self.missing = empty - full(BURST_AT_FIRST);
        }
        self.missing = (self.missing + apart).saturating_sub((now - before).min(PAUSE)).min(2 * empty);
        if self.missing < empty {
            (self.haste, self.rises) = (0, 0);
            if let Some(steps) = self.steps_without_pauses(level, before, now) {
                self.changed = now;
                return (level + steps).min(LEVEL_MAX);
            }
            let is_late = now - before >= apart && self.missing < empty / 4 * 3;
            if !is_late || level == 0 || now - self.changed < FALLS_APART * apart {
                return level;
            }
            (self.changed, self.has_fallen) = (now, true);
            return level - 1;
        }
        if self.haste == 0 {
            self.hasty_since = before;
        }
        self.haste += 1;
        let patience = PATIENCE[usize::from(self.has_fallen)];
        if self.haste < patience {
            return level;
        }
        self.haste = 0;
        let too_fast = u64::from(patience) * apart / (now - self.hasty_since).max(1);
        if too_fast == 0 {
            // What is owed is from before.
            self.rises = 0;
            return level;
        }
        let steps = if self.has_fallen { STEPS.min(1 << self.rises.min(3)) } else { STEPS };
        (self.changed, self.rises) = (now, self.rises.saturating_add(1));
        (level + (2 * too_fast.ilog2()).clamp(1, steps) as u8).min(LEVEL_MAX)
    }

    /// How much the level rises of a thread that allocates without pauses, though there is something in the bucket.
    /// What is in there is not much beside a second, but it is beside the millisecond that such a thread takes it out
    /// in; and where the level is half of what it should be, as after a pause, it is spread over many of them.
    fn steps_without_pauses(&mut self, level: u8, before: u64, now: u64) -> Option<u8> {
        if self.run == 0 {
            self.run_since = before;
        }
        self.run += 1;
        // At a higher level a sample stands for more blocks.
        if self.run < (RUN >> (level / 4)).max(RUN_MIN) {
            return None;
        }
        let too_fast = u64::from(self.run) * self.apart / (now - self.run_since).max(1);
        self.run = 0;
        (too_fast >= WITHOUT_PAUSES).then(|| (2 * too_fast.ilog2()) as u8)
    }

    /// The level if there has been no sample until `now`: as many doublings fewer as the silence is longer than the
    /// share, but for two.
    pub fn after_silence(&self, level: u8, now: u64) -> u8 {
        let shares = (now - self.latest).checked_div(self.apart).unwrap_or(0);
        level.saturating_sub(2 * (shares / 4).checked_ilog2().unwrap_or(0) as u8)
    }
}
