//! Rules that suppress just what was found, in valgrind's form, of several frames: narrower than a name alone.

use std::collections::HashSet;
use std::fmt::Write as _;

use super::{Run, headline};
use crate::leaks::{Leak, LeakKind};
use crate::model::profile::Frame;
use crate::symbols::function_name;

/// Frames of a rule.
const FRAMES: usize = 12;
/// The function that allocates, which valgrind has in its stacks.
const ALLOCATOR: &str = "   fun:*\n";

impl Run<'_> {
    /// A rule for each leak. What is leaked indirectly goes with what led to it, unless there was no rule for that.
    pub fn to_suppressions(&self) -> String {
        let mut text = format!("# What `poolscope check` found in: {}\n", self.command.replace('\n', " "));
        let mut known = HashSet::new();
        let leaks = || self.outcomes.iter().flat_map(super::Outcome::leaks);
        let all_led = leaks().all(|leak| leak.kind == LeakKind::Indirect || !rule(leak).is_empty());
        for leak in leaks().filter(|leak| leak.kind != LeakKind::Indirect || !all_led) {
            let rule = rule(leak);
            if !rule.is_empty() && known.insert(rule.clone()) {
                let name = leak.frames.get(leak.asked).map_or("no name", |frame| frame.name.as_str());
                let _ = write!(text, "\n# {}\n{{\n   {name}\n   Memcheck:Leak\n{rule}}}\n", headline(leak));
            }
        }
        text
    }
}

fn rule(leak: &Leak) -> String {
    let kinds = match leak.kind {
        LeakKind::Direct => "   match-leak-kinds: definite\n",
        LeakKind::Indirect => "   match-leak-kinds: indirect\n",
        _ => "",
    };
    // What is below `main` has another name in each tool.
    let above = leak.frames.iter().position(|frame| frame.name == "main").map_or(FRAMES, |at| FRAMES.min(at + 1));
    let lines: String = leak.frames.iter().take(above).map(|frame| format!("   {}\n", line(frame))).collect();
    if lines.is_empty() { lines } else { format!("{kinds}{ALLOCATOR}{lines}") }
}

/// A frame without a name is known by its module.
fn line(frame: &Frame) -> String {
    match frame.name.strip_prefix('[').and_then(|rest| rest.split_once('+')) {
        Some((module, _)) => format!("obj:*/{module}"),
        // What valgrind knows a function by: the linker's name, and its own where it was inlined.
        None if frame.inlined => format!("fun:{}", function_name::own(&frame.name)),
        None => match (frame.symbol.as_deref(), frame.name.strip_prefix("__")) {
            (Some(symbol), _) => format!("fun:{}", function_name::any_of_its_symbols(symbol)),
            // The C library's functions have names without these beside it, which valgrind prefers.
            (None, Some(rest)) => format!("fun:*{}", rest.trim_start_matches('_')),
            (None, None) => format!("fun:{}", frame.name),
        },
    }
}
