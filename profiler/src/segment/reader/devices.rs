//! Pools of device memory, each with the map of what lies where.

use poolscope_wire::{DEVICE_COUNTERS, DEVICE_NAME_MAX, DeviceRecord, Header, MAP_CELLS, MAP_STREAMS, Region, kind};

use super::{SegmentReader, words};
use crate::model::memory::Place;
use crate::model::snapshot::{DevicePool, Dropped};
use crate::segment::read_error::ReadError;
use crate::words::printable::printable;

impl SegmentReader {
    /// The pools, by device.
    pub(super) fn read_devices(
        &mut self,
        header: &Header,
        dropped: &mut Dropped,
    ) -> Result<Vec<DevicePool>, ReadError> {
        dropped.devices = header.dropped_devices;
        let maps = header.region(Region::DeviceMaps);
        let mut records = Vec::new();
        self.read_sequenced(header.region(Region::Devices), Region::Devices, dropped, |index, bytes, dropped| {
            let Some(record) = DeviceRecord::from_bytes(bytes).filter(|record| record.kind != kind::NONE) else {
                return;
            };
            let is_whole = usize::from(record.name_len) <= DEVICE_NAME_MAX
                && record.map_cells as usize <= MAP_CELLS
                && record.map_streams as usize <= MAP_STREAMS;
            if is_whole { records.push((index, record)) } else { dropped.invalid += 1 }
        })?;
        let mut devices = Vec::with_capacity(records.len());
        for (index, record) in records {
            let mut cells = vec![0; record.map_cells as usize];
            let (mut places, mut streams) = (Vec::new(), Vec::new());
            if index < maps.count {
                let map = maps.offset + index * u64::from(maps.record_len);
                self.file.read_exact(&mut cells, map)?;
                let words_at = |at: usize, count: usize| {
                    let mut bytes = vec![0; count * size_of::<u64>()];
                    self.file.read_exact(&mut bytes, map + at as u64).map(|()| words(&bytes).collect())
                };
                places = words_at(MAP_CELLS, cells.len())?;
                streams = words_at(MAP_CELLS + MAP_CELLS * size_of::<u64>(), record.map_streams as usize)?;
            }
            devices.push(DevicePool {
                place: Place::of_record(record.kind, record.device),
                name: printable(&record.name[..usize::from(record.name_len)]),
                memory_bytes: record.memory_bytes,
                time_ns: record.time_ns,
                counters: record.counters[..DEVICE_COUNTERS.len()].to_vec(),
                cells,
                cell_bytes: record.cell_bytes,
                places,
                streams,
            });
        }
        devices.sort_by_key(|device| (device.place.device(), device.place));
        Ok(devices)
    }
}
