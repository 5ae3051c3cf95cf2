//! How a recorder and a program agree on a recording: by words in the segment's header,
//! of which each side writes its own.
//!
//! The recorder writes what it asks for and a word made of that, which come in any order. Whichever thread of the
//! program sees a new request answers it, under the session's lock, and tells the recorder: the state first, then which
//! request it is the answer to. A recorder may die, and the next one ask, at any moment between.

use core::sync::atomic::{AtomicUsize, Ordering};

use poolscope_wire::trace::{check_word, trace_state};

use crate::sync::word::Word;

/// The words.
pub struct Handshake<'a, W: Word = AtomicUsize> {
    /// The recorder's: what it asks for, 0 for nothing.
    pub request: &'a W,
    /// The recorder's: [`check_word`] of it.
    pub check: &'a W,
    /// The program's: the request that was answered last.
    pub answer: &'a W,
    /// The last request that was seen. No other process sees it.
    pub seen: &'a W,
    /// The request that is recorded for now, 0 for none: what the threads' rings belong to. No other process sees it.
    pub current: &'a W,
}

/// What begins and ends with a request. Behind the session's lock.
pub trait Recording {
    /// Makes what the recorder is to find; the state to answer with.
    fn prepare(&mut self, request: usize) -> u32;
    /// From now on events are traced.
    fn begin(&mut self);
    /// From now on they are not. `state` is to be shown then.
    fn end(&mut self, state: u32);
    /// Writes the state into the header.
    fn show(&mut self, state: u32);
}

impl<W: Word> Handshake<'_, W> {
    /// The new request. `None` if there is none, or if it is just being written: then it is looked at again.
    fn take(&self) -> Option<usize> {
        let check = self.check.load(Ordering::Acquire);
        let request = self.request.load(Ordering::Acquire);
        let is_whole = request == 0 || check == check_word(request as u64) as usize;
        if !is_whole || request == self.seen.load(Ordering::Relaxed) {
            return None;
        }
        self.seen.store(request, Ordering::Relaxed);
        Some(request)
    }

    /// Answers a new request, if there is one. The caller holds the session's lock.
    pub fn answer(&self, recording: &mut impl Recording) {
        let Some(request) = self.take() else { return };
        // The end of the one before is said by this answer alone.
        if self.current.swap(0, Ordering::Release) != 0 {
            recording.end(trace_state::ENDED);
        }
        let state = if request == 0 { trace_state::ENDED } else { recording.prepare(request) };
        if state == trace_state::ON {
            self.current.store(request, Ordering::Release);
            recording.begin();
        }
        self.tell(request, recording, state);
    }

    /// Ends the recording of `request`, unless it has ended: another one may have begun meanwhile, whose recorder
    /// lives. The caller holds the session's lock.
    pub fn end(&self, request: usize, recording: &mut impl Recording, state: u32) {
        if request != 0 && self.current.load(Ordering::Relaxed) == request {
            self.current.store(0, Ordering::Release);
            recording.end(state);
            self.tell(request, recording, state);
        }
    }

    /// Whoever sees the answer, and looks at the state after that, sees this state or a later one.
    fn tell(&self, request: usize, recording: &mut impl Recording, state: u32) {
        recording.show(state);
        W::fence(Ordering::Release);
        self.answer.store(request, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::request::is_new;
    use crate::sync::word::model;
    use loom::sync::{Mutex, MutexGuard};
    use std::vec;
    use std::vec::Vec;

    const FIRST: usize = 0x11;
    const SECOND: usize = 0x22;
    const DEAD: usize = usize::MAX;

    /// A program, its segment's header, and its recorders.
    struct State {
        request: model::AtomicUsize,
        check: model::AtomicUsize,
        answer: model::AtomicUsize,
        state: model::AtomicUsize,
        seen: model::AtomicUsize,
        current: model::AtomicUsize,
        /// Which recorder has the segment's file locked; [`DEAD`] if it died with the lock,
        /// which the kernel then let go.
        locked_by: Mutex<usize>,
        session: Mutex<Vec<Step>>,
        /// Answers that the second recorder saw.
        answers: std::sync::Mutex<Vec<usize>>,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    enum Step {
        Began(usize),
        Ended(u32),
    }

    /// The session's steps, and where the state is shown.
    struct Steps<'a> {
        steps: MutexGuard<'a, Vec<Step>>,
        state: &'a model::AtomicUsize,
        prepared: usize,
    }

    impl Recording for Steps<'_> {
        fn prepare(&mut self, request: usize) -> u32 {
            self.prepared = request;
            trace_state::ON
        }

        fn begin(&mut self) {
            self.steps.push(Step::Began(self.prepared));
        }

        fn end(&mut self, state: u32) {
            self.steps.push(Step::Ended(state));
        }

        fn show(&mut self, state: u32) {
            self.state.store(state as usize, Ordering::Relaxed);
        }
    }

    impl State {
        fn new() -> Self {
            let word = model::AtomicUsize::new;
            State {
                request: word(0),
                check: word(0),
                answer: word(0),
                state: word(trace_state::OFF as usize),
                seen: word(0),
                current: word(0),
                locked_by: Mutex::new(FIRST),
                session: Mutex::new(Vec::new()),
                answers: std::sync::Mutex::new(Vec::new()),
            }
        }

        /// Recorded by the first recorder.
        fn recorded() -> Self {
            let state = Self::new();
            state.ask(FIRST);
            state.poll();
            state
        }

        /// The same, and the recorder is dead.
        fn orphaned() -> Self {
            let state = Self::recorded();
            *state.locked_by.lock().unwrap() = DEAD;
            state
        }

        fn handshake(&self) -> Handshake<'_, model::AtomicUsize> {
            let State { request, check, answer, seen, current, .. } = self;
            Handshake { request, check, answer, seen, current }
        }

        fn steps(&self) -> Steps<'_> {
            Steps { steps: self.session.lock().unwrap(), state: &self.state, prepared: 0 }
        }

        /// As a thread of the program does it in every slow path.
        fn poll(&self) {
            if is_new(&self.request, &self.seen) {
                self.handshake().answer(&mut self.steps());
            }
        }

        /// As a thread does it that has had no sign of the recorder for long.
        fn look(&self) {
            let current = self.current.load(Ordering::Relaxed);
            let is_alive = *self.locked_by.lock().unwrap() != DEAD;
            if !is_alive {
                self.handshake().end(current, &mut self.steps(), trace_state::ABANDONED);
            }
        }

        /// As a recorder does it, by a copy of both words in any order.
        fn ask(&self, request: usize) {
            self.request.store(request, Ordering::Release);
            self.check.store(check_word(request as u64) as usize, Ordering::Release);
        }

        fn ask_the_other_way_round(&self, request: usize) {
            self.check.store(check_word(request as u64) as usize, Ordering::Release);
            self.request.store(request, Ordering::Release);
        }

        /// The next recorder, which gets the lock when the first one is dead, and looks at the answer.
        fn next_recorder(&self) {
            *self.locked_by.lock().unwrap() = SECOND;
            self.ask_the_other_way_round(SECOND);
            if self.answer.load(Ordering::Acquire) == SECOND {
                self.answers.lock().unwrap().push(self.state.load(Ordering::Relaxed));
            }
        }

        /// Everything has come to rest.
        fn end(&self) -> Vec<Step> {
            self.poll();
            self.session.lock().unwrap().clone()
        }
    }

    use Step::{Began, Ended};

    #[test]
    fn a_request_is_answered_once_by_whoever_sees_it() {
        let scenario = model::Scenario {
            state: State::new,
            threads: &[|state| state.ask(FIRST), State::poll, State::poll],
            interruptions: 3,
            end: State::end,
        };
        assert_eq!(scenario.outcomes(), [vec![Began(FIRST)]].into());
    }

    #[test]
    fn a_recording_that_is_taken_back_ends_before_the_next_one_begins() {
        let scenario = model::Scenario {
            state: State::recorded,
            threads: &[
                |state| {
                    state.ask(0);
                    state.ask_the_other_way_round(SECOND);
                },
                |state| {
                    state.poll();
                    state.poll();
                },
            ],
            interruptions: 3,
            end: State::end,
        };
        assert_eq!(scenario.outcomes(), [vec![Began(FIRST), Ended(trace_state::ENDED), Began(SECOND)]].into());
    }

    #[test]
    fn the_end_of_a_dead_recorders_session_is_not_the_next_ones() {
        let scenario = model::Scenario {
            state: State::orphaned,
            threads: &[State::next_recorder, State::look, State::poll],
            interruptions: 2,
            end: |state| {
                let steps = state.end();
                // The state that comes with an answer is the answer's, not that of the session before.
                let answers = state.answers.lock().unwrap().clone();
                assert!(answers.iter().all(|&state| state == trace_state::ON as usize), "{answers:?}");
                steps
            },
        };
        let ended = |how| vec![Began(FIRST), Ended(how), Began(SECOND)];
        assert_eq!(scenario.outcomes(), [ended(trace_state::ENDED), ended(trace_state::ABANDONED)].into());
    }
}
