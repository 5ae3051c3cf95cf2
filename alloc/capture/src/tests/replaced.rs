//! Libraries that come and go.
use super::*;
use crate::{Symbol, is_loaded, module, module_count, module_generation, on_module, symbol};
use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{env, thread};

pub(super) static LOADING: Mutex<()> = Mutex::new(());

extern "C" fn callback(result: *mut c_void) {
    // SAFETY: `call` passes its own variable.
    unsafe { *result.cast() = here() };
}

/// A library with a function that calls back, after a frame of `words` words.
fn build(name: &str, words: usize) -> PathBuf {
    let text = std::format!(
        "void enter(void (*f)(void *), void *p) {{ volatile long room[{words}]; room[0] = 1; f(p); room[{words} - 1] = 2; }}"
    );
    compile(name, &text, &["-fomit-frame-pointer"])
}

/// Loads a library, calls it, unloads it; returns the function's address and what was captured below it.
fn call(library: &Path) -> (u64, Captured, Vec<u64>) {
    let path = CString::new(library.to_str().unwrap()).unwrap();
    // SAFETY: the library is ours, and its function has this signature.
    unsafe {
        let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
        assert!(!handle.is_null());
        let address = libc::dlsym(handle, c"enter".as_ptr());
        let enter: extern "C" fn(extern "C" fn(*mut c_void), *mut c_void) = std::mem::transmute(address);
        let mut seen: (Captured, Vec<u64>) = Default::default();
        enter(callback, (&raw mut seen).cast());
        libc::dlclose(handle);
        (address as u64, seen.0, seen.1)
    }
}

#[test]
fn a_replaced_library_is_noticed() {
    let _guard = LOADING.lock();
    let (first, second) = (build("first", 10), build("second", 50));
    let mut places = Vec::new();
    let mut generations = vec![module_generation()];
    for library in [&first, &second, &first] {
        let (address, captured, frames) = call(library);
        assert!(!captured.incomplete && frames.iter().any(|frame| (address..address + 256).contains(frame)));
        assert!(names(&frames).iter().any(|name| name.contains("a_replaced_library_is_noticed")));
        generations.push(module_generation());
        places.push(address & !0xfff);
    }
    assert!(generations[1] > generations[0] && generations[2] > generations[1]);
    if places[0] == places[1] {
        let name = first.to_str().unwrap().as_bytes();
        let infos = (0..module_count()).filter_map(module);
        let replaced = infos.filter(|info| info.path == name && info.replaced).count();
        assert_eq!(replaced, 1);
    } else {
        std::println!("not the same place: {places:x?}");
    }
}

#[test]
fn a_library_that_comes_back_is_the_same_module() {
    if has_no_vdso() {
        return;
    }
    let _guard = LOADING.lock();
    let library = build("again", 20);
    call(&library);
    let count = module_count();
    for _ in 0..50 {
        let (_, captured, _) = call(&library);
        assert!(!captured.incomplete);
    }
    // Other tests may load something meanwhile, and an address may differ once or twice.
    assert!(module_count() < count + 20, "{} {count}", module_count());
}

/// The modules that were told of, and what their function is.
static TOLD: Mutex<Vec<(usize, Option<Symbol>)>> = Mutex::new(Vec::new());

fn note(index: usize) {
    if module(index).is_some_and(|info| info.path.ends_with(b"/told.so")) {
        assert!(is_loaded(index));
        // SAFETY: the calling thread has a frame in it.
        let told = unsafe { (symbol(index, c"enter"), symbol(index, c"leave")) };
        assert_eq!(told.1, None);
        TOLD.lock().unwrap().push((index, told.0));
    }
}

#[test]
fn a_library_of_which_a_frame_is_seen_first_is_told_with_its_symbols() {
    if has_no_vdso() {
        return;
    }
    let _guard = LOADING.lock();
    on_module(note);
    let library = build("told", 30);
    let (address, ..) = call(&library);
    // It may have another place or record then.
    call(&library);
    let told = TOLD.lock().unwrap();
    let &(index, symbol) = told.first().unwrap();
    let symbol = symbol.unwrap();
    assert_eq!(symbol.address as u64, address);
    assert!((8..256).contains(&symbol.size));
    assert!(told.len() <= 2);
    assert!(!is_loaded(index));
}

/// Has the other threads stop, also when an assertion fails: else nobody would see that it did.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn captures_go_on_while_libraries_come_and_go() {
    let _guard = LOADING.lock();
    let libraries = [build("odd", 30), build("even", 90)];
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = StopAtEnd(&stop);
        for _ in 0..8 {
            scope.spawn(|| {
                let mut state = ThreadState::new();
                while !stop.load(Ordering::Relaxed) {
                    let (captured, _) = here_with(&mut state);
                    assert!(!captured.incomplete && captured.depth > 3);
                }
            });
        }
        for round in 0..400 {
            let (_, captured, _) = call(&libraries[round % 2]);
            assert!(!captured.incomplete);
        }
    });
}

#[test]
fn a_module_says_what_it_is() {
    here();
    let own = a_module_says_what_it_is as *const () as u64;
    let info = (0..module_count()).filter_map(module).find(|info| (info.start..info.end).contains(&own)).unwrap();
    assert_eq!(info.path, env::current_exe().unwrap().to_str().unwrap().as_bytes());
    assert!(!info.replaced && info.load_bias == info.start);
    assert_eq!(module(usize::MAX), None);
}
