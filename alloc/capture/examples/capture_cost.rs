//! What one capture of 20 frames costs, by the ways there are. `cargo run --release --example capture_cost`
//!
//! Build with `RUSTFLAGS=-Cforce-frame-pointers=yes` to see the frame pointers alone go all the way.
#[cfg(target_arch = "aarch64")]
use framehop::aarch64::{CacheAarch64 as Cache, UnwindRegsAarch64 as Registers, UnwinderAarch64 as AnyUnwinder};
#[cfg(target_arch = "x86_64")]
use framehop::x86_64::{CacheX86_64 as Cache, UnwindRegsX86_64 as Registers, UnwinderX86_64 as AnyUnwinder};
use framehop::{ExplicitModuleSectionInfo, Module, MustNotAllocateDuringUnwind, Unwinder};
use poolscope_capture::{Caller, MAX_DEPTH, ThreadState, capture};
use std::ffi::c_void;
use std::hint::black_box;
use std::thread;
use std::time::Instant;

const FRAMES: usize = 20;

#[inline(never)]
fn recurse(depth: usize, end: &mut dyn FnMut()) -> usize {
    if depth == 0 {
        end();
        return 0;
    }
    let below = recurse(depth - 1, end);
    black_box(below) + 1
}

/// Prints the least time of several runs, and the depth that `one` reports.
fn time(name: &str, rounds: u32, mut one: impl FnMut() -> usize) {
    let (mut best, mut depth) = (f64::MAX, 0);
    for _ in 0..9 {
        let start = Instant::now();
        for _ in 0..rounds {
            depth = black_box(one());
        }
        best = best.min(start.elapsed().as_secs_f64() * 1e9 / f64::from(rounds));
    }
    println!("{name:44} {best:8.1} ns, {depth} frames");
}

#[inline(always)]
fn registers() -> (u64, u64, u64) {
    let Caller { pc, sp, fp } = Caller::here();
    (pc as u64, sp as u64, fp as u64)
}

type Unwinding = AnyUnwinder<&'static [u8], MustNotAllocateDuringUnwind>;

/// All modules that are loaded now, as framehop wants them.
fn framehop_modules() -> Unwinding {
    unsafe extern "C" fn add(info: *mut libc::dl_phdr_info, _: usize, unwinder: *mut c_void) -> i32 {
        // SAFETY: the loader's record, the program headers in it, and the caller's unwinder.
        let (bias, headers, unwinder) = unsafe {
            let info = &*info;
            let headers = std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum));
            (info.dlpi_addr, headers, &mut *unwinder.cast::<Unwinding>())
        };
        let loads = || headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
        let Some(index) = headers.iter().find(|header| header.p_type == libc::PT_GNU_EH_FRAME) else { return 0 };
        let Some(segment) =
            loads().find(|load| load.p_vaddr <= index.p_vaddr && index.p_vaddr < load.p_vaddr + load.p_filesz)
        else {
            return 0;
        };
        let Some(text) = loads().find(|load| load.p_flags & libc::PF_X != 0) else { return 0 };
        let (start, end) = (loads().map(|l| l.p_vaddr).min(), loads().map(|l| l.p_vaddr + l.p_memsz).max());
        let end_of_tables = segment.p_vaddr + segment.p_filesz;
        // SAFETY: inside the readable segment.
        let tables = unsafe {
            let distance = *((bias + index.p_vaddr + 4) as *const i32);
            let frame = (index.p_vaddr + 4).wrapping_add_signed(i64::from(distance));
            let slice =
                |from: u64, to: u64| std::slice::from_raw_parts((bias + from) as *const u8, (to - from) as usize);
            (frame, slice(frame, end_of_tables), slice(index.p_vaddr, index.p_vaddr + index.p_memsz))
        };
        unwinder.add_module(Module::new(
            String::new(),
            bias + start.unwrap_or(0)..bias + end.unwrap_or(0),
            bias,
            ExplicitModuleSectionInfo {
                text_svma: Some(text.p_vaddr..text.p_vaddr + text.p_memsz),
                eh_frame_svma: Some(tables.0..end_of_tables),
                eh_frame: Some(tables.1),
                eh_frame_hdr_svma: Some(index.p_vaddr..index.p_vaddr + index.p_memsz),
                eh_frame_hdr: Some(tables.2),
                ..Default::default()
            },
        ));
        0
    }
    let mut unwinder = Unwinding::new();
    // SAFETY: the callback gets the unwinder.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut unwinder).cast()) };
    unwinder
}

fn measure() {
    let mut frames = [0; MAX_DEPTH];
    let mut state = ThreadState::new();
    let top = registers().1 + 32768;
    let read = |address: u64| {
        if address < top && address & 7 == 0 {
            // SAFETY: this thread's stack, between its registers and the frames of `main` above.
            Ok(unsafe { *(address as *const u64) })
        } else {
            Err(())
        }
    };

    let start = Instant::now();
    let depth = capture(&mut state, &Caller::here(), &mut frames).depth;
    println!("{:44} {:8.1} ns, {depth} frames", "capture, the first", start.elapsed().as_secs_f64() * 1e9);
    time("capture, warm", 20_000, || capture(&mut state, &Caller::here(), &mut frames).depth);
    time("capture, a thread's first (bounds asked)", 2_000, || {
        capture(&mut ThreadState::new(), &Caller::here(), &mut frames).depth
    });

    let unwinder = framehop_modules();
    let mut walk = |cache: &mut Cache<MustNotAllocateDuringUnwind>| {
        let (pc, sp, fp) = registers();
        let mut read = read;
        let mut stack = unwinder.iter_frames(pc, Registers::new(pc, sp, fp), cache, &mut read);
        let mut depth = 0;
        while let Ok(Some(frame)) = stack.next() {
            let Some(place) = frames.get_mut(depth) else { break };
            *place = frame.address();
            depth += 1;
        }
        depth
    };
    let mut cache = Cache::new_in();
    time("framehop, warm (nothing confirmed)", 20_000, || walk(&mut cache));
    time("framehop, a new cache", 1_000, || walk(&mut Cache::new_in()));

    let mut frames = [0; MAX_DEPTH];
    time("frame pointers alone", 20_000, || {
        let (_, sp, mut fp) = registers();
        let (mut depth, mut low) = (0, sp);
        while fp > low && depth < MAX_DEPTH {
            let (Ok(next), Ok(pc)) = (read(fp), read(fp + 8)) else { break };
            frames[depth] = pc;
            depth += 1;
            (low, fp) = (fp, next);
        }
        black_box(&frames);
        depth
    });
    time("backtrace::trace_unsynchronized", 2_000, || {
        let mut depth = 0;
        // SAFETY: one thread at a time.
        unsafe {
            backtrace::trace_unsynchronized(|frame| {
                frames[depth] = frame.ip() as u64;
                depth += 1;
                depth < MAX_DEPTH
            });
        }
        depth
    });
}

fn main() {
    let work = || {
        // The thread's own frames and those of `measure` make up the rest.
        recurse(FRAMES - 9, &mut measure);
    };
    thread::spawn(work).join().expect("the thread ran");
}
