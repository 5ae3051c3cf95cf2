//! A model whose memory is that of a real one: what is allocated when, how large, and for how long.

use std::hint::black_box;

use poolscope_alloc::gpu::{Pool, PoolError, Simulated, Stream};

use super::Failure;

const MIB: u64 = 1 << 20;
const LAYERS: u64 = 24;
/// Bytes of a layer's weights.
const WEIGHTS: u64 = 28 * MIB;

/// A block and the stream that it is used on.
type Block = (u64, Stream);

/// A training run on one device.
pub struct Training<'a> {
    pool: &'a Pool<Simulated>,
    main: Stream,
    evaluation: Stream,
    kept: Vec<Block>,
}

impl<'a> Training<'a> {
    /// Loads the weights, and makes the optimizer's state.
    pub fn new(pool: &'a Pool<Simulated>, [main, evaluation]: [Stream; 2]) -> Result<Training<'a>, Failure> {
        let mut training = Training { pool, main, evaluation, kept: Vec::new() };
        training.load_weights()?;
        training.make_optimizer_state()?;
        Ok(training)
    }

    #[inline(never)]
    fn load_weights(&mut self) -> Result<(), PoolError> {
        for layer in 0..LAYERS {
            self.kept.push(self.tensor(WEIGHTS + layer % 3 * 4096, self.main)?);
            self.kept.push(self.tensor(4096, self.main)?);
        }
        Ok(())
    }

    #[inline(never)]
    fn make_optimizer_state(&mut self) -> Result<(), PoolError> {
        for _ in 0..2 * LAYERS {
            self.kept.push(self.tensor(WEIGHTS, self.main)?);
        }
        Ok(())
    }

    fn tensor(&self, bytes: u64, stream: Stream) -> Result<Block, PoolError> {
        Ok((self.pool.allocate(bytes, stream)?, stream))
    }

    fn free(&self, blocks: impl IntoIterator<Item = Block>) -> Result<(), PoolError> {
        blocks.into_iter().try_for_each(|(address, stream)| self.pool.free(address, stream))
    }

    /// One step; some lengths of sequences are more frequent than others.
    pub fn step(&mut self, step: u64, leak: u64) -> Result<(), Failure> {
        let tokens = [512, 512, 768, 512, 1024, 512, 768, 640][(step % 8) as usize];
        let activations = self.forward(tokens, self.main)?;
        let gradients = self.backward(activations, tokens)?;
        self.update_weights(gradients)?;
        if step % 8 == 7 {
            self.evaluate(tokens)?;
        }
        if leak > 0 {
            self.remember_loss(leak)?;
        }
        Ok(())
    }

    #[inline(never)]
    fn forward(&self, tokens: u64, stream: Stream) -> Result<Vec<Block>, PoolError> {
        let mut activations = Vec::new();
        for layer in 0..LAYERS {
            activations.push(self.attention(layer, tokens, stream)?);
            activations.push(self.feed_forward(tokens, stream)?);
        }
        Ok(activations)
    }

    #[inline(never)]
    fn attention(&self, layer: u64, tokens: u64, stream: Stream) -> Result<Block, PoolError> {
        let scores = self.tensor(tokens * tokens * 16, stream)?;
        let masks: Vec<Block> =
            (0..8).map(|head| self.tensor(256 << ((head + layer) % 9), stream)).collect::<Result<_, _>>()?;
        let output = self.tensor(tokens * 8192, stream)?;
        self.free(masks)?;
        self.free([scores])?;
        black_box(Ok(output))
    }

    #[inline(never)]
    fn feed_forward(&self, tokens: u64, stream: Stream) -> Result<Block, PoolError> {
        let hidden = self.tensor(tokens * 32_768, stream)?;
        let output = self.tensor(tokens * 24_576, stream)?;
        self.free([hidden])?;
        black_box(Ok(output))
    }

    #[inline(never)]
    fn backward(&self, mut activations: Vec<Block>, tokens: u64) -> Result<Vec<Block>, PoolError> {
        let mut gradients = Vec::new();
        while let Some(activation) = activations.pop() {
            let workspace = self.tensor(tokens * 16_384, self.main)?;
            if activations.len().is_multiple_of(2) {
                gradients.push(self.tensor(WEIGHTS, self.main)?);
            }
            self.free([workspace, activation])?;
        }
        black_box(Ok(gradients))
    }

    #[inline(never)]
    fn update_weights(&self, gradients: Vec<Block>) -> Result<(), PoolError> {
        for gradient in gradients {
            let step = self.tensor(WEIGHTS / 2, self.main)?;
            self.free([step, gradient])?;
        }
        black_box(Ok(()))
    }

    #[inline(never)]
    fn evaluate(&self, tokens: u64) -> Result<(), PoolError> {
        let outputs = self.forward(tokens / 2 + 96, self.evaluation)?;
        black_box(self.free(outputs))
    }

    /// The mistake that is made in real programs: a list of losses that keeps each step's graph alive.
    #[inline(never)]
    fn remember_loss(&self, bytes: u64) -> Result<(), PoolError> {
        black_box(self.tensor(bytes, self.main)?);
        Ok(())
    }

    /// Frees what was kept.
    pub fn end(self) -> Result<(), Failure> {
        Ok(self.free(self.kept.iter().copied())?)
    }
}
