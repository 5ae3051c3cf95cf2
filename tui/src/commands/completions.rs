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
        if self.shell == Shell::Fish {
            script.extend(subjects_of_help(&cli).into_bytes());
        }
        let mut out = std::io::stdout().lock();
        out.write_all(&script)?;
        out.flush()?;
        Ok(0)
    }
}

/// For fish, whose generator knows no values of arguments without a name: the shells, and what there is help on.
fn subjects_of_help(cli: &Command) -> String {
    let mut lines = String::new();
    for (command, argument) in [("help", "subject"), ("completions", "shell")] {
        let found = cli.find_subcommand(command).and_then(|it| it.get_arguments().find(|it| it.get_id() == argument));
        let values: Vec<String> = found
            .map(|it| it.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect())
            .unwrap_or_default();
        lines += &format!(
            "complete -c poolscope -n \"__fish_poolscope_using_subcommand {command}\" -f -a \"{}\"\n",
            values.join(" ")
        );
    }
    lines
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
