//! Bodies compressed by the libraries of Java clients.
#![expect(clippy::unwrap_used, clippy::panic, reason = "in a test they are the report")]

mod support;

use handfast_seata_wire::frame::{Frame, Header, MessageKind};
use handfast_seata_wire::{Dialect, Limits, WireError, decode};
use proptest::prelude::*;

use crate::support::{vector, vectors};

/// Decompresses a body, which is not visible outside a message. A body whose first two bytes are no
/// message type is refused with that number, so the refusal shows the decompressed bytes.
fn decompress(name: &str, body: &[u8], limits: &Limits) -> WireError {
    let compressor = match name.split('_').next().unwrap() {
        "gzip" => 1,
        "zip" => 2,
        "bzip2" => 4,
        "lz4" => 5,
        "deflater" => 6,
        "zstd" => 7,
        other => panic!("{other} is no compressor"),
    };
    let header =
        Header { version: 1, kind: MessageKind::Request, serializer: 1, compressor, id: 1 };
    decode(&Frame { header, head_map: &[], body }, &Dialect::default(), limits).unwrap_err()
}

/// Returns the length of a vector's content.
fn length(name: &str) -> usize {
    match name {
        "bzip2_blocks" => 300_000,
        name if name.ends_with("_long") => 12_000,
        _ => 2,
    }
}

#[test]
fn bodies_are_read_completely() {
    for (name, body) in vectors("compressed.hex") {
        let code = if length(&name) == 2 { 0x6161 } else { 0x7365 };
        let exact = Limits { body_bytes_max: length(&name), ..Limits::default() };
        let expected = WireError::UnknownMessage { code };
        assert_eq!(decompress(&name, &body, &exact), expected, "{name}");
        let low = Limits { body_bytes_max: length(&name) - 1, ..Limits::default() };
        let refused = decompress(&name, &body, &low);
        assert_eq!(refused.code(), "HF-SEATA-TOO-LARGE", "{name}: {refused}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    /// A damaged body is refused or read as another message.
    #[test]
    fn damaged_bodies_never_panic(
        which in 0_usize..64,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let all = vectors("compressed.hex");
        let (name, mut body) = all[which % all.len()].clone();
        for (at, byte) in damage {
            let at = at.index(body.len());
            body[at] = byte;
        }
        let end = if cut.index(4) == 0 { cut.index(body.len()) } else { body.len() };
        decompress(&name, &body[..end], &Limits::default());
    }
}

#[test]
fn an_empty_compressed_body_is_refused() {
    let body = vector("compressed.hex", "gzip");
    for name in ["gzip", "zip", "bzip2", "lz4", "deflater", "zstd"] {
        decompress(name, b"", &Limits::default());
        decompress(name, &body[..5], &Limits::default());
    }
}
