//! The order of a table.

use std::cmp::Ordering;

/// By which column, and which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sort {
    /// Index of the column.
    pub(crate) column: usize,
    /// The largest first.
    pub(crate) falls: bool,
}

impl Sort {
    /// Largest first by a column.
    pub(crate) const fn falling(column: usize) -> Sort {
        Sort { column, falls: true }
    }

    /// Smallest first by a column.
    pub(crate) const fn rising(column: usize) -> Sort {
        Sort { column, falls: false }
    }

    /// Another column: numbers fall, text rises. The same one again turns round.
    pub(crate) fn choose(&mut self, column: usize, number: bool) {
        *self =
            if self.column == column { Sort { column, falls: !self.falls } } else { Sort { column, falls: number } };
    }

    /// The order of two rows; those that are equal stay in the order of their index.
    pub(crate) fn order(self, natural: Ordering) -> Ordering {
        if self.falls { natural.reverse() } else { natural }
    }

    /// Indices of `rows` in this order.
    pub(crate) fn sorted<T>(
        self,
        rows: &[T],
        keep: impl Fn(&T) -> bool,
        compare: impl Fn(&T, &T, usize) -> Ordering,
    ) -> Vec<usize> {
        let mut order: Vec<usize> = (0..rows.len()).filter(|&i| keep(&rows[i])).collect();
        order.sort_by(|&a, &b| self.order(compare(&rows[a], &rows[b], self.column)).then(a.cmp(&b)));
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_rows_keep_their_order_both_ways() {
        let rows = [(1, 'a'), (2, 'b'), (1, 'c'), (2, 'd')];
        let by = |sort: Sort| sort.sorted(&rows, |_| true, |a, b, _| a.0.cmp(&b.0));
        assert_eq!(by(Sort::falling(0)), [1, 3, 0, 2]);
        assert_eq!(by(Sort::rising(0)), [0, 2, 1, 3]);
    }

    #[test]
    fn choosing_a_column_twice_turns_it_round() {
        let mut sort = Sort::falling(0);
        sort.choose(0, true);
        assert_eq!(sort, Sort::rising(0));
        sort.choose(3, false);
        assert_eq!(sort, Sort::rising(3));
        sort.choose(1, true);
        assert_eq!(sort, Sort::falling(1));
    }
}
