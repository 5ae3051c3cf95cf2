//! How the overview is drawn.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use poolscope_wire::Unit;

use super::Overview;
use crate::dashboard::model::{Model, TierRow};
use crate::dashboard::panes::Scene;
use crate::dashboard::theme::Theme;
use crate::dashboard::widgets::bar::bar;
use crate::dashboard::widgets::panel::{inside, panel};
use crate::dashboard::widgets::site_name::{name_line, sites_count};
use crate::dashboard::widgets::table::{Column, Table, cell};
use crate::dashboard::widgets::time_chart::{Series, TimeChart, span_for};
use crate::words::{clip, numbers};

/// Where the three parts lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    chart: Rect,
    tiers: Rect,
    /// The list of call sites, with its frame.
    pub(super) sites: Rect,
}

/// Counters that come first when there is no room for all.
const FIRST_TIERS: [&str; 9] = [
    "slab_bytes",
    "large_bytes",
    "page_heap_free_bytes",
    "system_used_bytes",
    "system_released_bytes",
    "central_hits",
    "transfer_blocks",
    "samples",
    "threads_live",
];

impl Overview {
    /// Divides the body.
    pub(super) fn parts(&self, body: Rect) -> Parts {
        let nothing = Rect { width: 0, height: 0, ..body };
        if self.all_tiers {
            return Parts { chart: nothing, tiers: body, sites: nothing };
        }
        if body.width >= 110 && body.height >= 24 {
            let tiers_width = if body.width >= 160 { 52 } else { 44 };
            let left = body.width - tiers_width;
            let chart_height = (body.height * 9 / 20).max(10);
            let chart = Rect { width: left, height: chart_height, ..body };
            let sites = Rect { y: body.y + chart_height, width: left, height: body.height - chart_height, ..body };
            return Parts { chart, tiers: Rect { x: body.x + left, width: tiers_width, ..body }, sites };
        }
        let lower = (body.height / 2).clamp(5, 11);
        let chart = Rect { height: body.height - lower, ..body };
        let below = Rect { y: chart.bottom(), height: lower, ..body };
        let tiers_width = if body.width >= 76 { 32 } else { 0 };
        let sites = Rect { width: below.width - tiers_width, ..below };
        Parts { chart, tiers: Rect { x: sites.right(), width: tiers_width, ..below }, sites }
    }

    /// Draws the view.
    pub(super) fn draw_in(&self, scene: &Scene<'_>, buf: &mut Buffer) {
        let Some(model) = scene.model else { return };
        let (theme, parts) = (scene.theme, self.parts(scene.body));
        if parts.chart.height > 0 {
            chart(theme, model, parts.chart, buf);
        }
        if parts.tiers.width > 0 {
            tiers(theme, model, parts.tiers, buf);
        }
        if parts.sites.height > 0 {
            self.draw_sites(theme, model, parts.sites, buf);
        }
    }
}

fn chart(theme: &Theme, model: &Model, area: Rect, buf: &mut Buffer) {
    let live = if model.live_is_estimate() { "live (estimate)" } else { "live" };
    let legend = Line::from(vec![
        Span::styled("⣿ ", theme.live),
        Span::styled(live, theme.text),
        Span::styled("   ⠒ ", theme.rss),
        Span::styled("RSS", theme.text),
    ]);
    let inner = panel(area, buf, theme, "Memory", legend);
    let points = model.history.points();
    let now = points.last().map_or(0.0, |p| p.at_s);
    let age = points.first().map_or(0.0, |p| now - p.at_s);
    let live: Vec<(f64, Option<f64>)> = points.iter().map(|p| (p.at_s, Some(p.live_bytes))).collect();
    let rss: Vec<(f64, Option<f64>)> = points.iter().map(|p| (p.at_s, p.rss_bytes)).collect();
    let series = [
        Series { points: &live, style: theme.live, filled: true },
        Series { points: &rss, style: theme.rss, filled: false },
    ];
    TimeChart { series: &series, now, span: span_for(age) }.draw(inner, buf, theme);
}

const TIER_COLUMNS: &[Column] = &[
    Column { title: "Counter", width: 0, right: false, rank: 0 },
    Column { title: "Value", width: 8, right: true, rank: 0 },
    Column { title: "Change", width: 11, right: true, rank: 1 },
];

fn tiers(theme: &Theme, model: &Model, area: Rect, buf: &mut Buffer) {
    let inner = inside(area);
    let room = usize::from(inner.height.saturating_sub(1));
    let all = model.tiers.len() <= room;
    let rows: Vec<&TierRow> = if all {
        model.tiers.iter().collect()
    } else {
        let first = FIRST_TIERS.iter().filter_map(|name| model.tiers.iter().find(|t| t.info.name == *name));
        let others = model.tiers.iter().filter(|t| !FIRST_TIERS.contains(&t.info.name));
        first.chain(others).take(room).collect()
    };
    let right =
        if all { Line::default() } else { Line::styled(format!("{} of {}", rows.len(), model.tiers.len()), theme.dim) };
    panel(area, buf, theme, "Tiers", right);
    // No row is selected here: the column of the mark is given to the text.
    let text = Rect { x: inner.x.saturating_sub(2), width: inner.width + 2, ..inner };
    let table = Table { columns: TIER_COLUMNS, fill_min: 12, sorted: None, selected: None, rows: rows.len() };
    table.draw(text, buf, theme, |row, column, width| {
        let tier = rows[row];
        match column {
            0 => cell(clip(&tier_name(tier), usize::from(width)), theme.text),
            1 => cell(tier_value(tier, tier.value as f64), theme.strong),
            _ => match tier.rate {
                Some(rate) if rate.abs() >= 0.05 => {
                    let sign = if rate > 0.0 && !tier.info.monotonic { "+" } else { "" };
                    cell(format!("{sign}{}/s", tier_value(tier, rate)), theme.dim)
                }
                _ => cell("·", theme.faint),
            },
        }
    });
}

/// `page_heap_free_bytes` as `Page heap free`.
fn tier_name(tier: &TierRow) -> String {
    let words = tier.info.name.trim_end_matches("_bytes").replace('_', " ");
    let mut chars = words.chars();
    chars.next().map(|c| c.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

fn tier_value(tier: &TierRow, value: f64) -> String {
    match tier.info.unit {
        Unit::Bytes => numbers::bytes(value),
        Unit::Count => numbers::scaled(value),
    }
}

const SITE_COLUMNS: &[Column] = &[
    Column { title: "In use", width: 8, right: true, rank: 0 },
    Column { title: "Share", width: 6, right: true, rank: 1 },
    Column { title: "", width: 8, right: false, rank: 2 },
    Column { title: "Call site", width: 0, right: false, rank: 0 },
];

impl Overview {
    /// The list of call sites as a table, for drawing and hit-testing.
    pub(super) fn sites_table(&self) -> Table<'static> {
        let rows = self.order.len();
        Table { columns: SITE_COLUMNS, fill_min: 24, sorted: None, selected: (rows > 0).then_some(self.selected), rows }
    }

    fn draw_sites(&self, theme: &Theme, model: &Model, area: Rect, buf: &mut Buffer) {
        let right = Line::styled(sites_count(model.sites.len()), theme.dim);
        let inner = panel(area, buf, theme, "Largest call sites", right);
        if self.order.is_empty() {
            buf.set_string(inner.x, inner.y, clip("Nothing sampled is in use yet.", inner.width.into()), theme.dim);
            return;
        }
        self.sites_table().draw(inner, buf, theme, |row, column, width| {
            let Some(site) = model.sites.get(self.order[row]) else { return Line::default() };
            match column {
                0 => cell(numbers::bytes(site.in_use.bytes), theme.strong),
                1 => cell(numbers::percent(site.in_use.bytes, model.live.bytes), theme.text),
                2 => cell(bar(site.in_use.bytes / model.live.bytes, usize::from(width)), theme.live),
                _ => name_line(&site.text, usize::from(width), theme),
            }
        });
    }
}
