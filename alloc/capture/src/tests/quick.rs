//! Quick captures, over and over on one thread: what they say is what usual captures say.
use super::*;
use crate::{Footprints, Trail, capture_anew, capture_known, capture_quickly, complete, hash};

/// A thread's state, as a tracer keeps it.
struct Tracer {
    state: ThreadState,
    trail: Box<Trail>,
    frames: [u64; MAX_DEPTH],
    captures: usize,
    /// Those that went by rules alone, each module confirmed.
    by_rules: usize,
    /// Those that a quick capture gave up.
    given_up: usize,
    /// Frames that were on the trail, of all captures.
    on_trail: usize,
    footprints: Box<Footprints>,
    /// By slots, of which 0 is none.
    stacks: Vec<Vec<u64>>,
    /// Captures of stacks that were known again.
    known: usize,
}

impl Tracer {
    fn new() -> Self {
        // SAFETY: zeroes are an empty trail.
        let trail = unsafe { Box::<Trail>::new_zeroed().assume_init() };
        // SAFETY: zeroes are none.
        let footprints = unsafe { Box::<Footprints>::new_zeroed().assume_init() };
        Self {
            state: ThreadState::new(),
            trail,
            frames: [0; MAX_DEPTH],
            captures: 0,
            by_rules: 0,
            given_up: 0,
            on_trail: 0,
            footprints,
            stacks: vec![Vec::new()],
            known: 0,
        }
    }

    /// Looks whether the stack is known again, and has it learned if not.
    fn recognise(&mut self, caller: Caller, full: &[u64]) {
        if let Some(slot) = self.footprints.find(&self.state, caller) {
            assert_eq!(self.stacks[slot as usize], full, "the stack of another call");
            self.known += 1;
            return;
        }
        let slot = self.stacks.iter().position(|known| known == full).unwrap_or(self.stacks.len());
        if slot == self.stacks.len() {
            self.stacks.push(full.to_vec());
        }
        self.footprints.learn(&self.state, caller, slot as u32);
    }

    /// Captures quickly, and compares.
    #[inline(never)]
    fn look(&mut self) {
        let caller = Caller::here();
        let mut full = [0; MAX_DEPTH];
        let captured = capture_anew(&mut self.state, &caller, &mut full);
        assert!(!captured.incomplete);
        let full = &full[..captured.depth];
        // Other tests replace modules meanwhile, which makes all rules void.
        let found = (0..1000).find_map(|_| {
            let quick = capture_quickly(&self.state, caller, &mut self.trail, &mut self.frames);
            self.given_up += usize::from(quick.is_err());
            quick.map_err(|_| capture_anew(&mut self.state, &caller, &mut [0; MAX_DEPTH])).ok()
        });
        let found = found.expect("there is a rule for every frame");
        complete(found, &self.trail, &mut self.frames);
        let frames = &self.frames[..found.depth];
        assert_eq!(frames, full, "{:#?}\n{:#?}", names(frames), names(full));
        let mut by_rule = [0; MAX_DEPTH];
        if let Some(captured) = capture_known(&self.state, &caller, &mut by_rule) {
            assert_eq!((&by_rule[..captured.depth], captured.incomplete), (full, false));
            self.by_rules += 1;
        }
        assert_eq!((found.hash, found.captured()), (hash(frames), captured));
        self.recognise(caller, full);
        self.captures += 1;
        self.on_trail += found.taken();
    }

    /// Nearly all captures were quick.
    fn assert_quick(&self) {
        assert!(self.given_up < self.captures / 10, "{} of {}", self.given_up, self.captures);
    }

    /// Nearly all captures went by rules: all but those that another test made void.
    fn assert_by_rules(&self) {
        assert!(self.by_rules > self.captures * 9 / 10, "{} of {}", self.by_rules, self.captures);
    }
}

/// Two functions that call each other or themselves, as the bits of `path` say.
#[inline(never)]
fn left(path: u32, depth: u32, tracer: &mut Tracer) -> u32 {
    let below = match depth {
        0 => {
            tracer.look();
            0
        }
        _ if path & 1 == 0 => left(path >> 1, depth - 1, tracer),
        _ => right(path >> 1, depth - 1, tracer),
    };
    black_box(below) + 1
}

#[inline(never)]
fn right(path: u32, depth: u32, tracer: &mut Tracer) -> u32 {
    // A frame of another size.
    let room = black_box([path; 40]);
    let below = match depth {
        0 => {
            tracer.look();
            0
        }
        _ if path & 1 == 0 => left(path >> 1, depth - 1, tracer),
        _ => right(path >> 1, depth - 1, tracer),
    };
    black_box(below) + black_box(room)[7].min(1)
}

/// Numbers without a pattern.
fn numbers() -> impl Iterator<Item = u32> {
    std::iter::successors(Some(12345u32), |last| Some(last.wrapping_mul(1_664_525).wrapping_add(1_013_904_223)))
        .map(|number| number >> 7)
}

#[test]
fn any_call_path_is_seen_as_usual_captures_see_it() {
    let mut tracer = Tracer::new();
    for path in numbers().take(3000) {
        left(path, path >> 20 & 15, &mut tracer);
    }
    tracer.assert_by_rules();
}

#[test]
fn a_stack_that_was_walked_is_known_again_and_no_other_is_taken_for_it() {
    let mut tracer = Tracer::new();
    // Frames of two sizes, which are remembered apart.
    for path in numbers().take(5000) {
        left(path % 2, 1, &mut tracer);
    }
    assert!(tracer.known > tracer.captures * 9 / 10, "{} of {}", tracer.known, tracer.captures);
}

#[test]
fn a_stack_whose_slot_is_another_ones_is_not_known_any_more() {
    #[inline(never)]
    fn find(tracer: &mut Tracer, then: impl Fn(&mut Tracer, Caller) -> Option<u32>) -> Option<u32> {
        let caller = Caller::here();
        black_box(then(tracer, caller))
    }
    let mut tracer = Tracer::new();
    let look = |tracer: &mut Tracer, caller: Caller| {
        // Other tests replace modules meanwhile: what was learned before is void then.
        (0..1000).find_map(|_| {
            capture_anew(&mut tracer.state, &caller, &mut [0; MAX_DEPTH]);
            tracer.footprints.learn(&tracer.state, caller, 7);
            tracer.footprints.find(&tracer.state, caller)
        })
    };
    assert_eq!(find(&mut tracer, look), Some(7));
    let forget = |tracer: &mut Tracer, caller: Caller| {
        look(tracer, caller)?;
        tracer.footprints.forget_slot(7);
        tracer.footprints.find(&tracer.state, caller)
    };
    assert_eq!(find(&mut tracer, forget), None);
}

/// Goes so deep, and then up and down by at most so many frames again and again.
fn below(depth: u32, most: u32, tracer: &mut Tracer) -> u32 {
    if depth > 0 {
        return black_box(below(depth - 1, most, tracer)) + 1;
    }
    numbers().take(3000).fold(0, |sum, path| black_box(left(path, path >> 20 & most, tracer)) ^ sum)
}

#[test]
fn outer_frames_that_stay_are_not_walked_again() {
    let mut tracer = Tracer::new();
    below(50, 3, &mut tracer);
    assert!(tracer.on_trail / tracer.captures >= 50, "{} frames a capture", tracer.on_trail / tracer.captures);
}

#[test]
fn of_a_deep_stack_the_innermost_frames_are_seen_as_usual_captures_see_them() {
    for depth in [90, 110, 125, 150, 175, 400] {
        let mut tracer = Tracer::new();
        below(depth, 31, &mut tracer);
        tracer.assert_by_rules();
        tracer.assert_quick();
        let on_trail = tracer.on_trail / tracer.captures;
        assert!(on_trail >= 90, "{on_trail} frames a capture below {depth}");
    }
}

#[test]
fn a_stack_that_was_deep_and_is_not_any_more_is_seen_to_its_end() {
    let mut tracer = Tracer::new();
    // Frames of the same call as before, by all that a trail of the deep one knows, and the end that it does not know.
    for depth in [400, 10, 130, 250, 60, 500, 128, 90].into_iter().cycle().take(4000) {
        left(0, depth, &mut tracer);
    }
    tracer.assert_by_rules();
}

type Descend = extern "C" fn(u32, u32, extern "C" fn(*mut c_void), *mut c_void) -> u32;

const PATHS: &str = "
    typedef void call(void *);
    unsigned other(unsigned path, unsigned depth, call *f, void *p);
    __attribute__((noinline)) unsigned descend(unsigned path, unsigned depth, call *f, void *p) {
        if (depth == 0) { f(p); return 1; }
        unsigned below = path & 1 ? descend(path >> 1, depth - 1, f, p) : other(path >> 1, depth - 1, f, p);
        return below * 3 + path;
    }
    __attribute__((noinline)) unsigned other(unsigned path, unsigned depth, call *f, void *p) {
        unsigned below = path & 1 ? descend(path >> 1, depth - 1, f, p) : other(path >> 1, depth - 1, f, p);
        return below * 5 + depth;
    }
    ";

extern "C" fn look(tracer: *mut c_void) {
    // SAFETY: the test passes its own variable.
    unsafe { &mut *tracer.cast::<Tracer>() }.look();
}

/// The function of a library that is compiled for this test.
fn load(name: &str, source: &str, options: &[&str]) -> Descend {
    let _guard = super::replaced::LOADING.lock();
    // SAFETY: of this type.
    unsafe { std::mem::transmute(descend_of(name, source, options)) }
}

/// Captures behind paths through two functions, of which the first ends.
fn through(name: &str, source: &str, options: &[&str], paths: impl Iterator<Item = (u32, u32)>) -> Tracer {
    let descend = load(name, source, options);
    let mut tracer = Tracer::new();
    for (path, depth) in paths {
        // The last call is to the function that ends.
        descend(path | 1 << depth >> 1, depth, look, (&raw mut tracer).cast());
    }
    tracer
}

/// Paths without a pattern, and how deep they are.
fn any_paths() -> impl Iterator<Item = (u32, u32)> {
    numbers().take(3000).map(|path| (path, path >> 20 & 15))
}

#[test]
fn any_call_path_through_frame_pointers_is_seen_as_usual_captures_see_it() {
    through("paths", PATHS, &["-fno-omit-frame-pointer"], any_paths()).assert_by_rules();
}

/// A function that aligns its stack, called at any distance from where that is aligned.
#[cfg(target_arch = "x86_64")]
const ALIGNING: &str = "
    typedef void call(void *);
    typedef long vector __attribute__((vector_size(64)));
    #define USED(x) __asm__ volatile(\"\" : : \"r\"(x) : \"memory\")
    unsigned other(unsigned path, unsigned depth, call *f, void *p);
    __attribute__((noinline)) unsigned descend(unsigned path, unsigned depth, call *f, void *p) {
        long room[3];
        USED(room);
        if (depth == 0) { f(p); return 1; }
        unsigned below = path & 1 ? descend(path >> 1, depth - 1, f, p) : other(path >> 1, depth - 1, f, p);
        USED(room);
        return below * 3 + path;
    }
    __attribute__((noinline)) unsigned other(unsigned path, unsigned depth, call *f, void *p) {
        vector aligned = {depth};
        char room[depth % 4 * 16 + 1];
        USED(&aligned); USED(room);
        unsigned below = path & 1 ? descend(path >> 1, depth - 1, f, p) : other(path >> 1, depth - 1, f, p);
        USED(&aligned); USED(room);
        return below * 5 + aligned[0] + room[0];
    }
    ";

#[test]
#[cfg(target_arch = "x86_64")]
fn any_call_path_through_functions_that_align_their_stack_is_seen_as_usual_captures_see_it() {
    let tracer = through("aligning", ALIGNING, &["-fomit-frame-pointer"], any_paths());
    tracer.assert_quick();
    assert!(tracer.on_trail / tracer.captures > 3, "{} frames of {}", tracer.on_trail, tracer.captures);
}

/// The frame is where it was, and so is the return address that was found then: it is not the caller's any more.
#[test]
#[cfg(target_arch = "x86_64")]
fn a_caller_at_another_distance_from_an_aligned_frame_is_not_taken_for_the_one_before() {
    const DISTANCES: &str = "
        typedef void call(void *);
        typedef long vector __attribute__((vector_size(64)));
        #define USED(x) __asm__ volatile(\"\" : : \"r\"(x) : \"memory\")
        volatile unsigned sixteen = 16;
        static __attribute__((noinline)) long aligned(unsigned size, call *f, void *p) {
            vector aligned = {1};
            char room[size];
            USED(&aligned); USED(room);
            f(p);
            USED(&aligned); USED(room);
            return aligned[0];
        }
        unsigned descend(unsigned size, unsigned which, call *f, void *p) {
            char room[size];
            USED(room);
            unsigned result;
            if (which) { result = aligned(sixteen, f, p); USED(0); } else { result = aligned(sixteen, f, p) + 1; USED(1); }
            USED(room);
            return result;
        }
        ";
    let descend = load("distances", DISTANCES, &["-fomit-frame-pointer"]);
    let mut tracer = Tracer::new();
    for number in numbers().take(3000) {
        // Of one alignment, at four distances.
        descend(64 + number % 4 * 16, number >> 2 & 1, look, (&raw mut tracer).cast());
    }
    tracer.assert_quick();
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_stack_of_functions_that_align_it_is_known_again() {
    let few = numbers().take(5000).map(|path| (path % 4, 3));
    let tracer = through("aligning_again", ALIGNING, &["-fomit-frame-pointer"], few);
    assert!(tracer.known > tracer.captures * 9 / 10, "{} of {}", tracer.known, tracer.captures);
}

/// A function whose frame pointer points into the middle of its frame, as that of libffi's calls does.
#[cfg(target_arch = "x86_64")]
mod in_the_middle {
    use super::*;

    core::arch::global_asm!(
        ".pushsection .text",
        ".globl poolscope_capture_test_in_the_middle",
        ".hidden poolscope_capture_test_in_the_middle",
        ".type poolscope_capture_test_in_the_middle, @function",
        "poolscope_capture_test_in_the_middle:",
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "sub rsp, 16",
        "mov rbp, rsp",
        ".cfi_def_cfa rbp, 32",
        "sub rsp, 64",
        "mov rax, rdi",
        "mov rdi, rsi",
        "call rax",
        "lea rsp, [rbp + 16]",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
        ".popsection",
    );

    unsafe extern "C" {
        #[link_name = "poolscope_capture_test_in_the_middle"]
        fn call(f: extern "C" fn(*mut c_void), p: *mut c_void);
    }

    #[test]
    fn a_frame_pointer_that_points_into_its_frame_is_no_reason_to_ask_tables_each_time() {
        let mut tracer = Tracer::new();
        for _ in 0..500 {
            // SAFETY: it passes the variable on.
            unsafe { call(look, (&raw mut tracer).cast()) };
        }
        assert!(tracer.known > tracer.captures * 9 / 10, "{} of {}", tracer.known, tracer.captures);
    }
}
