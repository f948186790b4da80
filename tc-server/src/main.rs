//! The binary: everything is in the library.

use std::io::{stderr, stdout};
use std::process::ExitCode;

fn main() -> ExitCode {
    handfast_server::cli::run(std::env::args_os(), &mut stdout(), &mut stderr()).into()
}
