//! Which blocks are recorded: found again when they are freed, at no cost to the others.
//!
//! The page that a recorded block begins on carries a flag, so that a free that finds none looks no further. Small
//! blocks that share pages come from slabs of recorded blocks only ([`crate::small::SAMPLED`]), whose pages have the flag
//! for good. Of larger ones, one at most begins on a page. Where a stream has no slabs, small blocks begin beside each
//! other and beside a larger one, and are counted.

use crate::large::AddressMap;
use crate::small::{PAGE, Pages};
use crate::watch::Token;
use crate::watch::sampling::Count;

/// What is known of a recorded block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The recorder's.
    pub token: Token,
    /// Where its free is counted.
    pub count: Count,
}

/// The recorded blocks of a pool.
#[derive(Default)]
pub struct Records {
    blocks: AddressMap<Record>,
    /// How many begin on a page, of pages that have had a small one that is no slab's since the page had none.
    on_page: AddressMap<u32>,
}

impl Records {
    /// Notes that a block of so many bytes is recorded.
    pub fn add(&mut self, pages: &Pages, address: u64, bytes: u64, record: Record) {
        self.blocks.insert(address, record);
        let page = address / PAGE * PAGE;
        if bytes < PAGE {
            if pages.is_shared_slab(page) {
                return;
            }
            // The flag of a page that is not counted is that of one larger block.
            let others = u32::from(pages.get(page).is_recorded());
            *self.on_page.entry(page).or_insert(others) += 1;
        } else if let Some(count) = self.counted(page) {
            *count += 1;
        }
        pages.set_recorded(page, true);
    }

    /// What is known of a block that is about to be freed, if it is recorded.
    pub fn take(&mut self, pages: &Pages, address: u64) -> Option<Record> {
        let record = self.blocks.remove(&address)?;
        let page = address / PAGE * PAGE;
        if pages.is_shared_slab(page) {
            return Some(record);
        }
        if let Some(count) = self.counted(page) {
            *count -= 1;
            if *count > 0 {
                return Some(record);
            }
            self.on_page.remove(&page);
        }
        pages.set_recorded(page, false);
        Some(record)
    }

    /// The number of a page, if its blocks are counted.
    fn counted(&mut self, page: u64) -> Option<&mut u32> {
        if self.on_page.is_empty() { None } else { self.on_page.get_mut(&page) }
    }
}
