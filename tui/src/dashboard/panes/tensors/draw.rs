//! How the tensors are drawn: a table, and below it who holds the selected one.

use std::cmp::Ordering;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

use crate::dashboard::events::tensors::{Tensor, Tensors, User};
use crate::dashboard::panes::Scene;
use crate::dashboard::panes::rows::Rows;
use crate::dashboard::panes::sort::Sort;
use crate::dashboard::theme::Theme;
use crate::dashboard::widgets::panel::{inside, panel};
use crate::dashboard::widgets::plain::wrapped;
use crate::dashboard::widgets::table::{Column, cell};
use crate::words::{clip, clip_path, numbers};

/// Index of the column of sizes.
pub(super) const SIZE: usize = 1;

/// Rows of the panel below the table, where there is room for it.
const BELOW: u16 = 8;
/// The least rows for the table above it.
const ABOVE: u16 = 8;

const COLUMNS: &[Column] = &[
    Column { title: "Name", width: 0, right: false, rank: 0 },
    Column { title: "Size", width: 10, right: true, rank: 0 },
    Column { title: "Type", width: 8, right: false, rank: 4 },
    Column { title: "Shape", width: 14, right: false, rank: 5 },
    Column { title: "Refs", width: 5, right: true, rank: 1 },
    Column { title: "Used by", width: 20, right: false, rank: 2 },
    Column { title: "Age", width: 8, right: true, rank: 3 },
    Column { title: "State", width: 13, right: false, rank: 0 },
];

/// No rows yet.
pub(super) fn rows(sort: Sort) -> Rows {
    Rows::new(COLUMNS, &[0, 2, 3, 5, 7], 18, sort)
}

/// The natural order by a column.
pub(super) fn compare(a: &Tensor, b: &Tensor, column: usize) -> Ordering {
    match column {
        0 => a.name.cmp(&b.name),
        1 => a.bytes.cmp(&b.bytes),
        2 => a.dtype.cmp(&b.dtype),
        3 => a.shape.cmp(&b.shape),
        4 => a.references.cmp(&b.references),
        5 => users(a).cmp(&users(b)),
        6 => a.age.cmp(&b.age),
        _ => (a.freed, a.is_draft).cmp(&(b.freed, b.is_draft)),
    }
}

/// The table's panel, and the one below it if there is room.
fn split(body: Rect) -> (Rect, Option<Rect>) {
    if body.height < ABOVE + BELOW {
        return (body, None);
    }
    let height = body.height - BELOW;
    (Rect { height, ..body }, Some(Rect { y: body.y + height, height: BELOW, ..body }))
}

/// Where the table lies.
pub(super) fn table_area(body: Rect) -> Rect {
    inside(split(body).0)
}

fn name(user: &User) -> String {
    if user.program.is_empty() { format!("pid {}", user.pid) } else { format!("{} ({})", user.pid, user.program) }
}

/// The first of its users, and how many more there are.
fn users(tensor: &Tensor) -> String {
    match &tensor.users[..] {
        [] => "-".to_owned(),
        [only] => name(only),
        [first, more @ ..] => format!("{} +{}", first.pid, more.len()),
    }
}

fn sum<'a>(tensors: impl Iterator<Item = &'a Tensor>) -> String {
    numbers::bytes(tensors.map(|tensor| tensor.bytes).sum::<u64>() as f64)
}

/// What all of them come to.
fn total<'a>(tensors: &Tensors, theme: &Theme) -> Line<'a> {
    if tensors.trouble.is_some() {
        return Line::styled("the owner does not answer", theme.alert);
    }
    let (named, held): (Vec<&Tensor>, Vec<&Tensor>) = tensors.all.iter().partition(|tensor| tensor.freed.is_none());
    let mut text = format!("owner {}: {} names, {}", tensors.owner, named.len(), sum(named.into_iter()));
    if !held.is_empty() {
        text += &format!("; {} quarantined", sum(held.into_iter()));
    }
    Line::styled(text, theme.dim)
}

/// Draws the view.
pub(super) fn view(tensors: &Tensors, rows: &Rows, scene: &Scene<'_>, buf: &mut Buffer) {
    let theme = scene.theme;
    let (above, below) = split(scene.body);
    if tensors.pid == 0 {
        let inner = panel(scene.body, buf, theme, "Tensors", Line::default());
        write(inner, buf, &[("This process neither serves nor holds named tensors.".to_owned(), theme.dim)]);
        return;
    }
    let inner = panel(above, buf, theme, "Tensors", total(tensors, theme));
    rows.table().draw(inner, buf, theme, |row, column, width| {
        let Some(tensor) = tensors.all.get(rows.order[row]) else { return Line::default() };
        let clipped = |text: &str| clip(text, usize::from(width));
        let is_own = tensor.users.iter().any(|user| user.pid == tensors.pid);
        match column {
            0 => cell(clip_path(&tensor.name, usize::from(width)), if is_own { theme.strong } else { theme.text }),
            1 => cell(numbers::bytes(tensor.bytes as f64), theme.text),
            2 => cell(clipped(&tensor.dtype), theme.text),
            3 => cell(clipped(&tensor.shape), theme.text),
            4 => cell(numbers::scaled(tensor.references as f64), theme.text),
            5 => cell(clipped(&users(tensor)), theme.text),
            6 => cell(numbers::duration(tensor.age), theme.dim),
            _ => match tensor.freed {
                Some(freed) => cell(format!("freed {}", numbers::duration(freed)), theme.warn),
                None if tensor.is_draft => cell("draft", theme.dim),
                None => cell("named", theme.ok),
            },
        }
    });
    let selected = rows.current().and_then(|at| tensors.all.get(at));
    if let (Some(below), Some(tensor)) = (below, selected) {
        let right = Line::styled(format!("{} on device {}", tensor.dtype, tensor.device), theme.dim);
        let inner = panel(below, buf, theme, "Held by", right);
        write(inner, buf, &holders(tensor, theme));
    }
}

type Words = (String, ratatui::style::Style);

/// Who holds a tensor, in words.
fn holders(tensor: &Tensor, theme: &Theme) -> Vec<Words> {
    let mut lines = vec![(format!("{} {}, generation {}", tensor.name, tensor.shape, tensor.generation), theme.strong)];
    if let Some(freed) = tensor.freed {
        lines.push((format!("freed {} ago, but still held by:", numbers::duration(freed)), theme.warn));
    } else if tensor.users.is_empty() {
        lines.push(("nobody: its name keeps it".to_owned(), theme.dim));
    }
    lines.extend(tensor.users.iter().map(|user| {
        let references =
            if user.references == 1 { "1 reference".into() } else { format!("{} references", user.references) };
        (format!("pid {}, {references}, a client for {}", name(user), numbers::duration(user.since)), theme.text)
    }));
    lines
}

/// Lines from the top on; a last one says how many there is no room for.
fn write(area: Rect, buf: &mut Buffer, lines: &[Words]) {
    let width = usize::from(area.width);
    let wrapped =
        lines.iter().flat_map(|(text, style)| wrapped(text, width).into_iter().map(move |line| (line, *style)));
    let wrapped: Vec<_> = wrapped.collect();
    let room = usize::from(area.height);
    let shown = if wrapped.len() > room { room.saturating_sub(1) } else { wrapped.len() };
    for (y, (line, style)) in (area.y..).zip(&wrapped[..shown]) {
        buf.set_string(area.x, y, line, *style);
    }
    if let Some((_, style)) = wrapped.get(shown).filter(|_| room > 0) {
        let left = format!("… and {} more", wrapped.len() - shown);
        buf.set_string(area.x, area.y + shown as u16, left, *style);
    }
}
