//! One frame as text, without a terminal.

use std::sync::Arc;
use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::{Rect, Size};

use super::events::feed::{Read, Source};
use super::events::tensors;
use super::events::watched::Watched;
use super::frame;
use super::input::filter::Filter;
use super::input::moment::Seek;
use super::lens::Lens;
use super::lens::kept::Kept;
use super::model::Model;
use super::panes::{Source as Shown, VIEWS};
use super::state::State;
use super::theme::{Theme, ThemeChoice};
use super::widgets::ascii::nearest;
use super::widgets::plain::text_of;

/// Reads twice, `interval` apart, so that rates exist; a dead process is read once.
pub(crate) fn read(watched: Watched, interval: Duration) -> Result<Model, String> {
    let mut source = Source::new(watched);
    let mut first = None;
    loop {
        match source.read()? {
            Read::Model(model) => {
                let dead = model.snapshot.process.state != poolscope_profiler::model::snapshot::ProcessState::Running;
                if dead || first.is_some() {
                    return Ok(*model);
                }
                first = Some(model);
            }
            Read::NotYet | Read::Same => {}
        }
        std::thread::sleep(interval);
    }
}

/// Reads a file that does not change, at a moment of it if it is a recording.
pub(crate) fn read_file(watched: Watched, at_us: Option<u64>) -> Result<Model, String> {
    let mut source = Source::new(watched);
    let mut read = source.read()?;
    if let Some(at_us) = at_us {
        source.seek(Seek::To(at_us));
        if let newer @ Read::Model(_) = source.read()? {
            read = newer;
        }
    }
    match read {
        Read::Model(model) => Ok(*model),
        Read::NotYet | Read::Same => Err("there is nothing in it".to_owned()),
    }
}

/// What a filter leaves of a model.
pub(crate) fn filtered(model: Model, filter: Option<&str>) -> Model {
    match filter.map(Filter::parse) {
        Some(Ok(filter)) => Lens { filter: Arc::new(filter), ..Lens::default() }.through(&model, &Kept::default()),
        _ => model,
    }
}

/// A frame of a view as lines of text, plain or as a terminal would show it.
pub(crate) fn text(
    model: Model,
    view: usize,
    size: Size,
    interval: Duration,
    filter: Option<&str>,
    plain: bool,
) -> String {
    let state = state(model, view, size, interval, filter, plain);
    let mut buffer = Buffer::empty(Rect::new(0, 0, size.width, size.height));
    frame::draw(&state, &mut buffer);
    let text = text_of(&buffer);
    if plain { without_frames(&text) } else { text }
}

/// A view of a model, as the dashboard opens it.
pub(crate) fn state(
    model: Model,
    view: usize,
    size: Size,
    interval: Duration,
    filter: Option<&str>,
    plain: bool,
) -> State {
    let theme = Theme { linear: plain, ..Theme::choose(ThemeChoice::Mono, |_| None) };
    let mut state = State::new(String::new(), theme, size, interval);
    state.open(view);
    if VIEWS[view].source == Shown::NamedTensors {
        state.take_tensors(tensors::read(&model.snapshot.process).map(Arc::new));
    }
    state.take_reading(Arc::new(model));
    filter.into_iter().for_each(|filter| state.filter_by(filter));
    state
}

/// A text for those to whom frames say nothing: in ASCII, without frames and empty lines. Columns stay below each other.
fn without_frames(text: &str) -> String {
    let is_frame = |c: char| ('\u{2500}'..='\u{257f}').contains(&c);
    let line = |line: &str| {
        let kept: String = line.chars().map(|c| if is_frame(c) { ' ' } else { nearest(c) }).collect();
        let margin = kept.chars().take(MARGIN).take_while(|c| *c == ' ').count();
        kept[margin..].trim_end().to_owned()
    };
    let lines: Vec<String> = text.lines().map(line).filter(|line| !line.is_empty()).collect();
    lines.join("\n") + "\n"
}

/// Columns of a frame and the air within it.
const MARGIN: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dashboard::model::fixture;

    /// What is read aloud has one thing in a line: no panel beside another, no chart, and rows whose columns can be told.
    #[test]
    fn a_plain_frame_is_read_line_by_line() {
        let text = text(fixture::model(), 0, Size::new(100, 60), Duration::from_secs(1), None, true);
        assert!(text.is_ascii(), "{text}");
        let memory = text.lines().position(|line| line.starts_with("Where the memory is")).expect("the parts");
        let sites = text.lines().position(|line| line.starts_with("Growing call sites first")).expect("the sites");
        assert!(memory < sites, "{text}");
        let part = text.lines().nth(memory + 1).expect("a part");
        assert!(part.starts_with("in use ") && part.contains("182 MiB"), "{part}");
        let rows: Vec<&str> = text.lines().skip(sites + 2).take(2).collect();
        assert!(rows[0].starts_with("> 41.0 MiB") && rows[1].starts_with("  96.0 MiB"), "{text}");
        assert!(!text.contains("-3m"), "there is no axis of time: {text}");
    }
}
