//! What requests and replies are made of: types of elements, shapes, names, refusals.

mod dtype;
mod layout;
mod name;
mod refusal;

pub use dtype::{DTYPES, Dtype};
pub use layout::Layout;
pub use name::{check_name, check_prefix};
pub use refusal::{Code, Refusal};
