//! Cautions: what is missing from a recording or wrong in it, so that no figure is taken for more than it is.

use crate::recording::events::session::Summary;
use crate::recording::file::reader::Tail;
use crate::recording::replay::figures::PartFigures;
use crate::words::figures::{bytes, count};

/// What a reader of any figure has to know first.
pub(crate) fn cautions(parts: &[PartFigures], summary: &Summary, tail: &Tail, unfollowed: u64) -> Vec<String> {
    let mut cautions = Vec::new();
    for ring in summary.losses.iter().filter(|ring| ring.allocs + ring.frees > 0) {
        let (allocs, frees) = (count(ring.allocs, "allocation"), count(ring.frees, "free"));
        cautions.push(format!("lost of thread {}: {allocs} and {frees}: figures are too low", ring.tid));
    }
    if summary.lost_without_ring > 0 {
        let events = count(summary.lost_without_ring, "event");
        cautions.push(format!("lost of threads that had no ring: {events}: figures are too low"));
    }
    if unfollowed > 0 {
        let blocks = count(unfollowed, "allocation");
        cautions.push(format!(
            "too many blocks were in use at once: {blocks} not followed, and missing from what is in use"
        ));
    }
    if summary.refused_stacks > 0 {
        let stacks = count(summary.refused_stacks, "time");
        cautions.push(format!("too many distinct stacks: {stacks} a new one found no room and counts as unknown"));
    }
    if summary.damaged_words > 0 {
        cautions.push(format!("{} of the program's events made no sense", summary.damaged_words));
    }
    match tail {
        Tail::Finished => {}
        Tail::Unfinished => cautions.push("the recording was not finished: its end is missing".to_owned()),
        Tail::Lost { offset, bytes: lost, why } => {
            let lost = bytes(*lost as f64);
            cautions.push(format!("the file is damaged from byte {offset} on ({why}): the last {lost} are left out"));
        }
    }
    let of_part = |part: usize| if parts.len() > 1 { format!(" of part {}", part + 1) } else { String::new() };
    for part in (0..parts.len().saturating_sub(1)).filter(|&part| parts[part].ended.is_empty()) {
        cautions.push(format!("the recording{} was not finished: its end is missing", of_part(part)));
    }
    for (part, _) in parts.iter().enumerate().filter(|(_, part)| !part.session.from_start) {
        cautions.push(format!("what was allocated before the recording{} began is not in it", of_part(part)));
    }
    if parts.len() > 1 {
        cautions
            .push(format!("what is in use at the end is what part {} had: the other parts ended before", parts.len()));
    }
    cautions
}
