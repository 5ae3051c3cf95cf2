//! A device with kernels that write a pattern, look whether it is still there, and take their time.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUevent, CUfunction, CUgraphExec, CUstream, CUstreamCaptureMode};
use poolscope_gpu::{Cuda, Device, Stream};

pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Word `i` of a block is `v ^ i`. `spin` takes so many nanoseconds.
const KERNELS: &str = "
.version 6.5
.target sm_75
.address_size 64
.visible .entry fill(.param .u64 p, .param .u64 n, .param .u32 v) {
    .reg .pred %c; .reg .b32 %r<8>; .reg .b64 %d<8>;
    ld.param.u64 %d1, [p]; ld.param.u64 %d2, [n]; ld.param.u32 %r1, [v];
    cvta.to.global.u64 %d1, %d1;
    mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mov.u32 %r5, %nctaid.x;
    cvt.u64.u32 %d4, %r4; mad.wide.u32 %d3, %r2, %r3, %d4; mul.wide.u32 %d5, %r5, %r3;
L:  setp.ge.u64 %c, %d3, %d2; @%c bra D;
    shl.b64 %d6, %d3, 2; add.u64 %d6, %d6, %d1; cvt.u32.u64 %r6, %d3; xor.b32 %r6, %r6, %r1;
    st.global.u32 [%d6], %r6; add.u64 %d3, %d3, %d5; bra L;
D:  ret;
}
.visible .entry verify(.param .u64 p, .param .u64 n, .param .u32 v, .param .u64 bad) {
    .reg .pred %c; .reg .b32 %r<8>; .reg .b64 %d<9>;
    ld.param.u64 %d1, [p]; ld.param.u64 %d2, [n]; ld.param.u32 %r1, [v]; ld.param.u64 %d7, [bad];
    cvta.to.global.u64 %d1, %d1; cvta.to.global.u64 %d7, %d7;
    mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mov.u32 %r5, %nctaid.x;
    cvt.u64.u32 %d4, %r4; mad.wide.u32 %d3, %r2, %r3, %d4; mul.wide.u32 %d5, %r5, %r3;
L:  setp.ge.u64 %c, %d3, %d2; @%c bra D;
    shl.b64 %d6, %d3, 2; add.u64 %d6, %d6, %d1; cvt.u32.u64 %r6, %d3; xor.b32 %r6, %r6, %r1;
    ld.volatile.global.u32 %r7, [%d6]; setp.eq.u32 %c, %r6, %r7; @%c bra N;
    red.global.add.u32 [%d7], 1;
N:  add.u64 %d3, %d3, %d5; bra L;
D:  ret;
}
.visible .entry spin(.param .u64 ns) {
    .reg .pred %c; .reg .b64 %d<5>;
    ld.param.u64 %d1, [ns]; mov.u64 %d2, %globaltimer;
L:  mov.u64 %d3, %globaltimer; sub.u64 %d4, %d3, %d2; setp.lt.u64 %c, %d4, %d1; @%c bra L;
    ret;
}
\0";

/// Counters of mismatches: one for each thread that verifies.
const COUNTERS: u64 = 64;

/// A device and its kernels. Each clone may count its mismatches by itself.
#[derive(Clone)]
pub struct Gpu {
    pub cuda: Arc<Cuda>,
    kernels: [usize; 3],
    counters: u64,
    own: u64,
}

fn stream_of(stream: Stream) -> CUstream {
    stream.0 as usize as CUstream
}

impl Gpu {
    pub fn open(ordinal: u32) -> Result<Gpu> {
        Gpu::on(Cuda::open(ordinal)?)
    }

    pub fn on(cuda: Cuda) -> Result<Gpu> {
        let cuda = Arc::new(cuda);
        let counters = cuda.allocate(COUNTERS * 4)?;
        let mut gpu = Gpu { cuda, kernels: [0; 3], counters, own: counters };
        gpu.enter()?;
        let mut module = ptr::null_mut();
        // SAFETY: the context is current; the text ends with a zero; handles are written to this stack.
        unsafe {
            sys::cuModuleLoadData(&mut module, KERNELS.as_ptr().cast()).result()?;
            for (at, name) in [c"fill", c"verify", c"spin"].into_iter().enumerate() {
                let mut kernel: CUfunction = ptr::null_mut();
                sys::cuModuleGetFunction(&mut kernel, module, name.as_ptr()).result()?;
                gpu.kernels[at] = kernel as usize;
            }
            sys::cuMemsetD8_v2(counters, 0, (COUNTERS * 4) as usize).result()?;
        }
        // The driver loads a kernel when it is first launched, which would end a capture.
        let block = gpu.cuda.allocate(256)?;
        gpu.fill(block, 256, 1, Stream::LEGACY)?;
        gpu.verify(block, 256, 1, Stream::LEGACY)?;
        gpu.spin(1, Stream::LEGACY)?;
        gpu.all_right()?;
        gpu.cuda.free(block)?;
        Ok(gpu)
    }

    /// Makes the context the calling thread's.
    pub fn enter(&self) -> Result<()> {
        // SAFETY: the context lives as long as `cuda`.
        unsafe { sys::cuCtxSetCurrent(self.cuda.context() as *mut _).result()? };
        Ok(())
    }

    /// The same with a counter of its own, for the thread of this number.
    pub fn for_thread(&self, number: u64) -> Gpu {
        Gpu { own: self.counters + 4 * (1 + number % (COUNTERS - 1)), ..self.clone() }
    }

    /// A stream that has nothing to do with the default one.
    pub fn stream(&self) -> Result<Stream> {
        let mut stream = ptr::null_mut();
        // SAFETY: the handle is written to this stack.
        unsafe { sys::cuStreamCreate(&mut stream, 1).result()? };
        Ok(Stream(stream as u64))
    }

    pub fn destroy(&self, stream: Stream) -> Result<()> {
        // SAFETY: the checks destroy a stream once.
        unsafe { sys::cuStreamDestroy_v2(stream_of(stream)).result()? };
        Ok(())
    }

    fn launch(&self, kernel: usize, words: u64, stream: Stream, params: &mut [*mut c_void]) -> Result<()> {
        let blocks = words.div_ceil(256).clamp(1, 1024) as u32;
        let threads = if words == 0 { 1 } else { 256 };
        let function = self.kernels[kernel] as CUfunction;
        // SAFETY: the parameters are those that the kernel declares, and outlive the call.
        unsafe {
            sys::cuLaunchKernel(
                function,
                blocks,
                1,
                1,
                threads,
                1,
                1,
                0,
                stream_of(stream),
                params.as_mut_ptr(),
                ptr::null_mut(),
            )
            .result()?;
        }
        Ok(())
    }

    /// Writes the pattern of a value.
    pub fn fill(&self, address: u64, bytes: u64, value: u32, stream: Stream) -> Result<()> {
        let (mut address, mut words, mut value) = (address, bytes / 4, value);
        let mut params: [*mut c_void; 3] =
            [(&raw mut address).cast(), (&raw mut words).cast(), (&raw mut value).cast()];
        self.launch(0, words, stream, &mut params)
    }

    /// Counts the words that have another value.
    pub fn verify(&self, address: u64, bytes: u64, value: u32, stream: Stream) -> Result<()> {
        let (mut address, mut words, mut value, mut bad) = (address, bytes / 4, value, self.own);
        let mut params: [*mut c_void; 4] =
            [(&raw mut address).cast(), (&raw mut words).cast(), (&raw mut value).cast(), (&raw mut bad).cast()];
        self.launch(1, words, stream, &mut params)
    }

    /// Keeps a stream busy.
    pub fn spin(&self, microseconds: u64, stream: Stream) -> Result<()> {
        let mut nanoseconds = microseconds * 1000;
        self.launch(2, 0, stream, &mut [(&raw mut nanoseconds).cast()])
    }

    pub fn synchronize(&self, stream: Stream) -> Result<()> {
        // SAFETY: the stream exists.
        unsafe { sys::cuStreamSynchronize(stream_of(stream)).result()? };
        Ok(())
    }

    /// Waits for all work, and takes the count of words that were wrong since the last time.
    pub fn mismatches(&self) -> Result<u32> {
        let mut bad = 0u32;
        // SAFETY: the counter is device memory of four bytes, and so is `bad`.
        unsafe {
            sys::cuCtxSynchronize().result()?;
            sys::cuMemcpyDtoH_v2((&raw mut bad).cast(), self.own, 4).result()?;
            sys::cuMemsetD8_v2(self.own, 0, 4).result()?;
        }
        Ok(bad)
    }

    /// Fails if a word was wrong.
    pub fn all_right(&self) -> Result<()> {
        match self.mismatches()? {
            0 => Ok(()),
            bad => Err(format!("{bad} words were overwritten").into()),
        }
    }

    /// An event behind all work of a stream.
    pub fn event(&self, stream: Stream) -> Result<usize> {
        let mut event: CUevent = ptr::null_mut();
        // SAFETY: the handle is written to this stack.
        unsafe {
            sys::cuEventCreate(&mut event, 2).result()?;
            sys::cuEventRecord(event, stream_of(stream)).result()?;
        }
        Ok(event as usize)
    }

    /// Lets a stream wait for an event, which is given up.
    pub fn wait(&self, stream: Stream, event: usize) -> Result<()> {
        // SAFETY: the event is one of `event`'s, used once. To destroy it now is allowed: the wait has it.
        unsafe {
            sys::cuStreamWaitEvent(stream_of(stream), event as CUevent, 0).result()?;
            sys::cuEventDestroy_v2(event as CUevent).result()?;
        }
        Ok(())
    }

    /// Lets the second stream's later work come after all that the first one has.
    pub fn order(&self, first: Stream, second: Stream) -> Result<()> {
        let event = self.event(first)?;
        self.wait(second, event)
    }

    pub fn begin_capture(&self, stream: Stream) -> Result<()> {
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
        // SAFETY: the stream exists.
        unsafe { sys::cuStreamBeginCapture_v2(stream_of(stream), mode).result()? };
        Ok(())
    }

    /// The graph of what was captured. An error if something was called that is not allowed.
    pub fn end_capture(&self, stream: Stream) -> Result<usize> {
        let (mut graph, mut runnable): (_, CUgraphExec) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: handles are written to this stack.
        unsafe {
            sys::cuStreamEndCapture(stream_of(stream), &mut graph).result()?;
            sys::cuGraphInstantiateWithFlags(&mut runnable, graph, 0).result()?;
            sys::cuGraphDestroy(graph).result()?;
        }
        Ok(runnable as usize)
    }

    pub fn launch_graph(&self, graph: usize, stream: Stream) -> Result<()> {
        // SAFETY: the graph is one of `end_capture`'s.
        unsafe { sys::cuGraphLaunch(graph as CUgraphExec, stream_of(stream)).result()? };
        Ok(())
    }
}

/// Random numbers, the same in every run.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 16) % limit
    }
}
