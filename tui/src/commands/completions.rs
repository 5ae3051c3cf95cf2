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
        let mut cli = help::with_subjects(cli);
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut cli, "poolscope", &mut script);
        let mut out = std::io::stdout().lock();
        out.write_all(&script)?;
        out.flush()?;
        Ok(0)
    }
}
