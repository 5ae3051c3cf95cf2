//! Full traces: programs whose every allocation is known, recorded and reported.

mod attaching;
mod children;
mod counts;
mod files;
mod harness;
