//! What a person should know of the process, in words: the findings of the profiler, each with a way to what it is of.

mod draw;

use std::cmp::Ordering;
use std::sync::Arc;

use crossterm::event::KeyCode;
use poolscope_profiler::findings::{Finding, Subject as Of};
use poolscope_profiler::model::profile::Profile;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};

use super::listing::{Asked, Listing, Nothing, TablePane, key_of, ordering};
use super::rows::{Clicked, Rows};
use super::sort::Sort;
use super::{Reply, Scene, Source, Subject, View};
use crate::dashboard::input::key::{Binding, Section, named};
use crate::dashboard::model::Model;
use crate::dashboard::model::site;

/// Its line in the table of views.
pub(crate) const VIEW: View = View {
    name: "findings",
    title: "Findings",
    help: "What you should know of the process, in words",
    source: Source::Readings,
    make: || {
        let rows = Rows::new(draw::COLUMNS, &[draw::ABOUT, draw::SENTENCE], 40, Sort::falling(draw::SEVERITY));
        Box::new(TablePane::new(rows, Findings::default()))
    },
};

#[derive(Debug, Default)]
struct Findings {
    rows: Vec<Row>,
}

/// A finding.
#[derive(Debug)]
struct Row {
    finding: Finding,
    /// Where to go for it.
    subject: Subject,
    /// The same for what is found of the same again, though its figures are others.
    key: u64,
}

impl Row {
    fn new(finding: &Finding, whole: &Profile) -> Row {
        let site = match finding.subject {
            Of::Site(site) => whole.sites.get(site).map(|site| site::key_of(whole, site)),
            _ => None,
        };
        let subject = match (finding.subject, site) {
            _ if finding.rule == "leaked" => Subject::View("leaks"),
            (_, Some(key)) => Subject::Site(key),
            (Of::Site(_), None) => Subject::View("sites"),
            (Of::Memory, _) => Subject::View("overview"),
            (Of::Class(_), _) => Subject::View("classes"),
            (Of::Device(_), _) => Subject::View("gpu"),
            (Of::Children, _) => Subject::Processes,
            (Of::Samples, _) => Subject::View("counters"),
        };
        let place = match finding.subject {
            Of::Class(class) => Some(format!("class {class}")),
            Of::Device(place) => Some(format!("{place:?}")),
            _ => None,
        };
        Row { finding: finding.clone(), subject, key: key_of((finding.rule, site, place)) }
    }
}

impl Listing for Findings {
    type Row = Row;
    type Own = Nothing;
    const KEYS: &'static [Binding<Asked<Nothing>>] = {
        let [next, previous, reverse] = ordering();
        &[
            Binding {
                keys: &[named(KeyCode::Enter)],
                action: Asked::Open,
                label: "go there",
                help: "Go to what the selected finding is of",
                section: Section::View,
                footer: true,
            },
            next,
            previous,
            reverse,
        ]
    };

    fn take(&mut self, model: &Arc<Model>, _rows: &mut Rows) {
        self.rows = model.findings.iter().map(|finding| Row::new(finding, &model.whole)).collect();
    }

    fn rows<'a>(&'a self, _model: &'a Model) -> &'a [Row] {
        &self.rows
    }

    fn keeps(&self, model: &Model, row: &Row) -> bool {
        model.filter.has_words(&row.finding.sentence)
    }

    fn compare(a: &Row, b: &Row, column: usize) -> Ordering {
        match column {
            draw::SEVERITY => a.finding.severity.cmp(&b.finding.severity),
            draw::ABOUT => a.finding.subject.name().cmp(b.finding.subject.name()),
            _ => a.finding.sentence.cmp(&b.finding.sentence),
        }
    }

    fn key(row: &Row) -> u64 {
        row.key
    }

    const FIELDS: &'static [&'static str] = &["severity", "about", "rule", "finding", "evidence"];

    fn record(row: &Row) -> Vec<String> {
        let finding = &row.finding;
        let evidence: Vec<String> =
            finding.evidence.iter().map(|(name, figure)| format!("{name} {figure:.0}")).collect();
        let words = [finding.severity.word(), finding.subject.name(), finding.rule, &finding.sentence];
        words.map(str::to_owned).into_iter().chain([evidence.join("; ")]).collect()
    }

    fn open(&self, row: &Row) -> Reply {
        Reply::Show(row.subject.clone())
    }

    fn own(&mut self, nothing: Nothing, _scene: &Scene<'_>) -> Reply {
        match nothing {}
    }

    fn clicked(&self, rows: &mut Rows, model: &Model, body: Rect, at: Position) -> Option<Clicked> {
        let inner = self.place(model, body);
        if at.y == inner.y {
            return rows.click(at, Rect { height: 1, ..inner });
        }
        let (row, _) = draw::places(self, rows, inner).into_iter().find(|(_, place)| place.contains(at))?;
        let again = rows.selected == row;
        rows.selected = row;
        Some(if again { Clicked::Again } else { Clicked::Row })
    }

    fn copied(&self, row: &Row) -> Option<String> {
        Some(row.finding.sentence.clone())
    }

    fn draw(&self, rows: &Rows, scene: &Scene<'_>, buf: &mut Buffer) {
        draw::draw(self, rows, scene, buf);
    }
}
