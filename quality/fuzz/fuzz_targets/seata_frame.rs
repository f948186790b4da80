//! Any bytes as a connection of a Seata client: frames, bodies and refusals. Never a panic, and
//! what was read is written as something that reads the same.
#![no_main]

use handfast_seata_wire::frame::{MessageKind, Piece, first_bytes, split, v0};
use handfast_seata_wire::{Dialect, Limits, decode, encode, refuse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let (limits, dialect) = (Limits::default(), Dialect::default());
    let _ = first_bytes(bytes);
    let _ = v0::split(bytes, &limits);
    let Ok(Piece::Frame(frame, _)) = split(bytes, &limits) else { return };
    let mut written = Vec::new();
    let received = match decode(&frame, &dialect, &limits) {
        Ok(received) => received,
        Err(error) => {
            let refused = refuse(&frame, "2.5.0", &error.to_string(), &dialect, &mut written);
            assert!(refused.is_ok(), "a refusal has no form: {refused:?}");
            return;
        }
    };
    let (kind, id, encoding) = (MessageKind::Answer, received.header.id, received.encoding);
    // Some values can be read that are never written, such as an empty XID in phase two.
    if encode(&received.message, kind, id, encoding, &dialect, &mut written).is_err() {
        return;
    }
    let Ok(Piece::Frame(frame, _)) = split(&written, &limits) else { panic!("it was written") };
    let again = decode(&frame, &dialect, &limits).map(|again| again.message);
    let Ok(again) = again else { panic!("what was written cannot be read: {again:?}") };
    let mut rewritten = Vec::new();
    encode(&again, kind, id, encoding, &dialect, &mut rewritten).expect("it was written before");
    assert_eq!(rewritten, written, "a message changes when it is written again");
});
