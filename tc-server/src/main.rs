//! The binary `handfast-server`: the coordinator and its operator's commands, without the commands
//! that need the client library. All code is in the library.

use std::io::{stderr, stdout};
use std::process::ExitCode;

use mimalloc::MiMalloc;

/// Requests, replies and records are many small allocations. The system's allocator took a fifth of
/// the server's time.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    handfast_server::cli::run(std::env::args_os(), &mut stdout(), &mut stderr()).into()
}

#[cfg(test)]
mod tests {
    /// Regression: mimalloc's third version took 224 bytes for each of millions of globals, which
    /// have 192.
    #[test]
    fn an_allocation_takes_what_is_asked_for() {
        let boxes: Vec<Box<[u64; 24]>> = (0..1_000).map(|_| Box::new([0; 24])).collect();
        let mut places: Vec<usize> = boxes.iter().map(|it| (&raw const **it).addr()).collect();
        places.sort_unstable();
        let least = places.windows(2).map(|pair| pair[1] - pair[0]).min();
        assert_eq!(least, Some(192));
    }
}
