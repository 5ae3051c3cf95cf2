//! What a check found, as other tools read it: test reports, code scanning, a build's annotations, suppressions.

mod github;
mod junit;
#[cfg(feature = "json")]
mod sarif;
mod suppressions;

use crate::leaks::{Leak, LeakKind, LeakReport};
use crate::model::profile::Frame;

/// A process that was checked, or could not be.
#[derive(Debug)]
pub struct Outcome<'a> {
    /// Its command line.
    pub command: String,
    /// Its id.
    pub pid: u32,
    /// What was found; `None` if nothing was looked for.
    pub report: Option<&'a LeakReport>,
    /// Why leaks may be missing from the report.
    pub not_checked: Option<String>,
}

/// What came of a run.
#[derive(Debug)]
pub struct Run<'a> {
    /// The program that was run.
    pub command: String,
    /// The exit code of the check.
    pub exit_code: u8,
    /// Its processes.
    pub outcomes: Vec<Outcome<'a>>,
}

impl Outcome<'_> {
    fn leaks(&self) -> &[Leak] {
        self.report.map_or(&[], |report| &report.leaks)
    }
}

/// `40,960 B in 40 blocks lost by lose_blocks`.
fn headline(leak: &Leak) -> String {
    let amount = super::amount(leak.bytes, leak.objects);
    let by = leak.frames.get(leak.asked).map_or("code without a name", |frame| frame.name.as_str());
    match leak.kind {
        LeakKind::Indirect => format!("{amount} from {by} are lost with what pointed to them"),
        LeakKind::Grew => format!("{amount} from {by} were never freed"),
        _ => format!("{amount} from {by} are lost: nothing points to them any more"),
    }
}

/// The first function at or behind the one that asked for memory whose source is known, with its line.
fn place(leak: &Leak) -> Option<(&Frame, &str, u32)> {
    let known = leak.frames.iter().skip(leak.asked);
    known.filter_map(|frame| Some((frame, frame.file.as_deref()?, frame.line?))).next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leaks::suppressions::Suppressions;
    use crate::model::profile::Frame;

    /// A report with one leak of a function with signs that XML and commands have to write otherwise.
    pub(super) fn report() -> LeakReport {
        let frame = |name: &str, file: Option<&str>| Frame {
            name: name.into(),
            file: file.map(str::to_owned),
            line: file.map(|_| 12),
            ..Frame::default()
        };
        let frames = vec![
            frame("[libc.so.6+0x10]", None),
            frame("ns::take<\"&'>(char*)", Some("/src/a,b:c.cpp")),
            frame("main", Some("/src/main.cpp")),
        ];
        let leak = Leak { bytes: 2000, objects: 2, frames, asked: 1, kind: LeakKind::Direct, ..Leak::default() };
        LeakReport { leaks: vec![leak], exact: true, ..LeakReport::default() }
    }

    pub(super) fn run(report: &LeakReport) -> Run<'_> {
        let ok = Outcome { command: "./a <b>".into(), pid: 7, report: Some(report), not_checked: None };
        let not = Outcome { command: "./c".into(), pid: 8, report: None, not_checked: Some("it was killed".into()) };
        Run { command: "./a <b>".into(), exit_code: 23, outcomes: vec![ok, not] }
    }

    #[test]
    fn the_suppressions_that_are_written_can_be_read() {
        let report = report();
        let text = run(&report).to_suppressions();
        Suppressions::none().add(&text, "s.supp").expect(&text);
        assert!(text.contains("   obj:*/libc.so.6\n   fun:ns::take<\"&'>(char*)\n   fun:main\n}\n"), "{text}");
    }

    #[test]
    fn a_test_report_is_xml() {
        let report = report();
        let text = run(&report).to_junit();
        assert!(text.contains("tests=\"2\" failures=\"1\" errors=\"1\""), "{text}");
        assert!(text.contains("ns::take&lt;&quot;&amp;&apos;&gt;(char*)") && !text.contains("./a <b>"), "{text}");
    }

    #[test]
    fn an_annotation_is_one_line_and_has_no_signs_that_end_it() {
        let report = report();
        let text = run(&report).to_github(Some("/src"));
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.starts_with("::error file=a%2Cb%3Ac.cpp,line=12,title=Leak::2,000 B in 2 blocks"), "{text}");
        assert!(text.contains("::error title=Not checked::./c (pid 8): it was killed"), "{text}");
    }
}
