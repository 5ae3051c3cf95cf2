//! How what a call site holds develops, in a cell of a table.

use poolscope_profiler::Metric;
use poolscope_profiler::model::growth::SERIES;
use ratatui::text::Line;

use super::table::cell;
use crate::dashboard::model::flame_tree::format_change;
use crate::dashboard::model::site::SiteRow;
use crate::dashboard::theme::Theme;
use crate::words::numbers;

/// `+41.2 MiB ▲` a minute: a slope that is no clear one is not shown, and the mark says that it grows for certain.
pub(crate) fn slope_cell(site: &SiteRow, theme: &Theme) -> Line<'static> {
    let Some(slope) = site.clear_slope() else { return cell("·", theme.faint) };
    let sign = if slope > 0.0 { "+" } else { "" };
    match site.grows() {
        true => cell(format!("{sign}{} ▲", numbers::bytes(slope)), theme.alert),
        false => cell(format!("{sign}{}  ", numbers::bytes(slope)), theme.text),
    }
}

/// How a figure differs from that of the base.
pub(crate) fn change_cell(site: &SiteRow, metric: Metric, theme: &Theme) -> Line<'static> {
    match site.change.as_ref().map_or(0.0, |change| change[metric as usize]) {
        0.0 => cell("·", theme.faint),
        change => {
            let style = if change > 0.0 { theme.alert } else { theme.ok };
            cell(format_change(metric, change), style)
        }
    }
}

/// The last minutes in a line of so many columns: as high as the most of them. What grows is told from the rest by its
/// colour, too.
pub(crate) fn sparkline_cell(site: &SiteRow, width: u16, theme: &Theme) -> Line<'static> {
    cell(sparkline(site, usize::from(width)), if site.grows() { theme.live } else { theme.dim })
}

/// A full block is none of the heights: the lines of rows that are level would be one wall.
fn sparkline(site: &SiteRow, width: usize) -> String {
    const HEIGHTS: [char; 7] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇'];
    let Some(growth) = &site.growth else { return String::new() };
    if growth.heights == [0; SERIES] {
        return String::new();
    }
    let from = SERIES.saturating_sub(width);
    let highest = HEIGHTS.len() - 1;
    let height = |&part: &u8| HEIGHTS[(usize::from(part) * highest + 127) / 255];
    growth.heights[from..].iter().map(height).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dashboard::model::fixture;

    #[test]
    fn what_grows_rises_and_what_is_level_does_not() {
        let model = fixture::model();
        let growing = model.sites.iter().find(|site| site.grows()).expect("one grows");
        let line: Vec<char> = sparkline(growing, 16).chars().collect();
        assert!(line.is_sorted() && line[0] == '▁' && line[15] == '▇', "{line:?}");
        let level = model.sites.iter().find(|site| !site.grows()).expect("others don't");
        assert_eq!(sparkline(level, 4), "▇▇▇▇");
        assert_eq!(level.clear_slope(), None);
    }
}
