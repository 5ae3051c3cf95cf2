//! Which call sites have lost blocks, by the verdicts of the segment, or have any in use.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use poolscope_profiler::leaks::LeakKind;
use poolscope_profiler::leaks::suppressions::Suppressions;
use poolscope_profiler::model::reach::{Search, Verdict};
use poolscope_profiler::model::snapshot::{LiveBlock, ProcessState};

use crate::dashboard::model::Model;
use crate::dashboard::model::site::{ShortNames, SiteText, key_of, text_of};

/// A call site.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// Its key.
    pub(super) key: u64,
    /// Its name.
    pub(super) text: Arc<SiteText>,
    /// How its blocks are leaked; none if nobody looked.
    pub(super) kind: Option<LeakKind>,
    pub(super) bytes: f64,
    pub(super) blocks: f64,
    /// How old the oldest of them is, in nanoseconds; none if that is not known.
    pub(super) age_ns: Option<u64>,
}

/// What there is to show.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    pub(super) rows: Vec<Row>,
    /// The search that has found them; none if they are what is in use.
    pub(super) search: Option<Search>,
    /// Blocks and bytes that are leaked, whatever the filter is.
    pub(super) leaked: (u64, u64),
    /// Blocks that rules say are no leaks.
    pub(super) suppressed: u64,
}

/// The search of a process that may be called one for leaks: what was killed had no end at which to free what it had.
fn search_of(model: &Model) -> Option<Search> {
    let search = model.snapshot.search.filter(|search| search.failed.is_none());
    search.filter(|_| model.snapshot.process.state != ProcessState::Killed && !model.at_peak)
}

impl Found {
    /// It is about what a search has found.
    pub(super) fn is_of_a_search(&self) -> bool {
        self.search.is_some()
    }

    /// What a model has.
    pub(super) fn in_model(model: &Model) -> Found {
        match search_of(model) {
            Some(search) => Found::leaked(model, search),
            None => Found::in_use(model),
        }
    }

    fn in_use(model: &Model) -> Found {
        let rows = model.sites.iter().filter(|site| site.in_use.objects > 0.0);
        let row = |site: &crate::dashboard::model::site::SiteRow| Row {
            key: site.key,
            text: Arc::clone(&site.text),
            kind: None,
            bytes: site.in_use.bytes,
            blocks: site.in_use.objects,
            age_ns: model.age_ns(site.oldest_ns),
        };
        Found { rows: rows.map(row).collect(), ..Found::default() }
    }

    fn leaked(model: &Model, search: Search) -> Found {
        let (snapshot, whole) = (&model.snapshot, &model.whole);
        let site_of = |block: &LiveBlock| model.site_of_stacks.get(block.stack as usize).copied().flatten();
        let is_meant = |at: usize| model.blocks.as_ref().is_none_or(|meant| meant.get(at) == Some(&true));
        let leaked = snapshot.live.iter().enumerate().filter(|(at, block)| block.verdict.is_leaked() && is_meant(*at));
        let leaked: Vec<&LiveBlock> = leaked.map(|(_, block)| block).collect();

        let rules = Suppressions::defaults();
        let mut reasons: HashMap<(usize, bool), bool> = HashMap::new();
        let mut is_no_leak = |site: usize, kind: LeakKind| {
            let judge = || whole.sites.get(site).is_some_and(|site| rules.reason(whole, site, kind).is_some());
            *reasons.entry((site, kind == LeakKind::Direct)).or_insert_with(judge)
        };
        // What only a block leads to that is no leak goes with that one.
        let mut leaders: Vec<u64> = Vec::new();
        for block in leaked.iter().filter(|block| block.verdict == Verdict::Direct) {
            if site_of(block).is_some_and(|site| is_no_leak(site, LeakKind::Direct)) {
                leaders.push(block.address);
            }
        }
        leaders.sort_unstable();

        let mut found = Found { search: Some(search), ..Found::default() };
        let mut sums: BTreeMap<(usize, bool), (f64, f64, u64)> = BTreeMap::new();
        for block in leaked {
            let (kind, leader) = match block.verdict {
                Verdict::Indirect(leader) => (LeakKind::Indirect, leader),
                _ => (LeakKind::Direct, block.address),
            };
            let site = site_of(block);
            let suppressed = leaders.binary_search(&leader).is_ok()
                || site.is_some_and(|site| kind == LeakKind::Indirect && is_no_leak(site, kind));
            if suppressed {
                found.suppressed += 1;
                continue;
            }
            found.leaked = (found.leaked.0 + 1, found.leaked.1.saturating_add(block.size));
            let Some(site) = site else { continue };
            let sum = sums.entry((site, kind == LeakKind::Direct)).or_insert((0.0, 0.0, u64::MAX));
            *sum = (sum.0 + block.amount().bytes, sum.1 + block.weight, sum.2.min(block.time_ns));
        }

        let keys: Vec<((usize, bool), u64)> = sums.keys().map(|&at| (at, key_of(whole, &whole.sites[at.0]))).collect();
        let mut texts: HashMap<u64, Option<Arc<SiteText>>> = keys.iter().map(|&(_, key)| (key, None)).collect();
        for site in &model.sites {
            if let Some(text) = texts.get_mut(&site.key) {
                *text = Some(Arc::clone(&site.text));
            }
        }
        let mut names = ShortNames::default();
        for (at, key) in keys {
            let text = texts.get(&key).cloned().flatten();
            // A comparison with a file has other keys; what the filter leaves out has none.
            let made = || Arc::new(text_of(whole, &whole.sites[at.0], &mut names));
            let Some(text) = text.or_else(|| model.filter.is_empty().then(made)) else { continue };
            let (bytes, blocks, oldest) = sums[&at];
            let kind = Some(if at.1 { LeakKind::Direct } else { LeakKind::Indirect });
            found.rows.push(Row { key, text, kind, bytes, blocks, age_ns: model.age_ns(oldest) });
        }
        found
    }
}
