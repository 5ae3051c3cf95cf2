//! The driver's calls: each is counted, costs its price, and may be told to fail. During a capture those are refused
//! that the driver would refuse.

use super::memory::Memory;
use super::prices;
use super::{Simulated, State, Violation};
use crate::device::{
    AsyncPool, Call, Device, DeviceError, Event, Fault, GRANULE, MemoryInfo, NOTHING, Piece, Progress, Properties,
    Result, Stream,
};

fn failed(call: Call) -> impl Fn(Fault) -> DeviceError {
    move |fault| DeviceError { call, fault }
}

impl Device for Simulated {
    fn properties(&self) -> Properties {
        let state = self.state();
        let (memory, virtual_memory) = (state.memory.limit, state.virtual_memory);
        Properties { name: "simulated".to_owned(), memory, virtual_memory }
    }

    fn is_simulated(&self) -> bool {
        self.began.is_none()
    }

    fn now(&self) -> u64 {
        self.state().clock
    }

    fn at_handle(&self, stream: Stream) -> Option<u64> {
        let mut state = self.state();
        Some(state.streams.find(stream).map_or(NOTHING, |at| at as u64 + 1))
    }

    fn memory_info(&self) -> Result<MemoryInfo> {
        let mut state = self.state();
        state.begin(Call::MemoryInfo, 0)?;
        let Memory { limit: total, used, .. } = state.memory;
        Ok(MemoryInfo { free: total.saturating_sub(used), total })
    }

    fn reserve(&self, bytes: u64) -> Result<u64> {
        let mut state = self.state();
        state.begin(Call::Reserve, bytes)?;
        if !state.virtual_memory {
            return Err(DeviceError { call: Call::Reserve, fault: Fault::Unsupported });
        }
        state.memory.reserve(bytes).map_err(failed(Call::Reserve))
    }

    fn unreserve(&self, address: u64, bytes: u64) -> Result<()> {
        let mut state = self.state();
        state.begin(Call::Unreserve, bytes)?;
        state.memory.unreserve(address, bytes).map_err(failed(Call::Unreserve))
    }

    fn create(&self, bytes: u64) -> Result<Piece> {
        let mut state = self.state();
        state.begin(Call::Create, bytes)?;
        state.memory.create(bytes).map_err(failed(Call::Create))
    }

    fn release(&self, piece: Piece) -> Result<()> {
        let mut state = self.state();
        state.begin(Call::Release, piece.bytes)?;
        state.memory.release(piece).map_err(failed(Call::Release))
    }

    fn map(&self, address: u64, piece: Piece) -> Result<()> {
        let mut state = self.state();
        state.begin(Call::Map, piece.bytes)?;
        state.memory.map(address, piece).map_err(failed(Call::Map))
    }

    fn unmap(&self, address: u64, bytes: u64) -> Result<()> {
        let mut state = self.state();
        state.begin(Call::Unmap, bytes)?;
        let busy = state.memory.busy(address, bytes, &state.streams.host);
        if let Some(at) = busy.or(state.memory.lent_in(address, bytes)) {
            state.violations.push(Violation::UnmappedInUse(at));
        }
        state.clock += prices::beyond_the_first(Call::Unmap) * state.memory.pieces_in(address, bytes).saturating_sub(1);
        state.memory.unmap(address, bytes).map_err(failed(Call::Unmap))
    }

    fn set_access(&self, address: u64, bytes: u64) -> Result<()> {
        let mut state = self.state();
        state.begin(Call::SetAccess, bytes)?;
        state.clock +=
            prices::beyond_the_first(Call::SetAccess) * state.memory.pieces_in(address, bytes).saturating_sub(1);
        let readers = 1 + state.peers.len();
        state.memory.set_access(address, bytes, readers).map_err(failed(Call::SetAccess))
    }

    fn allocate_host(&self, bytes: u64) -> Result<u64> {
        let mut state = self.state();
        state.begin(Call::AllocateHost, bytes)?;
        state.memory.allocate_host(bytes).map_err(failed(Call::AllocateHost))
    }

    fn free_host(&self, address: u64) -> Result<()> {
        let mut state = self.state();
        state.begin_outside_capture(Call::FreeHost, GRANULE)?;
        state.memory.free_host(address).map_err(failed(Call::FreeHost))?;
        let done = state.streams.synchronize_all();
        state.clock = state.clock.max(done);
        Ok(())
    }

    fn enable_peer(&self, peer: &Simulated) -> Result<()> {
        let mut state = self.state();
        state.begin(Call::EnablePeer, 0)?;
        if peer.number == self.number {
            return Err(DeviceError {
                call: Call::EnablePeer,
                fault: Fault::Invalid("a device is no peer of its own"),
            });
        }
        if !state.peers.contains(&peer.number) {
            state.peers.push(peer.number);
        }
        Ok(())
    }

    fn allocate(&self, bytes: u64) -> Result<u64> {
        let mut state = self.state();
        // Allowed in the mode of captures that the real device sets for its calls.
        state.begin(Call::Allocate, bytes)?;
        state.memory.allocate(bytes).map_err(failed(Call::Allocate))
    }

    fn free(&self, address: u64) -> Result<()> {
        let mut state = self.state();
        state.begin_outside_capture(Call::Free, GRANULE)?;
        state.memory.free(address).map_err(failed(Call::Free))?;
        state.shared.forget_plain(address);
        let done = state.streams.synchronize_all();
        state.clock = state.clock.max(done);
        Ok(())
    }

    fn stream_id(&self, stream: Stream) -> Result<u64> {
        let mut state = self.state();
        state.begin(Call::StreamId, 0)?;
        if state.streams.is_gone(stream) {
            // A CUDA device's driver may end the process.
            state.violations.push(Violation::Handle(stream.0));
        }
        let at = state.streams.find(stream).map_err(failed(Call::StreamId))?;
        // As a CUDA device does, whose driver would end the capture.
        match state.streams.capture_of(at) {
            Some(_) => Err(DeviceError { call: Call::StreamId, fault: Fault::Capturing }),
            None => Ok(at as u64),
        }
    }

    fn capturing(&self, stream: Stream) -> Result<bool> {
        let mut state = self.state();
        state.begin(Call::Capturing, 0)?;
        let at = state.streams.find(stream).map_err(failed(Call::Capturing))?;
        Ok(state.streams.capture_of(at).is_some())
    }

    fn create_event(&self) -> Result<Event> {
        let mut state = self.state();
        state.begin(Call::CreateEvent, 0)?;
        Ok(state.streams.event_create())
    }

    fn destroy_event(&self, event: Event) -> Result<()> {
        let mut state = self.state();
        state.begin(Call::DestroyEvent, 0)?;
        state.streams.event_destroy(event).map_err(failed(Call::DestroyEvent))
    }

    fn record(&self, event: Event, stream: Stream) -> Result<()> {
        let mut state = self.state();
        state.begin(Call::Record, 0)?;
        let at = state.streams.find(stream).map_err(failed(Call::Record))?;
        state.streams.record(event, at).map_err(failed(Call::Record))
    }

    fn query(&self, event: Event) -> Result<Progress> {
        let mut state = self.state();
        state.begin_outside_capture(Call::Query, 0)?;
        let now = state.clock;
        state.streams.query(event, now).map_err(failed(Call::Query))
    }

    fn synchronize(&self, event: Event) -> Result<()> {
        let mut state = self.state();
        state.begin_outside_capture(Call::Synchronize, 0)?;
        let done = state.streams.synchronize(event).map_err(failed(Call::Synchronize))?;
        state.clock = state.clock.max(done);
        let State { clock, memory, streams, driver_pool, .. } = &mut *state;
        driver_pool.after_wait(memory, streams, clock).map_err(failed(Call::Synchronize))
    }

    fn synchronize_all(&self) -> Result<()> {
        self.state().begin_outside_capture(Call::SynchronizeAll, 0)?;
        Simulated::synchronize_all(self);
        Ok(())
    }

    fn wait(&self, stream: Stream, event: Event) -> Result<()> {
        let mut state = self.state();
        state.begin(Call::Wait, 0)?;
        let at = state.streams.find(stream).map_err(failed(Call::Wait))?;
        let now = state.clock;
        if let Err(violation) = state.streams.wait(at, event, now) {
            state.violations.push(violation);
            return Err(DeviceError { call: Call::Wait, fault: Fault::Capturing });
        }
        Ok(())
    }

    fn allocate_async(&self, bytes: u64, stream: Stream) -> Result<u64> {
        let mut state = self.state();
        state.begin_outside_capture(Call::AllocateAsync, bytes)?;
        let State { clock, memory, streams, driver_pool, .. } = &mut *state;
        let at = streams.find(stream).map_err(failed(Call::AllocateAsync))?;
        driver_pool.allocate(bytes, at, memory, streams, clock).map_err(failed(Call::AllocateAsync))
    }

    fn free_async(&self, address: u64, stream: Stream) -> Result<()> {
        let mut state = self.state();
        state.begin_outside_capture(Call::FreeAsync, 0)?;
        let State { streams, driver_pool, .. } = &mut *state;
        let at = streams.find(stream).map_err(failed(Call::FreeAsync))?;
        driver_pool.free(address, at, streams).map_err(failed(Call::FreeAsync))
    }

    fn async_pool(&self) -> Result<AsyncPool> {
        let mut state = self.state();
        state.begin(Call::AsyncPool, 0)?;
        Ok(state.driver_pool.figures())
    }

    fn keep_async(&self, bytes: u64) -> Result<()> {
        let mut state = self.state();
        state.begin(Call::KeepAsync, 0)?;
        state.driver_pool.keep = bytes;
        Ok(())
    }

    fn trim_async(&self, keep: u64) -> Result<()> {
        let mut state = self.state();
        state.begin_outside_capture(Call::TrimAsync, 0)?;
        let State { clock, memory, streams, driver_pool, .. } = &mut *state;
        driver_pool.trim(keep, memory, streams, clock).map_err(failed(Call::TrimAsync))
    }
}
