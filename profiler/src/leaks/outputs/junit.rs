//! A test report in JUnit's form: each process is a test.

use std::fmt::Write as _;

use super::{Run, headline};

impl Run<'_> {
    /// The report.
    pub fn to_junit(&self) -> String {
        let failures = self.outcomes.iter().filter(|outcome| !outcome.leaks().is_empty()).count();
        let is_error = |outcome: &&super::Outcome<'_>| outcome.leaks().is_empty() && outcome.not_checked.is_some();
        let errors = self.outcomes.iter().filter(is_error).count();
        let tests = self.outcomes.len();
        let suite = escaped(&self.command);
        let mut text = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <testsuites name=\"poolscope check\" tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\">\n  \
             <testsuite name=\"{suite}\" tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\">\n"
        );
        for outcome in &self.outcomes {
            let name = escaped(&format!("{} (pid {})", outcome.command, outcome.pid));
            let _ = writeln!(text, "    <testcase classname=\"leaks\" name=\"{name}\">");
            if let [first, others @ ..] = outcome.leaks() {
                let more = if others.is_empty() { String::new() } else { format!(", and {} more", others.len()) };
                let message = escaped(&format!("{}{more}", headline(first)));
                let report = outcome.report.map_or_else(String::new, |report| escaped(&report.to_text()));
                let _ = writeln!(text, "      <failure type=\"leak\" message=\"{message}\">{report}</failure>");
            } else if let Some(why) = &outcome.not_checked {
                let _ = writeln!(text, "      <error type=\"not checked\" message=\"{}\"/>", escaped(why));
            } else if let Some(report) = outcome.report {
                let _ = writeln!(text, "      <system-out>{}</system-out>", escaped(&report.to_text()));
            }
            text.push_str("    </testcase>\n");
        }
        text + "  </testsuite>\n</testsuites>\n"
    }
}

/// Text as XML has it. What XML can't have at all is left out.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for sign in text.chars() {
        match sign {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            '\n' | '\t' => escaped.push(sign),
            _ if sign.is_control() || matches!(sign, '\u{fffe}' | '\u{ffff}') => {}
            _ => escaped.push(sign),
        }
    }
    escaped
}
