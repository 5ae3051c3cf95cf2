//! Programs that nobody recorded: traces made from the shapes of models, the same for the same seed.
//!
//! They stand for what recorded traces leave out: two streams that work in turns, and a program that grows little
//! by little. What a step allocates follows from its batch and its length, as in a decoder of transformers: weights,
//! what the forward pass saves for the backward pass, and keys and values that grow by a token at a time.
//! [Mixes](Mix) have any number of streams and any footprint.

mod mix;

use std::fmt::Write;

pub use mix::Mix;

use crate::trace::{Trace, TraceError};

/// The names of those that are no mixes, as [`make`] takes them.
pub const NAMES: [&str; 2] = ["generate-and-train", "small-generation"];

/// The mixes of the benchmark and the tests: two to eight streams, from 50 MiB to 4 GiB.
pub const MIXES: [Mix; 6] = [
    Mix { streams: 2, mib: 50, seed: 1 },
    Mix { streams: 3, mib: 64, seed: 2 },
    Mix { streams: 4, mib: 128, seed: 4 },
    Mix { streams: 6, mib: 384, seed: 6 },
    Mix { streams: 8, mib: 1024, seed: 8 },
    Mix { streams: 5, mib: 4096, seed: 11 },
];

/// The text of a made trace, as [`Trace::parse`](crate::Trace::parse) reads it. A mix has its seed in its name.
/// `None` if there is no such one.
pub fn make(name: &str, seed: u64) -> Option<String> {
    match name {
        "generate-and-train" => Some(generate_and_train(seed)),
        "small-generation" => Some(small_generation(seed)),
        _ => Mix::named(name).map(mix::make),
    }
}

/// A made trace by its name, or one in a file.
pub fn open(name: &str, seed: u64) -> Result<Trace, TraceError> {
    match make(name, seed) {
        Some(text) => Trace::parse(&text),
        None => Trace::open(name),
    }
}

/// A decoder's shape.
#[derive(Clone, Copy)]
struct Model {
    layers: u64,
    width: u64,
    heads: u64,
    words: u64,
    /// Bytes of a weight.
    weight: u64,
}

impl Model {
    /// Bytes of the weights of a layer, tensor by tensor, and of the words' table last.
    fn weights(&self) -> Vec<u64> {
        let Model { layers, width, words, weight, .. } = *self;
        let layer = [3 * width * width, 3 * width, width * width, width, width, width, 4 * width * width, 4 * width];
        let layer = layer.into_iter().chain([4 * width * width, width, width, width]);
        let layer: Vec<u64> = layer.map(|count| count * weight).collect();
        let all = (0..layers).flat_map(|_| layer.clone());
        all.chain([words * width * weight, 1024 * width * weight]).collect()
    }
}

/// Bytes of an activation's number.
const HALF: u64 = 2;
const SINGLE: u64 = 4;

type Id = u64;

/// What is written down.
struct Program {
    text: String,
    next: Id,
    random: u64,
}

impl Program {
    fn new(name: &str, seed: u64) -> Program {
        let text = format!("# {name}: made, not recorded; seed {seed}\n");
        Program { text, next: 0, random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 }
    }

    /// From `least` to `most`.
    fn draw(&mut self, least: u64, most: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        least + (self.random >> 11) % (most - least + 1)
    }

    fn allocate(&mut self, size: u64, stream: u32) -> Id {
        let id = self.next;
        self.next += 1;
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "+ {id} {size} {stream}");
        id
    }

    fn free(&mut self, id: Id) {
        let _ = writeln!(self.text, "- {id}");
    }

    fn free_all(&mut self, ids: impl IntoIterator<Item = Id>) {
        ids.into_iter().for_each(|id| self.free(id));
    }

    /// A pass of a layer that saves nothing, over so many tokens with so many before them: its cache's keys and values
    /// are the last argument.
    fn infer_layer(&mut self, model: Model, batch: u64, tokens: u64, before: u64, cache: &mut [Id; 2], stream: u32) {
        let row = batch * tokens * model.width * HALF;
        let normal = self.allocate(row, stream);
        let queries = self.allocate(3 * row, stream);
        self.free(normal);
        for part in cache.iter_mut() {
            let longer = self.allocate(batch * (before + tokens) * model.width * HALF, stream);
            if before > 0 {
                self.free(*part);
            }
            *part = longer;
        }
        let scores = self.allocate(batch * model.heads * tokens * SINGLE, stream);
        let attended = self.allocate(row, stream);
        self.free_all([queries, scores]);
        let projected = self.allocate(row, stream);
        self.free(attended);
        let wide = self.allocate(4 * row, stream);
        let bent = self.allocate(4 * row, stream);
        self.free(wide);
        let narrow = self.allocate(row, stream);
        self.free_all([bent, projected, narrow]);
    }

    /// Generates so many tokens after a prompt. Returns the block of what was said.
    fn generate(&mut self, model: Model, batch: u64, prompt: u64, tokens: u64, stream: u32) -> Id {
        let mut said = self.allocate(batch * prompt * 8, stream);
        let mut caches = vec![[0; 2]; model.layers as usize];
        let (mut before, mut step) = (0, prompt);
        for _ in 0..tokens {
            for cache in &mut caches {
                self.infer_layer(model, batch, step, before, cache, stream);
            }
            before += step;
            step = 1;
            let last = self.allocate(batch * model.words * HALF, stream);
            let exact = self.allocate(batch * model.words * SINGLE, stream);
            self.free(last);
            let likely = self.allocate(batch * model.words * SINGLE, stream);
            let next = self.allocate(batch * 8, stream);
            self.free_all([exact, likely]);
            let longer = self.allocate(batch * (before + 1) * 8, stream);
            self.free_all([said, next]);
            said = longer;
        }
        self.free_all(caches.into_iter().flatten());
        said
    }

    /// A step of training.
    fn train(&mut self, model: Model, batch: u64, tokens: u64, weights: &[u64], stream: u32) {
        let row = batch * tokens * model.width * HALF;
        let mut saved: Vec<Vec<Id>> = Vec::new();
        for _ in 0..model.layers {
            let mut layer = Vec::new();
            for bytes in [row, 3 * row, row, batch * model.heads * tokens * SINGLE, row, row / HALF, row, 4 * row] {
                layer.push(self.allocate(bytes, stream));
            }
            let copy = self.allocate(3 * row, stream);
            layer.push(self.allocate(4 * row, stream));
            self.free(copy);
            layer.push(self.allocate(row, stream));
            saved.push(layer);
        }
        let logits = self.allocate(batch * tokens * model.words * HALF, stream);
        let exact = self.allocate(batch * tokens * model.words * SINGLE, stream);
        let loss = self.allocate(4, stream);
        let mut above = self.allocate(batch * tokens * model.words * HALF, stream);
        self.free_all([exact, logits, loss]);
        let mut gradients = vec![self.allocate(weights[weights.len() - 2], stream)];
        let of_layer = (weights.len() - 2) / model.layers as usize;
        while let Some(layer) = saved.pop() {
            let at = saved.len() * of_layer;
            gradients.extend(weights[at..at + of_layer].iter().map(|bytes| self.allocate(*bytes, stream)));
            let below = self.allocate(row, stream);
            self.free(above);
            let (wide, three) = (self.allocate(4 * row, stream), self.allocate(3 * row, stream));
            self.free_all(layer.into_iter().rev());
            self.free_all([wide, three]);
            above = below;
        }
        self.free(above);
        // The optimizer takes the tensors of a few layers at a time.
        for group in weights.chunks(4 * of_layer) {
            let parts: Vec<Id> = group.iter().map(|bytes| self.allocate(*bytes, stream)).collect();
            self.free_all(parts);
        }
        self.free_all(gradients);
    }
}

/// A model that generates on one stream and is trained on what it said on another, in turns.
fn generate_and_train(seed: u64) -> String {
    let model = Model { layers: 8, width: 768, heads: 12, words: 50_257, weight: SINGLE };
    let (train, generate) = (0, 1);
    let mut program = Program::new("generate-and-train", seed);
    let weights = model.weights();
    // The weights, and what the optimizer remembers of each.
    for _ in 0..3 {
        weights.iter().for_each(|bytes| {
            program.allocate(*bytes, train);
        });
    }
    for _ in 0..8 {
        let batch = 4 * program.draw(1, 6);
        let (prompt, tokens) = (program.draw(16, 160), program.draw(24, 64));
        let said = program.generate(model, batch, prompt, tokens, generate);
        for _ in 0..2 {
            let part = batch.div_ceil(2);
            program.train(model, part, prompt + tokens, &weights, train);
        }
        program.free(said);
    }
    program.text
}

/// A small model that answers prompts of all lengths.
fn small_generation(seed: u64) -> String {
    let model = Model { layers: 12, width: 768, heads: 12, words: 50_257, weight: HALF };
    let mut program = Program::new("small-generation", seed);
    model.weights().iter().for_each(|bytes| {
        program.allocate(*bytes, 0);
    });
    let mut kept = Vec::new();
    for _ in 0..10 {
        let batch = program.draw(1, 8);
        let (prompt, tokens) = (program.draw(8, 320), program.draw(12, 48));
        kept.push(program.generate(model, batch, prompt, tokens, 0));
    }
    program.free_all(kept);
    program.text
}

#[cfg(test)]
mod tests {
    use super::{NAMES, make};
    use crate::trace::Trace;

    #[test]
    fn a_made_trace_is_one_and_the_same_for_the_same_seed() {
        for name in NAMES {
            let text = make(name, 1).unwrap();
            let trace = Trace::parse(&text).unwrap();
            assert!(trace.len() > 10_000, "{name}: {}", trace.len());
            assert_eq!(Some(&text), make(name, 1).as_ref());
            assert_ne!(Some(&text), make(name, 2).as_ref());
            assert_eq!(trace.streams(), if name == "generate-and-train" { 2 } else { 1 });
        }
        assert_eq!(make("nothing", 1), None);
    }
}
