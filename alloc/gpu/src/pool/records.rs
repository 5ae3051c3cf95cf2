//! Which blocks are recorded: found again when they are freed, at no cost to the others.
//!
//! The page that a recorded block begins on carries a flag, so that a free that finds none looks no further. Small
//! blocks that share pages come from slabs of recorded blocks only ([`crate::small::SAMPLED`]), whose pages have the flag
//! for good. Of larger ones, one at most begins on a page. Where a stream has no slabs, small blocks begin beside each
//! other and beside a larger one, and are counted.

use crate::large::AddressMap;
use crate::small::{PAGE, Pages};
use crate::watch::Token;

/// The recorded blocks of a pool.
#[derive(Default)]
pub struct Records {
    tokens: AddressMap<Token>,
    /// How many begin on a page, of pages that have had a small one that is no slab's since the page had none.
    on_page: AddressMap<u32>,
}

impl Records {
    /// Notes that a block of so many bytes is recorded.
    pub fn add(&mut self, pages: &Pages, address: u64, bytes: u64, token: Token) {
        self.tokens.insert(address, token);
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

    /// The token of a block that is about to be freed, if it is recorded.
    pub fn take(&mut self, pages: &Pages, address: u64) -> Option<Token> {
        let token = self.tokens.remove(&address)?;
        let page = address / PAGE * PAGE;
        if pages.is_shared_slab(page) {
            return Some(token);
        }
        if let Some(count) = self.counted(page) {
            *count -= 1;
            if *count > 0 {
                return Some(token);
            }
            self.on_page.remove(&page);
        }
        pages.set_recorded(page, false);
        Some(token)
    }

    /// The number of a page, if its blocks are counted.
    fn counted(&mut self, page: u64) -> Option<&mut u32> {
        if self.on_page.is_empty() { None } else { self.on_page.get_mut(&page) }
    }
}
