//! What a recording comes to: the figures behind every report.
//!
//! The events are gone through twice: once to find when most was in use, and once more up to there. What is kept grows
//! with the stacks and the blocks in use, not with the events.
//!
//! Host memory and that of each device have figures of their own ([`MemoryFigures`]), which are never added up.

use std::collections::BTreeMap;

use crate::build::builder::ProfileBuilder;
use crate::build::by_names;
use crate::model::memory::Place;
use crate::model::profile::Profile;
use crate::recording::events::call_paths::Path;
use crate::recording::events::session::{Session, Summary};
use crate::recording::file::reader::{RecordingError, RecordingReader, Tail};
use crate::recording::replay::cautions::cautions;
use crate::recording::replay::collector::Collector;
pub use crate::recording::replay::collector::TIMELINE;
use crate::recording::replay::figures::grown;
pub use crate::recording::replay::figures::{
    Count, Figures, MemoryFigures, PartFigures, PeakFound, Span, StreamFigures, ThreadFigures,
};
use crate::recording::replay::process_snapshot::snapshot;
use crate::recording::replay::sparse_pages::pages;
pub use crate::recording::replay::sparse_pages::{NEARLY_EMPTY, Pages};
use crate::recording::replay::{Happening, Replay, State, place_of};

/// What is asked of a recording.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// Between this time and [`to_us`](Self::to_us), microseconds since the start, growth is counted.
    pub from_us: u64,
    /// The end of that time, and of everything that is looked at.
    pub to_us: u64,
    /// A block is temporary if its thread freed it after no more than so many other allocations of its own.
    pub temporary: u64,
}

impl Default for Question {
    fn default() -> Self {
        Self { from_us: 0, to_us: u64::MAX, temporary: 0 }
    }
}

/// Everything that a report says.
#[derive(Debug)]
pub struct Analysis {
    /// Whose recording the last part is that was looked at: what is in use at the end is in use there.
    pub session: Session,
    cautions: Vec<String>,
    /// Losses and threads.
    pub summary: Summary,
    /// How the file ends.
    pub tail: Tail,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// What was asked.
    pub question: Question,
    /// Time of the last event, microseconds since the start.
    pub end_us: u64,
    /// What was done with each memory: the host's first, then that of each device that there were events of.
    pub memories: Vec<MemoryFigures>,
    /// Pages at the end.
    pub pages: Pages,
    /// What each stack did.
    pub stacks: Vec<Figures>,
    /// The call sites, in use as at the end of the time that was asked for.
    pub profile: Profile,
    /// What each site of the profile did.
    pub sites: Vec<Figures>,
    /// The sites as tables list them, those that no name tells apart as one: the first of them in the profile, and what
    /// all of them did.
    pub(crate) listed: Vec<(usize, Figures)>,
}

/// What was in use by stack at one moment.
fn in_use_by_stack(state: &State, stacks: &mut Vec<Figures>, mut place: impl FnMut(&mut Figures) -> &mut Count) {
    for (_, block) in state.in_use() {
        place(grown(stacks, block.stack as usize)).add(block.size);
    }
}

/// Goes through the events once more, up to the last peak of any memory, and notes what was in use at each by stack.
fn find_peaks(
    reader: &mut RecordingReader,
    paths: &[Path],
    collectors: &[Collector],
    stacks: &mut Vec<Figures>,
) -> Result<(), RecordingError> {
    let mut left: Vec<(u64, usize)> =
        collectors.iter().enumerate().map(|(memory, collector)| (collector.peak().events, memory)).collect();
    left.retain(|&(events, _)| events > 0);
    left.sort_unstable_by(|a, b| b.cmp(a));
    if left.is_empty() {
        return Ok(());
    }
    Replay::run(reader, u64::MAX, |state, _| {
        while let Some(&(_, memory)) = left.last().filter(|&&(events, _)| events <= state.events) {
            left.pop();
            let place = collectors[memory].place();
            let of_memory = state.in_use().filter(|(_, block)| place_of(paths, block.stack) == place);
            of_memory.for_each(|(_, block)| grown(stacks, block.stack as usize).peak.add(block.size));
        }
        !left.is_empty()
    })?;
    Ok(())
}

impl Analysis {
    /// Goes through a recording.
    pub fn of(
        reader: &mut RecordingReader,
        builder: &mut ProfileBuilder,
        question: Question,
    ) -> Result<Analysis, RecordingError> {
        let mut collectors = vec![Collector::new(Place::Host, question.temporary)];
        let mut stacks: Vec<Figures> = Vec::new();
        let (mut end_us, mut started) = (0, question.from_us == 0);
        let replay = Replay::run(reader, question.to_us, |state, happening| {
            if !started && state.time_us >= question.from_us {
                started = true;
                in_use_by_stack(state, &mut stacks, |figures| &mut figures.at_start);
                // The state is that after this event.
                match happening {
                    Happening::Alloc(block) => grown(&mut stacks, block.stack as usize).at_start.take(block.size),
                    Happening::Free(block, _) | Happening::FreeLost(block) => {
                        grown(&mut stacks, block.stack as usize).at_start.add(block.size);
                    }
                    Happening::Unfollowed(_) | Happening::FreeUnknown(_) => {}
                }
            }
            end_us = state.time_us;
            for &(place, _) in state.memories.iter().skip(collectors.len()) {
                collectors.push(Collector::new(place, question.temporary));
            }
            collectors[state.memory].see(&mut stacks, state, happening);
            true
        })?;
        let state = &replay.state;
        if !started {
            in_use_by_stack(state, &mut stacks, |figures| &mut figures.at_start);
        }
        in_use_by_stack(state, &mut stacks, |figures| &mut figures.at_end);
        let pages = pages(&replay, replay.last().session.page_bytes, &mut stacks);
        find_peaks(reader, &replay.paths, &collectors, &mut stacks)?;

        stacks.resize(replay.paths.len().max(stacks.len()), Figures::default());
        let summary = replay.summary();
        let peaks: Vec<(Place, PeakFound, usize)> =
            collectors.iter().map(|collector| (collector.place(), collector.peak(), collector.peak_part)).collect();
        let snapshot = snapshot(&replay, &summary, &stacks, &peaks, end_us);
        let frees = |stack: usize| stacks.get(stack).is_some_and(|figures| figures.freed_here.objects > 0);
        let (mut profile, site_of_stacks) = builder.build_with_sites(&snapshot, frees);
        let threads = summary.threads.len();
        let memories: Vec<MemoryFigures> =
            collectors.into_iter().map(|collector| collector.finish(&replay, &stacks, threads)).collect();
        let unfollowed = memories.iter().map(|memory| memory.unfollowed).sum();
        let cautions = cautions(&memories[0].parts, &summary, &replay.tail, unfollowed);
        let session = replay.last().session.clone();
        profile.comments = vec![format!("{} (pid {}, recorded)", session.command(), session.pid)];
        profile.comments.extend(cautions.iter().cloned());
        profile.thread_names = thread_names(&summary);
        let mut sites = vec![Figures::default(); profile.sites.len()];
        for (figures, site) in stacks.iter().zip(&site_of_stacks) {
            if let Some(site) = site.and_then(|site| sites.get_mut(site)) {
                site.join(figures);
            }
        }
        let listed = listed(&profile, &sites);
        Ok(Analysis {
            session,
            cautions,
            summary,
            tail: replay.tail,
            file_bytes: reader.len(),
            question,
            end_us,
            memories,
            pages,
            stacks,
            profile,
            sites,
            listed,
        })
    }

    /// What was done with host memory.
    pub fn host(&self) -> &MemoryFigures {
        &self.memories[0]
    }

    /// What was done with the memory of each device.
    pub fn devices(&self) -> &[MemoryFigures] {
        &self.memories[1..]
    }

    /// The stacks of frees are in it, or in some part.
    pub fn has_free_stacks(&self) -> bool {
        self.host().parts.iter().any(|part| part.session.free_stacks)
    }

    /// What a reader of any figure has to know first; empty if there is nothing.
    pub fn cautions(&self) -> &[String] {
        &self.cautions
    }
}

fn listed(profile: &Profile, figures: &[Figures]) -> Vec<(usize, Figures)> {
    let mut listed: Vec<(usize, Figures)> = Vec::with_capacity(figures.len());
    for (at, (row, figures)) in by_names::rows_of(profile).into_iter().zip(figures).enumerate() {
        match listed.get_mut(row) {
            Some((_, known)) => known.join(figures),
            None => listed.push((at, *figures)),
        }
    }
    listed
}

fn thread_names(summary: &Summary) -> BTreeMap<u32, String> {
    let named = summary.threads.iter().filter(|thread| !thread.name.is_empty());
    named.map(|thread| (thread.tid, thread.name.clone())).collect()
}
