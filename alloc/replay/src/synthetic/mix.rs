//! Mixes: several streams at once, each with work of its own kind, at any footprint.
//!
//! A mix is named by what it is of: `mix-4x512-7` has 4 streams, which may have 512 MiB in use, by seed 7. What each
//! stream does is drawn: it trains, answers, hands batches on, keeps pages, or routes to experts. The streams go on in turns
//! of a few to some hundred operations, as they do when a program's threads or its loops feed them.

use super::{Id, Program};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Operations of a mix, more or less.
const OPERATIONS: usize = 40_000;

/// What is asked for in a mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// From 1 on.
    pub streams: u32,
    /// MiB that the streams may have in use together. Since they are at their most at different times, two fifths
    /// of it to all are in use at once.
    pub mib: u64,
    /// Which of those.
    pub seed: u64,
}

impl Mix {
    /// The mix of a name.
    pub fn named(name: &str) -> Option<Mix> {
        let mut parts = name.strip_prefix("mix-")?.split(['x', '-']);
        let mut number = || parts.next()?.parse::<u64>().ok();
        let mix = Mix { streams: u32::try_from(number()?).ok()?, mib: number()?, seed: number()? };
        let known = (1..=64).contains(&mix.streams) && (16..=1 << 20).contains(&mix.mib);
        (known && parts.next().is_none()).then_some(mix)
    }

    /// Its name.
    pub fn name(self) -> String {
        format!("mix-{}x{}-{}", self.streams, self.mib, self.seed)
    }
}

/// What a stream does.
#[derive(Clone, Copy)]
enum Kind {
    /// Weights that stay; what a forward pass saves goes in the backward pass, which has gradients.
    Training,
    /// Weights that stay; requests whose caches grow, and which are answered in any order.
    Serving,
    /// Batches that several stages have in turn.
    Pipeline,
    /// Pages of one size, which come and go by the request.
    Pages,
    /// Batches that are parted among experts, in another way each time.
    Experts,
}

const KINDS: [Kind; 5] = [Kind::Training, Kind::Serving, Kind::Pipeline, Kind::Pages, Kind::Experts];

/// What a stream's work does next, by numbers of its own.
enum Event {
    Allocate(usize, u64),
    Free(usize),
}

/// The work of a stream.
struct Work<'a> {
    program: &'a mut Program,
    /// Bytes that it may have in use.
    share: u64,
    in_use: u64,
    sizes: Vec<u64>,
    events: Vec<Event>,
}

impl Work<'_> {
    fn draw(&mut self, least: u64, most: u64) -> u64 {
        self.program.draw(least, most.max(least))
    }

    /// A block; smaller where the share is used up.
    fn allocate(&mut self, size: u64) -> usize {
        let size = size.min(self.share.saturating_sub(self.in_use)).max(512);
        self.in_use += size;
        self.sizes.push(size);
        self.events.push(Event::Allocate(self.sizes.len() - 1, size));
        self.sizes.len() - 1
    }

    fn free(&mut self, block: usize) {
        self.in_use -= self.sizes[block];
        self.events.push(Event::Free(block));
    }

    fn free_all(&mut self, blocks: impl IntoIterator<Item = usize>) {
        blocks.into_iter().for_each(|block| self.free(block));
    }

    /// Weights of so many bytes together, in layers. Returns the layers' tensors.
    fn weights(&mut self, bytes: u64, layers: u64) -> Vec<u64> {
        let layer = bytes / layers;
        let tensors = [layer / 3, layer / 9, layer / 3, layer / 9, layer / 512, layer / 512];
        for _ in 0..layers {
            for size in tensors {
                self.allocate(size);
            }
        }
        tensors.to_vec()
    }

    fn train(&mut self, operations: usize) {
        let layers = self.draw(4, 16);
        let tensors = self.weights(self.share / 4, layers);
        while self.events.len() < operations {
            // What a token takes in a layer is 16 rows; a step has three to ten tenths of what there is room for.
            let row = self.share / 2 / layers / 16 * self.draw(3, 10) / 10;
            let mut saved = Vec::new();
            for _ in 0..layers {
                let parts = [1, 3, 1, 1, 4, 4, 1].map(|rows| self.allocate(rows * row));
                let short = self.allocate(3 * row);
                self.free(short);
                saved.push(parts);
            }
            let mut gradients = Vec::new();
            let mut above = self.allocate(row);
            while let Some(layer) = saved.pop() {
                gradients.extend(tensors.iter().map(|size| *size / 2).map(|size| self.allocate(size)));
                let below = self.allocate(row);
                self.free(above);
                let wide = self.allocate(4 * row);
                self.free_all(layer.into_iter().rev());
                self.free(wide);
                above = below;
            }
            self.free(above);
            for size in &tensors {
                let short = self.allocate(*size);
                self.free(short);
            }
            self.free_all(gradients);
        }
    }

    fn serve(&mut self, operations: usize) {
        let layers = self.draw(2, 12);
        self.weights(self.share / 3, layers);
        let most = self.draw(2, 8) as usize;
        let token = (self.share / 2 / most as u64 / layers / 2 / 256).max(64);
        // Of each request: its caches, how many tokens they have, and how many are to come.
        let mut requests: Vec<(Vec<usize>, u64, u64)> = Vec::new();
        while self.events.len() < operations {
            if requests.len() < most && self.draw(0, 3) == 0 {
                let prompt = self.draw(8, 128);
                let caches = (0..2 * layers).map(|_| self.allocate(prompt * token)).collect();
                let tokens = self.draw(4, 48);
                requests.push((caches, prompt, tokens));
            }
            let Some(which) = requests.len().checked_sub(1).map(|last| self.draw(0, last as u64) as usize) else {
                continue;
            };
            let (mut caches, length, left) = requests.swap_remove(which);
            for cache in &mut caches {
                let longer = self.allocate((length + 1) * token);
                self.free(*cache);
                *cache = longer;
                let [queries, wide] = [token, 4 * token].map(|size| self.allocate(size));
                self.free_all([queries, wide]);
            }
            match left {
                0 => self.free_all(caches),
                _ => requests.push((caches, length + 1, left - 1)),
            }
        }
    }

    fn hand_on(&mut self, operations: usize) {
        let depth = self.draw(2, 6) as usize;
        let batch = self.share / (depth as u64 + 2);
        let mut under_way = std::collections::VecDeque::new();
        while self.events.len() < operations {
            let (parts, bytes) = (self.draw(1, 24), batch * self.draw(4, 10) / 10);
            let blocks: Vec<usize> = (0..parts)
                .map(|_| {
                    let size = bytes / parts * self.draw(8, 12) / 12;
                    self.allocate(size)
                })
                .collect();
            let staged = self.allocate(bytes / 8);
            for _ in 0..parts {
                let size = self.draw(KIB, 96 * KIB);
                let small = self.allocate(size);
                self.free(small);
            }
            self.free(staged);
            under_way.push_back(blocks);
            if under_way.len() >= depth
                && let Some(done) = under_way.pop_front()
            {
                self.free_all(done);
            }
        }
    }

    fn keep_pages(&mut self, operations: usize) {
        let page = (self.share / 400).clamp(64 * KIB, 2 * MIB) / (64 * KIB) * (64 * KIB);
        let count = self.share * 9 / 10 / page;
        let mut requests: Vec<Vec<usize>> = Vec::new();
        let mut pages = 0;
        while self.events.len() < operations {
            let wanted = self.draw(1, count / 4);
            while pages + wanted > count && !requests.is_empty() {
                let which = self.draw(0, requests.len() as u64 - 1) as usize;
                let gone = requests.swap_remove(which);
                pages -= gone.len() as u64;
                self.free_all(gone);
            }
            requests.push((0..wanted.min(count)).map(|_| self.allocate(page)).collect());
            pages += wanted;
            let size = page * self.draw(1, 16) / 8;
            let gathered = self.allocate(size);
            self.free(gathered);
        }
    }

    fn route(&mut self, operations: usize) {
        let experts = self.draw(2, 8);
        self.weights(self.share / 3, experts);
        while self.events.len() < operations {
            let batch = self.share / 6 * self.draw(2, 10) / 10;
            let input = self.allocate(batch);
            let mut left = batch;
            let mut outputs = Vec::new();
            for _ in 0..experts {
                let part = left * self.draw(0, 8) / 10;
                left -= part;
                let [gathered, wide] = [part, 3 * part].map(|size| self.allocate(size));
                outputs.push(self.allocate(part));
                self.free_all([gathered, wide]);
            }
            self.free(input);
            let sum = self.allocate(batch);
            self.free_all(outputs);
            self.free(sum);
        }
    }

    fn run(&mut self, kind: Kind, operations: usize) {
        match kind {
            Kind::Training => self.train(operations),
            Kind::Serving => self.serve(operations),
            Kind::Pipeline => self.hand_on(operations),
            Kind::Pages => self.keep_pages(operations),
            Kind::Experts => self.route(operations),
        }
    }
}

/// The text of a mix.
pub fn make(mix: Mix) -> String {
    let mut program = Program::new(&mix.name(), mix.seed ^ u64::from(mix.streams) << 32 ^ mix.mib << 40);
    let first = program.draw(0, KINDS.len() as u64 - 1) as usize;
    let shares: Vec<u64> = (0..mix.streams).map(|_| program.draw(2, 8)).collect();
    let all: u64 = shares.iter().sum();
    let mut works: Vec<(std::vec::IntoIter<Event>, Vec<Id>)> = Vec::new();
    for (at, share) in shares.into_iter().enumerate() {
        let share = mix.mib * MIB * share / all;
        let mut work = Work { program: &mut program, share, in_use: 0, sizes: Vec::new(), events: Vec::new() };
        work.run(KINDS[(first + at) % KINDS.len()], OPERATIONS / mix.streams as usize);
        works.push((work.events.into_iter(), vec![0; work.sizes.len()]));
    }
    let mut going: Vec<usize> = (0..works.len()).collect();
    while !going.is_empty() {
        let at = program.draw(0, going.len() as u64 - 1) as usize;
        let stream = going[at];
        for _ in 0..program.draw(4, 400) {
            let (events, ids) = &mut works[stream];
            match events.next() {
                Some(Event::Allocate(block, size)) => ids[block] = program.allocate(size, stream as u32),
                Some(Event::Free(block)) => program.free(ids[block]),
                None => {
                    going.swap_remove(at);
                    break;
                }
            }
        }
    }
    program.text
}

#[cfg(test)]
mod tests {
    use super::{MIB, Mix, make};
    use crate::trace::Trace;

    #[test]
    fn a_mix_has_the_streams_and_about_the_footprint_of_its_name() {
        for (streams, mib, seed) in [(1, 50, 1), (2, 64, 2), (4, 512, 3), (8, 8192, 12), (3, 128, 5)] {
            let mix = Mix { streams, mib, seed };
            assert_eq!(Mix::named(&mix.name()), Some(mix));
            let trace = Trace::parse(&make(mix)).unwrap();
            assert_eq!(trace.streams(), streams as usize);
            let peak = trace.peak() / MIB;
            assert!(peak * 5 >= mib * 2 && peak <= mib + 1, "{}: {peak} MiB", mix.name());
            assert!(trace.len() >= 35_000, "{}: {}", mix.name(), trace.len());
            assert_eq!(make(mix), make(mix));
            assert_ne!(make(mix), make(Mix { seed: seed + 1, ..mix }));
        }
    }

    #[test]
    fn what_is_no_name_of_a_mix_has_none() {
        for name in ["mix-", "mix-4", "mix-0x50-1", "mix-2x1-1", "mix-2x64-1-1", "mix-axb-c", "small-generation"] {
            assert_eq!(Mix::named(name), None, "{name}");
        }
    }
}
