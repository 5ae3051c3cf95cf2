//! The options of the commands that show the dashboard.

use std::time::Duration;

use clap::Args;

use super::theme::{Theme, ThemeChoice};

/// How the dashboard looks and behaves.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct DashboardArgs {
    /// Time between two readings, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_interval)]
    pub(crate) interval: Duration,
    /// Colours
    #[arg(long, value_enum, default_value_t)]
    theme: ThemeChoice,
    /// Leave the mouse to the terminal, for selecting text
    #[arg(long)]
    pub(crate) no_mouse: bool,
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
    pub(crate) fn theme(self) -> Theme {
        Theme::choose(self.theme, |name| std::env::var(name).ok())
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
