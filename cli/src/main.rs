//! The binary `handfast`. All code is in the library.

use std::io::{stderr, stdout};
use std::process::ExitCode;

use mimalloc::MiMalloc;

/// Requests, replies and records are many small allocations. The system's allocator took a fifth of
/// the server's time.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    handfast_cli::run(std::env::args_os(), &mut stdout(), &mut stderr()).into()
}
