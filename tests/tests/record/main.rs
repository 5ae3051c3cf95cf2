//! Full traces: programs whose every allocation is known, recorded and reported.

mod attaching;
mod counts;
mod files;
mod harness;
