//! Call sites as tables list them: those that no name tells apart are one row
//! ([`ByNames`](poolscope_profiler::build::by_names::ByNames)).

use std::collections::HashMap;
use std::sync::Arc;

use super::site::{SiteRow, Trend};

/// The rows of a table of call sites, each where the first of them stands; none if every call site is a row.
///
/// A row has the stack of the largest of its call sites, and the figures of all.
pub(crate) fn of(sites: &[SiteRow]) -> Option<Arc<[SiteRow]>> {
    if sites.iter().all(|site| site.names == 0) {
        return None;
    }
    let mut index: HashMap<u64, usize> = HashMap::new();
    let mut rows: Vec<SiteRow> = Vec::new();
    let mut largest: Vec<f64> = Vec::new();
    let mut others: Vec<Vec<u64>> = Vec::new();
    for site in sites {
        let at = if site.names == 0 { rows.len() } else { *index.entry(site.names).or_insert(rows.len()) };
        let bytes = site.in_use.bytes;
        let Some(row) = rows.get_mut(at) else {
            rows.push(site.clone());
            largest.push(bytes);
            others.push(Vec::new());
            continue;
        };
        let is_largest = bytes > largest[at];
        others[at].push(if is_largest { row.key } else { site.key });
        if is_largest {
            (row.key, row.index, row.text) = (site.key, site.index, Arc::clone(&site.text));
            largest[at] = bytes;
        }
        add(row, site);
    }
    if rows.len() == sites.len() {
        return None;
    }
    rows.iter_mut().zip(others).for_each(|(row, others)| row.others = others.into());
    Some(rows.into())
}

/// Adds the figures of a call site to a row.
fn add(row: &mut SiteRow, site: &SiteRow) {
    row.in_use += site.in_use;
    row.in_use_variance += site.in_use_variance;
    row.allocated += site.allocated;
    row.rate = some_of(row.rate, site.rate, |a, b| a + b);
    row.growth = some_of(row.growth, site.growth, Trend::and);
    row.oldest_ns = match (row.oldest_ns, site.oldest_ns) {
        (0, some) | (some, 0) => some,
        (a, b) => a.min(b),
    };
    row.change = some_of(row.change.take(), site.change.clone(), |mut a, b| {
        a.iter_mut().zip(*b).for_each(|(sum, change)| *sum += change);
        a
    });
}

/// Both together, or the one that there is.
fn some_of<T>(a: Option<T>, b: Option<T>, both: impl FnOnce(T, T) -> T) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(both(a, b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dashboard::model::fixture;

    #[test]
    fn call_sites_that_no_name_tells_apart_are_one_row_with_the_stack_of_the_largest() {
        let model = fixture::model();
        assert!(of(&model.sites).is_none(), "no language that a machine runs");
        let site = |at: usize, names: u64, bytes: f64| {
            let mut site = SiteRow { names, change: Some(Box::new([1.0; 4])), ..model.sites[at].clone() };
            site.in_use.bytes = bytes;
            site
        };
        let sites = [site(0, 7, 100.0), site(1, 0, 50.0), site(2, 7, 300.0), site(3, 8, 20.0), site(4, 7, 10.0)];
        let rows = of(&sites).expect("three are one");
        let bytes: Vec<f64> = rows.iter().map(|row| row.in_use.bytes).collect();
        assert_eq!(bytes, [410.0, 50.0, 20.0]);
        assert_eq!((rows[0].key, rows[0].index, &rows[0].text), (sites[2].key, sites[2].index, &sites[2].text));
        assert!([0, 2, 4].iter().all(|&at| rows[0].has(sites[at].key)) && !rows[0].has(sites[1].key));
        assert_eq!(rows[0].change, Some(Box::new([3.0; 4])));
        let allocated: f64 = [0, 2, 4].iter().map(|&at| sites[at].allocated.bytes).sum();
        assert_eq!(rows[0].allocated.bytes, allocated);
    }
}
