//! The rounds: each goes through all rows, and in each row all contestants take turns, one right after the other and
//! in another order each time. What slows the machine for a while slows all of them.

use std::time::{Duration, Instant};

use crate::error::Result;
use crate::progress::progress;
use crate::results::{Figures, RowResult};

/// What is to be measured.
pub struct Plan {
    /// Names, and how often a row is measured in a round.
    pub rows: Vec<(String, usize)>,
    /// Their names.
    pub contestants: Vec<String>,
    /// How many at most.
    pub rounds: usize,
    /// In how much time, if all of them take longer.
    pub within: Option<Duration>,
}

/// What was measured.
pub struct Measured {
    /// A result for each of the plan's rows.
    pub rows: Vec<RowResult>,
    /// How many rounds it were.
    pub rounds: usize,
    /// How long they took.
    pub seconds: f64,
}

/// Whose turn it is. Numbers count from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Of the rounds.
    pub round: usize,
    /// Of the plan's rows.
    pub row: usize,
    /// Of the plan's contestants.
    pub contestant: usize,
    /// Whether it is the first of its row's turns that is taken.
    pub is_first: bool,
}

impl Plan {
    /// Measures everything. A contestant that has failed in a row is not asked again there. `None` is a turn that is
    /// passed over. After the first round, none begins that would not end in time if it took as long as the longest.
    pub fn measure(&self, mut one: impl FnMut(Turn) -> Option<Result<Figures>>) -> Measured {
        let started = Instant::now();
        let result = |(id, _): &(String, usize)| RowResult { id: id.clone(), ..RowResult::default() };
        let mut results: Vec<RowResult> = self.rows.iter().map(result).collect();
        let (mut rounds, mut longest, mut is_first) = (0, Duration::ZERO, false);
        while rounds < self.rounds {
            let begun = started.elapsed();
            if rounds > 0 && self.within.is_some_and(|within| begun + longest > within) {
                break;
            }
            for turn in self.turns(rounds) {
                is_first |= turn.is_first;
                let (id, name) = (&self.rows[turn.row].0, &self.contestants[turn.contestant]);
                let cells = &mut results[turn.row].cells;
                if cells.get(name).is_some_and(|cell| cell.failure.is_some()) {
                    continue;
                }
                let (round, all, seconds) = (rounds + 1, self.rounds, started.elapsed().as_secs());
                progress(&format!("round {round} of {all}, {id:<24} {name:<18} {seconds:>4} s"));
                match one(Turn { is_first: std::mem::take(&mut is_first), ..turn }) {
                    None => {}
                    Some(Ok(figures)) => cells.entry(name.clone()).or_default().add(figures),
                    Some(Err(failure)) => cells.entry(name.clone()).or_default().failure = Some(failure),
                }
            }
            longest = longest.max(started.elapsed() - begun);
            rounds += 1;
        }
        progress("");
        Measured { rows: results, rounds, seconds: started.elapsed().as_secs_f64() }
    }

    /// The turns of a round.
    fn turns(&self, round: usize) -> impl Iterator<Item = Turn> {
        let count = self.contestants.len();
        let of_row = move |row: usize, times: usize| {
            (0..times).flat_map(move |time| {
                // Another one begins each time.
                (0..count).map(move |step| Turn {
                    round,
                    row,
                    contestant: (step + time + round + row) % count,
                    is_first: step == 0,
                })
            })
        };
        self.rows.iter().enumerate().flat_map(move |(row, (_, times))| of_row(row, *times))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<String>>();
        let rows = names(&["a", "b"]).into_iter().zip([1, 2]).collect();
        Plan { rows, contestants: names(&["one", "two", "three"]), rounds: 2, within: None }
    }

    #[test]
    fn everyone_has_as_many_turns_and_another_one_begins_each_time() {
        let turns: Vec<Turn> = (0..2).flat_map(|round| plan().turns(round).collect::<Vec<_>>()).collect();
        assert_eq!(turns.len(), 2 * (1 + 2) * 3);
        for contestant in 0..3 {
            assert_eq!(turns.iter().filter(|turn| turn.contestant == contestant).count(), 6);
        }
        let first: Vec<usize> = turns.iter().filter(|turn| turn.is_first).map(|turn| turn.contestant).collect();
        assert_eq!(first, [0, 1, 2, 1, 2, 0]);
    }

    #[test]
    fn who_has_failed_in_a_row_is_not_asked_again_there() {
        let mut asked = 0;
        let Measured { rows, rounds, .. } = plan().measure(|turn| {
            asked += 1;
            if turn.row == 1 && turn.contestant == 2 {
                return Some(Err("it hangs".to_owned()));
            }
            Some(Ok(Figures::from([("ns".to_owned(), 1.0)])))
        });
        // Of its four turns in the second row it has had one.
        assert_eq!((asked, rounds), (18 - 3, 2));
        assert_eq!(rows[1].cells["three"].failure.as_deref(), Some("it hangs"));
        assert_eq!((rows[0].cells["three"].figures["ns"].rounds.len(), rows[1].get("one", "ns")), (2, Some(1.0)));
    }

    #[test]
    fn without_contestants_nothing_is_measured() {
        let measured = Plan { contestants: Vec::new(), ..plan() }.measure(|_| unreachable!());
        assert!(measured.rows.iter().all(|row| row.cells.is_empty()));
    }

    #[test]
    fn no_round_begins_that_would_end_too_late() {
        let rounds = |within: Duration| {
            let mut most = 0;
            let plan = Plan { rounds: 1000, within: Some(within), ..plan() };
            let measured = plan.measure(|turn| {
                most = most.max(turn.round + 1);
                std::thread::sleep(Duration::from_millis(1));
                Some(Ok(Figures::from([("ns".to_owned(), 1.0)])))
            });
            assert_eq!((measured.rounds, measured.rows[0].cells["one"].figures["ns"].rounds.len()), (most, most));
            measured.rounds
        };
        assert_eq!(rounds(Duration::ZERO), 1);
        // A round has nine turns.
        let some = rounds(Duration::from_millis(90));
        assert!((1..=10).contains(&some), "{some} rounds of at least 9 ms in 90");
    }
}
