//! Any bytes behind any compressor: bounded memory, and never a panic.
#![no_main]

use handfast_seata_wire::frame::{Frame, Header, MessageKind};
use handfast_seata_wire::{Dialect, Limits, decode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, &[u8])| {
    let (compressor, body) = input;
    let header =
        Header { version: 1, kind: MessageKind::Request, serializer: 1, compressor, id: 1 };
    let _ = decode(&Frame { header, head_map: &[], body }, &Dialect::default(), &Limits::default());
});
