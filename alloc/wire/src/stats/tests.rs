extern crate std;

use std::format;
use std::string::String;
use std::vec::Vec;

use super::*;

/// A pool that holds one class of 64-byte blocks and one large block.
fn small_pool() -> Stats {
    let mut stats = Stats { class_count: 2, heaps: 3, page_bytes: 65536, period_bytes: 524_288, ..Stats::EMPTY };
    for (counter, value) in [
        (TierCounter::SystemReserved, 1 << 38),
        (TierCounter::SystemUsed, 10 * 65536),
        (TierCounter::PageHeapFree, 3 * 65536),
        (TierCounter::SystemReleased, 65536),
        (TierCounter::PageHeapAllocs, 5),
        (TierCounter::PageHeapFrees, 2),
        (TierCounter::LargeBytes, 5 * 65536),
        (TierCounter::LargeObjects, 1),
        (TierCounter::SlabBytes, 2 * 65536),
        (TierCounter::ThreadsLive, 2),
        (TierCounter::MetadataBytes, 1000),
    ] {
        stats.tiers[counter as usize] = value;
    }
    let class = &mut stats.classes[1];
    *class = ClassStats { block_bytes: 64, slab_bytes: 65536, slab_blocks: 1023, ..ClassStats::EMPTY };
    class.add_thread(&ClassCounters {
        allocs: 1000,
        frees: 100,
        refills: 10,
        cached: 50,
        untouched: 300,
        sent: 0,
        returned: 5,
    });
    class.add_thread(&ClassCounters {
        allocs: 200,
        frees: 50,
        refills: 5,
        cached: 0,
        untouched: 100u64.wrapping_neg(),
        sent: 11,
        returned: 0,
    });
    for (counter, value) in [
        (ClassCounter::SlabsTaken, 3),
        (ClassCounter::SlabsReturned, 1),
        (ClassCounter::CentralFree, 40),
        (ClassCounter::Untouched, 7),
        (ClassCounter::SampledAllocs, 4),
        (ClassCounter::SharedFrees, 1),
    ] {
        class.shared[counter as usize] = value;
    }
    stats
}

fn text(stats: &Stats) -> String {
    let mut text = String::new();
    text::write(stats, &mut text).unwrap();
    text
}

#[test]
fn every_byte_counts_once() {
    let stats = small_pool();
    let class = &stats.classes()[1];
    assert_eq!((class.allocs(), class.frees(), class.misses(), class.hits()), (1154, 151, 19, 1135));
    assert_eq!((class.in_use_blocks(), class.free_blocks(), class.thread_blocks()), (997, 1049, 796));
    let usage = stats.usage();
    assert_eq!(usage.in_use, 5 * 65536 + 997 * 64);
    assert_eq!(usage.thread_caches, 796 * 64);
    assert_eq!(usage.transfer_cache, 6 * 64);
    assert_eq!(usage.central_cache, 40 * 64 + 2 * 64, "free blocks, and the ends of two slabs");
    assert_eq!((usage.page_heap, usage.unmapped), (2 * 65536, 65536 + 207 * 64));
    assert_eq!(usage.virtual_bytes(), 10 * 65536 + 1000);
    assert_eq!(usage.physical(), usage.virtual_bytes() - usage.unmapped);
}

/// What the kernel says of the pages overrules what the counters think has memory, and every byte still counts once.
#[test]
fn what_has_no_memory_counts_as_unmapped_wherever_it_is() {
    let mut stats = small_pool();
    let before = stats.usage();
    for (part, bytes) in [
        (Unbacked::InUse, 4096),
        (Unbacked::PageHeap, 65536),
        (Unbacked::CentralCache, 100u64.wrapping_neg()),
        (Unbacked::ThreadCaches, 1000),
        (Unbacked::Metadata, 40),
    ] {
        stats.unbacked[part as usize] = bytes;
    }
    let usage = stats.usage();
    assert_eq!((usage.in_use, usage.untouched), (before.in_use, 4096));
    assert_eq!(usage.page_heap, before.page_heap - 65536);
    assert_eq!(usage.central_cache, before.central_cache + 100);
    assert_eq!(usage.thread_caches, before.thread_caches - 1000);
    assert_eq!(usage.physical(), before.physical() - 4096 - 65536 + 100 - 1000 - 40);
    assert_eq!(usage.virtual_bytes(), before.virtual_bytes() - 40);

    // What has changed since then is the program's: it touched more, or gave pages of its blocks back.
    let descriptors = 10 * DESCRIPTOR_BYTES - 40;
    let pages = usage.physical() - usage.metadata;
    for (resident, untouched) in [(pages, 4096), (pages + 4000, 96), (pages - 5000, 9096), (pages + 9000, 0)] {
        stats.resident = Some(resident + descriptors);
        let now = stats.usage();
        // What no block accounts for is in pages that were free, and that somebody has taken meanwhile.
        let taken = (resident + untouched).saturating_sub(pages + 4096);
        assert_eq!((now.in_use, now.untouched, now.page_heap), (usage.in_use, untouched, usage.page_heap + taken));
        assert_eq!(now.physical() - now.metadata, resident);
        assert_eq!(now.virtual_bytes(), usage.virtual_bytes());
    }
    stats.resident = Some(descriptors);
    assert_eq!((stats.usage().physical(), stats.usage().untouched), (usage.metadata + 6 * 64, usage.in_use));
}

#[test]
fn the_text_has_the_layout_of_tcmalloc() {
    let text = text(&small_pool());
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "------------------------------------------------");
    assert_eq!(lines[1], "MALLOC:         391488 (    0.4 MiB) Bytes in use by application");
    assert_eq!(lines[2], "MALLOC: -            0 (    0.0 MiB) Bytes of these that were never touched");
    assert_eq!(lines[3], "MALLOC: +       131072 (    0.1 MiB) Bytes in page heap freelist");
    assert_eq!(lines[8], "MALLOC:   ------------");
    assert_eq!(lines[9], "MALLOC: =       577576 (    0.6 MiB) Actual memory used (physical + swap)");
    assert_eq!(lines[13], "MALLOC:");
    assert_eq!(lines[14], "MALLOC:              3               Spans in use");
    assert!(lines.contains(&"MALLOC:          65536               Tcmalloc page size"));
    let class = "class   1 [       64 bytes ] :     1049 objs;   0.1 MiB;    0.1 cum MiB;        2 live pages; \
                 spans:          1 ret /          3 req = 0.3333;";
    assert!(lines.contains(&class), "{text}");
}

#[test]
fn counters_that_contradict_each_other_are_cut_at_0() {
    let mut stats = small_pool();
    stats.classes[1].threads.frees = u64::MAX;
    stats.classes[1].shared[ClassCounter::CentralFree as usize] = u64::MAX;
    stats.tiers[TierCounter::SystemReleased as usize] = u64::MAX;
    let usage = stats.usage();
    assert_eq!((usage.in_use, usage.untouched, usage.page_heap, usage.thread_caches), (5 * 65536, 0, 0, 0));
    assert_eq!(usage.physical(), u64::MAX);
    stats.tiers = [u64::MAX; TIER_COUNTERS.len()];
    stats.classes = [ClassStats { shared: [u64::MAX; CLASS_COUNTERS.len()], ..stats.classes[1] }; MAX_CLASSES];
    stats.class_count = usize::MAX;
    assert!(!text(&stats).is_empty());
}

#[test]
fn the_json_is_well_formed_and_has_every_counter_of_the_process() {
    let mut json = String::new();
    json::write(&small_pool(), &mut json).unwrap();
    for name in TIER_COUNTERS.iter().map(|info| info.name) {
        assert!(json.contains(&format!("\"{name}\":")), "{name}");
    }
    let depth = json.chars().fold(0, |depth, c| depth + i32::from("{[".contains(c)) - i32::from("]}".contains(c)));
    assert_eq!(depth, 0);
    assert!(json.contains("\"usage\":{\"in_use\":391488,\"untouched\":0,\"page_heap\":131072,"), "{json}");
    assert!(!json.contains(",,") && !json.contains(",}") && !json.contains("{,") && json.ends_with("]}\n"), "{json}");
}
