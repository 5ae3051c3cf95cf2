//! Named tensors as people use them: the command, C and Python, on a simulated device.

use std::path::{Path, PathBuf};

use poolscope_e2e::{Program, Running, Scratch, artifacts, compiler, poolscope, repository};
use serde_json::Value;

/// An owner, and the folder of its socket, which nobody else may enter.
struct Owner {
    folder: Scratch,
    running: Option<Running>,
}

impl Owner {
    fn start(options: &[&str]) -> Owner {
        let mut owner = Owner { folder: Scratch::new(), running: None };
        owner.start_again(options);
        owner
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("own/tensors.sock")
    }

    fn start_again(&mut self, options: &[&str]) {
        let program = Program::new(poolscope()).env("POOLSCOPE_TENSORS", self.socket());
        let program = program.args(["tensors", "serve", "--device", "sim:128M", "--linger", "20"]).args(options);
        let mut running = program.start();
        running.wait_until("it served", |running| running.stderr().contains("serving tensors").then_some(()));
        self.running = Some(running);
    }

    fn ask(&self, arguments: &[&str]) -> Program {
        Program::new(poolscope()).env("POOLSCOPE_TENSORS", self.socket()).arg("tensors").args(arguments)
    }

    fn text(&self, arguments: &[&str]) -> String {
        self.ask(arguments).run().silent_success().stdout
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let text = self.text(&[arguments, &["--json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Ends it as ctrl-c does: everything is freed.
    fn end(mut self) {
        let running = self.running.take().expect("it runs");
        running.signal(libc::SIGINT);
        assert_eq!(running.finish().code(), 0);
        let left = std::fs::read_dir(self.folder.join("own")).expect("the folder stays");
        let left: Vec<_> = left.map(|entry| entry.expect("an entry").file_name()).collect();
        assert_eq!(left, ["owner.lock"]);
    }
}

/// A file of safetensors, written by hand: two tensors, with notes.
fn model() -> Vec<u8> {
    let a = r#""a.weight":{"dtype":"F32","shape":[3,2],"data_offsets":[0,24]}"#;
    let b = r#""b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]}"#;
    let header = format!(r#"{{"__metadata__":{{"format":"pt"}},{a},{b}}}"#);
    // The format's data begin at a multiple of 8.
    let header = format!("{header:<width$}", width = header.len().next_multiple_of(8));
    let data = 100..132u8;
    (header.len() as u64).to_le_bytes().into_iter().chain(header.into_bytes()).chain(data).collect()
}

#[test]
fn a_file_goes_in_and_comes_out_the_same_and_survives_its_owner() {
    let mut owner = Owner::start(&[]);
    let (file, copy) = (owner.folder.join("model.safetensors"), owner.folder.join("copy.safetensors"));
    std::fs::write(&file, model()).expect("it is written");
    let (file, copy) = (file.to_str().expect("text"), copy.to_str().expect("text"));
    assert_eq!(owner.text(&["put", file]), "model: 2 tensors\n");
    let shown = owner.json(&["show", "model/a.weight"]);
    assert_eq!((&shown["bytes"], &shown["dtype"], &shown["refcount"]), (&24.into(), &"f32".into(), &1.into()));

    let mut running = owner.running.take().expect("it runs");
    running.signal(libc::SIGKILL);
    running.wait_until("it ended", |_| Some(()));
    drop(running);
    owner.start_again(&[]);
    let again = owner.json(&["list"]);
    assert_eq!(again["tensors"].as_array().map(Vec::len), Some(2), "{again}");

    assert!(owner.text(&["get", "model", "--out", copy]).contains("2 tensors"));
    let copied = std::fs::read(copy).expect("it was written");
    let data = copied.len() - 32;
    assert_eq!(copied[data..], model()[model().len() - 32..], "the bytes");
    let header: Value = serde_json::from_slice(&copied[8..data]).expect("a header");
    assert_eq!(header["__metadata__"]["format"], "pt");
    assert_eq!(header["a.weight"]["shape"], serde_json::json!([3, 2]));

    let refused = owner.ask(&["put", file]).run();
    assert_eq!(refused.code(), 2);
    assert!(refused.stderr.contains("already") && refused.stderr.contains("model/"), "{}", refused.stderr);
    assert!(owner.text(&["delete", "model/b"]).contains("model/b: deleted"));
    let lines = owner.text(&["watch", "--for", "0.3", "--json"]);
    assert_eq!(lines.lines().count(), 1, "{lines}");
    owner.end();
}

#[test]
fn what_is_wrong_is_said_in_one_line() {
    let owner = Owner::start(&[]);
    for (arguments, words) in [
        (&["show", "nobody"][..], "there is no tensor"),
        (&["put", "/dev/null"], "no file of safetensors"),
        (&["serve", "--device", "sim"], "has an owner already"),
        (&["list", "--socket", "/nowhere/tensors.sock"], "poolscope tensors serve"),
    ] {
        let refused = owner.ask(arguments).run();
        assert_eq!(refused.code(), 2, "{arguments:?}");
        assert!(refused.stderr.contains(words) && refused.stderr.lines().count() == 1, "{}", refused.stderr);
    }
    owner.end();
}

#[test]
fn an_owner_that_can_not_listen_leaves_no_keeper() {
    let folder = Scratch::new();
    let socket = folder.join(format!("own/{}.sock", "x".repeat(120)));
    let program = Program::new(poolscope()).env("POOLSCOPE_TENSORS", &socket);
    let refused = program.args(["tensors", "serve", "--device", "sim", "--linger", "5"]).run();
    assert!(refused.code() == 2 && refused.stderr.contains("SUN_LEN"), "{}", refused.report());
    let left = std::fs::read_dir(folder.join("own")).expect("the folder stays");
    let left: Vec<_> = left.map(|entry| entry.expect("an entry").file_name()).collect();
    assert_eq!(left, ["owner.lock"]);
}

#[test]
fn prometheus_reads_the_owners_figures() {
    let mut owner = Owner::start(&["--metrics", "127.0.0.1:0"]);
    let running = owner.running.as_mut().expect("it runs");
    let url = running.wait_until("it said where", |running| {
        let said = running.stderr();
        Some(said.split_once("metrics at ")?.1.split_once('\n')?.0.to_owned())
    });
    let figures = Program::new("curl").args(["-sf", &url]).run().silent_success().stdout;
    let checked = Program::new("promtool").args(["check", "metrics"]).input(figures.clone()).run();
    assert_eq!(checked.code(), 0, "{}", checked.report());
    assert!(figures.contains("poolscope_tensors_names 0\n"), "{figures}");
    owner.end();
}

#[test]
fn a_c_program_makes_and_finds_tensors() {
    let owner = Owner::start(&[]);
    let library = artifacts::tensors_library();
    let folder = library.parent().expect("it lies in a folder").display().to_string();
    let include = format!("-I{}", repository().join("tensors/c/include").display());
    let (find, run) = (format!("-L{folder}"), format!("-Wl,-rpath,{folder}"));
    let program = owner.folder.join("named");
    let libraries = [&find[..], &run, "-lpoolscope_tensors"];
    compiler::compile_into(&program, Path::new("tests/csrc/named_tensors.c"), &[&include, "-pedantic"], &libraries);
    Program::new(program).env("POOLSCOPE_TENSORS", owner.socket()).run().silent_success();
    // It ended, and what it made has its name still.
    assert_eq!(owner.json(&["show", "from/c"])["refcount"], 1);
    owner.end();
}

/// Reads capsules as other libraries do: by DLPack's structures.
const PYTHON: &str = r#"
import ctypes, gc, sys
sys.path.insert(0, sys.argv[1])
import poolscope_tensors as tensors
from poolscope_tensors import _DLManagedTensor, _DLManagedTensorVersioned, _python

store = tensors.default()
made = store.create("from/python", "f32", [2, 3], meta={"by": "python"})
made.write(bytes(range(24)))
made.commit()
tensor = store.tensor("from/python", expect={"by": "python"})
assert tensor.shape == (2, 3) and tensor.read() == bytes(range(24))
assert tensor.__dlpack_device__() == (1, 0)

def references():
    return store.request(op="show", name="from/python")["refcount"]

def take(capsule, name, kind):
    """Takes a capsule over, as a reader does."""
    managed = kind.from_address(_python.PyCapsule_GetPointer(ctypes.py_object(capsule), name))
    ctypes.pythonapi.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
    ctypes.pythonapi.PyCapsule_SetName(capsule, b"used_" + name)
    return managed

_python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
used_names = [b"used_dltensor", b"used_dltensor_versioned"]
address = tensor.address
new = take(tensor.__dlpack__(max_version=(1, 1)), b"dltensor_versioned", _DLManagedTensorVersioned)
old = take(tensor.__dlpack__(), b"dltensor", _DLManagedTensor)
del tensor
gc.collect()
for managed in (new, old):
    described = managed.dl_tensor
    assert described.data == address and described.ndim == 2
    assert [described.shape[0], described.shape[1], described.strides[0], described.strides[1]] == [2, 3, 3, 1]
    assert (described.dtype.code, described.dtype.bits, described.dtype.lanes) == (2, 32, 1)
assert (new.major, new.flags) == (1, 0)
# The readers have the memory still; a write from elsewhere is there at once.
made.write(b"\xff" * 24)
assert ctypes.string_at(new.dl_tensor.data, 24) == b"\xff" * 24
assert references() == 3, references()
new.deleter(ctypes.addressof(new))
assert references() == 3
old.deleter(ctypes.addressof(old))
gc.collect()
assert references() == 2, references()

# A capsule that nobody took, one for reading alone, and what can't be.
_python.PyCapsule_GetPointer.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
store.tensor("from/python").__dlpack__(max_version=(1, 0))
gc.collect()
assert references() == 2, references()
only = store.tensor("from/python", read_only=True)
for options in ({}, {"copy": True, "max_version": (1, 0)}, {"dl_device": (2, 0), "max_version": (1, 0)}):
    try:
        only.__dlpack__(**options)
        raise SystemExit(f"{options} was not refused")
    except BufferError:
        pass
del only
assert not hasattr(made, "__cuda_array_interface__")

with tensors.model("from") as weights:
    assert list(weights) == ["python"]
    assert references() == 3
gc.collect()
assert references() == 2, references()
try:
    tensors.get("nobody")
    raise SystemExit("it was not refused")
except tensors.Refused as refused:
    assert refused.code == "no_such_name"
on = store.create("streamed", "u8", [8]).commit(stream=0)
assert on.entry["name"] == "streamed" and store.tensor("streamed", stream=0).nbytes == 8
on.record_stream(0)
del on
tensors.delete("streamed")
try:
    tensors.Store("/nowhere/tensors.sock", patience=0.01)
    raise SystemExit("it was not refused")
except tensors.Refused as refused:
    assert refused.code == "no_owner"
for cut in (store.tensor, store.tensors, lambda name: store.create(name, "u8", [1])):
    try:
        cut("from/python\0x")
        raise SystemExit("it was not refused")
    except tensors.Refused as refused:
        assert refused.code == "bad_name"
store.publish("again", made)
assert store.tensor("again").read() == b"\xff" * 24
tensors.delete("again")
"#;

#[test]
fn a_check_names_the_tensors_that_a_program_had_not_given_back() {
    let owner = Owner::start(&[]);
    let program = "import os, sys; sys.path.insert(0, sys.argv[1]); import poolscope_tensors as tensors\n\
                   store = tensors.default()\n\
                   held = [store.create(f'model/{n}', 'u8', [1000]).commit() for n in range(2)]\n\
                   tensors.delete('model/1'); del held[0]; sys.stdout.flush(); os._exit(0)";
    let checked =
        owner_program(&owner, Program::new(poolscope()).args(["check", "--", "/usr/bin/python3", "-B", "-c"]))
            .arg(program)
            .arg(repository().join("tensors/python"))
            .run();
    let (_, tensors) = checked.stderr.split_once("Named tensors that process").unwrap_or_else(|| {
        panic!("{}", checked.report());
    });
    assert!(tensors.contains("1000 B  model/1 (u8 [1000])") && !tensors.contains("model/0"), "{tensors}");
    owner.end();
}

fn owner_program(owner: &Owner, program: Program) -> Program {
    program.env("POOLSCOPE_TENSORS", owner.socket()).env("POOLSCOPE_TENSORS_LIB", artifacts::tensors_library())
}

#[test]
fn the_dashboard_shows_who_holds_memory_without_a_name() {
    let owner = Owner::start(&[]);
    let code = "import sys; sys.path.insert(0, sys.argv[1]); import poolscope_tensors as tensors\n\
                held = tensors.default().create('model/0', 'u8', [3 << 20]).commit()\n\
                tensors.delete('model/0'); print('up', flush=True); sys.stdin.read()";
    let mut holder = owner_program(&owner, Program::new("/usr/bin/python3").args(["-B", "-c", code]))
        .arg(repository().join("tensors/python"))
        .env("LD_PRELOAD", artifacts::library())
        .start();
    holder.wait_until("it held one", |holder| holder.stdout().contains("up").then_some(()));
    let pid = holder.pid().to_string();
    let frame = Program::new(poolscope()).args(["top", &pid, "--once", "--view", "tensors"]).run().silent_success();
    let row = frame.stdout.lines().find(|line| line.contains("model/0")).unwrap_or_else(|| panic!("{}", frame.stdout));
    assert!(row.contains("3.00 MiB") && row.contains(&pid) && row.contains("freed"), "{row}");
    assert!(frame.stdout.contains("but still held by:"), "{}", frame.stdout);
    let collected = owner.text(&["gc"]);
    assert!(collected.contains("model/0") && collected.contains(&format!("held by pid {pid}")), "{collected}");
    holder.signal(libc::SIGKILL);
    holder.wait_until("it ended", |_| Some(()));
    owner.end();
}

#[test]
fn a_python_program_shares_tensors_without_a_copy() {
    let owner = Owner::start(&[]);
    let module = repository().join("tensors/python");
    Program::new("/usr/bin/python3")
        .args(["-B", "-c", PYTHON])
        .arg(module)
        .env("POOLSCOPE_TENSORS", owner.socket())
        .env("POOLSCOPE_TENSORS_LIB", artifacts::tensors_library())
        .run()
        .silent_success();
    owner.end();
}
