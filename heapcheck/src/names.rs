//! One thread finds names for addresses, for all tests of a program: what it has read of the executable's symbols, it
//! keeps.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use poolscope_profiler::{Profile, ProfileBuilder, Snapshot};

/// A snapshot, and where its profile goes.
type Question = Box<(Snapshot, Sender<(Snapshot, Profile)>)>;

/// The thread, by what it is asked through, and the process that it is of.
static THREAD: Mutex<Option<(u32, Sender<Question>)>> = Mutex::new(None);

/// The profile of a snapshot. The caller is in no scope.
pub(crate) fn profile(snapshot: Snapshot) -> (Snapshot, Profile) {
    let (ask, answer) = channel();
    // Without a thread the question comes back.
    if let Err(question) = send(Box::new((snapshot, ask))) {
        let (snapshot, _) = *question;
        let profile = ProfileBuilder::new().build(&snapshot);
        return (snapshot, profile);
    }
    answer.recv().expect("the thread has not panicked")
}

fn send(question: Question) -> Result<(), Question> {
    let own = std::process::id();
    let mut thread = THREAD.lock().unwrap_or_else(PoisonError::into_inner);
    // A forked child has the memory, and not the thread.
    if thread.as_ref().is_none_or(|(process, _)| *process != own) {
        let (sender, questions) = channel();
        let started = thread::Builder::new().name("symbols".into()).spawn(move || answer(questions));
        *thread = started.is_ok().then_some((own, sender));
    }
    match &*thread {
        Some((_, sender)) => sender.send(question).map_err(|unsent| unsent.0),
        None => Err(question),
    }
}

fn answer(questions: Receiver<Question>) {
    let mut builder = ProfileBuilder::new();
    for question in questions {
        let (snapshot, asked) = *question;
        let profile = builder.build(&snapshot);
        // Who asked may be gone.
        let _ = asked.send((snapshot, profile));
    }
}
