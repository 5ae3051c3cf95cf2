//! The processes to choose from: what `top` shows that was told of none.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::{Clear, Widget};
use unicode_width::UnicodeWidthStr;

use crate::dashboard::state::State;
use crate::dashboard::widgets::panel::{inside, panel};
use crate::dashboard::widgets::plain::wrapped;
use crate::dashboard::widgets::search_line::filter_line;
use crate::dashboard::widgets::site_name::sites_count;
use crate::dashboard::widgets::table::{Column, Hidden, Table, cell, put};
use crate::words::name::clip_name;
use crate::words::{clip, numbers};

/// Rows of the list of one process, with the titles and an empty line.
const ONLY_ONE_AT: u16 = 3;

/// Everything but the footer.
fn place(area: Rect) -> Rect {
    Rect { height: area.height.saturating_sub(1), ..area }
}

/// Where the list lies: call sites of all are below it.
pub(crate) fn list_place(state: &State) -> Rect {
    let all = place(state.area());
    let wanted = state.processes.running.len().max(2) as u16 + 3 + u16::from(state.process_search.is_shown());
    Rect { height: if state.with_sites { wanted.min(all.height / 2) } else { all.height }, ..all }
}

/// Where the table lies, below the line that it is filtered by.
pub(crate) fn list_area(state: &State) -> Rect {
    let inner = inside(list_place(state));
    let above = u16::from(state.process_search.is_shown()).min(inner.height);
    Rect { y: inner.y + above, height: inner.height - above, ..inner }
}

/// The line that the processes are filtered by, and how many it leaves.
fn draw_filter(state: &State, inner: Rect, buf: &mut Buffer) {
    if !state.process_search.is_shown() || inner.height == 0 {
        return;
    }
    let theme = &state.theme;
    filter_line(&state.process_search, inner, buf, theme);
    let (kept, all) = (state.process_rows.order.len(), state.processes.running.len());
    let said = match &state.process_trouble {
        Some(why) => Line::styled(why.clone(), theme.warn),
        None => Line::styled(format!("{kept} of {all} processes"), theme.dim),
    };
    put(buf, inner.x, inner.y, inner.width, true, said);
}

const SITE_COLUMNS: &[Column] = &[
    Column { title: "In use", width: 9, right: true, rank: 0 },
    Column { title: "Objects", width: 8, right: true, rank: 2 },
    Column { title: "Processes", width: 9, right: true, rank: 0 },
    Column { title: "Call site", width: 0, right: false, rank: 0 },
];

/// The call sites of all processes by name, the largest first.
fn draw_sites(state: &State, area: Rect, buf: &mut Buffer) {
    let theme = &state.theme;
    let sites = state.processes.sites.as_deref().unwrap_or_default();
    let right = Line::styled(sites_count(sites.len()), theme.dim);
    let inner = panel(area, buf, theme, "Call sites of all, by name", right);
    let text = Rect { x: inner.x.saturating_sub(2), width: inner.width + 2, ..inner };
    let (hidden, rows) = (Hidden::default(), sites.len());
    let table = Table { columns: SITE_COLUMNS, hidden, fill_min: 20, sorted: None, selected: None, rows };
    table.draw(text, buf, theme, |row, column, width| {
        let site = &sites[row];
        match column {
            0 => cell(numbers::bytes(site.in_use_bytes), theme.strong),
            1 => cell(numbers::scaled(site.in_use_objects), theme.text),
            2 => cell(site.processes.to_string(), theme.text),
            _ => {
                let place = site.place.as_deref().map(|place| format!(" {place}")).unwrap_or_default();
                let room = usize::from(width).saturating_sub(place.width());
                match site.function.width() <= room {
                    true => cell(site.function.clone() + &place, theme.text),
                    false => cell(clip_name(&site.function, width.into()), theme.text),
                }
            }
        }
    });
}

/// Draws the list over the screen.
pub(crate) fn draw(state: &State, area: Rect, buf: &mut Buffer) {
    let theme = &state.theme;
    Clear.render(place(area), buf);
    let place = list_place(state);
    if state.with_sites {
        let rest = area.height.saturating_sub(1 + place.height);
        draw_sites(state, Rect { y: place.bottom(), height: rest, ..place }, buf);
    }
    let processes = &state.processes;
    let right = match processes.dead {
        0 => String::new(),
        1 => "and one that ended: poolscope list".to_owned(),
        dead => format!("and {} that ended: poolscope list", numbers::grouped(dead as u64)),
    };
    let right = match &state.server {
        Some(_) => String::new(),
        None => right,
    };
    let title = match &state.server {
        Some(server) => format!("Processes that {} serves", server.place()),
        None => "Processes on the pool".to_owned(),
    };
    let inner = panel(place, buf, theme, &title, Line::styled(right, theme.dim));
    if processes.running.is_empty() {
        let text = match (&processes.trouble, &state.wanted_name) {
            (Some(why), _) => why.clone(),
            (None, _) if !processes.is_read => "Looking which there are …".to_owned(),
            (None, _) if state.server.is_some() => {
                "It serves no process now. One that runs on the pool there is shown here once it does.".to_owned()
            }
            (None, Some(name)) => format!("No process called {name} runs on the pool. It is shown here once it does."),
            (None, None) => "No process of yours runs on the pool. Start one in another terminal: \
                poolscope run --headless -- COMMAND. It is shown here at once."
                .to_owned(),
        };
        for (line, y) in wrapped(&text, usize::from(inner.width)).into_iter().zip(inner.top()..inner.bottom()) {
            buf.set_string(inner.x, y, line, theme.text);
        }
        return;
    }
    draw_filter(state, inner, buf);
    if processes.only_one && inner.height > ONLY_ONE_AT {
        let text = "The server serves this process alone: poolscope serve --all serves every one of its user's.";
        let lines = wrapped(text, usize::from(inner.width));
        for (line, y) in lines.into_iter().zip(inner.top() + ONLY_ONE_AT..inner.bottom()) {
            buf.set_string(inner.x, y, line, theme.dim);
        }
    }
    state.process_rows.table().draw(list_area(state), buf, theme, |row, column, width| {
        let Some(process) = processes.running.get(state.process_rows.order[row]) else { return Line::default() };
        let bytes = |bytes: Option<u64>| bytes.map_or("-".to_owned(), |bytes| numbers::bytes(bytes as f64));
        match column {
            0 => cell(process.pid.to_string(), theme.strong),
            1 => cell(clip(&process.user, usize::from(width)), theme.dim),
            2 => cell(clip(&process.name, usize::from(width)), theme.text),
            3 => cell(bytes(process.in_use), theme.live),
            4 => cell(bytes(process.rss), theme.rss),
            5 => match process.trend {
                slope if slope.grows() => cell(format!("+{} ▲", numbers::bytes(slope.per_minute())), theme.alert),
                _ => cell("·", theme.faint),
            },
            6 => cell(numbers::duration(process.age), theme.dim),
            _ => cell(clip(&process.arguments, usize::from(width)), theme.dim),
        }
    });
}
