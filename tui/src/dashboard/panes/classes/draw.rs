//! How the table is drawn, and above it what goes from tier to tier.

use std::cmp::Ordering;

use poolscope_profiler::model::accounting::Part;
use poolscope_wire::TierCounter;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

use crate::dashboard::model::{ClassRow, Model};
use crate::dashboard::panes::Scene;
use crate::dashboard::panes::rows::Rows;
use crate::dashboard::theme::Theme;
use crate::dashboard::widgets::bar::bar;
use crate::dashboard::widgets::panel::panel;
use crate::dashboard::widgets::rates::{hit_bar, rate_cell};
use crate::dashboard::widgets::table::{Column, Hidden, Table, cell};
use crate::words::{clip, numbers};

/// Index of the column of block sizes.
pub(super) const BLOCK: usize = 0;

/// The columns.
pub(super) const COLUMNS: &[Column] = &[
    Column { title: "Block", width: 8, right: true, rank: 0 },
    Column { title: "In use", width: 9, right: true, rank: 0 },
    Column { title: "Share", width: 10, right: false, rank: 5 },
    Column { title: "Free", width: 9, right: true, rank: 3 },
    Column { title: "Full", width: 6, right: true, rank: 1 },
    Column { title: "Blocks", width: 8, right: true, rank: 4 },
    Column { title: "Slabs", width: 7, right: true, rank: 6 },
    Column { title: "Slab", width: 8, right: true, rank: 8 },
    Column { title: "Allocs", width: 8, right: true, rank: 0 },
    Column { title: "Allocs/s", width: 9, right: true, rank: 2 },
    Column { title: "Refills", width: 8, right: true, rank: 7 },
    Column { title: "Thread cache hits", width: 0, right: false, rank: 0 },
];

/// The natural order by a column.
pub(super) fn compare(a: &ClassRow, b: &ClassRow, column: usize) -> Ordering {
    match column {
        0 => a.stats.block_bytes.cmp(&b.stats.block_bytes),
        1 | 2 => a.stats.in_use_bytes().cmp(&b.stats.in_use_bytes()),
        3 => free(a).cmp(&free(b)),
        4 => full(a).unwrap_or(1.0).total_cmp(&full(b).unwrap_or(1.0)),
        5 => a.stats.in_use_blocks().cmp(&b.stats.in_use_blocks()),
        6 => a.stats.slabs().cmp(&b.stats.slabs()),
        7 => a.stats.slab_bytes.cmp(&b.stats.slab_bytes),
        8 => a.stats.allocs().cmp(&b.stats.allocs()),
        9 => a.rate.unwrap_or(0.0).total_cmp(&b.rate.unwrap_or(0.0)),
        10 => a.stats.misses().cmp(&b.stats.misses()),
        _ => a.stats.hit_rate().unwrap_or(0.0).total_cmp(&b.stats.hit_rate().unwrap_or(0.0)),
    }
}

/// Bytes of its free blocks that have memory behind them.
pub(super) fn free(class: &ClassRow) -> u64 {
    let s = &class.stats;
    s.bytes(s.free_blocks().saturating_sub(s.untouched_blocks()))
}

/// The share of its memory that is in use; none if it has no memory.
fn full(class: &ClassRow) -> Option<f64> {
    let (used, free) = (class.stats.in_use_bytes() as f64, free(class) as f64);
    (used + free > 0.0).then(|| used / (used + free))
}

/// The tiers, from the one that a program's calls reach first.
const TIERS: [&str; 5] = ["thread caches", "transfer cache", "central cache", "page heap", "system"];

const FLOW_COLUMNS: &[Column] = &[
    Column { title: "Tier", width: 14, right: false, rank: 0 },
    Column { title: "Holds", width: 9, right: true, rank: 0 },
    Column { title: "Asked", width: 8, right: true, rank: 1 },
    Column { title: "Asked/s", width: 9, right: true, rank: 2 },
    Column { title: "Had it", width: 0, right: false, rank: 0 },
];

/// Rows of a view from which on the flow is shown: the table below it keeps some.
const ROOMY: u16 = 16;

/// Where the flow lies, and where the table, both with their frames.
pub(super) fn areas(model: &Model, body: Rect) -> (Rect, Rect) {
    let shown = body.height >= ROOMY && !model.classes.is_empty();
    let height = if shown { TIERS.len() as u16 + 3 } else { 0 };
    (Rect { height, ..body }, Rect { y: body.y + height, height: body.height - height, ..body })
}

/// What one tier does not have, the next one is asked for.
fn flow(model: &Model, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let right = Line::styled("what one tier does not have, the next is asked for", theme.dim);
    let inner = panel(area, buf, theme, "From tier to tier", right);
    let rate_of = |counter: TierCounter| {
        let row = model.tiers.get(counter as usize);
        row.and_then(|row| row.rate)
    };
    let (allocs, misses) = model
        .classes
        .iter()
        .fold((0u64, 0u64), |(a, m), c| (a.saturating_add(c.stats.allocs()), m.saturating_add(c.stats.misses())));
    let alloc_rate = model.classes.iter().filter_map(|class| class.rate).reduce(|a, b| a + b);
    let had = |served: u64, asked: u64| (asked > 0).then(|| served.min(asked) as f64 / asked as f64);
    let (found, missed) = (model.tier(TierCounter::CentralHits), model.tier(TierCounter::CentralMisses));
    let central_rate = rate_of(TierCounter::CentralHits).zip(rate_of(TierCounter::CentralMisses)).map(|(a, b)| a + b);
    let held = |part| model.accounting.get(part);
    let tier = |at: usize| match at {
        0 => (held(Part::ThreadCaches), allocs, alloc_rate, had(allocs.saturating_sub(misses), allocs)),
        1 => {
            let blocks = TierCounter::TransferBlocks;
            (held(Part::TransferCache), model.tier(blocks), rate_of(blocks), None)
        }
        2 => (held(Part::CentralCache), found + missed, central_rate, had(found, found + missed)),
        3 => {
            let spans = TierCounter::PageHeapAllocs;
            (held(Part::Free), model.tier(spans), rate_of(spans), None)
        }
        _ => {
            let calls = TierCounter::SystemCalls;
            (model.accounting.pool(), model.tier(calls), rate_of(calls), None)
        }
    };
    let said = ["", "freed by other threads", "", "spans of pages", "calls to the kernel"];
    let table = Table {
        columns: FLOW_COLUMNS,
        hidden: Hidden::default(),
        fill_min: 16,
        sorted: None,
        selected: None,
        rows: TIERS.len(),
    };
    table.draw(inner, buf, theme, |row, column, width| {
        let (bytes, asked, rate, had) = tier(row);
        match column {
            0 => cell(TIERS[row], theme.text),
            1 => cell(numbers::bytes(bytes as f64), theme.strong),
            2 => cell(numbers::scaled(asked as f64), theme.text),
            3 => rate_cell(rate, theme),
            _ if row == 0 => hit_bar(had, asked, width, theme),
            // That it seldom has a slab is nothing bad.
            _ if said[row].is_empty() => cell(had.map_or("-".to_owned(), |had| numbers::percent(had, 1.0)), theme.text),
            _ => cell(clip(said[row], usize::from(width)), theme.dim),
        }
    });
}

/// Draws the view.
pub(super) fn table(rows: &Rows, scene: &Scene<'_>, buf: &mut Buffer) {
    let Some(model) = scene.model else { return };
    let theme = scene.theme;
    let right = Line::styled(format!("{} classes in use", model.classes.len()), theme.dim);
    let (above, below) = areas(model, scene.body);
    if above.height > 0 {
        flow(model, theme, above, buf);
    }
    let inner = panel(below, buf, theme, "Size classes", right);
    let most = model.classes.iter().map(|c| c.stats.in_use_bytes()).max().unwrap_or(0).max(1) as f64;
    rows.table().draw(inner, buf, theme, |row, column, width| {
        let Some(class) = model.classes.get(rows.order[row]) else { return Line::default() };
        let s = &class.stats;
        match column {
            0 => cell(numbers::bytes(s.block_bytes as f64), theme.strong),
            1 => cell(numbers::bytes(s.in_use_bytes() as f64), theme.text),
            2 => cell(bar(s.in_use_bytes() as f64 / most, usize::from(width)), theme.live),
            3 => cell(numbers::bytes(free(class) as f64), theme.dim),
            4 => cell(full(class).map_or("-".to_owned(), |share| numbers::percent(share, 1.0)), theme.text),
            5 => cell(numbers::scaled(s.in_use_blocks() as f64), theme.text),
            6 => cell(numbers::scaled(s.slabs() as f64), theme.dim),
            7 => cell(numbers::bytes(s.slab_bytes as f64), theme.dim),
            8 => cell(numbers::scaled(s.allocs() as f64), theme.text),
            9 => rate_cell(class.rate, theme),
            10 => cell(numbers::scaled(s.misses() as f64), theme.dim),
            _ => hit_bar(s.hit_rate(), s.allocs(), width, theme),
        }
    });
}
