//! What is counted for each scope of the leak checker that is open: calls that asked for memory, and bytes in use.
//!
//! A scope's number says where its counts are, so that finding them takes no search. An inner scope counts for those
//! around it, too. Where too many are open, a scope goes uncounted.

/// Scopes that can be open at the same time, and be counted.
const PLACES: usize = UNCOUNTED as usize;
const PLACE_BITS: u32 = 8;
/// The place of scopes that are not counted: the last one that the bits can say.
const UNCOUNTED: u32 = (1 << PLACE_BITS) - 1;
/// Scopes around each other that are counted.
const DEPTH: usize = 32;

/// What was counted for a scope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls that asked for memory, those that changed a block's size among them.
    pub allocations: u64,
    /// Its blocks that are in use.
    pub blocks: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// The most that they ever were.
    pub peak: u64,
}

#[derive(Clone, Copy)]
struct Place {
    /// The scope's number; 0 if the place is free.
    scope: u32,
    /// The last scope that had the place.
    last: u32,
    outer: u32,
    counts: Counts,
}

const FREE: Place =
    Place { scope: 0, last: 0, outer: 0, counts: Counts { allocations: 0, blocks: 0, bytes: 0, peak: 0 } };

impl Counts {
    fn grew(&mut self, bytes: u64) {
        self.allocations += 1;
        self.bytes += bytes;
        self.peak = self.peak.max(self.bytes);
    }
}

/// The number of a scope at a place, after so many others there. Never 0.
fn number(before: u32, place: u32) -> u32 {
    let turn = before.wrapping_add(1) & (u32::MAX >> PLACE_BITS);
    turn.max(1) << PLACE_BITS | place
}

/// All scopes.
pub struct Scopes {
    places: [Place; PLACES],
    next: usize,
    /// Scopes that went uncounted.
    uncounted: u32,
    /// The scope of threads that are in none; 0 if there is none.
    for_all: u32,
}

impl Scopes {
    pub const fn new() -> Self {
        Scopes { places: [FREE; PLACES], next: 0, uncounted: 0, for_all: 0 }
    }

    /// Opens a scope within another one, or within none (0).
    pub fn open(&mut self, outer: u32) -> u32 {
        for step in 0..PLACES {
            let at = (self.next + step) % PLACES;
            let Some(place) = self.places.get_mut(at).filter(|place| place.scope == 0) else { continue };
            let scope = number(place.last >> PLACE_BITS, at as u32);
            *place = Place { scope, last: scope, outer, counts: Counts::default() };
            self.next = at + 1;
            return scope;
        }
        let scope = number(self.uncounted, UNCOUNTED);
        self.uncounted = scope >> PLACE_BITS;
        scope
    }

    /// Whether a scope has not been closed. Of one that is not counted nobody knows.
    pub fn is_open(&mut self, scope: u32) -> bool {
        scope & UNCOUNTED == UNCOUNTED || self.of(scope).is_some()
    }

    /// Closes a scope: its number stands for nothing from now on.
    pub fn close(&mut self, scope: u32) {
        if self.for_all == scope {
            self.for_all = 0;
        }
        if let Some(place) = self.of(scope) {
            place.scope = 0;
        }
    }

    /// Sets the scope of threads that are in none.
    pub fn set_for_all(&mut self, scope: u32) {
        self.for_all = scope;
    }

    /// The scope that a block is recorded in, of a thread in this one.
    pub fn of_record(&self, scope: u32) -> u32 {
        if scope != 0 { scope } else { self.for_all }
    }

    /// The counts of a scope that is open, if it is counted.
    pub fn counts(&mut self, scope: u32) -> Option<Counts> {
        self.of(scope).map(|place| place.counts)
    }

    /// Counts a new block.
    pub fn took(&mut self, scope: u32, bytes: u64) {
        self.change(scope, |counts| {
            counts.blocks += 1;
            counts.grew(bytes);
        });
    }

    /// Counts a call that changed a block's size.
    pub fn resized(&mut self, scope: u32, before: u64, after: u64) {
        self.change(scope, |counts| {
            counts.bytes = counts.bytes.saturating_sub(before);
            counts.grew(after);
        });
    }

    /// Counts a block that is in use no more.
    pub fn gave(&mut self, scope: u32, bytes: u64) {
        self.change(scope, |counts| {
            counts.blocks = counts.blocks.saturating_sub(1);
            counts.bytes = counts.bytes.saturating_sub(bytes);
        });
    }

    /// The scope around an open one; 0 if there is none that is open.
    pub fn around(&mut self, scope: u32) -> u32 {
        let outer = self.of(scope).map_or(0, |place| place.outer);
        self.of(outer).map_or(0, |place| place.scope)
    }

    fn of(&mut self, scope: u32) -> Option<&mut Place> {
        self.places.get_mut((scope & UNCOUNTED) as usize).filter(|place| scope != 0 && place.scope == scope)
    }

    fn change(&mut self, mut scope: u32, mut change: impl FnMut(&mut Counts)) {
        for _ in 0..DEPTH {
            let Some(place) = self.of(scope) else { return };
            change(&mut place.counts);
            scope = place.outer;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inner_scope_counts_for_those_around_it() {
        let mut scopes = Scopes::new();
        let outer = scopes.open(0);
        let inner = scopes.open(outer);
        scopes.took(outer, 10);
        scopes.took(inner, 100);
        scopes.resized(inner, 100, 40);
        scopes.took(inner, 20);
        scopes.gave(outer, 10);
        assert_eq!(scopes.counts(inner), Some(Counts { allocations: 3, blocks: 2, bytes: 60, peak: 100 }));
        assert_eq!(scopes.counts(outer), Some(Counts { allocations: 4, blocks: 2, bytes: 60, peak: 110 }));
        assert_eq!((scopes.around(inner), scopes.around(outer)), (outer, 0));
    }

    #[test]
    fn threads_in_no_scope_may_be_in_that_of_all() {
        let mut scopes = Scopes::new();
        let all = scopes.open(0);
        scopes.set_for_all(all);
        assert_eq!((scopes.of_record(0), scopes.of_record(7)), (all, 7));
        scopes.close(all);
        assert_eq!(scopes.of_record(0), 0);
    }

    #[test]
    fn the_number_of_a_closed_scope_stands_for_nothing() {
        let mut scopes = Scopes::new();
        let first = scopes.open(0);
        scopes.close(first);
        scopes.took(first, 1);
        assert_eq!(scopes.counts(first), None);
        for _ in 0..3 * PLACES {
            let scope = scopes.open(0);
            assert_ne!(scope, first);
            assert_eq!(scopes.counts(scope), Some(Counts::default()));
            scopes.close(scope);
        }
        assert_eq!(scopes.counts(0), None);
    }

    #[test]
    fn where_too_many_are_open_scopes_go_uncounted() {
        let mut scopes = Scopes::new();
        let open: Vec<u32> = (0..PLACES).map(|_| scopes.open(0)).collect();
        let (one, other) = (scopes.open(0), scopes.open(0));
        assert_ne!(one, other);
        assert!(scopes.counts(one).is_none() && scopes.is_open(one) && !open.contains(&one));
        scopes.close(one);
        scopes.close(open[7]);
        assert!(!scopes.is_open(open[7]));
        let again = scopes.open(0);
        assert!(scopes.counts(again).is_some());
    }
}
