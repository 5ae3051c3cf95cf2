//! Size classes: what each holds, and how often its thread cache had a block at hand.

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
use crate::dashboard::model::Model;
use crate::dashboard::widgets::panel::inside;

/// Its line in the table of views.
pub(crate) const VIEW: View = View {
    name: "classes",
    title: "Classes",
    help: "Size classes and their hit rates",
    source: Source::Readings,
    make: || Box::new(Classes { rows: Rows::new(draw::COLUMNS, &[], 16, Sort::rising(draw::BLOCK)) }),
};

#[derive(Debug)]
struct Classes {
    rows: Rows,
}

impl Keyed for Classes {
    type Action = OfSites;
    const KEYS: &'static [Binding<OfSites>] = rows::OPENING;

    fn act(&mut self, asked: OfSites, scene: &Scene<'_>) -> Reply {
        match asked {
            OfSites::Reorder(by) => self.rows.reorder(by),
            OfSites::Open => {
                let class = self.rows.current().and_then(|at| scene.model?.classes.get(at));
                return class
                    .map_or(Reply::Done, |class| Reply::FilterBy(format!("class:{}", class.stats.block_bytes)));
            }
        }
        scene.model.into_iter().for_each(|model| self.follow(model));
        Reply::Done
    }
}

impl Pane for Classes {
    fn follow(&mut self, model: &Arc<Model>) {
        self.rows.follow(&model.classes, |class| model.filter.has_class(class.stats.block_bytes), draw::compare);
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
