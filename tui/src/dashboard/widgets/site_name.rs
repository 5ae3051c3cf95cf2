//! A call site in a line.

use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use crate::dashboard::model::site::SiteText;
use crate::dashboard::theme::Theme;
use crate::words::name::{clip_name, own_name, typed_name, without_path};
use crate::words::numbers;

/// `function file:line ‹ caller ‹ caller`, as much of it as there is room for. Rows of one function differ by the line
/// or by the caller. Before one of these goes, the file does, and then the function's path: `remember:58 ‹ handle`.
pub(crate) fn name_line(text: &SiteText, width: usize, theme: &Theme) -> Line<'static> {
    line_of(text, width, theme, false)
}

/// The same where most are of one helper, such as `Training::tensor:52`: the caller stays rather than the path.
pub(crate) fn name_line_of_helper(text: &SiteText, width: usize, theme: &Theme) -> Line<'static> {
    line_of(text, width, theme, true)
}

fn line_of(text: &SiteText, width: usize, theme: &Theme, is_helper: bool) -> Line<'static> {
    let function = &*text.function;
    let place = text.place.as_deref().map_or(String::new(), |place| format!(" {place}"));
    let line = place.rsplit_once(':').map_or(String::new(), |(_, line)| format!(":{line}"));
    // A closure's name tells no row from another.
    let caller = text.callers.first().map(|caller| without_path(caller, 0)).filter(|caller| !caller.starts_with('{'));
    let caller = caller.map_or(0, |caller| CALLED_BY.width() + caller.width());
    let (typed, own) = (typed_name(function).width(), own_name(function).width());
    // Of a caller that is long, a part stays beside the line.
    let part = caller.min(CALLED_BY.width() + LEAST_CALLER);
    let shown = [
        (&*place, caller, function.width()),
        (&*line, caller, typed),
        ("", caller, typed),
        (&*line, part, typed),
        if is_helper { (&*line, part, own) } else { (&*line, 0, typed) },
        (&*line, 0, typed),
        (&*line, 0, own),
    ];
    let fits = shown.into_iter().find(|(place, caller, function)| function + place.width() + caller <= width);
    let (place, caller) = fits.map_or(("", 0), |(place, caller, _)| (place, caller));
    let function = clip_name(function, width.saturating_sub(place.width() + caller));
    let mut left = width.saturating_sub(function.width() + place.width());
    let mut spans = vec![Span::styled(function, theme.text), Span::styled(place.to_owned(), theme.dim)];
    for caller in &text.callers {
        let own = without_path(caller, 0).width();
        // A part of a closure's name tells nothing.
        let least = if caller.starts_with('{') { own } else { own.min(LEAST_CALLER) };
        if left < CALLED_BY.width() + least {
            break;
        }
        let part = format!("{CALLED_BY}{}", clip_name(caller, left - CALLED_BY.width()));
        left -= part.width();
        spans.push(Span::styled(part, theme.dim));
    }
    spans.retain(|span| !span.content.is_empty());
    Line::from(spans)
}

/// Columns below which a caller's own name is not cut.
const LEAST_CALLER: usize = 8;

/// Between a function and its caller.
const CALLED_BY: &str = " ‹ ";

/// `1 site`, `1,234 sites`.
pub(crate) fn sites_count(count: usize) -> String {
    format!("{} {}", numbers::grouped(count as u64), if count == 1 { "site" } else { "sites" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dashboard::theme::ThemeChoice;

    fn shown(function: &str, place: Option<&str>, callers: &[&str], width: usize) -> String {
        let callers = callers.iter().map(|&caller| caller.into()).collect();
        let text = SiteText { function: function.into(), place: place.map(Into::into), callers, ..SiteText::default() };
        let line = name_line(&text, width, &Theme::choose(ThemeChoice::Dark, |_| None)).to_string();
        assert!(line.width() <= width, "{line} in {width}");
        line
    }

    #[test]
    fn what_tells_rows_of_one_function_apart_stays() {
        let remember = |width| {
            let callers = ["kv::server::handle", "kv::server::work"];
            shown("kv::audit::Trail::remember", Some("audit.rs:41"), &callers, width)
        };
        assert_eq!(remember(80), "kv::audit::Trail::remember audit.rs:41 ‹ kv::server::handle ‹ kv::server::work");
        assert_eq!(remember(48), "kv::audit::Trail::remember audit.rs:41 ‹ handle");
        assert_eq!(remember(40), "kv::audit::Trail::remember:41 ‹ handle");
        assert_eq!(remember(28), "Trail::remember:41 ‹ handle");
        assert_eq!(remember(20), "Trail::remember:41");
        assert_eq!(remember(16), "remember:41");
        assert_eq!(remember(8), "remember");
        assert_eq!(remember(6), "remem…");
        // A helper's name says nothing: who called it does, even in part.
        let helper = shown("tensor", Some("training.rs:52"), &["training::make_optimizer_state"], 25);
        assert_eq!(helper, "tensor:52 ‹ make_o…_state");
        let (function, callers) =
            ("gpu::training::Training::tensor".into(), vec!["train::Training::load_weights".into()]);
        let text = SiteText { function, place: Some("training.rs:52".into()), callers, ..SiteText::default() };
        let theme = Theme::choose(ThemeChoice::Dark, |_| None);
        assert_eq!(name_line(&text, 28, &theme).to_string(), "Training::tensor:52");
        assert_eq!(name_line_of_helper(&text, 28, &theme).to_string(), "tensor:52 ‹ load_weights");
        assert_eq!(shown("main", None, &[], 20), "main");
        assert_eq!(shown("[libssl.so.3+0x1240]", None, &["SSL_CTX_new"], 40), "[libssl.so.3+0x1240] ‹ SSL_CTX_new");
        assert_eq!(shown("{closure#4}", Some("store.rs:34"), &["{closure#0}"], 24), "{closure#4} store.rs:34");
    }
}
