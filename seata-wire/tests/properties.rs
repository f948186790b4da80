//! Written messages are read back, for every message, serializer, compressor and version, and no
//! bytes cause a panic.
#![expect(clippy::unwrap_used, clippy::panic, reason = "in a test they are the report")]

mod arbitrary;

use handfast_seata_wire::frame::{MessageKind, Piece, first_bytes, split, v0};
use handfast_seata_wire::message::{Message, MessageType, Registered};
use handfast_seata_wire::{
    ClientVersion, Compression, Dialect, Encoding, Family, FrameVersion, Limits, Lz4Form, Package,
    Serializer, decode, encode, refuse,
};
use proptest::prelude::*;

use crate::arbitrary::{Values, message, part};

fn compression() -> impl Strategy<Value = Compression> {
    prop::sample::select(vec![
        Compression::None,
        Compression::Gzip,
        Compression::Zip,
        Compression::Lz4(Lz4Form::Blocks),
        Compression::Lz4(Lz4Form::Frame),
        Compression::Deflater,
        Compression::Zstd,
    ])
}

/// Returns the dialect of the newest client, which knows every value.
fn dialect() -> impl Strategy<Value = Dialect> {
    prop::sample::select(vec![FrameVersion::V1, FrameVersion::V2]).prop_map(|frame| Dialect {
        frame,
        client: ClientVersion::new(2, 6, 0),
        family: Family::Java,
    })
}

fn round_trip(message: &Message, id: i32, encoding: Encoding, dialect: &Dialect) {
    let limits = Limits::default();
    let mut bytes = b"before".to_vec();
    encode(message, MessageKind::Answer, id, encoding, dialect, &mut bytes).unwrap();
    let frame = split(&bytes[6..], &limits).unwrap();
    let Piece::Frame(frame, length) = frame else { panic!("{frame:?}") };
    assert_eq!((length, frame.header.id), (bytes.len() - 6, id));
    let received = decode(&frame, dialect, &limits).unwrap();
    assert_eq!(received.message, read_back(message, encoding, dialect));
    assert_eq!(received.encoding, encoding);
}

/// Reads a message back. The reason of a refused registration is not in every layout.
fn read_back(message: &Message, encoding: Encoding, dialect: &Dialect) -> Message {
    let mut message = message.clone();
    let forget = |parts: &mut Vec<Message>| {
        parts.iter_mut().for_each(|part| forget_reason(part, encoding, dialect));
    };
    if let Message::MergedWarp(it) = &mut message {
        forget(&mut it.parts);
    } else if let Message::MergeResult(it) = &mut message {
        forget(&mut it.parts);
    } else if let Message::BatchResult(it) = &mut message {
        forget(&mut it.parts);
    } else {
        forget_reason(&mut message, encoding, dialect);
    }
    message
}

fn forget_reason(message: &mut Message, encoding: Encoding, dialect: &Dialect) {
    let has_reason = |is_in_v2: bool| {
        encoding.serializer != Serializer::Seata || is_in_v2 && dialect.frame == FrameVersion::V2
    };
    let forget = |it: &mut Registered| it.outcome = it.outcome.clone().map_err(|_| String::new());
    if let Message::RegisterTmResult(it) | Message::RegisterRmResult(it) = message
        && !has_reason(true)
    {
        forget(it);
    } else if let Message::UnregisterRmResult(it) = message
        && !has_reason(false)
    {
        forget(it);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn seata_is_read_as_it_was_written(
        message in message(Values::All),
        id in any::<i32>(),
        compression in compression(),
        dialect in dialect(),
    ) {
        let serializer = Serializer::Seata;
        round_trip(&message, id, Encoding { serializer, compression }, &dialect);
    }

    #[test]
    fn protobuf_is_read_as_it_was_written(
        message in message(Values::OfProtobuf),
        id in any::<i32>(),
        compression in compression(),
        package in prop::sample::select(vec![Package::IoSeata, Package::OrgApacheSeata]),
        dialect in dialect(),
    ) {
        let serializer = Serializer::Protobuf(package);
        round_trip(&message, id, Encoding { serializer, compression }, &dialect);
    }

    /// A frame is incomplete until its last byte, and the bytes behind it are not touched.
    #[test]
    fn a_frame_ends_at_its_length(message in message(Values::All), at in any::<prop::sample::Index>()) {
        let (dialect, limits) = (Dialect::default(), Limits::default());
        let mut bytes = Vec::new();
        encode(&message, MessageKind::Request, 1, Encoding::default(), &dialect, &mut bytes).unwrap();
        let end = at.index(bytes.len());
        prop_assert_eq!(split(&bytes[..end], &limits), Ok(Piece::Incomplete));
        let length = bytes.len();
        bytes.extend(b"\xDA\xDAtail");
        let is_whole = matches!(split(&bytes, &limits), Ok(Piece::Frame(_, taken)) if taken == length);
        prop_assert!(is_whole);
    }

    #[test]
    fn version_0_is_read_as_it_was_written(message in part(Values::OldestClient), id in any::<u64>()) {
        let message = read_back(&message, Encoding::default(), &Dialect::default());
        let frame = v0::Frame { is_request: true, id, message };
        let mut bytes = Vec::new();
        v0::write(&frame, &mut bytes).unwrap();
        let length = bytes.len();
        prop_assert_eq!(v0::split(&bytes, &Limits::default()), Ok(Some((frame, length))));
    }

    /// Every combination of type, serializer and damage gives a result, and no panic.
    #[test]
    fn arbitrary_bytes_never_panic(
        start in prop::sample::select(vec![&b""[..], b"\xDA\xDA\x01", b"\xDA\xDA\x00\x90\x00"]),
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let bytes = [start, &bytes].concat();
        let limits = Limits::default();
        let _ = first_bytes(&bytes);
        let _ = v0::split(&bytes, &limits);
        read_all(&bytes, &limits);
    }

    /// Frames with correct lengths and damaged content.
    #[test]
    fn damaged_frames_never_panic(
        message in message(Values::OfProtobuf),
        serializer in prop::sample::select(vec![
            Serializer::Seata,
            Serializer::Protobuf(Package::OrgApacheSeata),
        ]),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let encoding = Encoding { serializer, ..Encoding::default() };
        let dialect = Dialect::default();
        let mut bytes = Vec::new();
        encode(&message, MessageKind::Request, 1, encoding, &dialect, &mut bytes).unwrap();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        read_all(&bytes, &Limits::default());
    }
}

fn read_all(bytes: &[u8], limits: &Limits) {
    let Ok(Piece::Frame(frame, _)) = split(bytes, limits) else { return };
    for dialect in [Dialect::default(), Dialect { family: Family::Go, ..Dialect::default() }] {
        if let Err(error) = decode(&frame, &dialect, limits) {
            assert!(error.code().starts_with("HF-SEATA-"));
            let mut answer = Vec::new();
            refuse(&frame, "2.5.0", &error.to_string(), &dialect, &mut answer).unwrap();
        }
    }
}

#[test]
fn every_type_is_generated() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..2_000 {
        let tree = message(Values::All).new_tree(&mut runner).unwrap();
        seen.extend(proptest::strategy::ValueTree::current(&tree).kind());
    }
    assert_eq!(seen, MessageType::all().collect());
}
