//! Takes the terminal and gives it back: on leaving, on a panic, on a signal, and while the process is stopped.
//!
//! A panic aborts, with or without optimisation, so nothing is unwound and no `Drop` runs: the panic hook is the only
//! place where the terminal can be restored before the message is printed.

use std::io::{self, BufWriter, Stdout, Write, stdout};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::clipboard::CopyToClipboard;
use crossterm::cursor::{Hide, Show};
use crossterm::event::{DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode,
};
use crossterm::{execute, queue};
use ratatui::backend::{Backend, CrosstermBackend};
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect, Size};

use super::screen::Screen;

/// The terminal is taken: it has to be given back.
static TAKEN: AtomicBool = AtomicBool::new(false);
static HOOK: Once = Once::new();

/// The terminal while the dashboard has it.
///
/// Frames are compared and written here, not by ratatui's `Terminal`: that one asks the terminal where its cursor is
/// when the size changes, an answer that the thread which waits for keys would take, and it panics on being dropped
/// after the terminal has gone.
pub(crate) struct Terminal {
    backend: CrosstermBackend<BufWriter<Stdout>>,
    /// What the terminal shows.
    shown: Buffer,
    mouse: bool,
}

impl Terminal {
    /// Takes the terminal.
    pub(crate) fn take(mouse: bool) -> io::Result<Terminal> {
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                restore();
                before(info);
                std::process::abort();
            }));
        });
        enter(mouse)?;
        let backend = CrosstermBackend::new(BufWriter::with_capacity(1 << 16, stdout()));
        let mut screen = Terminal { backend, shown: Buffer::default(), mouse };
        screen.forget()?;
        Ok(screen)
    }
}

impl Screen for Terminal {
    fn size(&self) -> Size {
        self.shown.area.as_size()
    }

    fn is_resized(&self) -> io::Result<bool> {
        Ok(terminal_size()? != self.size())
    }

    fn draw(&mut self, draw: &mut dyn FnMut(&mut Buffer)) -> io::Result<()> {
        let mut next = Buffer::empty(self.shown.area);
        draw(&mut next);
        queue!(self.backend, BeginSynchronizedUpdate)?;
        self.backend.draw(self.shown.diff(&next).into_iter())?;
        queue!(self.backend, EndSynchronizedUpdate)?;
        io::Write::flush(&mut self.backend)?;
        self.shown = next;
        Ok(())
    }

    fn forget(&mut self) -> io::Result<()> {
        self.shown = Buffer::empty(Rect::from((Position::ORIGIN, terminal_size()?)));
        queue!(self.backend, Clear(ClearType::All))
    }

    fn copy(&mut self, text: &str) -> io::Result<()> {
        execute!(self.backend, CopyToClipboard::to_clipboard_from(text))
    }

    fn take_mouse(&mut self, taken: bool) -> io::Result<()> {
        self.mouse = taken;
        if taken { execute!(self.backend, EnableMouseCapture) } else { execute!(self.backend, DisableMouseCapture) }
    }

    fn suspend(&mut self) -> io::Result<()> {
        restore();
        signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGTSTP)?;
        enter(self.mouse)?;
        self.forget()
    }
}

fn terminal_size() -> io::Result<Size> {
    crossterm::terminal::size().map(Size::from)
}

impl Drop for Terminal {
    fn drop(&mut self) {
        restore();
    }
}

fn enter(mouse: bool) -> io::Result<()> {
    enable_raw_mode()?;
    TAKEN.store(true, Ordering::SeqCst);
    let mut out = stdout();
    let entered = execute!(out, EnterAlternateScreen, Hide, EnableBracketedPaste)
        .and_then(|()| if mouse { execute!(out, EnableMouseCapture) } else { Ok(()) });
    if entered.is_err() {
        restore();
    }
    entered
}

/// Gives the terminal back, once, whatever fails.
pub(crate) fn restore() {
    if !TAKEN.swap(false, Ordering::SeqCst) {
        return;
    }
    let mut out = stdout();
    let _ =
        execute!(out, EndSynchronizedUpdate, DisableMouseCapture, DisableBracketedPaste, LeaveAlternateScreen, Show);
    let _ = out.flush();
    let _ = disable_raw_mode();
}
