//! Any bytes as a stored record: read, or refused with a reason. What was read is written as
//! something that reads the same.
#![no_main]

use handfast_server::store::codec::{decode, encode, encode_key};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&[u8], &[u8])| {
    let (key, value) = input;
    let Ok(record) = decode(key, value) else { return };
    let again = decode(&encode_key(record.key()), &encode(&record));
    assert_eq!(again.as_ref(), Ok(&record), "a record changes when it is written again");
});
