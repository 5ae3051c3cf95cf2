//! What lies under the cursor of the map: where it is, whose stream's, and who holds it.

use std::ops::Range;

use poolscope_profiler::model::snapshot::{LiveBlock, Piece};
use poolscope_wire::cell;

use crate::dashboard::model::site::{SiteRow, key_of};
use crate::dashboard::model::{DeviceRow, Model};

/// What some cells of the map are.
#[derive(Debug, PartialEq)]
pub(super) struct Under {
    /// What most of them are: a value of [`cell`].
    pub(super) state: u8,
    /// Bytes of the cells that are so.
    pub(super) bytes: u64,
    /// Where the first of them lies.
    pub(super) address: Option<u64>,
    /// The streams that they are of or wait for, each once.
    pub(super) streams: Vec<u64>,
    /// Who holds them, the largest block first, each call site once.
    pub(super) holders: Vec<Holding>,
}

/// A sampled block in the cells.
#[derive(Debug, PartialEq)]
pub(super) struct Holding {
    /// The call site, by its place among those of the device.
    pub(super) site: usize,
    /// Bytes of the block that the program asked for.
    pub(super) bytes: u64,
    /// When it was allocated, nanoseconds of `CLOCK_MONOTONIC`.
    pub(super) time_ns: u64,
}

/// Looks at some cells, most of which are in a state.
pub(super) fn under(model: &Model, device: &DeviceRow, cells: Range<usize>, state: u8) -> Under {
    let pieces: Vec<Piece> = cells
        .filter_map(|at| device.pool.piece(at))
        .filter(|piece| piece.state == state && state != cell::UNMAPPED)
        .collect();
    let mut streams: Vec<u64> = pieces.iter().filter_map(|piece| piece.stream).collect();
    streams.sort_unstable();
    streams.dedup();
    let blocks = model.snapshot.live.iter().filter(|block| block.place == device.pool.place);
    let mut blocks: Vec<&LiveBlock> =
        blocks.filter(|block| pieces.iter().any(|piece| is_in(block, piece, device.pool.cell_bytes))).collect();
    blocks.sort_by_key(|block| (std::cmp::Reverse(block.size), block.address));
    let mut holders: Vec<Holding> = Vec::new();
    for block in blocks {
        if let Some(site) = site_of(model, device, block)
            && holders.iter().all(|holding| holding.site != site)
        {
            holders.push(Holding { site, bytes: block.size, time_ns: block.time_ns });
        }
    }
    Under {
        state,
        bytes: pieces.len() as u64 * device.pool.cell_bytes,
        address: pieces.iter().find_map(|piece| piece.address),
        streams,
        holders,
    }
}

/// Whether a block has a piece. Of a large block that is known at its first byte in the cell, small ones begin anywhere
/// in theirs.
fn is_in(block: &LiveBlock, piece: &Piece, cell_bytes: u64) -> bool {
    let Some(from) = piece.address else { return false };
    let to = match piece.state {
        cell::LARGE | cell::GRAPH => from.saturating_add(1),
        cell::SMALL => from.saturating_add(cell_bytes),
        _ => return false,
    };
    block.address < to && from < block.address.saturating_add(block.size.max(1))
}

/// The call site of a block, by its place among those of the device.
fn site_of(model: &Model, device: &DeviceRow, block: &LiveBlock) -> Option<usize> {
    let site = (*model.site_of_stacks.get(block.stack as usize)?)?;
    let key = key_of(&model.whole, model.whole.sites.get(site)?);
    device.sites.iter().position(|row: &SiteRow| row.key == key)
}
