//! What a program did not free, by stack: the report of `poolscope check` and `poolscope leaks`.
//!
//! There are two questions. What was never freed is answered for blocks that were still allocated when the snapshot was
//! read; only of a process that has ended by exit it calls them leaked ([`Claim`]). Which of them nothing points to any
//! more is answered by a search that the process itself has made ([`mod@unreachable`]). A report is exact only for an
//! exact run; one from samples says so.

#[cfg(feature = "json")]
pub mod json;
pub mod outputs;
pub mod retained;
pub mod retainers;
pub mod suppressions;
pub mod unreachable;

use std::fmt::Write as _;
use std::time::Duration;

use crate::build::site_name::SiteName;
use crate::faces::text::frame_text;
use crate::leaks::suppressions::{Exceeded, Judged, Reason, Suppressions};
use crate::leaks::unreachable::Checked;
use crate::model::memory::Place;
use crate::model::profile::{Frame, Held, Profile};
use crate::model::snapshot::{ProcessState, Snapshot};
use crate::words::figures;

/// Callers in a leak's name.
const CALLERS: usize = 2;

/// What may be said of blocks that were not freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Claim {
    /// The process ended by exit: nobody frees them any more.
    #[default]
    Leaked,
    /// It was killed, and had them then.
    WasInUse,
    /// It runs, and may free them yet.
    InUse,
}

impl Claim {
    /// What may be said of a process in this state.
    pub fn of(state: ProcessState) -> Self {
        match state {
            ProcessState::Exited => Claim::Leaked,
            ProcessState::Killed => Claim::WasInUse,
            ProcessState::Running => Claim::InUse,
        }
    }

    /// The word for it, behind an amount: `leaked`.
    pub fn word(self) -> &'static str {
        match self {
            Claim::Leaked => "leaked",
            Claim::WasInUse => "was in use",
            Claim::InUse => "in use",
        }
    }
}

/// Blocks that were not freed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LeakReport {
    /// What they are.
    pub claim: Claim,
    /// Every allocation was recorded. Otherwise figures are estimates, and small leaks may be missing.
    pub exact: bool,
    /// Records that were lost, so that leaks may be missing.
    pub missed: u64,
    /// Of the leaked blocks, those whose stack found no room: nobody knows what allocated them, and no rule applies.
    pub nameless: u64,
    /// The leaks, most bytes first; of a process that runs what it has in use, the oldest first.
    pub leaks: Vec<Leak>,
    /// What was suppressed, by reason, most bytes first.
    pub suppressed: Vec<Suppressed>,
    /// Rules that would have suppressed more than they may, and so nothing.
    pub exceeded: Vec<Exceeded>,
    /// What the program could still reach, most bytes first; only where that was asked for, beside the leaks.
    pub reachable: Vec<Leak>,
    /// The search for unreachable blocks that it tells of; `None` if it tells of all that was not freed.
    pub checked: Option<Checked>,
}

/// What one stack allocated and nobody freed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Leak {
    /// Bytes.
    pub bytes: u64,
    /// Blocks.
    pub objects: u64,
    /// Sizes of the blocks and how many there are of each, ascending.
    pub sizes: Vec<(u64, u64)>,
    /// Who asked for the memory: the function, where it is, and its callers.
    pub name: String,
    /// The stack, innermost first.
    pub frames: Vec<Frame>,
    /// Which of the frames asked for the memory.
    pub asked: usize,
    /// How old the oldest of the sampled blocks is, in nanoseconds; 0 if that is not known.
    pub age_ns: u64,
    /// Outer frames are missing.
    pub incomplete: bool,
    /// What is known of them.
    pub kind: LeakKind,
    /// Which memory.
    pub place: Place,
}

/// What is known of blocks that were not freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeakKind {
    /// Nobody has looked whether the program can reach them.
    #[default]
    Grew,
    /// Nothing points to them.
    Direct,
    /// Leaked blocks point to them.
    Indirect,
    /// The program can reach them, if a pointer into the middle of a block is one.
    Possible,
    /// A static or a thread-local keeps them that the program filled.
    Retained,
    /// It can reach them from elsewhere: a stack, a register, memory that it has mapped.
    Reachable,
}

impl LeakKind {
    /// The word for it in JSON and its kin.
    pub fn name(self) -> &'static str {
        match self {
            LeakKind::Grew => "grew",
            LeakKind::Direct => "direct",
            LeakKind::Indirect => "indirect",
            LeakKind::Possible => "possible",
            LeakKind::Retained => "retained",
            LeakKind::Reachable => "reachable",
        }
    }
}

/// What was suppressed for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suppressed {
    /// The reason, or the user's `leak:PATTERN`.
    pub reason: String,
    /// A program of the system lost it, by its own code.
    pub of_program: bool,
    /// Bytes.
    pub bytes: u64,
    /// Blocks.
    pub objects: u64,
}

/// How much of a report its text has, of what is first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Leaks, and as many of what the program can still reach.
    pub leaks: usize,
    /// Frames of a stack: four of five are its innermost, the others its outermost.
    pub frames: usize,
}

impl Shown {
    /// Everything.
    pub const ALL: Shown = Shown { leaks: usize::MAX, frames: usize::MAX };
}

impl LeakReport {
    /// Looks for leaks in the last snapshot of a program, or for what it has in use.
    pub fn new(snapshot: &Snapshot, profile: &Profile, suppressions: &Suppressions) -> Self {
        Self::with_claim(snapshot, profile, suppressions, Claim::of(snapshot.process.state))
    }

    /// The same for who knows what may be said of the blocks.
    pub fn with_claim(snapshot: &Snapshot, profile: &Profile, suppressions: &Suppressions, claim: Claim) -> Self {
        Self::judged(snapshot, profile, suppressions.judge(profile, LeakKind::Grew), claim, LeakKind::Grew)
    }

    /// The same of blocks of one kind, by what rules say of the sites.
    fn judged(snapshot: &Snapshot, profile: &Profile, judged: Judged, claim: Claim, kind: LeakKind) -> Self {
        let mut report = Self { claim, exact: snapshot.exact, missed: snapshot.dropped.total(), ..Self::default() };
        report.exceeded = judged.exceeded;
        for (site, reason) in profile.sites.iter().zip(judged.reasons) {
            let (bytes, objects) = (figures::whole(site.in_use.bytes), figures::whole(site.in_use.objects));
            // A block of no bytes leaks too.
            if bytes == 0 && objects == 0 {
                continue;
            }
            if let Some(reason) = reason {
                report.suppress(reason, bytes, objects);
                continue;
            }
            let name = SiteName::of(profile, site);
            report.leaks.push(Leak {
                bytes,
                objects,
                name: name.as_ref().map_or_else(String::new, |name| name.text(CALLERS)),
                asked: name.map_or(0, |name| name.depth),
                sizes: by_size(&site.held),
                frames: profile.frames(site).cloned().collect(),
                // A process that has ended gets no older.
                age_ns: match claim {
                    Claim::InUse if site.oldest_ns != 0 => {
                        snapshot.moment_ns().map_or(0, |moment| moment.saturating_sub(site.oldest_ns))
                    }
                    _ => 0,
                },
                incomplete: site.incomplete,
                kind,
                place: site.place,
            });
        }
        report.leaks.sort_by_key(|leak| std::cmp::Reverse((leak.bytes, leak.objects)));
        if claim == Claim::InUse {
            report.leaks.sort_by_key(|leak| std::cmp::Reverse(leak.age_ns));
        }
        report.suppressed.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.reason.cmp(&b.reason)));
        report
    }

    /// The sites of a profile that leaked, for a picture: what is suppressed is left out.
    pub fn leaked(profile: &Profile, suppressions: &Suppressions) -> Profile {
        let mut leaked = profile.clone();
        leaked.sites.retain(|site| suppressions.reason(profile, site, LeakKind::Grew).is_none());
        leaked
    }

    fn suppress(&mut self, reason: Reason, bytes: u64, objects: u64) {
        let Reason { text: reason, of_program } = reason;
        if let Some(known) = self.suppressed.iter_mut().find(|known| known.reason == reason) {
            known.bytes = known.bytes.saturating_add(bytes);
            known.objects = known.objects.saturating_add(objects);
        } else {
            self.suppressed.push(Suppressed { reason, of_program, bytes, objects });
        }
    }

    /// Leaves out all leaks but those of most bytes.
    pub fn keep_largest(&mut self, most: usize) {
        self.leaks.sort_by_key(|leak| std::cmp::Reverse((leak.bytes, leak.objects)));
        self.leaks.truncate(most);
    }

    /// Adds what another report suppressed.
    fn take_suppressed(&mut self, other: Self) {
        for kept in other.suppressed {
            let Suppressed { reason: text, of_program, bytes, objects } = kept;
            self.suppress(Reason { text, of_program }, bytes, objects);
        }
        self.exceeded.extend(other.exceeded);
    }

    /// Whether a stack of those that are shown is longer than what is shown of it.
    pub fn has_more_frames_than(&self, shown: Shown) -> bool {
        let leaks = self.leaks.iter().take(shown.leaks).chain(self.reachable.iter().take(shown.leaks));
        leaks.into_iter().any(|leak| leak.frames.len() > shown.frames)
    }

    /// Something leaked.
    pub fn has_leaks(&self) -> bool {
        !self.leaks.is_empty()
    }

    /// Bytes of all leaks.
    pub fn bytes(&self) -> u64 {
        self.leaks.iter().fold(0, |sum, leak| sum.saturating_add(leak.bytes))
    }

    /// Blocks of all leaks.
    pub fn objects(&self) -> u64 {
        self.leaks.iter().fold(0, |sum, leak| sum.saturating_add(leak.objects))
    }

    /// Why it is not known of all leaks what allocated them; `None` if it is.
    pub fn without_stacks(&self) -> Option<String> {
        let blocks = figures::count(self.nameless, "leaked block");
        (self.nameless > 0).then(|| format!("the records had no room for the stacks of {blocks}"))
    }

    /// The report as text.
    pub fn to_text(&self) -> String {
        self.to_text_of(Shown::ALL)
    }

    /// The same with a part of it, and with how much is left out. Totals are those of all.
    pub fn to_text_of(&self, shown: Shown) -> String {
        let most = shown.leaks;
        let mut text = String::new();
        if self.leaks.is_empty() {
            text.push_str(if self.claim == Claim::Leaked { "No leaks.\n" } else { "Nothing is known to be in use.\n" });
        }
        let heading = match self.claim {
            Claim::Leaked => "leak",
            Claim::WasInUse => "was in use",
            Claim::InUse => "in use",
        };
        for (index, leak) in self.leaks.iter().take(most).enumerate() {
            let how = if leak.kind == LeakKind::Indirect { "indirect " } else { "" };
            let _ = write!(text, "{how}{heading} {}: {}", index + 1, leak.to_text_of(shown.frames));
        }
        text += &left_out(&self.leaks, most);
        if !self.leaks.is_empty() {
            let stacks = figures::count(self.leaks.len() as u64, "stack");
            let _ = writeln!(text, "{} {}, from {stacks}.", amount(self.bytes(), self.objects()), self.claim.word());
        }
        for (index, held) in self.reachable.iter().take(most).enumerate() {
            let how = match held.kind {
                LeakKind::Possible => "possibly reachable",
                LeakKind::Retained => "kept by a static or thread-local",
                _ => "still reachable",
            };
            let gap = if index == 0 { "\n" } else { "" };
            let _ = write!(text, "{gap}{how} {}: {}", index + 1, held.to_text_of(shown.frames));
        }
        text += &left_out(&self.reachable, most);
        for kept in &self.suppressed {
            let _ = writeln!(text, "Suppressed: {}: {}", amount(kept.bytes, kept.objects), kept.reason);
        }
        for Exceeded { rule, max, bytes, objects } in &self.exceeded {
            let found = amount(*bytes, *objects);
            let _ = writeln!(text, "{rule} may hold {max}, and would hold {found}: these are reported.");
        }
        if !self.exact {
            text.push_str("These are estimates from samples, and small sites may be missing");
            text.push_str(if self.claim == Claim::Leaked { ": `poolscope check` is exact.\n" } else { ".\n" });
        }
        if self.missed > 0 {
            let records = figures::count(self.missed, "record");
            let _ = writeln!(text, "{records} could not be kept: sites may be missing, and figures too low.");
        }
        if let Some(why) = self.without_stacks() {
            let _ = writeln!(text, "Not all leaks have a name, and no rule applies to those: {why}.");
        }
        if let Some(checked) = &self.checked {
            text.push_str(&checked.to_text());
        }
        text
    }
}

/// How much those are that stand behind the first `most`; empty if there are none.
fn left_out(leaks: &[Leak], most: usize) -> String {
    let others = leaks.get(most..).unwrap_or_default();
    if others.is_empty() {
        return String::new();
    }
    let (bytes, objects) = others.iter().fold((0u64, 0u64), |(bytes, objects), leak| {
        (bytes.saturating_add(leak.bytes), objects.saturating_add(leak.objects))
    });
    let stacks = figures::count(others.len() as u64, "more stack");
    format!("{stacks}, {}, left out here.\n", amount(bytes, objects))
}

impl Leak {
    /// How much it is, and the stack, which ends with an empty line.
    pub fn to_text(&self) -> String {
        self.to_text_of(usize::MAX)
    }

    /// The same with at most so many frames.
    fn to_text_of(&self, most: usize) -> String {
        let of = self.place.memory().describe();
        let of = if of.is_empty() { of } else { format!(", {of}") };
        let mut text = format!("{}{}{of}{}\n", amount(self.bytes, self.objects), sizes(self), age(self));
        let _ = writeln!(text, "    {}", self.name);
        let left_out = self.frames.len().saturating_sub(most);
        let outermost = most / 5;
        let gap = if left_out > 0 { most - outermost..self.frames.len() - outermost } else { 0..0 };
        for (depth, frame) in self.frames.iter().enumerate() {
            if !gap.contains(&depth) {
                let _ = writeln!(text, "    #{depth} {}", frame_text(frame));
            } else if depth == gap.start {
                let _ = writeln!(text, "    … {} left out", figures::count(left_out as u64, "frame"));
            }
        }
        if self.incomplete {
            text.push_str("    (outer frames are missing)\n");
        }
        text.push('\n');
        text
    }
}

fn amount(bytes: u64, objects: u64) -> String {
    format!("{} B in {}", figures::grouped(bytes), figures::count(objects, "block"))
}

/// How long the oldest block has been there.
fn age(leak: &Leak) -> String {
    match leak.age_ns {
        0 => String::new(),
        age => format!(", the oldest for {}", figures::duration(Duration::from_nanos(age))),
    }
}

/// ` of 64 B each`, or the range of sizes.
fn sizes(leak: &Leak) -> String {
    match leak.sizes.as_slice() {
        [] => String::new(),
        [_] if leak.objects == 1 => String::new(),
        [(size, _)] => format!(" of {} B each", figures::grouped(*size)),
        [(smallest, _), .., (largest, _)] => {
            format!(" of {} to {} B", figures::grouped(*smallest), figures::grouped(*largest))
        }
    }
}

/// How many blocks there are of each size, whichever thread allocated them.
fn by_size(held: &[Held]) -> Vec<(u64, u64)> {
    let mut sizes: Vec<(u64, f64)> = Vec::new();
    for held in held {
        match sizes.last_mut() {
            Some((size, objects)) if *size == held.size => *objects += held.amount.objects,
            _ => sizes.push((held.size, held.amount.objects)),
        }
    }
    sizes.into_iter().map(|(size, objects)| (size, figures::whole(objects))).collect()
}
