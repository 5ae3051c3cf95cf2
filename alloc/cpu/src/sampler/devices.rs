//! What other pools tell of their blocks, and of themselves: records in the live table and in the regions of devices.

use core::sync::atomic::AtomicU32;

use poolscope_capture::Caller;
use poolscope_wire::holders::Sampled;
use poolscope_wire::script::Call;
use poolscope_wire::{
    DEVICE_COUNTERS, DEVICE_NAME_MAX, DeviceCounter, DeviceRecord, MAP_CELLS, MAP_STREAMS, OBJECT_ONE, Region,
    StackRecord, kind,
};

use super::peak::Memory;
use super::stack_table::{bytes, count_free, frames};
use super::{Due, SAMPLER, Sampler, UNRECORDED, begin_recording};
use crate::entry::{Entered, capture};
use crate::kernel::os;
use crate::sampler::device_records::{Block, Holder, State};
use crate::segment::Segment;
use crate::segment::publish::publish_tiers;
use crate::segment::sequence;

/// Records a block of another pool, with the calling thread's stack. [`UNRECORDED`] if there is no room.
pub fn record_foreign(entered: &Entered, block: &Block) -> u32 {
    let heap = entered.heap;
    if heap.sampling.in_sampler.get() || !(kind::DEVICE..=kind::PINNED).contains(&block.kind) {
        return UNRECORDED;
    }
    let time_ns = os::clock_ns(libc::CLOCK_MONOTONIC);
    let Block { kind, device, weight, .. } = *block;
    let due = Due { size: block.size as usize, weight, time_ns, kind, device };
    let stack = capture::of_many(heap, &Caller::here());
    capture::note_calls(heap, &stack);
    begin_recording(entered.slow, heap);
    let mut sampler = SAMPLER.lock(entered.slow);
    let slot = sampler.record(heap, &stack, block.address, &due);
    sampler.count_at(block.place, block.in_use);
    drop(sampler);
    publish_tiers();
    slot
}

/// Takes the record of another pool's block out, which has given out so much at a place, with the block and without
/// it. No record is found if the slot has none of that address: a forked child has none of its parent's.
pub fn forget_foreign(entered: &Entered, slot: u32, address: u64, (place, [with, without]): (u32, [u64; 2])) {
    let mut sampler = SAMPLER.lock(entered.slow);
    // Blocks that are no samples may have come since the last one: only now is memory at its highest.
    sampler.count_at(place, with);
    sampler.remove_foreign(slot, address);
    sampler.count_at(place, without);
}

/// Most stacks that [`device_holders`] says.
const HOLDERS: usize = 16;

/// The stacks whose blocks hold the most of a device's memory, the largest first, and what all hold.
/// Returns how many there are.
pub fn device_holders(entered: &Entered, device: u32, kind: u16, all: &mut Sampled, into: &mut [Holder]) -> usize {
    let mut sampler = SAMPLER.lock(entered.slow);
    let stacks = sampler.stacks.len();
    let Some(segment) = sampler.own_segment() else { return 0 };
    let most = into.len().min(HOLDERS);
    // The largest by their totals: bytes, blocks, number.
    let mut largest = [(0, 0, 0); HOLDERS];
    let mut found = 0;
    for id in 0..stacks {
        // SAFETY: the records of all stacks are committed, and only written with the lock held.
        let record = unsafe { *segment.record::<StackRecord>(Region::Stacks, id) };
        let bytes = record.alloc_bytes.saturating_sub(record.free_bytes);
        if (record.kind(), record.device()) != (kind, device & 0xff) || bytes == 0 {
            continue;
        }
        let at = largest[..found].partition_point(|&(more, ..)| more >= bytes);
        if at < most {
            found = (found + 1).min(most);
            largest[at..found].rotate_right(1);
            largest[at] = (bytes, record.alloc_objects.saturating_sub(record.free_objects), id);
        }
    }
    // Calls of Python's may be the same in several of them.
    let (mut lines, mut line_of) = (0, [0; HOLDERS]);
    for (&(_, objects, id), line) in largest[..found].iter().zip(&mut line_of) {
        let mut holder = Holder { objects, ..Holder::EMPTY };
        // Where Python called, its functions say who has it: of a library's own there may be more than are shown.
        let is_call = |word: &u64| Call::of_word(*word).is_some();
        let has_calls = frames(&segment, id).any(|word| is_call(&word));
        let shown = frames(&segment, id).filter(|word| !has_calls || is_call(word));
        for (to, from) in holder.frames.iter_mut().zip(shown) {
            *to = from;
            holder.depth += 1;
        }
        let same = into[..lines].iter().position(|known| has_calls && known.frames == holder.frames);
        *line = same.unwrap_or(lines);
        match same {
            Some(known) => into[known].objects += objects,
            None => {
                into[lines] = holder;
                lines += 1;
            }
        }
    }
    *all = Sampled::NONE;
    for slot in 0..sampler.live.len() {
        let Some(record) = sampler.live.get(slot).filter(|it| (it.kind, it.device) == (kind, device)) else { continue };
        let weight = record.weight as f64 / OBJECT_ONE as f64;
        all.add(record.size, 1.0, weight);
        if let Some(at) = largest[..found].iter().position(|&(.., id)| id == record.stack) {
            into[line_of[at]].sampled.add(record.size, 1.0, weight);
        }
    }
    lines
}

/// A place for a pool in the regions of devices. `None` if all are taken.
///
/// The pool's first block does not wait for what is read of modules for a first stack, which may be on disk only: the
/// stack of this call is walked for it, and forgotten.
pub fn attach(entered: &Entered) -> Option<u32> {
    let _ = capture::of_many(entered.heap, &Caller::here());
    let mut sampler = SAMPLER.lock(entered.slow);
    let free = sampler.devices.trailing_ones();
    let capacity = sampler.own_segment().map_or(0, |segment| segment.capacity(Region::Devices) as u32);
    if free >= capacity.min(u32::BITS) {
        if let Some(segment) = sampler.own_segment() {
            segment.header().dropped_devices += 1;
        }
        return None;
    }
    sampler.devices |= 1 << free;
    Some(free)
}

/// Gives the place back: the pool is gone.
pub fn detach(entered: &Entered, place: u32) {
    let mut sampler = SAMPLER.lock(entered.slow);
    sampler.devices &= !(1u32.checked_shl(place).unwrap_or(0));
    if let Some(segment) = sampler.own_segment()
        && segment.is_committed(Region::Devices, place + 1)
    {
        write(&segment, place, DeviceRecord::ZERO, &NO_MAP);
    }
}

/// Publishes what a pool says of itself.
pub fn publish_device(entered: &Entered, place: u32, state: &State<'_>) {
    let mut sampler = SAMPLER.lock(entered.slow);
    let Some(segment) = sampler.own_segment() else { return };
    if sampler.devices & 1u32.checked_shl(place).unwrap_or(0) == 0 || !make_room(&segment, place) {
        return;
    }
    let cells = &state.cells[..state.cells.len().min(MAP_CELLS)];
    let places = &state.places[..state.places.len().min(cells.len())];
    let streams = &state.streams[..state.streams.len().min(MAP_STREAMS)];
    let mut record = DeviceRecord {
        device: state.device,
        kind: state.kind,
        map_cells: cells.len() as u32,
        map_streams: streams.len() as u32,
        cell_bytes: state.cell_bytes,
        memory_bytes: state.memory_bytes,
        time_ns: os::clock_ns(libc::CLOCK_MONOTONIC),
        ..DeviceRecord::ZERO
    };
    let counters = state.counters.iter().take(DEVICE_COUNTERS.len());
    record.counters.iter_mut().zip(counters).for_each(|(to, from)| *to = *from);
    let name = &state.name[..state.name.len().min(DEVICE_NAME_MAX)];
    record.name_len = name.len() as u16;
    record.name.iter_mut().zip(name).for_each(|(to, from)| *to = *from);
    write(&segment, place, record, &Map { cells, places, streams });
    sampler.count_in_use((state.kind, state.device), &segment);
}

impl Sampler {
    fn remove_foreign(&mut self, slot: u32, address: u64) {
        let Some(segment) = self.own_segment() else { return };
        let is_it = |kind| kind == kind::DEVICE || kind == kind::PINNED;
        if self.live.get(slot).is_some_and(|record| is_it(record.kind) && record.address == address)
            && let Some(record) = self.live.remove(&segment, slot)
        {
            let (memory, stacks) = ((record.kind, record.device), self.stacks.len());
            self.peaks.shrinks(&segment, stacks, memory, bytes(record.size, record.weight));
            count_free(&segment, record.stack, record.size, record.weight);
        }
    }

    /// Writes what a pool has given out into its record.
    fn count_at(&mut self, place: u32, in_use: u64) {
        let Some(segment) = self.own_segment() else { return };
        if self.devices & 1u32.checked_shl(place).unwrap_or(0) == 0 || !make_room(&segment, place) {
            return;
        }
        let to = segment.record::<DeviceRecord>(Region::Devices, place);
        // SAFETY: the record was committed, and is only written with the lock held; the word is read whole.
        let memory = unsafe {
            (&raw mut (*to).counters[DeviceCounter::CurrentUsage as usize]).write_volatile(in_use);
            ((*to).kind, (*to).device)
        };
        if memory.0 != kind::NONE {
            self.count_in_use(memory, &segment);
        }
    }

    /// Tells the peak of a memory what all of its pools have given out.
    fn count_in_use(&mut self, memory: Memory, segment: &Segment) {
        let published = segment.count(Region::Devices).min(u32::BITS);
        let pools = (0..published).filter(|place| self.devices >> place & 1 == 1).filter_map(|place| {
            let record = segment.record::<DeviceRecord>(Region::Devices, place);
            // SAFETY: what is counted is committed, and only written with the lock held.
            let (of, in_use) = unsafe {
                (((*record).kind, (*record).device), (*record).counters[DeviceCounter::CurrentUsage as usize])
            };
            (of == memory).then_some(in_use)
        });
        let in_use = pools.sum();
        self.peaks.counted(memory, in_use);
    }
}

fn make_room(segment: &Segment, place: u32) -> bool {
    let done = segment.commit(Region::Devices, place + 1) && segment.commit(Region::DeviceMaps, place + 1);
    if done {
        segment.raise_count(Region::Devices, place + 1);
        segment.raise_count(Region::DeviceMaps, place + 1);
    }
    done
}

/// What lies where.
struct Map<'a> {
    cells: &'a [u8],
    /// At most as many as there are cells.
    places: &'a [u64],
    streams: &'a [u64],
}

const NO_MAP: Map<'static> = Map { cells: &[], places: &[], streams: &[] };

fn write(segment: &Segment, place: u32, record: DeviceRecord, map: &Map<'_>) {
    let to = segment.record::<DeviceRecord>(Region::Devices, place);
    let cells = segment.record::<u8>(Region::DeviceMaps, place);
    let places = cells.wrapping_add(MAP_CELLS).cast::<u64>();
    let streams = places.wrapping_add(MAP_CELLS);
    let unknown = map.cells.len() - map.places.len();
    // SAFETY: record and map were committed, which have room for that many cells, places and streams; a map's length
    // and that of its cells are multiples of a word. The caller holds the sampler's lock, so there is one writer.
    unsafe {
        let seq = AtomicU32::from_ptr(&raw mut (*to).seq);
        sequence::change(seq, |seq| {
            core::ptr::copy_nonoverlapping(map.cells.as_ptr(), cells, map.cells.len());
            core::ptr::copy_nonoverlapping(map.places.as_ptr(), places, map.places.len());
            places.add(map.places.len()).write_bytes(0, unknown);
            core::ptr::copy_nonoverlapping(map.streams.as_ptr(), streams, map.streams.len());
            to.write_volatile(DeviceRecord { seq, ..record });
        });
    }
}
