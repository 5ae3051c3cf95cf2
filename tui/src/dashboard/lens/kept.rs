//! What was in use at earlier moments, as far as it was watched: what the present can be compared with.

use std::sync::Arc;

use crate::dashboard::model::Model;

/// Figures of a call site at an earlier moment, indexed by `Metric`.
type Figures = [f32; 4];

/// One moment.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    /// Seconds of `CLOCK_MONOTONIC`.
    pub(crate) at_s: f64,
    /// Bytes in use, as the header has them.
    pub(crate) live_bytes: f64,
    /// The keys of call sites, ascending. Moments share them as long as no call site is new.
    keys: Arc<[u64]>,
    /// What each of them had.
    figures: Box<[Figures]>,
}

impl Moment {
    /// Of a reading, after another one.
    fn of(model: &Model, before: Option<&Moment>) -> Moment {
        let mut sites: Vec<(u64, Figures)> =
            model.sites.iter().map(|row| (row.key, row.figures().map(|figure| figure as f32))).collect();
        sites.sort_unstable_by_key(|(key, _)| *key);
        let keys = || sites.iter().map(|(key, _)| *key);
        let keys = match before.filter(|before| before.keys.iter().copied().eq(keys())) {
            Some(before) => Arc::clone(&before.keys),
            None => keys().collect(),
        };
        let figures = sites.into_iter().map(|(_, figures)| figures).collect();
        Moment { at_s: seconds(model), live_bytes: model.live_bytes(), keys, figures }
    }

    /// What a call site had; nothing if it was not there.
    pub(crate) fn figures(&self, key: u64) -> Figures {
        self.keys.binary_search(&key).map_or([0.0; 4], |at| self.figures[at])
    }
}

/// When a reading was taken.
pub(crate) fn seconds(model: &Model) -> f64 {
    model.snapshot.taken_ns as f64 / 1e9
}

/// The moments that are kept of one process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    process: Option<(u32, u64)>,
    moments: Vec<Arc<Moment>>,
    /// The first reading.
    pub(crate) first: Option<Arc<Moment>>,
    /// What was marked.
    pub(crate) mark: Option<Arc<Moment>>,
}

/// How far moments of some age are apart, in seconds: up to a minute, to five, to half an hour.
fn apart(age: f64) -> f64 {
    match age {
        age if age < 75.0 => 10.0,
        age if age < 375.0 => 60.0,
        _ => 300.0,
    }
}

/// Seconds after which a moment is forgotten.
const LONGEST: f64 = 2400.0;

impl Kept {
    /// Keeps what a reading has, if the last that was kept is old enough.
    pub(crate) fn take(&mut self, model: &Model) {
        let process = &model.snapshot.process;
        let process = Some((process.pid, process.start_monotonic_ns));
        if self.process != process {
            *self = Kept { process, ..Kept::default() };
        }
        let now = seconds(model);
        if self.moments.last().is_some_and(|last| now - last.at_s < apart(0.0)) {
            return;
        }
        let moment = Arc::new(Moment::of(model, self.moments.last().map(|last| &**last)));
        if self.first.is_none() {
            self.first = Some(Arc::clone(&moment));
        }
        self.moments.push(moment);
        let mut last = f64::NEG_INFINITY;
        self.moments.retain(|moment| {
            let age = now - moment.at_s;
            // A little less: readings don't come to the moment.
            let keeps = age < LONGEST && (age == 0.0 || moment.at_s - last >= 0.95 * apart(age));
            if keeps {
                last = moment.at_s;
            }
            keeps
        });
    }

    /// Marks a reading.
    pub(crate) fn mark(&mut self, model: &Model) {
        self.mark = Some(Arc::new(Moment::of(model, self.moments.last().map(|last| &**last))));
    }

    /// The last moment that is at least as old as this, or the oldest that there is.
    pub(crate) fn ago(&self, now_s: f64, seconds: f64) -> Option<&Arc<Moment>> {
        let old = self.moments.iter().rev().find(|moment| now_s - moment.at_s >= 0.95 * seconds);
        old.or(self.moments.first())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dashboard::model::fixture;

    #[test]
    fn moments_are_thinned_out_and_one_of_each_age_is_there() {
        let mut kept = Kept::default();
        let mut model = fixture::model();
        for second in 0..=300u64 {
            Arc::make_mut(&mut model.snapshot).taken_ns = (1000 + second) * 1_000_000_000;
            kept.take(&model);
        }
        let now = 1300.0;
        assert!(kept.moments.len() <= 14, "{}", kept.moments.len());
        for (wanted, most) in [(60.0, 75.0), (300.0, 300.0)] {
            let age = now - kept.ago(now, wanted).expect("there is one").at_s;
            assert!(age >= wanted * 0.95 && age <= most, "{wanted}: {age}");
        }
        assert_eq!(now - kept.ago(now, 1800.0).expect("the oldest").at_s, 300.0);
    }

    #[test]
    fn what_the_same_call_sites_had_takes_their_figures_alone() {
        let mut kept = Kept::default();
        let mut model = fixture::model();
        for second in [0, 10, 20] {
            Arc::make_mut(&mut model.snapshot).taken_ns = (1000 + second) * 1_000_000_000;
            model.sites[0].in_use.bytes = 1e6 * second as f64;
            kept.take(&model);
        }
        let [first, second, third] = &kept.moments[..] else { panic!("three moments") };
        assert!(Arc::ptr_eq(&first.keys, &second.keys) && Arc::ptr_eq(&second.keys, &third.keys));
        let key = model.sites[0].key;
        assert_eq!([first, second, third].map(|moment| moment.figures(key)[0]), [0.0, 1e7, 2e7]);
        model.sites[0].key = 7;
        kept.mark(&model);
        let mark = kept.mark.as_ref().expect("a mark");
        assert_eq!((mark.figures(7)[0], mark.figures(key)[0]), (2e7, 0.0));
    }

    #[test]
    fn another_process_has_nothing_to_be_compared_with() {
        let mut kept = Kept::default();
        kept.take(&fixture::model());
        kept.mark(&fixture::model());
        kept.take(&fixture::model_with(|snapshot| snapshot.process.pid += 1));
        assert!(kept.mark.is_none() && kept.moments.len() == 1);
    }
}
