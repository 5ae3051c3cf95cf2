//! The statistics of a Rust program.

use poolscope_alloc::stats::{ClassCounter, TierCounter, json, text};
use poolscope_alloc::{stats, stats_json, stats_text};

#[global_allocator]
static POOL: poolscope_alloc::Poolscope = poolscope_alloc::Poolscope;

// One test: the statistics are the process's.
#[test]
fn the_statistics_follow_what_the_program_does() {
    // Nothing is to change in the background.
    poolscope_alloc::config().scavenge_ms(None).gc_ms(None).apply().unwrap();
    let before = stats();
    // A size that nothing else here has: class 752.
    let blocks: Vec<_> = (0..5000u32).map(|i| Box::new([i; 188])).collect();
    let large = vec![1u8; 40 << 20];
    let held = stats();
    let class = |stats: &poolscope_alloc::stats::Stats| *stats.classes().iter().find(|c| c.block_bytes == 752).unwrap();
    assert_eq!(class(&held).in_use_blocks() - class(&before).in_use_blocks(), 5000);
    assert!(class(&held).allocs() >= class(&before).allocs() + 5000);
    assert!(class(&held).shared(ClassCounter::SlabsTaken) > class(&before).shared(ClassCounter::SlabsTaken));
    let grown = held.usage().in_use - before.usage().in_use;
    let expected = (40 << 20) + 5000 * 752;
    assert!((expected..expected + (1 << 20)).contains(&grown), "{grown} for {expected}");

    // Written twice from one reading, the same; and a later one has at least as much.
    let mut texts = [String::new(), String::new()];
    texts.iter_mut().for_each(|out| text::write(&held, out).unwrap());
    assert_eq!(texts[0], texts[1]);
    let mut out = String::new();
    json::write(&held, &mut out).unwrap();
    assert!(out.contains(&format!("\"in_use\":{}", held.usage().in_use)));
    assert!(stats_json().contains("\"classes\":[{") && stats_text().contains("Bytes in use by application"));

    drop((blocks, large));
    let after = stats();
    assert_eq!(class(&after).in_use_blocks(), class(&before).in_use_blocks());
    assert!(after.usage().in_use < before.usage().in_use + (1 << 20));
    assert_eq!(after.tier(TierCounter::LargeFrees), before.tier(TierCounter::LargeFrees) + 1);
    assert_eq!(
        after.usage().virtual_bytes() - after.usage().metadata,
        after.tier(TierCounter::SystemUsed),
        "every byte is somewhere"
    );

    // A reset forgets what was, and not what is.
    let kept = vec![3u8; 1 << 20];
    let before = stats();
    poolscope_alloc::reset();
    let after = stats();
    assert!(
        after.usage().in_use.abs_diff(before.usage().in_use) < 64 << 10,
        "{:?} {:?}",
        before.usage(),
        after.usage()
    );
    assert_eq!((after.usage().page_heap, after.tier(TierCounter::LargeAllocs)), (0, 0));
    assert!(after.spans_in_use() > 0 && after.spans_in_use() <= before.spans_in_use());
    assert!(after.classes().iter().all(|class| class.free_blocks() <= class.slabs() * class.slab_blocks));
    drop(kept);
}
