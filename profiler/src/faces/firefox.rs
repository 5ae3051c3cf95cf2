//! Profiles for the Firefox Profiler: its processed format, with allocations as `nativeAllocations`.
//!
//! The Profiler shows a thread's allocations, and what of them is retained in a range of time. A site's memory in use
//! is an allocation without a free, at the time at which the oldest of its blocks was allocated; what was freed is an
//! allocation and a free at the same time. The host's memory and that of each device are processes of their own,
//! because the Profiler adds up what is in one.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use fxprof_processed_profile::{
    CategoryHandle, CpuDelta, Frame, FrameFlags, FrameInfo, Profile as Firefox, ReferenceTimestamp, SamplingInterval,
    StackHandle, ThreadHandle, Timestamp,
};

use crate::model::memory::Place;
use crate::model::profile::{Profile, Site};

/// Writes all sites.
pub fn write_firefox(profile: &Profile, name: &str, pid: u32, mut out: impl Write) -> io::Result<()> {
    let oldest = profile.sites.iter().map(|site| site.oldest_ns).filter(|&at| at > 0).min().unwrap_or(0);
    let begins = profile.time_realtime_ns.saturating_sub(profile.duration_ns);
    let reference = ReferenceTimestamp::from_duration_since_unix_epoch(Duration::from_nanos(begins));
    let mut firefox = Firefox::new(name, reference, SamplingInterval::from_millis(1));
    let start = Timestamp::from_nanos_since_reference(0);
    let mut threads: BTreeMap<Place, ThreadHandle> = BTreeMap::new();
    let mut address = 0x1000u64;
    for site in &profile.sites {
        let next = threads.len() as u32;
        let thread = *threads.entry(site.place).or_insert_with(|| {
            let described = site.memory().describe();
            let called = if described.is_empty() { name.to_owned() } else { format!("{name} ({described})") };
            // The Profiler tells processes apart by their number.
            let process = firefox.add_process(&called, pid.wrapping_add(next), start);
            let thread = firefox.add_thread(process, pid.wrapping_add(next), start, true);
            firefox.set_thread_name(thread, "allocations");
            thread
        });
        let stack = stack(&mut firefox, thread, profile, site);
        let at = Timestamp::from_nanos_since_reference(site.oldest_ns.saturating_sub(oldest));
        let held = site.in_use.bytes.round() as i64;
        let freed = (site.allocated.bytes - site.in_use.bytes).round() as i64;
        let mut sample = |time, size: i64| firefox.add_allocation_sample(thread, time, stack, address, size);
        if freed > 0 {
            sample(start, freed);
            sample(start, -freed);
        }
        address += 16;
        if held != 0 {
            firefox.add_allocation_sample(thread, at, stack, address, held);
        }
        address += 16;
        // A thread without samples is not shown.
        firefox.add_sample(thread, at, stack, CpuDelta::ZERO, 1);
    }
    serde_json::to_writer(&mut out, &firefox)?;
    out.flush()
}

fn stack(firefox: &mut Firefox, thread: ThreadHandle, profile: &Profile, site: &Site) -> Option<StackHandle> {
    let frames: Vec<FrameInfo> = profile
        .frames(site)
        .rev()
        .map(|frame| FrameInfo {
            frame: Frame::Label(firefox.intern_string(&frame.name)),
            category_pair: CategoryHandle::OTHER.into(),
            flags: FrameFlags::empty(),
        })
        .collect();
    firefox.intern_stack_frames(thread, frames.into_iter())
}
