//! The ways out of a function: by frame pointers alone, by tables, as libgcc sees it.
use super::*;
use crate::modules::{self, Confirmed};
use crate::{fallback, loader};

type Descend = extern "C" fn(i32, extern "C" fn(*mut c_void), *mut c_void) -> i32;

/// Functions that call each other, and then back. No tail calls: each result is used.
const DESCENT: &str = "
    typedef void call(void *);
    int descend(int depth, call *f, void *p);
    __attribute__((noinline)) int middle(int depth, call *f, void *p) { return descend(depth, f, p) * 3 + depth; }
    __attribute__((noinline)) int descend(int depth, call *f, void *p) {
        if (depth == 0) { f(p); return 1; }
        return middle(depth - 1, f, p) + depth;
    }
";

/// A function that aligns its stack, with a variable part: gcc then finds its frame through a word stored below it. It is
/// called from frames of all sizes, so that the stack is moved by different amounts.
const REALIGNED: &str = "
    typedef void call(void *);
    typedef long vector __attribute__((vector_size(64)));
    #define USED(x) __asm__ volatile(\"\" : : \"r\"(x) : \"memory\")
    static __attribute__((noinline)) long aligned(int depth, call *f, void *p) {
        vector aligned = {depth};
        char room[depth + 1];
        USED(&aligned); USED(room);
        f(p);
        USED(&aligned); USED(room);
        return aligned[0] + room[0];
    }
    #define FROM(words) static __attribute__((noinline)) long from_##words(int depth, call *f, void *p) { \
        long room[words]; \
        USED(room); \
        long result = aligned(depth, f, p) * 3; \
        USED(room); \
        return result + 1; \
    }
    FROM(1) FROM(3) FROM(5) FROM(7) FROM(9) FROM(11) FROM(13) FROM(15)
    int descend(int words, call *f, void *p) {
        switch (words) {
            case 1: return from_1(words, f, p) * 5;
            case 3: return from_3(words, f, p) * 5;
            case 5: return from_5(words, f, p) * 5;
            case 7: return from_7(words, f, p) * 5;
            case 9: return from_9(words, f, p) * 5;
            case 11: return from_11(words, f, p) * 5;
            case 13: return from_13(words, f, p) * 5;
            default: return from_15(words, f, p) * 5;
        }
    }
";

extern "C" fn callback(result: *mut c_void) {
    // SAFETY: `run` passes its own variable.
    unsafe { *result.cast() = here() };
}

/// What was captured in a library's function.
struct Seen {
    captured: Captured,
    frames: Vec<u64>,
    /// Frames of the library itself.
    own: usize,
}

impl Seen {
    /// Everything is there, from the callback through the library's `own` frames to the test.
    fn assert_complete(&self, own: usize) {
        let names = names(&self.frames);
        assert!(!self.captured.incomplete, "{names:#?}");
        assert_eq!(self.own, own, "{names:#?}");
        assert!(names.iter().any(|name| name.contains("callback")), "{names:#?}");
        assert!(names.iter().any(|name| name == "run" || name.contains("tests::ways::run")), "{names:#?}");
    }
}

/// A library's `descend`.
fn load(name: &str, text: &str, options: &[&str]) -> Descend {
    // SAFETY: it has this signature.
    unsafe { std::mem::transmute(descend_of(name, text, options)) }
}

/// Calls it.
#[inline(never)]
fn run(name: &str, text: &str, options: &[&str], depth: i32) -> Seen {
    let _guard = super::replaced::LOADING.lock();
    see(load(name, text, options), depth)
}

fn see(descend: Descend, depth: i32) -> Seen {
    let mut seen: (Captured, Vec<u64>) = Default::default();
    black_box(descend(depth, callback, (&raw mut seen).cast()));
    // Listing waits for no one, and another test may fork.
    let module = loop {
        let module = modules::find(descend as usize, &mut Confirmed::new()).unwrap();
        if module.is_listed() {
            break module;
        }
    };
    let (captured, frames) = seen;
    let own = frames.iter().filter(|frame| module.holds(**frame as usize)).count();
    Seen { captured, frames, own }
}

#[test]
fn a_module_with_frame_pointers_is_left() {
    run("framed", DESCENT, &["-fno-omit-frame-pointer", "-nostdlib"], 20).assert_complete(41);
}

#[test]
fn a_module_without_frame_pointers_is_left() {
    run("frameless", DESCENT, &["-fomit-frame-pointer"], 20).assert_complete(41);
}

#[test]
fn a_module_with_frame_pointers_alone_is_left() {
    let options = ["-fno-omit-frame-pointer", "-fno-asynchronous-unwind-tables", "-nostdlib"];
    run("tableless", DESCENT, &options, 20).assert_complete(41);
}

/// One function among many that uses the register for something else.
#[test]
#[cfg(target_arch = "x86_64")]
fn a_function_without_a_frame_pointer_among_others_is_left() {
    let mut text = String::from(
        "__asm__(\".globl descend; .type descend, @function; descend: .cfi_startproc; push %rbp; .cfi_def_cfa_offset 16;\"
                 \".cfi_offset 6, -16; mov $64, %ebp; mov %rdx, %rdi; call *%rsi; pop %rbp; .cfi_def_cfa_offset 8; ret;\"
                 \".cfi_endproc; .size descend, . - descend\");\n",
    );
    for n in 0..60 {
        text += &std::format!("int filler{n}(void (*f)(void)) {{ f(); return {n}; }}\n");
    }
    run("astray", &text, &["-fno-omit-frame-pointer", "-nostdlib"], 1).assert_complete(1);
}

#[test]
fn a_function_that_aligns_its_stack_is_left() {
    for words in (1..16).step_by(2) {
        let name = std::format!("realigned{words}");
        run(&name, REALIGNED, &["-fomit-frame-pointer"], words).assert_complete(3);
    }
}

/// Of code without tables that uses the frame pointer's register for something else, nobody knows who called it.
#[test]
#[cfg(target_arch = "x86_64")]
fn where_the_fallback_leads_no_farther_it_is_asked_now_and_then() {
    if !loader::is_safe_to_ask() {
        return;
    }
    const NOWHERE: &str =
        "__asm__(\".globl descend; .type descend, @function; descend: push %rbp; mov $64, %ebp; mov %rdx, %rdi;\"
                 \"call *%rsi; pop %rbp; ret; .size descend, . - descend\");";
    let _guard = super::replaced::LOADING.lock();
    let descend = load("nowhere", NOWHERE, &[]);
    let seen = see(descend, 20);
    assert!(seen.captured.incomplete, "{:?}", names(&seen.frames));
    let before = fallback::ASKED.get();
    for _ in 0..200 {
        let again = see(descend, 20);
        assert_eq!((again.captured, &again.frames), (seen.captured, &seen.frames));
    }
    let asked = fallback::ASKED.get() - before;
    // Other tests pass by their ends as well.
    assert!(asked <= 20, "asked {asked} times of 200");
}

#[test]
fn the_fallback_sees_the_same_frames() {
    if !loader::is_safe_to_ask() {
        return;
    }
    let mut frames = [0; MAX_DEPTH];
    let captured = capture(&mut ThreadState::new(), &Caller::here(), &mut frames);
    let mut again = frames;
    let nothing = Captured { depth: 1, truncated: false, incomplete: true };
    // The second frame: the return address of this function, which is the same at both calls.
    let seen = fallback::trace(frames[1] as usize, &mut again, nothing);
    assert_eq!(seen, Captured { depth: captured.depth - 1, ..captured });
    assert_eq!(again[..seen.depth], frames[1..captured.depth]);
}

#[test]
fn the_fallback_changes_nothing_if_it_sees_less() {
    let (captured, frames) = here();
    let mut again = [0; MAX_DEPTH];
    again[..frames.len()].copy_from_slice(&frames);
    // No return address of this thread, so that it finds nothing.
    assert_eq!(fallback::trace(1, &mut again, captured), captured);
    assert_eq!(again[..captured.depth], frames[..]);
}
