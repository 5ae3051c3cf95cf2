//! The guides' tables of settings and of system calls are the pool's.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use poolscope_cpu::kernel_calls::{KERNEL_CALLS, When};
use poolscope_cpu::settings::{COMMAND_VARIABLES, Change, SETTINGS};

const HEAD: &str = "| variable | takes | default | changes | what |\n|---|---|---|---|---|\n";

fn table() -> String {
    let mut table = HEAD.to_owned();
    for setting in &SETTINGS {
        let name = setting.variable.to_str().unwrap();
        let default = setting.range.show(setting.default);
        let changes = match setting.change {
            Change::AtStart => "at the start",
            Change::Anytime => "at any time",
        };
        writeln!(table, "| `{name}` | {} | `{default}` | {changes} | {} |", setting.range, setting.help).unwrap();
    }
    for (name, takes, help) in COMMAND_VARIABLES {
        writeln!(table, "| `{name}` | {takes} | | | {help} |").unwrap();
    }
    table
}

const CALLS_HEAD: &str = "| system calls | for | when |\n|---|---|---|\n";

fn calls() -> String {
    let mut table = CALLS_HEAD.to_owned();
    for calls in KERNEL_CALLS {
        let names: Vec<String> = calls.names.iter().map(|name| format!("`{name}`")).collect();
        let when = match calls.when {
            When::Always => "always",
            When::UnlessPlain => "without `POOLSCOPE_PLAIN=1`",
            When::InTrouble => "in trouble",
        };
        writeln!(table, "| {} | {} | {when} |", names.join(", "), calls.purpose).unwrap();
    }
    table
}

const SETTINGS_GUIDE: &str = "settings.md";
const CALLS_GUIDE: &str = "confinement.md";

/// A guide, and where in it the table with this head lies.
fn guide(name: &str, head: &str) -> (PathBuf, String, std::ops::Range<usize>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide").join(name);
    let page = std::fs::read_to_string(&path).unwrap();
    let start = page.find(head).expect("the guide has the table");
    let end = start + page[start..].find("\n\n").expect("something follows the table") + 1;
    (path, page, start..end)
}

/// Names of system calls in the sources below a folder, with the file: those that are called by number, and those of
/// the C library's functions that are calls.
fn called(folder: &Path, found: &mut Vec<(String, PathBuf)>) {
    // What is no call, or no call of the pool's own: asked of the C library, or made only by tests.
    const NO_CALLS: [&str; 35] = [
        "syscall",
        "abort",
        "raise",
        "getenv",
        "getauxval",
        "dlsym",
        "dlopen",
        "dlclose",
        "strstr",
        "sigaddset",
        "qsort",
        "pthread_setspecific",
        "pthread_key_create",
        "pthread_self",
        "pthread_atfork",
        "swapcontext",
        "makecontext",
        "getcontext",
        "fwrite",
        "__errno_location",
        "waitpid",
        "sysconf",
        "fork",
        "_exit",
        "vfork",
        "clone3",
        "mlockall",
        "strlen",
        "exit_group",
        "dladdr",
        "posix_spawnp",
        "posix_spawn_file_actions_init",
        "posix_spawn_file_actions_adddup2",
        "posix_spawn_file_actions_addopen",
        "posix_spawn_file_actions_destroy",
    ];
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            called(&path, found);
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for part in text.split("libc::").skip(1) {
            let name: String = part.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            let name = match name.strip_prefix("SYS_") {
                Some(call) => call,
                None if part[name.len()..].starts_with('(') => name.as_str(),
                None => continue,
            };
            let name = match name {
                "getrlimit" | "prlimit" => "prlimit64",
                "sigaction" => "rt_sigaction",
                name => name,
            };
            if !NO_CALLS.contains(&name) && !name.starts_with(|c: char| c.is_ascii_uppercase()) {
                found.push((name.to_owned(), path.clone()));
            }
        }
    }
}

#[test]
fn every_system_call_of_the_sources_is_in_the_table() {
    let mut found = Vec::new();
    for folder in ["src", "../capture/src", "../preload/src"] {
        called(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut found);
    }
    assert!(found.len() > 50, "{found:?}");
    let named: Vec<&str> = KERNEL_CALLS.iter().flat_map(|calls| calls.names).copied().collect();
    for (name, path) in &found {
        assert!(named.contains(&name.as_str()), "{name} of {} is not in KERNEL_CALLS", path.display());
    }
}

#[test]
fn the_guide_has_the_table_of_system_calls() {
    let (_, page, place) = guide(CALLS_GUIDE, CALLS_HEAD);
    assert!(
        page[place] == calls(),
        "docs/guide/confinement.md is behind the pool's system calls; see the_guide_has_the_table_of_settings"
    );
}

#[test]
fn the_guide_has_the_table_of_settings() {
    let (_, page, place) = guide(SETTINGS_GUIDE, HEAD);
    assert!(
        page[place] == table(),
        "docs/guide/settings.md is behind the settings. Write its table anew:\n\
         cargo test -p poolscope-cpu --test guide -- --ignored"
    );
}

#[test]
#[ignore = "writes the guides"]
fn write_the_tables_into_the_guides() {
    for (name, head, table) in [(SETTINGS_GUIDE, HEAD, table()), (CALLS_GUIDE, CALLS_HEAD, calls())] {
        let (path, mut page, place) = guide(name, head);
        page.replace_range(place, &table);
        std::fs::write(path, page).unwrap();
    }
}
