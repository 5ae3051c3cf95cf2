//! How far this process's streams are, told to others by its word, and theirs by their words.
//!
//! The word is written by one stream of the store's own, which waits for the streams that are marked: marks come in the
//! order in which they were made, whichever stream is the first to be done.

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use poolscope_gpu::{DeviceError, Sharing, Stream};

use crate::words::{Code, Refusal};

/// The words of a device.
pub struct Timeline {
    device: Arc<dyn Sharing>,
    /// Where the words lie in this process.
    words: u64,
    /// This process's word, and the last value that was marked.
    word: u64,
    value: u64,
    stream: Stream,
}

fn failed(error: DeviceError) -> Refusal {
    Refusal::new(Code::Device, format!("the words of the streams: {error}"))
}

impl Timeline {
    pub fn new(device: Arc<dyn Sharing>, words: u64, word: u64) -> Result<Timeline, Refusal> {
        let stream = device.private_stream().map_err(failed)?;
        let mut timeline = Timeline { device, words, word, value: 0, stream };
        // A process that has ended may have had this word.
        timeline.value = timeline.read(word)?;
        Ok(timeline)
    }

    /// Where the words lie.
    pub fn words(&self) -> u64 {
        self.words
    }

    fn read(&self, word: u64) -> Result<u64, Refusal> {
        let mut bytes = [0; 8];
        self.device.copy_out(self.words + 8 * word, &mut bytes).map_err(failed)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Puts a mark behind all work that these streams have now.
    pub fn mark(&mut self, streams: &[Stream]) -> Result<u64, Refusal> {
        let device = &self.device;
        for stream in streams {
            let event = device.create_event().map_err(failed)?;
            let follows = device.record(event, *stream).and_then(|()| device.wait(self.stream, event));
            device.destroy_event(event).map_err(failed)?;
            follows.map_err(failed)?;
        }
        device.write_word(self.stream, self.words + 8 * self.word, self.value + 1).map_err(failed)?;
        self.value += 1;
        Ok(self.value)
    }

    /// Lets a stream wait for a word.
    pub fn wait_by(&self, stream: Stream, word: u64, value: u64) -> Result<(), Refusal> {
        // Most often it is there already, and the stream needs not know of it.
        if self.read(word)? >= value {
            return Ok(());
        }
        self.device.wait_word(stream, self.words + 8 * word, value).map_err(failed)
    }

    /// Waits for a word.
    pub fn wait_for(&self, word: u64, value: u64, patience: Duration) -> Result<(), Refusal> {
        let until = Instant::now() + patience;
        while self.read(word)? < value {
            if Instant::now() > until {
                let words =
                    format!("the stream that writes the tensor was not done within {} s", patience.as_secs_f64());
                return Err(Refusal::new(Code::Timeout, words));
            }
            sleep(Duration::from_micros(50));
        }
        Ok(())
    }

    /// Waits for all marks of this process.
    pub fn wait(&self, patience: Duration) -> Result<(), Refusal> {
        self.wait_for(self.word, self.value, patience)
    }
}
