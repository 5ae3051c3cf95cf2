//! What the program has lost, by its own search for it; or, where nobody searched, what is in use, the oldest first.
//! Nothing is called leaked that no search has found.

mod draw;
mod found;

use std::cmp::Ordering;
use std::sync::Arc;

use crossterm::event::KeyCode;
use poolscope_profiler::leaks::LeakKind;
use poolscope_profiler::model::snapshot::ProcessState;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::listing::{Asked, Listing, TablePane, key_of, ordering};
use super::rows::Rows;
use super::sort::Sort;
use super::{Reply, Scene, Source, Subject, View};
use crate::dashboard::events::Searched;
use crate::dashboard::input::key::{Binding, Section, named, plain};
use crate::dashboard::model::Model;
use found::{Found, Row};

/// Its line in the table of views.
pub(crate) const VIEW: View = View {
    name: "leaks",
    title: "Leaks",
    help: "What the program can't reach any more, or what is in use, the oldest first",
    source: Source::Readings,
    make: || {
        Box::new(TablePane::new(Rows::new(draw::COLUMNS, &[draw::KIND, draw::SITE], 20, OLDEST), Leaks::default()))
    },
};

/// The oldest first.
const OLDEST: Sort = Sort::falling(draw::AGE);
/// Most bytes first.
const LARGEST: Sort = Sort::falling(draw::BYTES);

#[derive(Debug, Default)]
struct Leaks {
    found: Found,
    /// The program was asked, and has not answered yet.
    is_searching: bool,
    /// Why it did not search.
    refused: Option<String>,
    /// The process is there, and not in a recording.
    runs: bool,
    /// Every allocation is recorded: otherwise it refuses to look.
    exact: bool,
    /// Whose these are: process id and start.
    of: Option<(u32, u64)>,
}

/// What only this view can be asked for: that the program searches, itself or by a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Search {
    copy: bool,
}

impl Listing for Leaks {
    type Row = Row;
    type Own = Search;
    const KEYS: &'static [Binding<Asked<Search>>] = {
        let [next, previous, reverse] = ordering();
        &[
            Binding {
                keys: &[plain('l')],
                action: Asked::Own(Search { copy: false }),
                label: "look for leaks",
                help: "Have the program look what it can't reach any more; its threads wait meanwhile",
                section: Section::View,
                footer: true,
            },
            Binding {
                keys: &[plain('L')],
                action: Asked::Own(Search { copy: true }),
                label: "look in a copy",
                help: "The same by a copy of the process: its threads wait for the copy only",
                section: Section::View,
                footer: false,
            },
            next,
            previous,
            reverse,
            Binding {
                keys: &[named(KeyCode::Enter)],
                action: Asked::Open,
                label: "call site",
                help: "Show the call site with its stack",
                section: Section::View,
                footer: true,
            },
        ]
    };

    fn take(&mut self, model: &Arc<Model>, rows: &mut Rows) {
        let process = &model.snapshot.process;
        let of = Some((process.pid, process.start_realtime_ns));
        if self.of != of {
            *self = Leaks { of, ..Leaks::default() };
            rows.sort = OLDEST;
        }
        let had = self.found.is_of_a_search();
        self.runs = process.state == ProcessState::Running && !model.is_recorded();
        self.exact = model.snapshot.exact;
        self.found = Found::in_model(model);
        let has = self.found.is_of_a_search();
        if had != has {
            rows.sort = if has { LARGEST } else { OLDEST };
        }
        rows.absent = rows.absent.with(draw::KIND, !has);
    }

    fn rows<'a>(&'a self, _model: &'a Model) -> &'a [Row] {
        &self.found.rows
    }

    fn compare(a: &Row, b: &Row, column: usize) -> Ordering {
        draw::compare(a, b, column)
    }

    fn key(row: &Row) -> u64 {
        key_of((row.key, row.kind == Some(LeakKind::Indirect)))
    }

    const FIELDS: &'static [&'static str] = &["leaked", "bytes", "blocks", "oldest_seconds", "function", "file"];

    fn record(row: &Row) -> Vec<String> {
        let kind = match row.kind {
            Some(LeakKind::Indirect) => "indirectly",
            Some(_) => "directly",
            None => "",
        };
        vec![
            kind.to_owned(),
            format!("{:.0}", row.bytes),
            format!("{:.0}", row.blocks),
            row.age_ns.map(|age| format!("{:.1}", age as f64 / 1e9)).unwrap_or_default(),
            row.text.function.to_string(),
            row.text.place.as_deref().unwrap_or_default().to_owned(),
        ]
    }

    fn open(&self, row: &Row) -> Reply {
        Reply::Show(Subject::Site(row.key))
    }

    fn can(&self, _search: Search) -> bool {
        self.runs && self.exact
    }

    fn own(&mut self, search: Search, _scene: &Scene<'_>) -> Reply {
        if !self.runs {
            return Reply::Note("only a program that runs can look".into());
        }
        (self.is_searching, self.refused) = (true, None);
        Reply::Search { copy: search.copy }
    }

    fn searched(&mut self, searched: &Searched) {
        (self.is_searching, self.refused) = (false, searched.as_ref().err().cloned());
    }

    fn place(&self, model: &Model, body: Rect) -> Rect {
        draw::place(&self.sentence(model), body)
    }

    fn copied(&self, row: &Row) -> Option<String> {
        Some(row.text.function.to_string())
    }

    fn draw(&self, rows: &Rows, scene: &Scene<'_>, buf: &mut Buffer) {
        self.draw_in(rows, scene, buf);
    }
}
