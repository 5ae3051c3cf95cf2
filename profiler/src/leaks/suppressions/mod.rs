//! Memory that is never freed and is no leak: what the C library and the runtimes keep on purpose ([`built_in`]), what
//! programs of the system lose by themselves ([`programs`]), and what a user's files of suppressions name.
//!
//! Files are as LeakSanitizer has them (lines `leak:PATTERN`) or as valgrind has them ([`memcheck`]); one file may have
//! both. A comment `# poolscope: max=BLOCKS` or `max-bytes=BYTES` above a rule says how much it may hold: where a
//! process has more, the rule holds nothing. To the other tools it is a comment.

pub(super) mod built_in;
mod frames;
mod memcheck;
mod programs;

use std::path::{Path, PathBuf};

use crate::leaks::{LeakKind, LeakReport};
use crate::model::profile::{Profile, Site};
use crate::words::{figures, pattern};

use frames::Call;
use programs::SystemProgram;

/// What is not reported as a leak.
#[derive(Clone, Debug, Default)]
pub struct Suppressions {
    built_in: bool,
    programs: bool,
    rules: Vec<Rule>,
}

/// A user's rule.
#[derive(Clone, Debug)]
struct Rule {
    what: What,
    max: Max,
    /// The file that it stands in, and the line.
    place: String,
}

#[derive(Clone, Debug)]
enum What {
    /// A part of some function's, file's or module's name.
    Pattern(String),
    Memcheck(memcheck::Rule),
}

/// How much a rule may hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Max {
    blocks: Option<u64>,
    bytes: Option<u64>,
}

/// A file of suppressions that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum SuppressionError {
    /// It cannot be read.
    #[error("cannot read the suppressions {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// A line is wrong.
    #[error("{origin}:{line}: {what}")]
    Line {
        /// The file.
        origin: String,
        /// Line number from 1.
        line: usize,
        /// What is wrong with it, and what should stand there.
        what: String,
    },
}

/// Why blocks are not reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The reason of a built-in rule, or the user's rule.
    pub text: String,
    /// It is a rule for a program of the system.
    pub of_program: bool,
}

/// What rules say of the sites of a profile.
#[derive(Debug, Default)]
pub(super) struct Judged {
    /// For each site, why it is no leak.
    pub(super) reasons: Vec<Option<Reason>>,
    /// Rules that hold nothing since they would hold too much.
    pub(super) exceeded: Vec<Exceeded>,
}

/// A rule that would hold more than it may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exceeded {
    /// The rule.
    pub rule: String,
    /// What it may hold, in words.
    pub max: String,
    /// Bytes that it would hold.
    pub bytes: u64,
    /// Blocks.
    pub objects: u64,
}

impl Suppressions {
    /// None at all: everything that was not freed is reported.
    pub fn none() -> Self {
        Self::default()
    }

    /// What the C library and the runtimes keep on purpose.
    pub fn defaults() -> Self {
        Self { built_in: true, ..Self::default() }
    }

    /// With what programs of the system have lost when they end. It is no part of the defaults: only who has run a
    /// program to its end knows that it has.
    pub fn with_programs(self) -> Self {
        Self { programs: true, ..self }
    }

    /// The built-in rules: what each matches, and why that is no leak.
    pub fn built_in() -> impl Iterator<Item = (String, &'static str)> {
        built_in::RULES.iter().map(|&(rule, reason)| (rule.describe(), reason))
    }

    /// The rules for programs of the system: which, and what each loses.
    pub fn of_programs() -> impl Iterator<Item = (String, &'static str)> {
        programs::rules()
    }

    /// Adds rules. `origin` is the file's name for messages.
    pub fn add(&mut self, text: &str, origin: &str) -> Result<(), SuppressionError> {
        let wrong = |line, what| SuppressionError::Line { origin: origin.to_owned(), line, what };
        let place = |line| format!("{origin}:{line}");
        let mut max = Max::default();
        // Where a rule in braces was opened, and its lines.
        let mut block: Option<(usize, Vec<(usize, &str)>)> = None;
        for (index, line) in text.lines().enumerate() {
            let (at, line) = (index + 1, line.trim());
            if let Some(comment) = line.strip_prefix('#') {
                if let Some(words) = comment.trim().strip_prefix("poolscope:") {
                    max = Max::read(words).map_err(|what| wrong(at, what))?;
                }
                continue;
            }
            match (&mut block, line) {
                (_, "") => {}
                (None, "{") => block = Some((at, Vec::new())),
                (None, _) => match line.strip_prefix("leak:").map(str::trim) {
                    Some(pattern) if !pattern.is_empty() => {
                        let what = What::Pattern(pattern.to_owned());
                        self.rules.push(Rule { what, max: std::mem::take(&mut max), place: place(at) });
                    }
                    _ => return Err(wrong(at, no_rule(line))),
                },
                (Some((opened, lines)), "}") => {
                    let rule = memcheck::read(lines, *opened).map_err(|(at, what)| wrong(at, what))?;
                    let (max, place) = (std::mem::take(&mut max), place(*opened));
                    self.rules.extend(rule.map(|rule| Rule { what: What::Memcheck(rule), max, place }));
                    block = None;
                }
                (Some((_, lines)), _) => lines.push((at, line)),
            }
        }
        match block {
            Some((opened, _)) => Err(wrong(opened, "this rule has no end: a line with } is missing".into())),
            None => Ok(()),
        }
    }

    /// Adds the rules in a file.
    pub fn add_file(&mut self, path: &Path) -> Result<(), SuppressionError> {
        let bytes = std::fs::read(path).map_err(|source| SuppressionError::Read { path: path.to_owned(), source })?;
        let origin = path.display().to_string();
        let text = str::from_utf8(&bytes).map_err(|error| {
            let line = bytes[..error.valid_up_to()].iter().filter(|&&byte| byte == b'\n').count() + 1;
            SuppressionError::Line { origin: origin.clone(), line, what: "this line is no text in UTF-8".into() }
        })?;
        self.add(text, &origin)
    }

    /// Why a site whose blocks are of this kind is no leak: the reason of a built-in rule, or the user's rule.
    pub fn reason(&self, profile: &Profile, site: &Site, kind: LeakKind) -> Option<Reason> {
        self.reason_in(profile, site, kind, self.program(profile, kind).as_ref())
    }

    fn reason_in(
        &self,
        profile: &Profile,
        site: &Site,
        kind: LeakKind,
        program: Option<&SystemProgram<'_>>,
    ) -> Option<Reason> {
        let calls = frames::calls(profile, site);
        let text = self.rule(&calls, kind).map(Rule::name).or_else(|| self.built_in_reason(&calls));
        match text {
            Some(text) => Some(Reason { text, of_program: false }),
            None => program
                .filter(|program| program.holds(profile, site))
                .map(|program| Reason { text: program.reason(), of_program: true }),
        }
    }

    /// The program, if a rule may hold what it has lost. What only lost blocks lead to goes with these.
    fn program<'a>(&self, profile: &'a Profile, kind: LeakKind) -> Option<SystemProgram<'a>> {
        (self.programs && kind == LeakKind::Direct).then(|| SystemProgram::of(profile)).flatten()
    }

    fn built_in_reason(&self, calls: &[Call<'_>]) -> Option<String> {
        let rules = if self.built_in { built_in::RULES } else { &[] };
        rules.iter().find(|(rule, _)| rule.matches(calls)).map(|&(_, reason)| reason.to_owned())
    }

    fn rule(&self, calls: &[Call<'_>], kind: LeakKind) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.matches(calls, kind))
    }

    /// The same for all sites of a profile, with what each rule may hold.
    pub(super) fn judge(&self, profile: &Profile, kind: LeakKind) -> Judged {
        let mut judged = Judged::default();
        let program = self.program(profile, kind);
        let reasons = profile.sites.iter().map(|site| self.reason_in(profile, site, kind, program.as_ref()));
        judged.reasons = reasons.collect();
        for rule in self.rules.iter().filter(|rule| rule.max != Max::default()) {
            let name = rule.name();
            let is_its = |reason: &Option<Reason>| reason.as_ref().is_some_and(|reason| reason.text == name);
            let held = profile.sites.iter().zip(&judged.reasons).filter(|(_, reason)| is_its(reason));
            let (bytes, objects) = held.fold((0, 0), |(bytes, objects), (site, _)| {
                (bytes + figures::whole(site.in_use.bytes), objects + figures::whole(site.in_use.objects))
            });
            if rule.max.is_exceeded_by(bytes, objects) {
                judged.reasons.iter_mut().filter(|reason| is_its(reason)).for_each(|reason| *reason = None);
                judged.exceeded.push(Exceeded { rule: name, max: rule.max.describe(), bytes, objects });
            }
        }
        judged
    }

    /// The user's rules that held nothing in any of these reports, with their places.
    pub fn unused<'a>(&self, reports: impl Iterator<Item = &'a LeakReport> + Clone) -> Vec<String> {
        let is_used = |rule: &&Rule| {
            let name = rule.name();
            reports.clone().any(|report| {
                report.suppressed.iter().any(|kept| kept.reason == name)
                    || report.exceeded.iter().any(|exceeded| exceeded.rule == name)
            })
        };
        let unused = self.rules.iter().filter(|rule| !is_used(rule));
        unused
            .map(|rule| match &rule.what {
                What::Pattern(pattern) => format!("leak:{pattern} ({})", rule.place),
                What::Memcheck(_) => rule.name(),
            })
            .collect()
    }
}

fn no_rule(line: &str) -> String {
    format!(
        "{line:?} is no suppression: write leak:PATTERN, with a part of a function's, module's or source file's name, or a \
         rule of valgrind's in braces"
    )
}

impl Rule {
    /// As reports name it.
    fn name(&self) -> String {
        match &self.what {
            What::Pattern(pattern) => format!("leak:{pattern}"),
            What::Memcheck(rule) => format!("{} ({})", rule.name, self.place),
        }
    }

    fn matches(&self, calls: &[Call<'_>], kind: LeakKind) -> bool {
        match &self.what {
            What::Pattern(wanted) => calls.iter().any(|Call { frame, path, .. }| {
                pattern::matches(wanted, &frame.name)
                    || pattern::matches(wanted, path)
                    || frame.file.as_ref().is_some_and(|file| pattern::matches(wanted, file))
            }),
            What::Memcheck(rule) => rule.matches(calls, kind),
        }
    }
}

impl Max {
    fn read(words: &str) -> Result<Max, String> {
        let mut max = Max::default();
        for word in words.split_whitespace() {
            let number = |text: &str| text.parse().map_err(|_| format!("{text:?} is no whole number"));
            match word.split_once('=') {
                Some(("max", blocks)) => max.blocks = Some(number(blocks)?),
                Some(("max-bytes", bytes)) => max.bytes = Some(number(bytes)?),
                _ => return Err(format!("{word:?} says nothing to poolscope: write max=BLOCKS or max-bytes=BYTES")),
            }
        }
        Ok(max)
    }

    fn is_exceeded_by(self, bytes: u64, blocks: u64) -> bool {
        self.blocks.is_some_and(|max| blocks > max) || self.bytes.is_some_and(|max| bytes > max)
    }

    fn describe(self) -> String {
        let blocks = self.blocks.map(|blocks| figures::count(blocks, "block"));
        let bytes = self.bytes.map(|bytes| format!("{} B", figures::grouped(bytes)));
        blocks.into_iter().chain(bytes).collect::<Vec<_>>().join(" and ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        Suppressions::none().add(text, "s.supp").expect_err("it is wrong").to_string()
    }

    #[test]
    fn a_file_may_have_lines_of_leak_sanitizer_and_rules_of_valgrind() {
        let mut suppressions = Suppressions::none();
        let text = "# known\n\nleak:^cache_*\r\n{\n  a rule\n  Memcheck:Leak\n  fun:f\n}\n\
                    {\n  of another kind\n  Memcheck:Param\n  write(buf)\n  fun:f\n}\n\
                    {\n  of a number of bytes\n  Memcheck:Addr16\n  fun:f\n}\n\
                    {\n  of another tool\n  Helgrind:Race\n  fun:g\n}\n# poolscope: max=3 max-bytes=100\nleak:b\n";
        suppressions.add(text, "s.supp").expect("it is fine");
        let names: Vec<String> = suppressions.rules.iter().map(Rule::name).collect();
        assert_eq!(names, ["leak:^cache_*", "a rule (s.supp:4)", "leak:b"]);
        assert_eq!(suppressions.rules[2].max.describe(), "3 blocks and 100 B");
        assert_eq!(suppressions.rules[0].max, Max::default());
    }

    #[test]
    fn a_bad_line_is_named_with_its_place_and_rule() {
        for (text, expected) in [
            ("leak:a\nrace:b", "s.supp:2: \"race:b\" is no suppression: write leak:PATTERN"),
            ("leak:", "s.supp:1: \"leak:\" is no suppression"),
            ("{\nname\nMemcheck:Leak\nfun:f", "s.supp:1: this rule has no end"),
            ("\n{\n}", "s.supp:2: a rule has a name in its first line"),
            ("{\nname\n}", "s.supp:1: the rule \"name\" has no second line: write Memcheck:Leak"),
            ("{\nname\nLeak\nfun:f\n}", "s.supp:3: \"Leak\" is no kind of rule"),
            ("{\nname\nMemcheck:Leek\nfun:f\n}", "s.supp:3: \"Leek\" is no kind of rule that Memcheck has"),
            ("{\nname\nMemcheck:Leak\nfunc:f\n}", "s.supp:4: \"func:f\" is no frame: write fun:NAME"),
            ("{\nname\nMemcheck:Leak\nmatch-leak-kinds: sure\nfun:f\n}", "s.supp:4: \"sure\" is no kind of leak"),
            ("{\nname\nMemcheck:Leak\n...\n}", "s.supp:1: the rule \"name\" names no frame"),
            ("# poolscope: max=many\nleak:a", "s.supp:1: \"many\" is no whole number"),
            ("# poolscope: most=3\nleak:a", "s.supp:1: \"most=3\" says nothing to poolscope"),
        ] {
            assert!(error(text).starts_with(expected), "{text:?}: {}", error(text));
        }
    }

    #[test]
    fn every_built_in_rule_has_a_reason() {
        assert!(Suppressions::built_in().count() > 30);
        assert!(Suppressions::built_in().all(|(what, why)| what.len() > 10 && why.len() > 10));
    }
}
