//! The mathematics of sampling: how many bytes until the next sample, and how often samples may come.

pub mod budget;
pub mod governor;
pub mod large_budgets;
