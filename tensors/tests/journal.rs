//! The journal: the next owner has the books of the last one, also where that was killed in the middle of a write.

use std::fs::File;
use std::os::fd::AsFd;

use poolscope_tensors::{Books, ClientEntry, Identity, Journal, Record, SlabEntry, TensorEntry, Transport};
use proptest::prelude::*;

fn tensor(generation: u64, slab: u64, offset: u64) -> TensorEntry {
    TensorEntry {
        generation,
        name: format!("name {}", generation % 7),
        dtype: "u8".into(),
        shape: vec![600],
        strides: vec![1],
        bytes: 600,
        slab,
        offset: offset * 1024,
        refcount: 1,
        meta: serde_json::Map::new(),
        uid: 0,
        ctime: 1,
        mtime: 1,
        draft_of: None,
        ready: None,
        freed_at: None,
    }
}

fn record() -> impl Strategy<Value = Record> {
    let small = 1u64..20;
    prop_oneof![
        small.clone().prop_map(|id| Record::Slab(SlabEntry {
            id: id % 3,
            device: 0,
            gpu_uuid: "GPU".into(),
            bytes: 1 << 20,
            transport: Transport::Posix,
            ipc_handle: String::new(),
            publisher: None,
        })),
        (small.clone(), 0u64..3, 0u64..1000).prop_map(|(it, slab, at)| Record::Tensor(tensor(it, slab, at))),
        (small.clone(), 0u64..5).prop_map(|(generation, refcount)| Record::Count { generation, refcount, mtime: 2 }),
        small.clone().prop_map(|generation| Record::Freed { generation, at: 3 }),
        small.clone().prop_map(|generation| Record::Gone { generation }),
        small.clone().prop_map(|generation| Record::Committed { generation, mtime: 4, ready: None }),
        small.clone().prop_map(|id| Record::Client(ClientEntry {
            id,
            who: Identity::default(),
            uid: 0,
            program: "p".into(),
            is_remote: false,
            since: 5,
        })),
        small.clone().prop_map(|id| Record::ClientGone { id }),
        (small.clone(), small, 0u64..3).prop_map(|(client, generation, count)| Record::Held {
            client,
            generation,
            count,
            refcount: count + 1
        }),
    ]
}

fn reopened(journal: &Journal) -> Books {
    Journal::open(journal.as_fd().try_clone_to_owned().unwrap()).unwrap().1
}

proptest! {
    #[test]
    fn the_next_owner_has_the_same_books(records in proptest::collection::vec(record(), 0..60)) {
        let mut books = Books::default();
        let mut journal = Journal::of(&books).unwrap();
        for record in &records {
            journal.append(record).unwrap();
            books.apply(record);
        }
        prop_assert_eq!(reopened(&journal), books);
    }

    /// Every beginning of the file gives the books of some beginning of the records, and what is behind it goes.
    #[test]
    fn a_torn_end_is_cut_off(records in proptest::collection::vec(record(), 1..20), cut in 0.0f64..1.0, bad in any::<u8>()) {
        let mut journal = Journal::of(&Books::default()).unwrap();
        let mut states = vec![reopened(&journal)];
        let mut books = reopened(&journal);
        for record in &records {
            journal.append(record).unwrap();
            books.apply(record);
            states.push(reopened(&journal));
        }
        let file = File::from(journal.as_fd().try_clone_to_owned().unwrap());
        let length = (file.metadata().unwrap().len() as f64 * cut) as u64;
        file.set_len(length).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[bad; 13], length).unwrap();
        let found = reopened(&journal);
        prop_assert!(states.contains(&found) || found == Books::default());
    }
}

#[test]
fn a_journal_begins_with_all_that_the_books_have() {
    let mut books = Books::default();
    for n in 10..20 {
        books.apply(&Record::Slab(SlabEntry {
            id: n,
            device: 0,
            gpu_uuid: "GPU".into(),
            bytes: 1 << 20,
            transport: Transport::Posix,
            ipc_handle: String::new(),
            publisher: None,
        }));
        books.apply(&Record::Tensor(tensor(n + 100, n, 3)));
    }
    let journal = Journal::of(&books).unwrap();
    let mut again = reopened(&journal);
    again.next = books.next;
    assert_eq!(again, books);
}
