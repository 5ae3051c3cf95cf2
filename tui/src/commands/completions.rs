//! `poolscope completions`: what a shell needs to complete poolscope's arguments.

use std::io::Write;

use clap::{Args, Command};
use clap_complete::Shell;
use color_eyre::eyre::Result;

use crate::commands::help;

/// Write a shell's completions to standard output
///
/// They are made of the same table as the commands' help. Packages install them; by hand, put them where the shell
/// looks: bash in ~/.local/share/bash-completion/completions/poolscope, zsh in a folder of fpath as _poolscope, fish in
/// ~/.config/fish/completions/poolscope.fish.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  source <(poolscope completions bash)")]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self, cli: Command) -> Result<u8> {
        let mut cli = visible(&help::with_subjects(cli));
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut cli, "poolscope", &mut script);
        let mut out = std::io::stdout().lock();
        out.write_all(&script)?;
        out.flush()?;
        Ok(0)
    }
}

/// A command line without the options and commands that its help does not show: generators of completions know of none.
fn visible(command: &Command) -> Command {
    // The table keeps names for good; the process ends when it has written the completions.
    let name: &'static str = command.get_name().to_owned().leak();
    let mut visible = Command::new(name)
        .disable_help_flag(command.is_disable_help_flag_set())
        .disable_version_flag(command.is_disable_version_flag_set())
        .disable_help_subcommand(command.is_disable_help_subcommand_set());
    if let Some(about) = command.get_about() {
        visible = visible.about(about.clone());
    }
    if command.get_version().is_some() {
        // Without one, there is no option that says it.
        visible = visible.version(env!("CARGO_PKG_VERSION"));
    }
    // What has no name of its own stays: others may refer to it, and shells complete it by its place.
    let shown = command.get_arguments().filter(|argument| argument.is_positional() || !argument.is_hide_set());
    visible = visible.args(shown.cloned());
    visible.subcommands(command.get_subcommands().filter(|command| !command.is_hide_set()).map(self::visible))
}
