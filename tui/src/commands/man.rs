//! `poolscope man`: the manual pages, made of the commands' help and of the topics.

use std::io;
use std::path::{Path, PathBuf};

use clap::builder::Resettable;
use clap::{Args, Command};
use clap_mangen::roff::{Roff, bold, roman};
use color_eyre::eyre::{Result, WrapErr};

use crate::commands::help::{Paragraph, TOPICS, Topic};

/// Write the manual pages to a folder: one for each command, and one for each topic of `poolscope help`
///
/// `make install` and the packages put them below share/man.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  poolscope man out/man && man -l out/man/poolscope-dump.1")]
pub(crate) struct Man {
    /// The folder; it is made if it is not there
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl Man {
    pub(crate) fn run(self, mut cli: Command) -> Result<u8> {
        let failed = || format!("cannot write the manual pages to {}", self.folder.display());
        std::fs::create_dir_all(&self.folder).wrap_err_with(failed)?;
        cli.build();
        write(&cli, &self.folder).wrap_err_with(failed)?;
        Ok(0)
    }
}

fn write(cli: &Command, folder: &Path) -> io::Result<()> {
    let version = format!("poolscope {}", env!("CARGO_PKG_VERSION"));
    for command in std::iter::once(cli).chain(cli.get_subcommands()) {
        let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
        let after = command.get_after_long_help().or_else(|| command.get_after_help()).map(ToString::to_string);
        // Its generator would let the lines of examples flow.
        let command = command.clone().after_help(Resettable::Reset).after_long_help(Resettable::Reset);
        let mut page = Vec::new();
        let written = clap_mangen::Man::new(command.disable_help_subcommand(true));
        written.source(version.clone()).manual("poolscope").render(&mut page)?;
        page.extend(after_help(&after.unwrap_or_default()).into_bytes());
        std::fs::write(folder.join(format!("{name}.1")), page)?;
    }
    for topic in TOPICS {
        std::fs::write(folder.join(format!("poolscope-{}.7", topic.name)), topic_page(topic, &version))?;
    }
    Ok(())
}

/// What stands behind the options: examples line by line, and notes.
fn after_help(text: &str) -> String {
    let mut page = Roff::new();
    let mut has_notes = false;
    for part in text.split("\n\n").filter(|part| !part.trim().is_empty()) {
        if let Some((_, lines)) = part.split_once('\n').filter(|(first, _)| first.starts_with("Example")) {
            page.control("SH", ["EXAMPLES"]);
            page.control("nf", []);
            page.text([roman(lines)]);
            page.control("fi", []);
            has_notes = false;
        } else {
            match has_notes {
                true => page.control("PP", []),
                false => page.control("SH", ["NOTES"]),
            };
            page.text([roman(part.replace('\n', " "))]);
            has_notes = true;
        }
    }
    page.to_roff()
}

/// A topic as a manual page of section 7.
fn topic_page(topic: &Topic, version: &str) -> String {
    let mut page = Roff::new();
    page.control("TH", [&format!("poolscope-{}", topic.name), "7", "", version, "poolscope"]);
    page.control("SH", ["NAME"]);
    page.text([roman(format!("poolscope-{} - {}", topic.name, topic.title))]);
    for paragraph in topic.paragraphs() {
        match paragraph {
            Paragraph::Heading(words) => drop(page.control("SH", [words])),
            Paragraph::Text(lines) => {
                page.control("PP", []);
                page.text([roman(lines.join(" "))]);
            }
            Paragraph::Term(term, lines) => {
                page.control("TP", []);
                page.text([bold(term)]);
                page.text([roman(lines.join(" "))]);
            }
            Paragraph::Example(lines) => {
                page.control("PP", []);
                page.control("nf", []);
                page.text([roman(lines.join("\n"))]);
                page.control("fi", []);
            }
        }
    }
    page.to_roff()
}
