//! What the profiler does, tried from outside: segments made byte by byte, real compilers, the real `go tool pprof`.

mod discovery;
mod go_pprof;
mod hostile;
mod profiles;
mod reader;
mod reports;
mod segment;
mod symbols;
