//! Which call sites are written where a reader wants the first of them alone.

use crate::model::memory::Place;
use crate::model::profile::Site;

/// A figure of the site at an index.
pub(crate) type Figure<'a> = &'a dyn Fn(usize) -> f64;

/// The indices of the sites that are among the first `rows` of their memory by one of the figures, in order; of all
/// without `rows`. None is among the first by a figure that it has nothing of.
pub(crate) fn among_first(sites: &[Site], rows: Option<usize>, figures: &[Figure<'_>]) -> Vec<usize> {
    let Some(rows) = rows else { return (0..sites.len()).collect() };
    let mut places: Vec<Place> = sites.iter().map(|site| site.place).collect();
    places.sort_unstable();
    places.dedup();
    let mut chosen = vec![false; sites.len()];
    for place in places {
        let of_place = || (0..sites.len()).filter(|&at| sites[at].place == place);
        for figure in figures {
            let mut ranked: Vec<(f64, usize)> =
                of_place().map(|at| (figure(at), at)).filter(|(amount, _)| *amount > 0.0).collect();
            ranked.sort_by(|(a, at), (b, other)| b.total_cmp(a).then(at.cmp(other)));
            ranked.iter().take(rows).for_each(|&(_, at)| chosen[at] = true);
        }
    }
    (0..sites.len()).filter(|&at| chosen[at]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_first_by_any_figure_is_written_in_order() {
        let site = |place| Site { place, ..Site::default() };
        let sites = [Place::Host, Place::Host, Place::Host, Place::Device(0), Place::Host].map(site);
        let (in_use, allocated) = ([1.0, 5.0, 2.0, 0.5, 0.0], [1.0, 6.0, 0.0, 0.5, 9.0]);
        let of = |rows| among_first(&sites, rows, &[&|at| in_use[at], &|at| allocated[at]]);
        assert_eq!(of(Some(1)), [1, 3, 4]);
        assert_eq!(of(Some(2)), [1, 2, 3, 4]);
        assert_eq!(of(Some(0)), Vec::<usize>::new());
        assert_eq!(of(None), [0, 1, 2, 3, 4]);
    }
}
