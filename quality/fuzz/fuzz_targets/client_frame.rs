//! Any bytes as a message from a client: decoded, mapped and decided, or refused. Never a panic.
#![no_main]

use handfast_server::grpc::fuzz_frame;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| fuzz_frame(bytes));
