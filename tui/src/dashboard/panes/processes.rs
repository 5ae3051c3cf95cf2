//! The table of the processes to choose from. It lies over the views, and is a table like theirs.

use super::rows::Rows;
use super::sort::Sort;
use crate::dashboard::widgets::table::Column;

/// The columns; `ProcessRow::compare` has their order.
const COLUMNS: &[Column] = &[
    Column { title: "Pid", width: 8, right: true, rank: 0 },
    Column { title: "User", width: 10, right: false, rank: 5 },
    Column { title: "Program", width: 16, right: false, rank: 0 },
    Column { title: "In use", width: 9, right: true, rank: 1 },
    Column { title: "RSS", width: 9, right: true, rank: 0 },
    Column { title: "Growth/min", width: 12, right: true, rank: 2 },
    Column { title: "Up", width: 8, right: true, rank: 3 },
    Column { title: "Arguments", width: 0, right: false, rank: 4 },
];

/// Those that are text, and the process id: what is started later is not more.
const TEXT: &[usize] = &[0, 1, 2, 7];

/// Index of the column of resident sets.
const RSS: usize = 4;

/// Index of the column of users, which is there if they are of somebody else, too.
pub(crate) const USER: usize = 1;

/// No processes yet, the largest first.
pub(crate) fn rows() -> Rows {
    Rows::new(COLUMNS, TEXT, 8, Sort::falling(RSS))
}
