//! `poolscope help`: the help of a command, or a topic that several commands are about.

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, Command};
use color_eyre::eyre::Result;

use crate::failure::Failure;
use crate::sink;

/// Explain a command, or a topic: memory, reading, hunting
///
/// memory has the words for memory that commands and views use, reading how to read a flamegraph, and hunting the way
/// from a program that grows to the line that holds the memory.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  poolscope help dump\n  poolscope help hunting")]
pub(crate) struct Help {
    /// Name of a command or of a topic
    #[arg(value_name = "COMMAND|TOPIC")]
    subject: Option<String>,
}

/// Something to know that is no command.
pub(crate) struct Topic {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    text: &'static str,
}

/// All of them.
pub(crate) const TOPICS: &[Topic] = &[
    Topic { name: "memory", title: "the words for memory", text: include_str!("help/memory.txt") },
    Topic { name: "reading", title: "how to read a flamegraph", text: include_str!("help/reading.txt") },
    Topic { name: "hunting", title: "how to find what makes a program grow", text: include_str!("help/hunting.txt") },
];

/// A part of a topic's text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Paragraph<'a> {
    /// A line in capital letters.
    Heading(&'a str),
    /// Lines that flow.
    Text(Vec<&'a str>),
    /// A line `term:` and the indented lines under it.
    Term(&'a str, Vec<&'a str>),
    /// Indented lines, as they are.
    Example(Vec<&'a str>),
}

impl Topic {
    /// Its parts, which empty lines stand between.
    pub(crate) fn paragraphs(&self) -> impl Iterator<Item = Paragraph<'static>> {
        self.text.split("\n\n").filter(|part| !part.trim().is_empty()).map(|part| {
            let lines: Vec<&str> = part.trim_matches('\n').lines().collect();
            match lines.as_slice() {
                [line] if line.chars().all(|c| c.is_ascii_uppercase() || c == ' ') => Paragraph::Heading(line),
                [first, rest @ ..] if !first.starts_with(' ') && rest.iter().all(|line| line.starts_with("    ")) => {
                    match first.strip_suffix(':') {
                        Some(term) if !rest.is_empty() => {
                            Paragraph::Term(term, rest.iter().map(|line| line.trim()).collect())
                        }
                        _ => Paragraph::Text(lines),
                    }
                }
                [first, ..] if first.starts_with("    ") => Paragraph::Example(lines),
                _ => Paragraph::Text(lines),
            }
        })
    }
}

impl Help {
    pub(crate) fn run(self, mut cli: Command) -> Result<u8> {
        cli.build();
        let Some(subject) = self.subject else {
            sink::print(&cli.render_long_help().to_string())?;
            return Ok(0);
        };
        if let Some(topic) = TOPICS.iter().find(|topic| topic.name == subject) {
            sink::print(topic.text)?;
            return Ok(0);
        }
        match cli.find_subcommand_mut(&subject) {
            Some(command) => sink::print(&command.render_long_help().to_string())?,
            None => {
                let commands: Vec<&str> = cli.get_subcommands().map(Command::get_name).collect();
                let topics: Vec<&str> = TOPICS.iter().map(|topic| topic.name).collect();
                return Err(Failure::usage(format!(
                    "there is no help on {subject:?}: commands are {}; topics are {}",
                    commands.join(", "),
                    topics.join(", ")
                ))
                .into());
            }
        }
        Ok(0)
    }
}

/// The command line with what shells complete after `help`: the commands and the topics.
pub(crate) fn with_subjects(cli: Command) -> Command {
    // The table keeps names for good; the process ends when it has written the completions.
    let commands: Vec<&'static str> =
        cli.get_subcommands().map(|command| &*command.get_name().to_owned().leak()).collect();
    let subjects = commands.into_iter().chain(TOPICS.iter().map(|topic| topic.name));
    let parser = PossibleValuesParser::new(subjects.map(PossibleValue::new).collect::<Vec<_>>());
    cli.mut_subcommand("help", |help| {
        help.mut_arg("subject", |subject| subject.value_parser(parser).hide_possible_values(true))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_made_of_headings_terms_text_and_examples() {
        let text = "A TOPIC\n\nWords of it\ngo on.\n\nin use:\n    What it is,\n    in short.\n\n    poolscope list\n";
        let topic = Topic { name: "test", title: "of a test", text };
        let expected = [
            Paragraph::Heading("A TOPIC"),
            Paragraph::Text(vec!["Words of it", "go on."]),
            Paragraph::Term("in use", vec!["What it is,", "in short."]),
            Paragraph::Example(vec!["    poolscope list"]),
        ];
        assert_eq!(topic.paragraphs().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_topics_fit_a_terminal() {
        for topic in TOPICS {
            assert!(topic.text.lines().all(|line| line.chars().count() <= 80), "{}", topic.name);
            assert!(topic.paragraphs().filter(|part| matches!(part, Paragraph::Heading(_))).count() > 1);
        }
    }
}
