//! The resident set against what is in use.

use crate::findings::{Facts, Finding, Severity, Subject};
use crate::model::accounting::Part;
use crate::words::figures::{bytes, count};

/// Nobody needs to know of less.
const LEAST: u64 = 8 << 20;

/// Memory that is much more than what is in use: where it lies, and what helps.
pub(super) fn more_than_in_use(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    let accounting = &facts.accounting;
    let (in_use, Some(memory)) = (accounting.get(Part::InUse), accounting.memory) else { return };
    let rest = memory.saturating_sub(in_use);
    if rest < LEAST || rest < in_use / 3 {
        return;
    }
    let beside = Part::ALL.into_iter().filter(|part| *part != Part::InUse && *part != Part::Files);
    let Some(part) = beside.max_by_key(|part| accounting.get(*part)) else { return };
    let bytes_there = accounting.get(part);
    // No part stands out.
    if bytes_there < LEAST / 2 || bytes_there < rest / 4 {
        return;
    }
    let threads = facts.snapshot.threads.iter().filter(|thread| thread.live).count() as u64;
    let of = match part {
        Part::ThreadCaches => format!(
            "lie free in the caches of {}: a smaller POOLSCOPE_THREAD_CACHE bounds them, a smaller POOLSCOPE_GC_MS \
             empties those of threads that sleep sooner",
            count(threads, "thread")
        ),
        Part::TransferCache => "are on their way back to the threads that allocated them, which take them in at their \
                                next allocations"
            .to_owned(),
        Part::CentralCache => "are free blocks in slabs that still hold others: see the size classes".to_owned(),
        Part::Free => {
            "are free pages: a smaller POOLSCOPE_SCAVENGE_MS gives them back sooner, malloc_trim at once".to_owned()
        }
        Part::Metadata => "are the pool's own: a larger POOLSCOPE_PERIOD keeps fewer samples".to_owned(),
        _ if !facts.snapshot.serves_malloc => {
            "are not the pool's: what is asked of other allocators, stacks, globals, and what the program maps itself"
                .to_owned()
        }
        _ => match MAPS_ITSELF.iter().filter(|of| of.is_there(facts)).map(|of| of.why).collect::<Vec<_>>() {
            known if known.is_empty() => {
                "are not the pool's: stacks, globals, and what the program maps itself".to_owned()
            }
            known => format!("are not the pool's. {}", known.join(". ")),
        },
    };
    let times = memory as f64 / in_use.max(1) as f64;
    let how_much =
        if in_use > 0 && times < 100.0 { format!("{times:.1} times what is in use") } else { bytes(memory as f64) };
    findings.push(Finding {
        severity: if part.is_outside() { Severity::Note } else { Severity::Warning },
        rule: "more_than_in_use",
        sentence: format!("The memory of the process is {how_much}: {} {of}.", bytes(bytes_there as f64)),
        evidence: vec![
            ("memory_bytes", memory as f64),
            ("in_use_bytes", in_use as f64),
            ("part_bytes", bytes_there as f64),
            ("threads", threads as f64),
        ],
        subject: Subject::Memory,
    });
}

/// Who maps memory without asking the pool for it.
struct MapsItself {
    /// What the program's name begins with, or that of a library of its; nothing if there is none.
    program: &'static str,
    library: &'static str,
    /// A sentence without its end.
    why: &'static str,
}

const MAPS_ITSELF: [MapsItself; 6] = [
    MapsItself {
        program: "python",
        library: "libpython3.",
        why: "Python maps memory for its small objects itself: with PYTHONMALLOC=malloc, which free-threaded ones \
              refuse, the pool has them, and their call sites are seen",
    },
    MapsItself {
        program: "ruby",
        library: "libruby",
        why: "Ruby maps memory for its objects itself: the pool has what these hold, as long strings, arrays and \
              tables",
    },
    MapsItself {
        program: "node",
        library: "",
        why: "Node maps memory for the objects of JavaScript itself: the pool has its buffers, and what native code \
              asks for",
    },
    MapsItself {
        program: "java",
        library: "libjvm.so",
        why: "Java maps memory for its heap itself: the pool has what its machine and native libraries ask for",
    },
    MapsItself {
        program: "php",
        library: "libphp",
        why: "PHP maps memory for its values itself: with USE_ZEND_ALLOC=0 the pool has them, and their call sites are \
              seen",
    },
    MapsItself {
        program: "",
        library: "libarrow.so",
        why: "Arrow maps memory for its tables itself: with ARROW_DEFAULT_MEMORY_POOL=system the pool has them",
    },
];

impl MapsItself {
    fn is_there(&self, facts: &Facts<'_>) -> bool {
        let is_called =
            |path: &str, by: &str| !by.is_empty() && path.rsplit('/').next().is_some_and(|name| name.starts_with(by));
        let snapshot = facts.snapshot;
        is_called(&snapshot.process.exe, self.program)
            || snapshot.modules.iter().any(|module| is_called(&module.path, self.library))
    }
}

/// Blocks that the program asked for and never used.
pub(super) fn never_touched(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    let accounting = &facts.accounting;
    if accounting.untouched < 8 * LEAST || accounting.untouched < accounting.in_use / 2 {
        return;
    }
    findings.push(Finding {
        severity: Severity::Note,
        rule: "never_touched",
        sentence: format!(
            "{} of the {} in use were never touched: they are addresses, and no memory.",
            bytes(accounting.untouched as f64),
            bytes(accounting.in_use as f64)
        ),
        evidence: vec![("untouched_bytes", accounting.untouched as f64), ("in_use_bytes", accounting.in_use as f64)],
        subject: Subject::Memory,
    });
}

#[cfg(test)]
mod tests {
    use poolscope_wire::TierCounter;

    use super::*;
    use crate::findings::testing::{calm, of_rule, set};
    use crate::model::snapshot::{Residence, Snapshot};
    use crate::model::testing::module;

    const MIB: u64 = 1 << 20;

    fn sentence(snapshot: &Snapshot, rule: &str) -> Option<String> {
        let findings = Facts::of(snapshot, None).findings();
        of_rule(&findings, rule).first().map(|finding| finding.sentence.clone())
    }

    #[test]
    fn where_the_rest_lies_is_said_with_what_helps() {
        let mut snapshot = calm();
        let rule = "more_than_in_use";
        assert_eq!(sentence(&snapshot, rule), None);
        set(&mut snapshot, TierCounter::PageHeapFree, 60 * MIB);
        set(&mut snapshot, TierCounter::SystemUsed, 200 * MIB);
        snapshot.residence = Some(Residence { rss: 110 * MIB, files: 4 * MIB, ..Residence::default() });
        assert_eq!(
            sentence(&snapshot, rule).as_deref(),
            Some(
                "The memory of the process is 2.8 times what is in use: 60.0 MiB are free pages: a smaller \
                 POOLSCOPE_SCAVENGE_MS gives them back sooner, malloc_trim at once."
            )
        );
        set(&mut snapshot, TierCounter::PageHeapFree, 0);
        let said = sentence(&snapshot, rule).expect("is said");
        assert!(said.contains("are not the pool's: what is asked of other allocators, stacks"), "{said}");
        snapshot.serves_malloc = true;
        let said = sentence(&snapshot, rule).expect("is said");
        assert!(said.contains("are not the pool's: stacks"), "{said}");
        snapshot.process.exe = "/usr/bin/python3.11".into();
        let said = sentence(&snapshot, rule).expect("is said");
        assert!(said.contains("with PYTHONMALLOC=malloc, which"), "{said}");
        snapshot.process.exe = "/usr/bin/ruby3.1".into();
        let said = sentence(&snapshot, rule).expect("is said");
        assert!(said.contains("are not the pool's. Ruby maps memory for its objects itself"), "{said}");
        // A server has it in a plugin, and a library may have memory of its own.
        snapshot.process.exe = "/usr/bin/uwsgi-core".into();
        for library in ["/usr/lib/libpython3.11.so.1.0", "/x/pyarrow/libarrow.so.2000"] {
            snapshot.modules.push(module(library));
        }
        let said = sentence(&snapshot, rule).expect("is said");
        assert!(said.contains("the pool has them, and their call sites are seen. Arrow maps"), "{said}");
        assert!(said.ends_with("with ARROW_DEFAULT_MEMORY_POOL=system the pool has them."), "{said}");
        // Of the dead nobody knows.
        snapshot.residence = None;
        assert_eq!(sentence(&snapshot, rule), None);
    }

    #[test]
    fn what_was_never_touched_is_said() {
        let mut snapshot = calm();
        assert_eq!(sentence(&snapshot, "never_touched"), None);
        set(&mut snapshot, TierCounter::LargeBytes, 400 * MIB);
        set(&mut snapshot, TierCounter::SystemUsed, 400 * MIB);
        snapshot.tiers = snapshot.tiers.with_memory([360 * MIB, 0, 0, 0, 0], None);
        let said = sentence(&snapshot, "never_touched").expect("is said");
        assert!(said.starts_with("360 MiB of the 400 MiB in use"), "{said}");
    }
}
