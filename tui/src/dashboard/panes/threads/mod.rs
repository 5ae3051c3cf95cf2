//! Threads: who allocates, how well its cache serves it, and how much it frees for others.

mod draw;

use std::sync::Arc;

use crossterm::event::MouseButton;
use ratatui::buffer::Buffer;
use ratatui::layout::Position;

use super::rows::{self, Clicked, OfSites, Rows};
use super::sort::Sort;
use super::{Keyed, Pane, Reply, Scene, Source, View};
use crate::dashboard::input::common::Motion;
use crate::dashboard::input::key::Binding;
use crate::dashboard::model::{Model, ThreadRow};
use crate::dashboard::widgets::panel::inside;

/// Its line in the table of views.
pub(crate) const VIEW: View = View {
    name: "threads",
    title: "Threads",
    help: "Threads",
    source: Source::Readings,
    make: || Box::new(Threads { rows: Rows::new(draw::COLUMNS, &[0, 1], 18, Sort::falling(draw::ALLOCS)) }),
};

#[derive(Debug)]
struct Threads {
    rows: Rows,
}

impl Keyed for Threads {
    type Action = OfSites;
    const KEYS: &'static [Binding<OfSites>] = rows::OPENING;

    fn act(&mut self, asked: OfSites, scene: &Scene<'_>) -> Reply {
        match asked {
            OfSites::Reorder(by) => self.rows.reorder(by),
            OfSites::Open => {
                let thread = self.rows.current().and_then(|at| scene.model?.threads.get(at));
                return thread.map_or(Reply::Done, |thread| Reply::FilterBy(format!("thread:^{}$", thread.stats.tid)));
            }
        }
        scene.model.into_iter().for_each(|model| self.follow(model));
        Reply::Done
    }
}

impl Pane for Threads {
    fn follow(&mut self, model: &Arc<Model>) {
        let keep = |thread: &ThreadRow| {
            let name = thread.name.as_deref();
            let text = format!("{} {}", thread.stats.tid, name.unwrap_or_default());
            model.filter.has_thread(name, thread.stats.tid) && model.filter.has_words(&text)
        };
        self.rows.follow(&model.threads, keep, draw::compare);
    }

    fn rows(&self) -> Option<&Rows> {
        Some(&self.rows)
    }

    fn rows_mut(&mut self) -> Option<&mut Rows> {
        Some(&mut self.rows)
    }

    fn go(&mut self, motion: Motion, _scene: &Scene<'_>) {
        self.rows.go(motion);
    }

    fn click(&mut self, button: MouseButton, at: Position, scene: &Scene<'_>) -> Option<Reply> {
        if button != MouseButton::Left {
            return None;
        }
        let clicked = self.rows.click(at, inside(scene.body))?;
        match clicked {
            Clicked::Title => scene.model.into_iter().for_each(|model| self.follow(model)),
            Clicked::Again => return Some(self.act(OfSites::Open, scene)),
            Clicked::Row => {}
        }
        Some(Reply::Done)
    }

    fn draw(&self, scene: &Scene<'_>, buf: &mut Buffer) {
        self.draw_in(scene, buf);
    }
}
