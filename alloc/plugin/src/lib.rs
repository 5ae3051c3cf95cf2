//! `libpoolscope_gpu.so`: the device tiers for programs that are not written in Rust.
//!
//! - [`c`]: the functions of `poolscope_gpu.h`;
//! - [`torch`]: the functions that `torch.cuda.memory.CUDAPluggableAllocator` and its hooks take;
//! - [`cupy`]: the pair that `cupy.cuda.CFunctionAllocator` takes;
//! - [`devices`]: the pools of the process, one for each device, made when they are first asked for;
//! - [`any_device`]: one device, CUDA's or simulated;
//! - [`graphs`]: the pools of captured graphs, as PyTorch names them;
//! - [`refusal`]: what a function says when it can't.

mod any_device;
mod c;
mod cupy;
mod devices;
mod graphs;
mod refusal;
mod torch;
