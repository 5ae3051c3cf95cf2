//! What each call to the driver costs, on the virtual clock.
//!
//! Measured on an H200 with driver 580 and CUDA 13.0: memory calls at 2, 20 and 256 MiB in one piece, all others
//! whatever the size. What is made of several pieces costs more for each. Between the sizes the price is interpolated,
//! outside of them it is that of the nearest.

use crate::device::Call;

const MIB: u64 = 1 << 20;

/// Nanoseconds at 2, 20 and 256 MiB.
type Row = [u64; 3];

fn row(call: Call) -> Row {
    match call {
        Call::Allocate => [39_000, 41_000, 67_000],
        Call::Free => [38_000, 44_000, 140_000],
        Call::Create => [14_600, 9_000, 13_000],
        Call::Map => [2_100; 3],
        Call::SetAccess => [46_000, 33_000, 36_000],
        Call::Unmap => [27_000, 21_000, 21_000],
        Call::Release => [14_000, 17_000, 82_000],
        // 16 MiB of locked host memory take 9.1 ms.
        Call::AllocateHost => [1_150_000, 11_400_000, 146_000_000],
        Call::FreeHost => [600_000, 5_700_000, 73_000_000],
        Call::EnablePeer => [100_000; 3],
        Call::Record => [194; 3],
        Call::Query => [178; 3],
        Call::Wait => [200; 3],
        Call::Capturing | Call::StreamId => [20; 3],
        Call::CreateEvent | Call::DestroyEvent | Call::Synchronize | Call::SynchronizeAll => [500; 3],
        // Half of a hot pair. A pool that grows pays for its memory beside it.
        Call::AllocateAsync | Call::FreeAsync => [375; 3],
        Call::AsyncPool | Call::KeepAsync => [100; 3],
        Call::TrimAsync => [10_000; 3],
        Call::MemoryInfo => [10_000; 3],
        Call::Reserve | Call::Unreserve => [5_000; 3],
        Call::CreateSlab => [18_300, 19_000, 40_000],
        Call::ReleaseSlab => [15_000, 27_000, 136_000],
        Call::ExportSlab => [566_000, 600_000, 750_000],
        Call::ImportSlab => [63_000, 80_000, 105_000],
        // With the addresses and the access.
        Call::MapSlab => [70_000, 85_000, 130_000],
        Call::UnmapSlab => [19_000, 21_000, 25_000],
        Call::RetainSlab | Call::AddressRange => [1_000; 3],
        Call::LegacyHandle => [8_000; 3],
        Call::OpenLegacy => [100_000; 3],
        Call::CloseLegacy => [17_000; 3],
        Call::CopyIn | Call::CopyOut => [60_000, 400_000, 5_000_000],
        Call::WriteWord | Call::WaitWord => [200; 3],
        Call::PrivateStream => [5_000; 3],
    }
}

/// Nanoseconds that a call takes for each piece in its range beyond the first.
pub fn beyond_the_first(call: Call) -> u64 {
    match call {
        Call::SetAccess => 27_000,
        Call::Unmap => 18_500,
        _ => 0,
    }
}

/// Nanoseconds that a call takes which is about so many bytes.
pub fn price(call: Call, bytes: u64) -> u64 {
    let sizes = [2 * MIB, 20 * MIB, 256 * MIB];
    let row = row(call);
    for at in 0..2 {
        if bytes <= sizes[at] {
            return row[at];
        }
        if bytes < sizes[at + 1] {
            let part = (bytes - sizes[at]) as f64 / (sizes[at + 1] - sizes[at]) as f64;
            return (row[at] as f64 + part * (row[at + 1] as f64 - row[at] as f64)) as u64;
        }
    }
    row[2]
}
