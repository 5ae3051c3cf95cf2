//! Finding segments by process and by path.

use std::io::{BufRead, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use poolscope_profiler::ReadError;
use poolscope_profiler::model::snapshot::ProcessState;
use poolscope_profiler::segment::discovery::{self, FindError, NotOnPool};
use poolscope_profiler::segment::folders;

use crate::segment::{Segment, TempSegment, sample};

/// A child that maps the segment like a program on the pool does, or only sleeps.
pub struct Running(Child);

impl Running {
    fn command(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("starts"))
    }

    fn sleep() -> Self {
        Self::command(Command::new("sleep").arg("60"))
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_folder_lists_its_segments_and_names_the_unreadable_ones() {
    let folder = tempfile::tempdir().expect("there is room");
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).expect("is written");
    let (mut old, mut new) = (sample(), sample());
    old.header.generation = 1;
    new.header.generation = 2;
    new.header.start_realtime_ns += 5;
    write(&old.name(), &old.build());
    write(&new.name(), &new.build());
    write("77.00000000000000aa", b"short");
    write("notes.txt", b"no segment by its name");
    let listing = discovery::list_in(folder.path()).expect("lists");
    let generations: Vec<u64> = listing.entries.iter().map(|entry| entry.generation).collect();
    assert_eq!(generations, [2, 1]);
    assert_eq!(listing.entries[0].state, ProcessState::Killed);
    assert_eq!(listing.entries[0].args, ["sample", "--port", "8080"]);
    assert!(listing.entries[0].file_bytes > 0);
    assert_eq!(listing.unreadable.len(), 1);
    assert!(matches!(listing.unreadable[0], ReadError::Header { .. }), "{:?}", listing.unreadable);
}

#[test]
fn a_folder_that_is_not_there_is_empty() {
    let listing = discovery::list_in(std::path::Path::new("/nonexistent/poolscope")).expect("lists");
    assert!(listing.entries.is_empty() && listing.unreadable.is_empty());
}

#[test]
fn a_path_is_found_without_its_process() {
    let file = TempSegment::new(&sample());
    let entry = discovery::find(&file.path.display().to_string()).expect("is found");
    assert_eq!((entry.path, entry.pid, entry.state), (file.path.clone(), 4_000_000_000, ProcessState::Killed));
}

#[test]
fn what_is_no_process_and_no_file_says_so() {
    let error = discovery::find("/nonexistent/file").expect_err("is not there");
    assert_eq!(
        error.to_string(),
        "\"/nonexistent/file\" is neither a process id nor a file that is there: `poolscope list` shows processes"
    );
    let error = discovery::find("4000000001").expect_err("is not there");
    assert_eq!(
        error.to_string(),
        "there is no process 4000000001, and no segment that it left behind: `poolscope list` shows what there is"
    );
    let file = TempSegment::from_bytes("x", b"abc");
    assert!(matches!(discovery::find(file.path.to_str().expect("is text")), Err(FindError::Unreadable(_))));
}

#[test]
fn a_process_without_the_pool_is_told_how_to_start_it() {
    let sleep = Running::sleep();
    wait_for_exe(sleep.pid(), Path::new("/usr/bin/sleep"));
    let error = discovery::find(&sleep.pid().to_string()).expect_err("is not on the pool");
    assert!(matches!(error, FindError::NotOnPool { why: NotOnPool::NotStartedWithIt, .. }), "{error}");
    assert!(
        error.to_string().ends_with("does not run on the pool: start it with `poolscope run -- COMMAND`"),
        "{error}"
    );
}

#[test]
fn a_program_of_named_tensors_is_not_taken_for_one_on_the_pool() {
    let folder = tempfile::tempdir().expect("there is room");
    let (source, library, program) =
        (folder.path().join("s.c"), folder.path().join("libpoolscope_tensors.so"), folder.path().join("s"));
    std::fs::write(&source, "#include <unistd.h>\nint main(void) { sleep(60); }").expect("is written");
    let gcc = Command::new("gcc").args(["-shared", "-xc", "/dev/null", "-o"]).arg(&library).status();
    assert!(gcc.expect("gcc runs").success());
    let gcc = Command::new("gcc").arg("-Wl,--no-as-needed").args([&source, &library]).arg("-o").arg(&program).status();
    assert!(gcc.expect("gcc runs").success());
    let child = Running::command(&mut Command::new(&program));
    wait_for_exe(child.pid(), &program);
    let is_mapped = || {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", child.pid()));
        maps.is_ok_and(|maps| maps.contains("libpoolscope_tensors.so"))
    };
    assert!((0..500).any(|_| is_mapped() || {
        std::thread::sleep(std::time::Duration::from_millis(2));
        false
    }));
    let error = discovery::find(&child.pid().to_string()).expect_err("is not on the pool");
    assert!(matches!(error, FindError::NotOnPool { why: NotOnPool::NotStartedWithIt, .. }), "{error}");
}

#[test]
fn a_static_program_is_told_that_it_cannot_be_preloaded() {
    let folder = tempfile::tempdir().expect("there is room");
    let source = folder.path().join("s.c");
    std::fs::write(&source, "#include <unistd.h>\nint main(void) { sleep(60); }").expect("is written");
    let program = folder.path().join("s");
    let gcc = Command::new("gcc").arg("-static").arg("-o").arg(&program).arg(&source).status().expect("gcc runs");
    assert!(gcc.success());
    let child = Running::command(&mut Command::new(&program));
    wait_for_exe(child.pid(), &program);
    let error = discovery::find(&child.pid().to_string()).expect_err("is not on the pool");
    assert!(matches!(error, FindError::NotOnPool { why: NotOnPool::StaticallyLinked, .. }), "{error}");
}

#[test]
fn a_setuid_program_is_told_that_it_cannot_be_preloaded() {
    let folder = tempfile::tempdir().expect("there is room");
    let program = folder.path().join("sleep");
    std::fs::copy("/bin/sleep", &program).expect("is copied");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).expect("is allowed");
    let child = Running::command(Command::new(&program).arg("60"));
    wait_for_exe(child.pid(), &program);
    let error = discovery::find(&child.pid().to_string()).expect_err("is not on the pool");
    assert!(matches!(error, FindError::NotOnPool { why: NotOnPool::SetUserId, .. }), "{error}");
}

#[test]
fn a_live_process_is_found_by_what_it_maps_and_not_by_its_number_alone() {
    let (child, file) = python_mapping(Segment::new());
    let pid = child.pid();
    let entry = discovery::find(&pid.to_string()).expect("is found in a folder that is not ours");
    assert_eq!(entry.path, file.path);
    assert_eq!(entry.state, ProcessState::Running);

    // The same process without a mapping of the file: it has replaced itself by exec.
    let mut older = Segment::new().of_process(pid);
    older.header.generation = 3;
    let older = TempSegment::new(&older);
    let entry = discovery::find(older.path.to_str().expect("is text")).expect("is found");
    assert_eq!(entry.state, ProcessState::Killed);

    drop(child);
    let entry = discovery::find(file.path.to_str().expect("is text")).expect("is left behind");
    assert_eq!(entry.state, ProcessState::Killed);
}

#[test]
fn what_an_earlier_process_left_is_not_taken_for_a_damaged_one() {
    let (child, file) = python_mapping(Segment::new());
    let mut older = Segment::new().of_process(child.pid());
    older.header.start_ticks -= 1;
    older.header.generation = 5;
    let folder = folders::segment_dir();
    std::fs::create_dir_all(&folder).expect("is made");
    let left = folder.join(older.name());
    std::fs::write(&left, older.build()).expect("is written");
    std::fs::OpenOptions::new().write(true).open(&file.path).and_then(|file| file.set_len(1)).expect("is cut off");
    let found = discovery::find(&child.pid().to_string());
    let message = found.as_ref().map_or_else(ToString::to_string, |entry| entry.path.display().to_string());
    std::fs::remove_file(&left).expect("is removed");
    assert!(message.contains("1 bytes are too few"), "{message}");
}

/// A python3 that maps this as its own segment. Python is one of the programs that `make test` installs.
pub fn python_mapping(segment: Segment) -> (Running, TempSegment) {
    let script = "import mmap,sys,time,os\n\
                  path=sys.stdin.readline().strip()\n\
                  f=open(path,'r+b'); m=mmap.mmap(f.fileno(),0); f.close()\n\
                  print('ready',flush=True); time.sleep(60)";
    let mut child = Command::new("python3")
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 starts: `make test` installs it");
    let file = TempSegment::new(&segment.of_process(child.id()));
    let mut input = child.stdin.take().expect("is piped");
    writeln!(input, "{}", file.path.display()).expect("is read");
    let mut line = String::new();
    let mut output = std::io::BufReader::new(child.stdout.take().expect("is piped"));
    output.read_line(&mut line).expect("answers");
    assert_eq!(line, "ready\n");
    (Running(child), file)
}

fn wait_for_exe(pid: u32, program: &Path) {
    for _ in 0..500 {
        if std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    panic!("{} did not start", program.display());
}

#[test]
fn another_users_process_is_named_as_such() {
    if poolscope_profiler::process::effective_uid(std::process::id()) != Some(0) {
        // Any process of root is another user's.
        let error = discovery::find("1").expect_err("is root's");
        assert!(matches!(error, FindError::OtherUser { uid: 0, .. }), "{error}");
    }
    let error = FindError::OtherUser { pid: 1, uid: 0, own_uid: 1000 };
    assert_eq!(
        error.to_string(),
        "process 1 belongs to user 0 and you are user 1000: run this command as that user, or with sudo"
    );
}
