//! The options of the commands that show the dashboard.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::frame::keys;
use super::input::filter::Filter;
use super::input::keymap;
use super::theme::{Theme, ThemeChoice};
use super::widgets::ascii;
use crate::failure::Failure;

/// How the dashboard looks and behaves.
#[derive(Clone, Debug, Args)]
pub(crate) struct DashboardArgs {
    /// Time between two readings, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_interval)]
    pub(crate) interval: Duration,
    /// Colours
    #[arg(long, value_enum, default_value_t)]
    theme: ThemeChoice,
    /// Draw with ASCII alone, as it is done where LANG or TERM have no more
    #[arg(long)]
    ascii: bool,
    /// Leave the mouse to the terminal, for selecting text
    #[arg(long)]
    pub(crate) no_mouse: bool,
    /// Only call sites that this is about: words, fn:NAME file: module: label: thread: class:64 size>1M grow>1M age>5m; -
    /// for not
    #[arg(long, value_name = "FILTER", value_parser = parse_filter, allow_hyphen_values = true)]
    pub(crate) filter: Option<String>,
    /// The keys of the dashboard, a line for each action: `quit = Q`; else those of ~/.config/poolscope/keys
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
}

fn parse_filter(text: &str) -> Result<String, String> {
    Filter::parse(text).map(|_| text.to_owned())
}

pub(crate) fn parse_interval(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds: write 1 or 0.5".to_owned())?;
    if (0.05..=3600.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("between 0.05 and 3600 seconds".into())
    }
}

impl DashboardArgs {
    /// The colours, by the option and the environment.
    pub(crate) fn theme(&self) -> Theme {
        let env = |name: &str| std::env::var(name).ok();
        Theme { ascii: self.ascii || ascii::is_wanted(env), ..Theme::choose(self.theme, env) }
    }
}

impl DashboardArgs {
    /// Takes the keys that the user chose.
    pub(crate) fn choose_keys(&self) -> Result<(), Failure> {
        let usual = || keymap::usual_path(|name| std::env::var(name).ok()).filter(|path| path.exists());
        let Some(path) = self.keys.clone().or_else(usual) else { return Ok(()) };
        let failed = |why: String| Failure::usage(format!("{}: {why}", path.display()));
        let text = std::fs::read_to_string(&path).map_err(|error| failed(error.to_string()))?;
        keys::choose(&text).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_neither_nothing_nor_endless() {
        assert_eq!(parse_interval("0.5"), Ok(Duration::from_millis(500)));
        assert!(parse_interval("0").is_err() && parse_interval("nan").is_err() && parse_interval("x").is_err());
    }
}
