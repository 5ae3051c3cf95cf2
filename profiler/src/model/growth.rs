//! What grows, and how fast: for each call stack, and for all of them together, the slope of the bytes in use over a
//! window of time, with its standard error.
//!
//! # The slope
//!
//! It is that of least squares through the readings `t₀ … tₙ` of the window: a sum of the bytes in use `Bᵢ`, each times
//! `cᵢ = (tᵢ - mean) / Σ (t - mean)²`.
//!
//! # Its error
//!
//! `Bᵢ` is a sum over the sampled blocks that are in use at `tᵢ`; block `b` stands for `δ` bytes. Samples are
//! independent of each other, so the variance of the slope is the sum of those of what each *block* adds to it:
//! `δ²` times the square of the sum of the `cᵢ` of the readings at which the block was in use. What the readings say is
//! not independent, because they have blocks in common; the usual error of least squares would call any slow walk
//! growth.
//!
//! - A block that was there before the window, and still is, adds nothing: the `cᵢ` come to zero.
//! - Of a block that was allocated in the window and still is in use, the time of its allocation is known.
//! - Of those that were freed in the window, each reading tells how much was in use at the one before and still is.
//!   Which blocks those were is not kept: of all that were in use at `tᵢ` and were freed later, the same share is taken
//!   to have been freed by `tᵢ₊₁`, however old they were.
//!
//! So a stack whose blocks are all freed soon has the error of independent readings, and one that never frees has that
//! of a count of samples: `1 / √n` of the slope, for `n` samples in the window.
//!
//! # Whether it goes on
//!
//! A program that has loaded what it needs has grown, and grows no more. So the slope of the window's second half is
//! found in the same way, and nothing is said to grow that did not grow in it ([`Slope::goes_on`]).
//!
//! # Before anybody watched
//!
//! Of a call site that frees nothing, the ages of its blocks tell how it grew over the whole window
//! (`growth/ages.rs`). That is told instead.

mod ages;
mod counted;
mod slope;

use counted::Counted;
use slope::Part;
pub use slope::Slope;

use poolscope_wire::DeviceCounter;

use crate::model::memory::{Memory, Place};
use crate::model::snapshot::{LiveBlock, Snapshot};

/// Readings that are kept of a window, at most.
const READINGS: usize = 32;

/// Points of a [`Growth::series`].
pub const SERIES: usize = 16;

/// The window that nobody chose: five minutes.
pub const USUAL_WINDOW_NS: u64 = 300_000_000_000;

/// The shortest time that a rate is told of, nanoseconds: what a program does as it starts would be told as if it went
/// on.
pub const SHORTEST_NS: u64 = 3_000_000_000;

/// The least time between two readings that count, nanoseconds.
const NEXT_NS: u64 = 500_000_000;

/// How the bytes in use of a call stack or a call site develop.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Growth {
    /// Over the window, as far as it was watched.
    pub slope: Slope,
    /// Bytes in use at some moments of the window, equally far from each other, the last one now.
    pub series: [f32; SERIES],
    /// The time that this is about, nanoseconds.
    pub over_ns: u64,
}

impl Growth {
    /// Adds that of another stack or call site.
    pub(crate) fn join(&mut self, other: &Growth) {
        self.slope = self.slope.and(other.slope);
        self.series.iter_mut().zip(other.series).for_each(|(sum, part)| *sum += part);
        self.over_ns = self.over_ns.max(other.over_ns);
    }
}

/// What one reading says of one stack.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    /// Bytes in use.
    bytes: f32,
    /// The variance of that: the sum of the squares of what each sample stands for.
    variance: f32,
    /// Of that variance, the part of blocks that are still in use at the next reading.
    kept: f32,
}

/// The readings of one stack, in the order of [`Tracker::times`].
#[derive(Clone, Debug)]
struct Series {
    stack: u32,
    place: Place,
    /// None of a stack that has held the blocks that it holds now, and no others, at all of them: of most.
    past: Option<Box<[Reading; READINGS]>>,
    /// Bytes in use now, and the variance of that.
    now: f32,
    variance: f32,
    slope: Slope,
}

/// What a stack has in use now.
struct Present {
    bytes: f64,
    /// Its variance.
    variance: f64,
    /// Of that, the part of blocks that were allocated in the time before each reading, since the reading before it;
    /// the last is the time since the last reading.
    born: [f64; READINGS + 1],
}

/// What becomes of the readings that are kept when one more is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    /// They stay, and it is not kept.
    NotDue,
    /// It is kept behind them.
    There,
    /// The first one goes.
    FirstGoes,
    /// Every second one goes.
    HalfGoes,
}

/// Follows a process from reading to reading.
#[derive(Debug)]
pub struct Tracker {
    window_ns: u64,
    /// The start of the process's segment: another one is another process.
    process: Option<(u32, u64)>,
    /// When the readings were that are kept, ascending.
    times: Vec<u64>,
    /// The least time between two of them.
    spacing_ns: u64,
    /// When the latest reading was.
    now_ns: u64,
    /// In use by the pool's counter at each time, and now.
    counted: Vec<u64>,
    counted_now: u64,
    /// What each pool of device memory has given out, by its counter.
    devices: Vec<Counted>,
    series: Vec<Series>,
    /// For each stack its place in `series`, plus one.
    places: Vec<u32>,
}

impl Default for Tracker {
    fn default() -> Self {
        Tracker::new(USUAL_WINDOW_NS)
    }
}

impl Tracker {
    /// For a window of so many nanoseconds.
    pub fn new(window_ns: u64) -> Tracker {
        Tracker {
            window_ns: window_ns.max(1),
            process: None,
            times: Vec::with_capacity(READINGS),
            spacing_ns: NEXT_NS,
            now_ns: 0,
            counted: Vec::with_capacity(READINGS),
            counted_now: 0,
            devices: Vec::new(),
            series: Vec::new(),
            places: Vec::new(),
        }
    }

    /// The window.
    pub fn window_ns(&self) -> u64 {
        self.window_ns
    }

    /// The time that was watched, of the window.
    pub fn watched_ns(&self) -> u64 {
        self.times.first().map_or(0, |first| self.now_ns.saturating_sub(*first))
    }

    /// Takes a reading. One that comes soon after the last one changes nothing.
    pub fn update(&mut self, snapshot: &Snapshot) {
        let process = (snapshot.process.pid, snapshot.process.start_monotonic_ns);
        if self.process != Some(process) {
            *self = Tracker::new(self.window_ns);
            self.process = Some(process);
        }
        if self.now_ns > 0 && snapshot.taken_ns < self.now_ns.saturating_add(NEXT_NS) {
            return;
        }
        self.now_ns = snapshot.taken_ns;
        self.leave_out_the_old();
        self.counted_now = if snapshot.classes.is_empty() { 0 } else { snapshot.stats().usage().in_use };
        self.count_devices(snapshot);
        let begins = self.find_series(snapshot);
        self.follow(snapshot, &begins);
    }

    /// Leaves out readings that were before the window.
    fn leave_out_the_old(&mut self) {
        let from = self.now_ns.saturating_sub(self.window_ns);
        let old = self.times.partition_point(|&time| time < from);
        self.times.drain(..old);
        self.counted.drain(..old);
        if old > 0 {
            self.series.iter_mut().filter_map(|series| series.past.as_mut()).for_each(|past| past.rotate_left(old));
        }
    }

    /// Gives every stack that has something in use a series; and says, for each series, where its blocks begin in
    /// [`Blocks`], the last being how many there are.
    fn find_series(&mut self, snapshot: &Snapshot) -> Blocks {
        self.places.resize(snapshot.stacks.len().max(self.places.len()), 0);
        let mut counts = vec![0u32; self.series.len()];
        let mut new: Vec<(u32, Place)> = Vec::new();
        for block in &snapshot.live {
            let Some(place) = self.places.get_mut(block.stack as usize) else { continue };
            if *place == 0 {
                let of_stack = snapshot.stacks.get(block.stack as usize).map_or(block.place, |stack| stack.place);
                new.push((block.stack, of_stack));
                counts.push(0);
                *place = counts.len() as u32;
            }
            counts[*place as usize - 1] += 1;
        }
        // They are large, and many come at once: twice the room would be megabytes.
        if self.series.capacity() < counts.len() {
            self.series.reserve_exact(new.len().max(self.series.len() / 16));
        }
        // It held nothing so far.
        let begun =
            |(stack, place)| Series { stack, place, past: None, now: 0.0, variance: 0.0, slope: Slope::default() };
        self.series.extend(new.into_iter().map(begun));
        let mut sum = 0;
        let mut begins: Vec<u32> = Vec::with_capacity(counts.len() + 1);
        for count in counts {
            begins.push(sum);
            sum += count;
        }
        begins.push(sum);
        let mut next = begins.clone();
        let mut numbers = vec![0u32; sum as usize];
        for (number, block) in (0u32..).zip(&snapshot.live) {
            let Some(place) = self.places.get(block.stack as usize) else { continue };
            let at = &mut next[*place as usize - 1];
            numbers[*at as usize] = number;
            *at += 1;
        }
        Blocks { begins, numbers }
    }

    /// Finds the slope of each series, and keeps this reading, if the last that was kept is long enough ago.
    fn follow(&mut self, snapshot: &Snapshot, blocks: &Blocks) {
        let room = self.room();
        let (weights, late) =
            (Weights::of(&self.times, self.now_ns), Weights::of_second_half(&self.times, self.now_ns));
        let times = &self.times;
        for (at, series) in self.series.iter_mut().enumerate() {
            let own = &blocks.numbers[blocks.begins[at] as usize..blocks.begins[at + 1] as usize];
            let mut present = Present::of(own.iter().map(|&number| &snapshot.live[number as usize]), times);
            series.leave_level(&present, times.len());
            let part = |weights: &Option<Weights>| {
                weights.as_ref().map_or_else(Part::default, |weights| series.slope(&present, weights, times.len()))
            };
            series.slope = Slope::of_parts(part(&weights), part(&late));
            (series.now, series.variance) = (present.bytes as f32, present.variance as f32);
            series.make_room(&mut present, room);
            if room != Room::NotDue {
                let kept = match room {
                    Room::FirstGoes => times.len() - 1,
                    Room::HalfGoes => READINGS / 2,
                    _ => times.len(),
                };
                series.keep(&present, kept);
            }
        }
        self.make_room(room);
        if room != Room::NotDue {
            self.times.push(self.now_ns);
            self.counted.push(self.counted_now);
            self.forget_what_was_empty();
        }
    }

    /// Whether a reading is due, and what makes room for it.
    fn room(&self) -> Room {
        let is_due = self.times.last().is_none_or(|last| self.now_ns >= last.saturating_add(self.spacing_ns));
        if !is_due {
            return Room::NotDue;
        }
        if self.times.len() < READINGS {
            return Room::There;
        }
        // Every second one goes while those that are kept are not a window apart.
        let span = self.now_ns.saturating_sub(self.times[0]);
        if span + self.spacing_ns > self.window_ns { Room::FirstGoes } else { Room::HalfGoes }
    }

    fn make_room(&mut self, room: Room) {
        match room {
            Room::NotDue | Room::There => {}
            Room::FirstGoes => {
                self.times.remove(0);
                self.counted.remove(0);
            }
            Room::HalfGoes => {
                self.times = self.times.iter().copied().step_by(2).collect();
                self.counted = self.counted.iter().copied().step_by(2).collect();
                self.spacing_ns = self.spacing_ns.saturating_mul(2);
            }
        }
    }

    /// What was empty all the time is forgotten.
    fn forget_what_was_empty(&mut self) {
        let (past, places) = (self.times.len(), &mut self.places);
        self.series.retain(|series| {
            let has = |readings: &[Reading; READINGS]| readings[..past].iter().any(|reading| reading.bytes > 0.0);
            let is_used = series.past.as_ref().map_or(series.now > 0.0, |readings| has(readings));
            if !is_used {
                places[series.stack as usize] = 0;
            }
            is_used
        });
        self.series.iter().enumerate().for_each(|(at, series)| places[series.stack as usize] = at as u32 + 1);
    }

    /// How a stack develops; `None` if it has had nothing in use in the window.
    pub fn of_stack(&self, stack: u32) -> Option<Growth> {
        let place = *self.places.get(stack as usize)?;
        let series = self.series.get((place as usize).checked_sub(1)?)?;
        Some(series.growth(&moments(&self.times, self.now_ns), self.watched_ns()))
    }

    /// How each of `count` call sites develops, after the reading `snapshot`; `sites` has the site of each stack.
    pub fn of_sites(&self, snapshot: &Snapshot, sites: &[Option<usize>], count: usize) -> Vec<Growth> {
        let mut growths = vec![Growth::default(); count];
        let moments = moments(&self.times, self.now_ns);
        for series in &self.series {
            let site = sites.get(series.stack as usize).copied().flatten();
            if let Some(growth) = site.and_then(|site| growths.get_mut(site)) {
                growth.join(&series.growth(&moments, self.watched_ns()));
            }
        }
        ages::tell(&mut growths, snapshot, sites, self.window_ns);
        growths
    }

    /// Takes the counters of pools of device memory.
    fn count_devices(&mut self, snapshot: &Snapshot) {
        let from = self.now_ns.saturating_sub(self.window_ns);
        self.devices.retain(|device| snapshot.devices.iter().any(|pool| pool.place == device.place));
        for pool in &snapshot.devices {
            let known = self.devices.iter().position(|device| device.place == pool.place);
            let at = known.unwrap_or_else(|| {
                self.devices.push(Counted::new(pool.place));
                self.devices.len() - 1
            });
            self.devices[at].take(self.now_ns, from, pool.get(DeviceCounter::CurrentUsage));
        }
    }

    /// How what each pool of device memory has given out develops, by its counter. Nothing is said before there are
    /// readings enough to tell growth from the ups and downs of a program's steps.
    pub fn of_devices(&self) -> Vec<(Place, Slope)> {
        self.devices.iter().map(|device| (device.place, device.slope())).collect()
    }

    /// How some memory develops. That of the host has the slope of the pool's own counter, and the error that the
    /// samples of what is in it have.
    pub fn total(&self, memory: Memory) -> Slope {
        let of_memory = self.series.iter().filter(|series| memory.has(series.place));
        let sampled = of_memory.fold(Slope::default(), |sum, series| sum.and(series.slope));
        if memory != Memory::Host || self.counted_now == 0 {
            return sampled;
        }
        let slope = |weights: Weights| -> f64 {
            let readings = self.counted.iter().copied().chain([self.counted_now]);
            let now = self.counted_now as f64;
            readings.zip(&weights.each).map(|(bytes, weight)| (bytes as f64 - now) * weight).sum()
        };
        let (whole, late) = (Weights::of(&self.times, self.now_ns), Weights::of_second_half(&self.times, self.now_ns));
        whole.zip(late).map_or(sampled, |(whole, late)| sampled.with(slope(whole), slope(late)))
    }
}

/// The blocks of each series.
struct Blocks {
    /// Where those of each series begin; the last is how many there are.
    begins: Vec<u32>,
    /// Their places in the snapshot, series by series.
    numbers: Vec<u32>,
}

impl Present {
    fn of<'a>(blocks: impl Iterator<Item = &'a LiveBlock>, times: &[u64]) -> Present {
        let mut present = Present { bytes: 0.0, variance: 0.0, born: [0.0; READINGS + 1] };
        for block in blocks {
            let bytes = block.weight * block.size as f64;
            present.bytes += bytes;
            present.variance += bytes * bytes;
            present.born[times.partition_point(|&time| time < block.time_ns)] += bytes * bytes;
        }
        present
    }

    /// It is this, of blocks that were all in use at the first reading. Fewer of those would be less.
    fn is(&self, bytes: f32, variance: f32) -> bool {
        let newer = self.variance - self.born[0];
        (self.bytes as f32, self.variance as f32) == (bytes, variance) && newer <= self.variance * 1e-9
    }

    /// For each of `count` readings, the variance of what was in use then and still is.
    fn alive_since(&self, count: usize) -> [f64; READINGS] {
        let (mut alive, mut sum) = ([0.0; READINGS], 0.0);
        for (at, born) in self.born.iter().take(count).enumerate() {
            sum += born;
            alive[at] = sum;
        }
        alive
    }
}

impl Series {
    /// Writes down the readings of one that is level no more.
    fn leave_level(&mut self, present: &Present, count: usize) {
        if self.past.is_some() || count == 0 || present.is(self.now, self.variance) {
            return;
        }
        let level = Reading { bytes: self.now, variance: self.variance, kept: self.variance };
        let mut past = Box::new([Reading::default(); READINGS]);
        past[..count].fill(level);
        // What the next reading has of it is not known before that.
        past[count - 1].kept = 0.0;
        self.past = Some(past);
    }

    /// Forgets `count` readings that say nothing but what is in use now.
    fn become_level(&mut self, present: &Present, count: usize) {
        let is_level = |reading: &Reading| (reading.bytes, reading.variance) == (self.now, self.variance);
        let past = self.past.as_ref().filter(|_| present.is(self.now, self.variance));
        if past.is_some_and(|past| past[..count].iter().all(is_level)) {
            self.past = None;
        }
    }

    fn slope(&self, present: &Present, weights: &Weights, count: usize) -> Part {
        // Blocks that are in use now.
        let born = present.born.iter().take(count + 1).zip(&weights.since);
        let of_present: f64 = born.map(|(born, since)| born * since * since).sum();
        let Some(past) = &self.past else { return Part { per_minute: 0.0, variance: of_present } };
        let past = &past[..count];
        let bytes = past.iter().map(|reading| f64::from(reading.bytes)).chain([present.bytes]);
        // What is in use now is taken off, for the sake of rounding: the weights come to nothing.
        let per_minute = bytes.zip(&weights.each).map(|(bytes, weight)| (bytes - present.bytes) * weight).sum();
        // Blocks that were freed: of pairs of readings, what both have in common.
        let alive = present.alive_since(count);
        let (mut of_freed, mut common) = (0.0, 0.0);
        for (at, reading) in past.iter().enumerate() {
            let weight = weights.each[at];
            let freed_later = freed_later(reading, alive[at]);
            of_freed += weight * (weight * freed_later + 2.0 * common);
            let kept = (f64::from(reading.kept) - alive[at]).clamp(0.0, freed_later);
            // Those that were in use at the last reading, and are not now, were freed since.
            let share = if freed_later > 0.0 { kept / freed_later } else { 0.0 };
            common = share * (common + weight * freed_later);
        }
        Part { per_minute, variance: of_present + of_freed.max(0.0) }
    }

    /// How it develops, with the bytes in use at some moments, each given by the reading before it.
    fn growth(&self, moments: &[Option<usize>; SERIES], over_ns: u64) -> Growth {
        let at = |reading: Option<usize>| {
            let past = self.past.as_ref().zip(reading);
            past.map_or(self.now, |(past, reading)| past[reading].bytes)
        };
        Growth { slope: self.slope, series: moments.map(at), over_ns }
    }

    /// Makes room for one more reading where all of it is taken.
    fn make_room(&mut self, present: &mut Present, room: Room) {
        match room {
            Room::NotDue | Room::There => {}
            Room::FirstGoes => {
                self.past.iter_mut().for_each(|past| past.rotate_left(1));
                let older = present.born[0];
                present.born.rotate_left(1);
                present.born[0] += older;
            }
            Room::HalfGoes => self.leave_out_every_second(present),
        }
    }

    fn leave_out_every_second(&mut self, present: &mut Present) {
        let half = READINGS / 2;
        let alive = present.alive_since(READINGS);
        if let Some(past) = &mut self.past {
            for at in 0..half {
                let (mut first, second) = (past[2 * at], past[2 * at + 1]);
                let kept = |reading: Reading, alive: f64| (f64::from(reading.kept) - alive).max(0.0);
                let of_second = freed_later(&second, alive[2 * at + 1]);
                let share = if of_second > 0.0 { kept(second, alive[2 * at + 1]) / of_second } else { 0.0 };
                first.kept = (alive[2 * at] + kept(first, alive[2 * at]) * share.min(1.0)) as f32;
                past[at] = first;
            }
            past[half..].fill(Reading::default());
        }
        let born = &mut present.born;
        for at in 0..half {
            born[at] = born[2 * at] + if at > 0 { born[2 * at - 1] } else { 0.0 };
        }
        // What was allocated since the last reading that stays.
        born[half] = born[READINGS - 1] + born[READINGS];
    }

    /// Keeps what is in use as the reading at a place.
    fn keep(&mut self, present: &Present, at: usize) {
        let Some(past) = &mut self.past else { return };
        if let Some(last) = at.checked_sub(1) {
            past[last].kept = (present.variance - present.born[at]).max(0.0) as f32;
        }
        past[at] = Reading { bytes: self.now, variance: self.variance, kept: 0.0 };
        self.become_level(present, at + 1);
    }
}

/// Of the variance of a reading, the part of blocks that were freed since, if `alive` are the others. Sums of several
/// readings are rounded, and a millionth is nothing.
fn freed_later(reading: &Reading, alive: f64) -> f64 {
    let variance = f64::from(reading.variance);
    if variance - alive > variance * 1e-6 { variance - alive } else { 0.0 }
}

/// For each point of a series the reading at that moment, or before it; `None` is now.
fn moments(times: &[u64], now_ns: u64) -> [Option<usize>; SERIES] {
    let first = times.first().copied().unwrap_or(now_ns);
    std::array::from_fn(|point| {
        let part = (now_ns - first) as f64 * point as f64 / (SERIES - 1) as f64;
        let at = times.partition_point(|&time| time <= first + part as u64);
        (point + 1 < SERIES).then(|| at.saturating_sub(1)).filter(|_| !times.is_empty())
    })
}

/// What each reading counts for in the slope, bytes a minute for a byte; the last is now.
struct Weights {
    each: Vec<f64>,
    /// The sum from a reading on.
    since: Vec<f64>,
}

impl Weights {
    fn of(times: &[u64], now_ns: u64) -> Option<Weights> {
        let first = *times.first()?;
        (now_ns.saturating_sub(first) >= SHORTEST_NS).then(|| Weights::from_reading(0, times, now_ns))?
    }

    /// Those of the second half, from the last reading of the first half on.
    fn of_second_half(times: &[u64], now_ns: u64) -> Option<Weights> {
        let first = *times.first()?;
        let middle = first + now_ns.saturating_sub(first) / 2;
        let from = times.partition_point(|&time| time <= middle).saturating_sub(1);
        (now_ns.saturating_sub(first) >= SHORTEST_NS).then(|| Weights::from_reading(from, times, now_ns))?
    }

    /// Readings before the first one that counts have none.
    fn from_reading(from: usize, times: &[u64], now_ns: u64) -> Option<Weights> {
        const NS_PER_MINUTE: f64 = 60e9;
        let first = *times.get(from)?;
        let counted = times[from..].iter().copied().chain([now_ns]);
        let minutes: Vec<f64> = counted.map(|time| (time - first) as f64 / NS_PER_MINUTE).collect();
        let mean = minutes.iter().sum::<f64>() / minutes.len() as f64;
        let square: f64 = minutes.iter().map(|minute| (minute - mean) * (minute - mean)).sum();
        if square <= 0.0 {
            return None;
        }
        let before = std::iter::repeat_n(0.0, from);
        let each: Vec<f64> = before.chain(minutes.iter().map(|minute| (minute - mean) / square)).collect();
        let mut since = each.clone();
        for at in (0..since.len() - 1).rev() {
            since[at] += since[at + 1];
        }
        since[..=from].fill(0.0);
        Some(Weights { each, since })
    }
}

#[cfg(test)]
#[path = "growth/tests.rs"]
mod tests;
