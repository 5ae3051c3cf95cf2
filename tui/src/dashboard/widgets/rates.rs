//! Cells of tables that say how often something happens, and how well that goes.

use ratatui::text::{Line, Span};

use super::bar::bar;
use super::table::cell;
use crate::dashboard::theme::Theme;
use crate::words::numbers;

/// Events per second; none is a dot, so that the others stand out.
pub(crate) fn rate_cell(rate: Option<f64>, theme: &Theme) -> Line<'static> {
    match rate {
        Some(rate) if rate > 0.0 => cell(numbers::count_rate(rate), theme.alloc),
        _ => cell("·", theme.faint),
    }
}

/// Of fewer allocations a rate says nothing: the first of each size class is a miss.
const FEW: u64 = 1000;

/// `99.2% ━━━━`: few hits of many allocations are drawn loud.
pub(crate) fn hit_bar(rate: Option<f64>, allocs: u64, width: u16, theme: &Theme) -> Line<'static> {
    let Some(rate) = rate else { return cell("-", theme.dim) };
    let style = if allocs < FEW {
        theme.dim
    } else if rate >= 0.9 {
        theme.ok
    } else if rate >= 0.6 {
        theme.warn
    } else {
        theme.alert
    };
    let room = usize::from(width.saturating_sub(8)).min(32);
    Line::from(vec![
        Span::styled(format!("{:>6}  ", format!("{:.1}%", 100.0 * rate)), style),
        Span::styled(bar(rate, room), style),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dashboard::theme::ThemeChoice;

    #[test]
    fn misses_of_a_few_allocations_are_no_alarm() {
        let theme = Theme::choose(ThemeChoice::Dark, |_| None);
        let style = |rate, allocs| hit_bar(Some(rate), allocs, 20, &theme).spans[0].style;
        assert_eq!(style(0.4, 5), theme.dim);
        assert_eq!(style(0.4, 5_000), theme.alert);
        assert_eq!(style(0.99, 5_000), theme.ok);
    }
}
