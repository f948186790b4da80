//! Records as bytes: one version byte, then a protobuf message; keys short and in order.
//!
//! Every version ever written stays readable: bytes of each are kept in `tests/records/`. Bytes
//! that cannot be read give an error with the reason, never a guess and never a panic.

mod branch;
mod closure;
mod fields;
mod global;
mod lease;
mod recurring;
mod saga;
mod trace;

use handfast_core::{BranchId, Change, LeaseId, Record, RecordKey, Xid};
use prost::Message;

use branch::StoredBranch;
use closure::StoredClosure;
use fields::Fields;
use global::StoredGlobal;
use lease::StoredLease;
use recurring::Recurring;
use saga::StoredSaga;

/// The version of records that version 1 can express.
const VERSION: u8 = 1;

/// The version of sagas with children. A program that knows version 1 alone would take the steps of
/// children for its saga's own.
const VERSION_OF_CHILDREN: u8 = 2;

const GLOBAL: u8 = b'g';
/// The first byte of the keys of branches.
pub(super) const BRANCH: u8 = b'b';
const SAGA: u8 = b's';
const LEASE: u8 = b'l';
const CLOSURE: u8 = b'!';

/// Bytes that are no record of a known version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The key is no record key: the directory belongs to another program, or is damaged.
    #[error("key {0:02x?} is no record key")]
    Key(Vec<u8>),
    /// The value was written by a later version.
    #[error("the record is of version {0}, which this program does not know")]
    Version(u8),
    /// There is no value.
    #[error("the record is empty")]
    Empty,
    /// The value is no protobuf message of its version.
    #[error("the record is damaged: {0}")]
    Message(#[from] prost::DecodeError),
    /// A field holds a number that its version does not know.
    #[error("the record is damaged: {field} is {value}")]
    Field {
        /// The field.
        field: &'static str,
        /// Its value.
        value: i64,
    },
}

/// Encodes a change as key and value. A change without a value deletes.
#[must_use]
pub fn encode_change(change: &Change) -> (Vec<u8>, Option<Vec<u8>>) {
    match change {
        Change::Put(record) => (encode_key(record.key()), Some(encode(record))),
        Change::Delete(key) => (encode_key(*key), None),
    }
}

/// Returns the bytes of the key under which a record is stored.
#[must_use]
pub fn encode_key(key: RecordKey) -> Vec<u8> {
    let mut bytes = Vec::new();
    append_key(key, &mut bytes);
    bytes
}

/// Like [`encode_key`], but appends to a buffer.
pub fn append_key(key: RecordKey, bytes: &mut Vec<u8>) {
    // Numbers are big-endian, so that keys are in the order of ids and the branches of a global are
    // neighbours.
    match key {
        RecordKey::Global(xid) => {
            bytes.push(GLOBAL);
            bytes.extend_from_slice(&xid.0.to_be_bytes());
        }
        RecordKey::Branch(xid, branch) => {
            bytes.push(BRANCH);
            bytes.extend_from_slice(&xid.0.to_be_bytes());
            bytes.extend_from_slice(&branch.0.to_be_bytes());
        }
        RecordKey::Saga(xid) => {
            bytes.push(SAGA);
            bytes.extend_from_slice(&xid.0.to_be_bytes());
        }
        RecordKey::Lease(id) => {
            bytes.push(LEASE);
            bytes.extend_from_slice(&id.0.to_be_bytes());
        }
        RecordKey::Closure => bytes.push(CLOSURE),
    }
}

/// Returns the bytes of a record. Its ids are in the key.
#[must_use]
pub fn encode(record: &Record) -> Vec<u8> {
    let mut bytes = Vec::new();
    append(record, &mut bytes);
    bytes
}

/// Like [`encode`], but appends to a buffer.
pub fn append(record: &Record, bytes: &mut Vec<u8>) {
    bytes.push(version(record));
    let mut fields = Fields::behind(bytes);
    match record {
        Record::Global(global) => global::write(global, &mut fields),
        Record::Branch(branch) => branch::write(branch, &mut fields),
        Record::Saga(saga) => saga::write(saga, &mut fields),
        Record::Lease(lease) => lease::write(lease, &mut fields),
        Record::Closure(closure) => closure::write(closure, &mut fields),
    }
}

/// Decodes the record that was stored under this key.
///
/// # Errors
///
/// When key or value are not what a known version writes.
pub fn decode(key: &[u8], value: &[u8]) -> Result<Record, CodecError> {
    Decoder::default().decode(key, value)
}

/// Decodes many records, which share what recurs in them.
#[derive(Debug, Default)]
pub struct Decoder {
    recurring: Recurring,
}

impl Decoder {
    /// Decodes as [`decode`] does.
    ///
    /// # Errors
    ///
    /// As [`decode`].
    pub fn decode(&mut self, key: &[u8], value: &[u8]) -> Result<Record, CodecError> {
        let key = decode_key(key)?;
        let message = match (key, value) {
            (_, [VERSION, message @ ..]) => message,
            (RecordKey::Saga(_), [VERSION_OF_CHILDREN, message @ ..]) => message,
            (_, [other, ..]) => return Err(CodecError::Version(*other)),
            (_, []) => return Err(CodecError::Empty),
        };
        match key {
            RecordKey::Global(xid) => {
                let stored = StoredGlobal::decode(message)?;
                Ok(Record::Global(stored.read(xid, &mut self.recurring)?))
            }
            RecordKey::Saga(xid) => Ok(Record::Saga(StoredSaga::decode(message)?.read(xid)?)),
            RecordKey::Lease(id) => Ok(Record::Lease(StoredLease::decode(message)?.read(id)?)),
            RecordKey::Closure => Ok(Record::Closure(StoredClosure::decode(message)?.read()?)),
            RecordKey::Branch(xid, id) => {
                let stored = StoredBranch::decode(message)?;
                Ok(Record::Branch(stored.read(xid, id, &mut self.recurring)?))
            }
        }
    }
}

fn version(record: &Record) -> u8 {
    match record {
        Record::Saga(saga) if !saga.definition.children.is_empty() => VERSION_OF_CHILDREN,
        Record::Global(_)
        | Record::Branch(_)
        | Record::Saga(_)
        | Record::Lease(_)
        | Record::Closure(_) => VERSION,
    }
}

/// Returns the key that [`encode_key`] has encoded.
pub(super) fn decode_key(key: &[u8]) -> Result<RecordKey, CodecError> {
    match key {
        [GLOBAL, xid @ ..] => array(xid).map(|xid| RecordKey::Global(Xid(u64::from_be_bytes(xid)))),
        [SAGA, xid @ ..] => array(xid).map(|xid| RecordKey::Saga(Xid(u64::from_be_bytes(xid)))),
        [LEASE, id @ ..] => array(id).map(|id| RecordKey::Lease(LeaseId(u64::from_be_bytes(id)))),
        [BRANCH, ids @ ..] => ids.split_first_chunk().and_then(|(xid, branch)| {
            let branch = BranchId(u64::from_be_bytes(array(branch)?));
            Some(RecordKey::Branch(Xid(u64::from_be_bytes(*xid)), branch))
        }),
        [CLOSURE] => Some(RecordKey::Closure),
        _ => None,
    }
    .ok_or_else(|| CodecError::Key(key.to_vec()))
}

fn array(bytes: &[u8]) -> Option<[u8; 8]> {
    bytes.try_into().ok()
}

fn unknown(field: &'static str, value: impl Into<i64>) -> CodecError {
    CodecError::Field { field, value: value.into() }
}

fn mode_number(mode: handfast_core::Mode) -> u32 {
    use handfast_core::Mode;
    match mode {
        Mode::At => 1,
        Mode::Tcc => 2,
        Mode::Xa => 3,
        Mode::Saga => 4,
        Mode::TwoPhase => 5,
    }
}

fn mode(number: u32) -> Result<handfast_core::Mode, CodecError> {
    use handfast_core::Mode;
    match number {
        1 => Ok(Mode::At),
        2 => Ok(Mode::Tcc),
        3 => Ok(Mode::Xa),
        4 => Ok(Mode::Saga),
        5 => Ok(Mode::TwoPhase),
        other => Err(unknown("mode", other)),
    }
}
