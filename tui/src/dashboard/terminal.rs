//! Takes the terminal and gives it back: on leaving, on a panic, on a signal, and while the process is stopped.
//!
//! A panic aborts (every profile says so), so nothing is unwound and no `Drop` runs: the panic hook is the only place
//! where the terminal can be restored before the message is printed.

use std::io::{self, Stdout, Write, stdout};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::cursor::{Hide, Show};
use crossterm::event::{DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture};
use crossterm::execute;
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode,
};
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};

/// The terminal is taken: it has to be given back.
static TAKEN: AtomicBool = AtomicBool::new(false);
static HOOK: Once = Once::new();

/// The terminal while the dashboard has it.
pub(crate) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    mouse: bool,
}

impl Screen {
    /// Takes the terminal.
    pub(crate) fn take(mouse: bool) -> io::Result<Screen> {
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                restore();
                before(info);
            }));
        });
        enter(mouse)?;
        match terminal() {
            Ok(terminal) => Ok(Screen { terminal, mouse }),
            Err(error) => {
                restore();
                Err(error)
            }
        }
    }

    /// Columns and rows.
    pub(crate) fn size(&self) -> io::Result<ratatui::layout::Size> {
        self.terminal.size()
    }

    /// Draws a frame; the terminal shows it all at once, if it can.
    pub(crate) fn draw(&mut self, draw: impl FnOnce(&mut ratatui::buffer::Buffer)) -> io::Result<()> {
        execute!(stdout(), BeginSynchronizedUpdate)?;
        let drawn = self.terminal.draw(|frame| draw(frame.buffer_mut())).map(|_| ());
        execute!(stdout(), EndSynchronizedUpdate)?;
        drawn
    }

    /// Takes the terminal's size as it is now, and makes the next frame draw every cell.
    pub(crate) fn forget(&mut self) -> io::Result<()> {
        execute!(stdout(), Clear(ClearType::All))?;
        self.terminal = terminal()?;
        Ok(())
    }

    /// Gives the terminal back, stops this process as Ctrl-Z does, and takes it again once it goes on.
    pub(crate) fn suspend(&mut self) -> io::Result<()> {
        restore();
        signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGTSTP)?;
        enter(self.mouse)?;
        self.forget()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// A terminal of the size of now. It never resizes or clears itself: ratatui would ask the terminal where its cursor
/// is, and the thread that waits for keys would take the answer.
fn terminal() -> io::Result<Terminal<CrosstermBackend<Stdout>>> {
    let (width, height) = crossterm::terminal::size()?;
    let viewport = Viewport::Fixed(Rect { x: 0, y: 0, width, height });
    Terminal::with_options(CrosstermBackend::new(stdout()), TerminalOptions { viewport })
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
