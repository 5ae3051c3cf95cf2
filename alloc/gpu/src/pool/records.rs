//! Which blocks are recorded: found again when they are freed, at no cost to the others.
//!
//! The page that a recorded block begins on carries a flag, so that a free that finds none looks no further. Small
//! blocks that share pages come from slabs of recorded blocks only ([`crate::small::SAMPLED`]), whose pages have the flag
//! for good; larger ones have their pages to themselves.

use crate::large::AddressMap;
use crate::small::{PAGE, Pages};
use crate::watch::Token;

/// The recorded blocks of a pool.
#[derive(Default)]
pub struct Records {
    tokens: AddressMap<Token>,
    /// How many begin on a page, of pages that may have several and are no slab's: where a stream has no slabs.
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
            *self.on_page.entry(page).or_default() += 1;
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
        if !self.on_page.is_empty()
            && let Some(count) = self.on_page.get_mut(&page)
        {
            *count -= 1;
            if *count > 0 {
                return Some(token);
            }
            self.on_page.remove(&page);
        }
        pages.set_recorded(page, false);
        Some(token)
    }
}
