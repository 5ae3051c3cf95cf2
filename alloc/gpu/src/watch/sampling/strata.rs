//! Samples that are drawn for each place of the program by itself: one of so many of its blocks. Places that allocate
//! few blocks are then known as well as those that allocate many, and what a place has in use is known to a block or
//! two of those that one stands for, where samples of all places together would leave it to luck (stratified sampling).
//!
//! A place is where the stack ends at the call, together with about how large the block is. That is no stack: two
//! functions that call from the same depth for the same size are one place here.
//! Anything closer would have to walk the stack at every call.
//!
//! **How many.** By their bytes alone, small blocks would have few samples, though a site of many may have much in use;
//! by their number alone, large ones would. So how many blocks of a place have one sample is between both: it grows
//! with the cube root of what a block is smaller ([`blocks_for_one`]). With the usual period it is one of any size.
//!
//! **Weights.** The blocks of a place come in strata of so many each. One block of a stratum, drawn as the stratum
//! before it is left, is recorded, and stands for all of it. The first block is a stratum of its own: a site whose
//! blocks are few is seen at once. How long the next stratum is follows from what is known when the one before is left,
//! and from no random number of its own, so that estimates are unbiased however the period changes.
//!
//! **What stays.** Of a place whose blocks stay ([`Lives`](super::Lives)) a stratum has at most a 32nd of the blocks
//! that it has had so far, however fast its thread's samples come. Then what it holds is known to within a 32nd from
//! its first blocks on, for a number of samples that grows with the logarithm of its blocks. By the period alone, the
//! sixteen blocks of an optimizer's state would have one sample in a thread that has just computed a step.
//!
//! A thread knows so many places and takes no more, which bounds what they cost:
//! the blocks of a place that finds no room are samples by their bytes.

/// As many as a byte can say, so that no index has to be checked.
const BUCKETS: usize = 256;
const IN_BUCKET: usize = 4;

/// Bits of a stratum's length.
const LENGTH_BITS: u32 = 26;
/// Blocks of the longest stratum.
const LONGEST: u64 = (1 << LENGTH_BITS) - 1;

/// Bytes of blocks that have their samples by bytes, so that the period is that between two of them.
const LARGE: u64 = 16 << 20;
/// The cube root of its square.
const LARGE_TO_TWO_THIRDS: f64 = 65_536.0;

/// Blocks of so many bytes of which one is a sample.
fn blocks_for_one(bytes: u64, period: u64) -> u32 {
    let apart = if bytes < LARGE { ((bytes.max(1) as f64).cbrt() * LARGE_TO_TWO_THIRDS) as u64 } else { bytes };
    (period / apart).clamp(1, LONGEST) as u32
}

/// Levels, two to a doubling of the period, that a stratum may be longer than today's period would have it, before it
/// is given up.
const TOO_LONG: u8 = 4;

/// The name of no place, which takes up room.
const NOBODY: u32 = 2;

/// A place's name; an odd number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(u32);

impl Place {
    /// The place of a call with this address on the stack.
    #[inline]
    pub fn new(stack: usize, size: u64) -> Place {
        // The power of two that it is at most, and the two bits behind it. The smallest blocks are all the same.
        let size = size.saturating_sub(1) | 255;
        let log = u64::BITS - size.leading_zeros();
        let about = u64::from(log) << 3 | size >> (log - 3) & 7;
        let mixed = (stack as u64 ^ about << 48).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Place((mixed >> 32) as u32 | 1)
    }

    /// A number of 32 bits, of which the highest are mixed best.
    pub(super) fn number(self) -> u32 {
        self.0
    }

    /// The highest bits are those that all of stack and size went into.
    #[inline]
    fn bucket(self) -> u8 {
        (self.0 >> 24) as u8
    }
}

/// Some places, on a cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Bucket {
    names: [u32; IN_BUCKET],
    /// Blocks before the next sample.
    left: [u32; IN_BUCKET],
    /// Blocks behind it that are of its stratum.
    rest: [u32; IN_BUCKET],
    /// Blocks of the stratum, and in the high bits the level of the period that it was begun with; 0: none is begun.
    strata: [u32; IN_BUCKET],
}

const EMPTY: Bucket =
    Bucket { names: [0; IN_BUCKET], left: [0; IN_BUCKET], rest: [0; IN_BUCKET], strata: [0; IN_BUCKET] };

/// Where a place is found.
pub enum Found {
    /// There.
    At(usize),
    /// Nowhere, and there is room for it.
    New,
    /// Nowhere.
    Full,
}

/// Whether a block of a place passes.
pub enum Passing {
    /// It does, and is counted there.
    At(usize),
    /// It may be a sample.
    No,
    /// The place is not known, nor will it be.
    Unknown,
}

/// A random number, of all 64 bits.
pub type Random<'a> = &'a mut dyn FnMut() -> u64;

/// The places that a thread has allocated from.
pub struct Strata {
    buckets: Box<[Bucket; BUCKETS]>,
    /// Blocks of each place so far, but for those of its stratum.
    seen: Box<[u32; BUCKETS * IN_BUCKET]>,
    /// The highest level of a stratum.
    highest: u8,
}

/// What a stratum's length follows from.
#[derive(Clone, Copy)]
pub struct Now {
    /// Bytes of the place's blocks.
    pub bytes: u64,
    /// The period in force, and its level.
    pub period: u64,
    pub level: u8,
    /// What the place allocates stays.
    pub stays: bool,
}

impl Now {
    /// Blocks of which one is a sample, by the period.
    pub fn blocks_for_one(self) -> u64 {
        blocks_for_one(self.bytes, self.period).into()
    }
}

/// Of what stays, a stratum is at most this part of the blocks that the place has had.
const PART: u32 = 32;

impl Strata {
    /// Without room for any place: where no block is a sample, or every one.
    pub fn none() -> Strata {
        Strata { buckets: Box::new([Bucket { names: [NOBODY; IN_BUCKET], ..EMPTY }; BUCKETS]), ..Strata::new() }
    }

    pub fn new() -> Strata {
        Strata { buckets: Box::new([EMPTY; BUCKETS]), seen: Box::new([0; BUCKETS * IN_BUCKET]), highest: 0 }
    }

    pub fn is_none(&self) -> bool {
        self.buckets[0].names[0] == NOBODY
    }

    /// A known place, if the next block of it is none that [`next`](Self::next) must be asked about.
    #[inline(always)]
    pub fn find_passing(&self, place: Place) -> Passing {
        let number = place.bucket();
        let bucket = &self.buckets[usize::from(number)];
        for at in 0..IN_BUCKET {
            if bucket.names[at] == place.0 {
                let at = usize::from(number) * IN_BUCKET + at;
                return if bucket.left[at % IN_BUCKET] > 0 { Passing::At(at) } else { Passing::No };
            }
            if bucket.names[at] == 0 {
                return Passing::No;
            }
        }
        Passing::Unknown
    }

    pub fn find(&self, place: Place) -> Found {
        let number = usize::from(place.bucket());
        for (at, name) in self.buckets[number].names.iter().enumerate() {
            if *name == place.0 {
                return Found::At(number * IN_BUCKET + at);
            }
            if *name == 0 {
                return Found::New;
            }
        }
        Found::Full
    }

    /// Takes a new place up, whose block now is a stratum of its own.
    pub fn take(&mut self, place: Place) {
        let number = usize::from(place.bucket());
        let bucket = &mut self.buckets[number];
        if let Some(at) = bucket.names.iter().position(|name| *name == 0) {
            bucket.names[at] = place.0;
            self.seen[number * IN_BUCKET + at] = 1;
        }
    }

    /// Whether the next block of a place is none that [`next`](Self::next) must be asked about.
    pub fn passes(&self, at: usize) -> bool {
        self.buckets[at / IN_BUCKET].left[at % IN_BUCKET] > 0
    }

    /// Counts a block that passes.
    #[inline(always)]
    pub fn pass(&mut self, at: usize) {
        let left = &mut self.buckets[usize::from((at / IN_BUCKET) as u8)].left[at % IN_BUCKET];
        *left = left.wrapping_sub(1);
    }

    /// Whether the next block of a place is a sample: what it stands for. A sample has to be told its next stratum
    /// ([`begin`](Self::begin)).
    pub fn next(&mut self, at: usize, now: Now, random: Random<'_>) -> Option<u64> {
        if self.stratum(at) == 0 {
            self.begin(at, now, random);
        }
        if self.passes(at) {
            self.pass(at);
            return None;
        }
        let blocks = u64::from(self.stratum(at)) & LONGEST;
        self.seen[at] = self.seen[at].saturating_add(blocks as u32);
        Some(blocks)
    }

    /// Begins a place's next stratum, behind what is left of its last one.
    pub fn begin(&mut self, at: usize, Now { bytes, period, level, stays }: Now, random: Random<'_>) {
        let most = if stays { (self.seen[at] / PART).max(1) } else { u32::MAX };
        let blocks = blocks_for_one(bytes, period).min(most);
        let drawn = ((u64::from(blocks) * (random() >> 32)) >> 32) as u32;
        let (bucket, at) = (&mut self.buckets[at / IN_BUCKET], at % IN_BUCKET);
        bucket.left[at] = bucket.rest[at] + drawn;
        bucket.rest[at] = blocks - 1 - drawn;
        bucket.strata[at] = blocks | u32::from(level) << LENGTH_BITS;
        self.highest = self.highest.max(level);
    }

    /// Begins all strata anew that are longer than they would be by today's level.
    pub fn shorten(&mut self, level: u8) {
        if self.highest < level + TOO_LONG {
            return;
        }
        self.highest = level;
        for bucket in self.buckets.iter_mut() {
            for at in 0..IN_BUCKET {
                let of = (bucket.strata[at] >> LENGTH_BITS) as u8;
                if of >= level + TOO_LONG {
                    (bucket.left[at], bucket.rest[at], bucket.strata[at]) = (0, 0, 0);
                } else {
                    self.highest = self.highest.max(of);
                }
            }
        }
    }

    /// Begins all strata anew.
    pub fn restart(&mut self) {
        self.highest = 0;
        for bucket in self.buckets.iter_mut() {
            *bucket = Bucket { names: bucket.names, ..EMPTY };
        }
    }

    fn stratum(&self, at: usize) -> u32 {
        self.buckets[at / IN_BUCKET].strata[at % IN_BUCKET]
    }
}

#[cfg(test)]
mod tests {
    use super::{BUCKETS, Found, IN_BUCKET, LONGEST, Now, Place, Strata, blocks_for_one};

    fn at(strata: &Strata, place: Place) -> usize {
        match strata.find(place) {
            Found::At(at) => at,
            _ => panic!("{place:?} is not known"),
        }
    }

    fn random() -> impl FnMut() -> u64 {
        let mut state = 7;
        move || super::super::random(&mut state)
    }

    #[test]
    fn a_place_is_new_once_and_told_by_stack_and_size() {
        let mut strata = Strata::new();
        let places = [(0x7fff_1000, 1000), (0x7fff_1010, 1000), (0x7fff_1000, 1300), (0x7fff_1000, 100_000)];
        for (stack, size) in places {
            let place = Place::new(stack, size);
            assert!(matches!(strata.find(place), Found::New), "{stack:#x} {size}");
            strata.take(place);
            assert!(matches!(strata.find(place), Found::At(_)));
        }
        // About as large is as large: a place that asks for a little more each time is one. A power of two is with
        // those below it, since they are of one class.
        assert_eq!(Place::new(0x7fff_1000, 1010), Place::new(0x7fff_1000, 1024));
        assert_ne!(Place::new(0x7fff_1000, 1025), Place::new(0x7fff_1000, 1024));
        assert!((0..=256).all(|size| Place::new(1, size) == Place::new(1, 256)));
    }

    #[test]
    fn no_more_places_are_taken_than_there_is_room_for() {
        let mut strata = Strata::new();
        let mut taken = 0;
        for stack in 0..100_000 {
            let place = Place::new(stack * 16, 4096);
            if matches!(strata.find(place), Found::New) {
                strata.take(place);
                taken += 1;
            }
        }
        assert_eq!(taken, BUCKETS * IN_BUCKET);
    }

    /// The period of which each block of 1000 bytes is a stratum.
    const OF_1000: u64 = 655_360;

    #[test]
    fn large_blocks_have_samples_by_bytes_and_small_ones_more() {
        for bytes in [256, 1000, 600 << 10, 16 << 20, 1 << 30] {
            assert_eq!(blocks_for_one(bytes, 512 << 10), 1, "every block, with the usual period: {bytes}");
        }
        assert_eq!((blocks_for_one(1000, OF_1000), blocks_for_one(1000, 2 * OF_1000)), (1, 2));
        let by = |bytes| blocks_for_one(bytes, 64 << 20);
        assert_eq!([4 << 10, 1 << 20, 16 << 20, 32 << 20, 1 << 30].map(by), [64, 10, 4, 2, 1]);
    }

    /// Blocks of 1000 bytes, of a period and its level.
    fn of_1000((period, level): (u64, u8)) -> Now {
        Now { bytes: 1000, period, level, stays: false }
    }

    /// Samples of so many blocks, and what they stand for.
    fn run(
        strata: &mut Strata,
        at: usize,
        blocks: u64,
        period: (u64, u8),
        random: &mut dyn FnMut() -> u64,
    ) -> (u64, u64) {
        let (mut samples, mut objects) = (0, 0);
        for _ in 0..blocks {
            if let Some(stands_for) = strata.next(at, of_1000(period), random) {
                samples += 1;
                objects += stands_for;
                strata.begin(at, of_1000(period), random);
            }
        }
        (samples, objects)
    }

    #[test]
    fn of_a_stratum_one_block_is_a_sample_and_stands_for_all() {
        let (mut strata, place, mut random) = (Strata::new(), Place::new(1, 1000), random());
        strata.take(place);
        let at = at(&strata, place);
        for each in [16, 1, 1_000, 16] {
            strata.restart();
            let (samples, objects) = run(&mut strata, at, 12_000, (each * OF_1000, 0), &mut random);
            assert_eq!((samples, objects), (12_000 / each, 12_000));
        }
        strata.restart();
        strata.begin(at, Now { bytes: 1, period: u64::MAX, level: 0, stays: false }, &mut random);
        assert_eq!(u64::from(strata.stratum(at)), LONGEST);
    }

    #[test]
    fn a_period_that_changes_after_samples_biases_nothing() {
        let (mut strata, place, mut random) = (Strata::new(), Place::new(1, 1000), random());
        strata.take(place);
        let at = at(&strata, place);
        let (mut blocks, mut objects, mut square, mut gap) = (0_u64, 0, 0.0, 0);
        for _ in 0..2_000_000 {
            blocks += 1;
            gap += 1;
            // Longer where the last sample came soon, and shorter where it came late.
            let (period, level) = if gap < 20 { (64 * OF_1000, 6) } else { (4 * OF_1000, 2) };
            if let Some(stands_for) = strata.next(at, of_1000((period, level)), &mut random) {
                objects += stands_for;
                square += (stands_for * stands_for) as f64;
                strata.begin(at, of_1000((period, level)), &mut random);
                gap = 0;
            }
        }
        let error = square.sqrt();
        assert!((objects as f64 - blocks as f64).abs() < 2.0 * error, "{objects} of {blocks} +- {error}");
        assert!(error < 0.01 * blocks as f64, "the test sees a bias of 2 %: {error}");
    }

    #[test]
    fn of_what_stays_as_many_blocks_as_there_are_are_known_to_within_a_32nd() {
        let (mut strata, place, mut random) = (Strata::new(), Place::new(1, 1000), random());
        strata.take(place);
        let at = at(&strata, place);
        let now = Now { stays: true, ..of_1000((1 << 60, 40)) };
        let (mut samples, mut objects) = (1u64, 1u64);
        for blocks in 2..=1_000_000u64 {
            if let Some(stands_for) = strata.next(at, now, &mut random) {
                samples += 1;
                objects += stands_for;
                strata.begin(at, now, &mut random);
            }
            assert!(objects.abs_diff(blocks) <= blocks / 31, "{objects} of {blocks}");
        }
        assert!(samples < 400, "{samples}");
        // The period has its say as well.
        strata.restart();
        strata.begin(at, Now { period: 4 * OF_1000, ..now }, &mut random);
        assert_eq!(u64::from(strata.stratum(at)) & LONGEST, 4);
    }

    #[test]
    fn strata_of_a_time_of_many_blocks_end_when_it_is_over() {
        let (mut strata, place, mut random) = (Strata::new(), Place::new(1, 1000), random());
        strata.take(place);
        let at = at(&strata, place);
        run(&mut strata, at, 1, (1 << 40, 30), &mut random);
        strata.shorten(27);
        assert_ne!(strata.stratum(at), 0, "three levels are left alone");
        strata.shorten(0);
        let (samples, objects) = run(&mut strata, at, 64, (4 * OF_1000, 0), &mut random);
        assert_eq!((samples, objects), (16, 64));
    }
}
