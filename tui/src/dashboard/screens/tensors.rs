//! The view of named tensors.

use super::*;
use crate::dashboard::events::tensors::{Tensor, Tensors, User};

fn user(pid: u32, program: &str, references: u64, seconds: u64) -> User {
    User { pid, program: program.into(), references, since: Duration::from_secs(seconds) }
}

fn tensor(name: &str, bytes: u64, shape: &str, users: Vec<User>) -> Tensor {
    Tensor {
        name: name.into(),
        generation: 71,
        bytes,
        dtype: "bf16".into(),
        shape: shape.into(),
        device: 0,
        references: 1 + users.iter().map(|user| user.references).sum::<u64>(),
        users,
        age: Duration::from_secs(8000),
        is_draft: false,
        freed: None,
    }
}

/// What the owner says of the fixture's process, which holds two of the tensors.
fn tensors() -> Tensors {
    let pid = fixture::model().snapshot.process.pid;
    let own = || user(pid, "kvserver", 1, 95);
    let all = vec![
        tensor("llama/embed", 1 << 30, "[128256,4096]", vec![own(), user(977, "python3", 2, 4000)]),
        tensor("llama/layers.0/wq", 32 << 20, "[4096,4096]", vec![own()]),
        Tensor {
            is_draft: true,
            ..tensor("llama/layers.1/wq", 32 << 20, "[4096,4096]", vec![user(977, "python3", 1, 60)])
        },
        tensor("small", 24, "[2,3,2]", Vec::new()),
        Tensor {
            freed: Some(Duration::from_secs(187)),
            references: 0,
            ..tensor("llama/old", 512 << 20, "[65536,4096]", vec![user(978, "", 1, 300)])
        },
    ];
    Tensors { pid, owner: 901, socket: "/run/user/1000/poolscope/tensors.sock".into(), all, trouble: None }
}

#[test]
fn named_tensors() {
    at_every_size("tensors", |state| {
        state.take_tensors(Some(Arc::new(tensors())));
        press(state, "T");
    });
}

#[test]
fn memory_without_a_name_says_who_holds_it_and_since_when() {
    let mut state = state(120, 40);
    state.take_tensors(Some(Arc::new(tensors())));
    press(&mut state, "T↓");
    let text = screen(&state);
    assert!(text.contains("512 MiB quarantined"), "{text}");
    assert!(text.contains("freed 3m 07s ago, but still held by:") && text.contains("pid 978, 1 reference"), "{text}");
}

#[test]
fn a_process_that_has_nothing_to_do_with_tensors_has_no_such_view() {
    let mut state = state(120, 40);
    let before = state.view;
    press(&mut state, "T");
    assert_eq!(state.view, before);
    let text = screen(&state);
    assert!(text.contains("neither serves nor holds named tensors") && !text.contains("T Tensors"), "{text}");
    state.take_tensors(Some(Arc::new(tensors())));
    assert!(screen(&state).contains("T Tensors"));
}

#[test]
fn an_owner_that_went_away_leaves_what_was_known_and_says_so() {
    let mut state = state(120, 40);
    let trouble = Some("no owner answers".to_owned());
    state.take_tensors(Some(Arc::new(Tensors { trouble, ..tensors() })));
    press(&mut state, "T");
    let text = screen(&state);
    assert!(text.contains("the owner does not answer") && text.contains("llama/embed"), "{text}");
}

/// They have no call sites: what the filter leaves is counted in tensors, and each name is told by its end.
#[test]
fn what_the_filter_leaves_of_tensors_is_counted_in_tensors() {
    let mut state = state(80, 24);
    let names = ["model.layers.10.mlp.up", "model.layers.11.mlp.up"].map(|name| format!("llama-3.2-1b/{name}"));
    let all = names.iter().map(|name| tensor(name, 1 << 20, "[1024,512]", Vec::new())).collect();
    state.take_tensors(Some(Arc::new(Tensors { all, ..tensors() })));
    press(&mut state, "T");
    let text = screen(&state);
    assert!(text.contains(".10.mlp.up") && text.contains(".11.mlp.up"), "{text}");
    press(&mut state, "flayers.11\n");
    let text = screen(&state);
    assert!(text.contains("1 of 2 tensors") && !text.contains(".10.mlp.up"), "{text}");
}
