//! Records as keys of etcd, split where one request cannot hold them.
//!
//! The first key's value begins with the number of further parts. Those are written before it and
//! deleted with it, so they are there whenever the first one names them. Parts beyond that number
//! are left from an earlier value and mean nothing.

use bytes::{BufMut, Bytes, BytesMut};
use handfast_etcd::{KeyValue, RequestOp, delete_range, put};

use super::batch::VALUE_MAX;
use super::keys::Keys;

/// The bytes of the number of further parts.
const COUNT_BYTES: usize = 2;

/// A step of a transaction, with the bytes that it takes, about.
#[derive(Debug)]
pub(super) struct SizedOperation {
    pub(super) bytes: usize,
    pub(super) operation: RequestOp,
}

/// Returns the steps that write a record, in order, or that delete it.
pub(super) fn steps(keys: &Keys, key: &[u8], value: Option<&[u8]>) -> Vec<SizedOperation> {
    let Some(value) = value else {
        let range = keys.all_of_record(key);
        let bytes = range.from.len() + range.to.len();
        return vec![SizedOperation { bytes, operation: delete_range(range) }];
    };
    let (first, rest) = value.split_at(value.len().min(VALUE_MAX - COUNT_BYTES));
    let rest: Vec<&[u8]> = rest.chunks(VALUE_MAX).collect();
    let count = u16::try_from(rest.len()).expect("a frame has fewer than 2^32 bytes");
    let mut steps: Vec<SizedOperation> =
        (1..).zip(rest).map(|(part, bytes)| write(keys.record_part(key, part), bytes)).collect();
    let mut value = BytesMut::with_capacity(COUNT_BYTES + first.len());
    value.put_u16(count);
    value.put_slice(first);
    steps.push(write(keys.record(key), &value));
    steps
}

fn write(key: Vec<u8>, value: &[u8]) -> SizedOperation {
    SizedOperation {
        bytes: key.len() + value.len(),
        operation: put(key, Bytes::copy_from_slice(value), 0),
    }
}

/// Puts records together from their keys, which come in order.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    unfinished: Option<Unfinished>,
}

#[derive(Debug)]
struct Unfinished {
    key: Vec<u8>,
    value: Vec<u8>,
    next: u16,
    last: u16,
}

/// A key and the bytes of its record.
pub(super) type StoredRecord = (Vec<u8>, Vec<u8>);

impl Assembler {
    /// Takes the next key. Returns a record when it is complete.
    ///
    /// # Errors
    /// Returns the key that is not one of a record, or not the one that must come next.
    pub(super) fn take(
        &mut self,
        keys: &Keys,
        found: KeyValue,
    ) -> Result<Option<StoredRecord>, String> {
        let wrong = || String::from_utf8_lossy(&found.key).into_owned();
        let (key, part) = keys.record_of(&found.key).ok_or_else(wrong)?;
        match (self.unfinished.take(), part) {
            (None, 0) => {
                let (last, value) = found.value.split_first_chunk().ok_or_else(wrong)?;
                let (value, last) = (value.to_vec(), u16::from_be_bytes(*last));
                Ok(self.go_on(Unfinished { key, value, next: 1, last }))
            }
            (Some(mut record), part) if record.key == key && record.next == part => {
                record.value.extend_from_slice(&found.value);
                record.next += 1;
                Ok(self.go_on(record))
            }
            // Left from an earlier value.
            (None, _) => Ok(None),
            (Some(_), _) => Err(wrong()),
        }
    }

    fn go_on(&mut self, record: Unfinished) -> Option<StoredRecord> {
        if record.next > record.last {
            return Some((record.key, record.value));
        }
        self.unfinished = Some(record);
        None
    }

    /// Returns whether no part is missing.
    pub(super) fn is_complete(&self) -> bool {
        self.unfinished.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> Keys {
        Keys::of("orders").unwrap()
    }

    fn found(key: Vec<u8>, value: &[u8]) -> KeyValue {
        KeyValue { key, value: value.to_vec().into(), ..KeyValue::default() }
    }

    fn assembled(found: Vec<KeyValue>) -> Result<Vec<StoredRecord>, String> {
        let mut assembler = Assembler::default();
        let mut records = Vec::new();
        for found in found {
            records.extend(assembler.take(&keys(), found)?);
        }
        if assembler.is_complete() { Ok(records) } else { Err("a part is missing".to_owned()) }
    }

    #[test]
    fn a_record_in_parts_is_put_together() {
        let (keys, part) = (keys(), vec![1; 3]);
        let first = found(keys.record(b"g1"), &[0, 2, 9]);
        let [second, third, left] = [1, 2, 3].map(|at| found(keys.record_part(b"g1", at), &part));
        let next = found(keys.record(b"g2"), &[0, 0, 8]);
        let all = vec![first.clone(), second.clone(), third, left.clone(), next.clone()];
        let g1 = [vec![9], part.clone(), part].concat();
        let expected = vec![(b"g1".to_vec(), g1), (b"g2".to_vec(), vec![8])];
        assert_eq!(assembled(all), Ok(expected));
        assert!(assembled(vec![first.clone(), second.clone(), next]).is_err(), "a part is missing");
        assert!(assembled(vec![first.clone(), second]).is_err(), "the last part is missing");
        assert!(assembled(vec![first, left]).is_err(), "a part in between is missing");
    }

    #[test]
    fn a_large_record_is_written_in_parts_and_its_first_part_last() {
        let large = vec![7; 2 * VALUE_MAX];
        let sizes: Vec<usize> =
            steps(&keys(), b"g1", Some(&large)).iter().map(|step| step.bytes).collect();
        assert_eq!(sizes.len(), 3);
        assert!(sizes[2] > VALUE_MAX && sizes.iter().all(|size| *size < VALUE_MAX + 100));
        assert_eq!(steps(&keys(), b"g1", Some(b"small")).len(), 1);
        assert_eq!(steps(&keys(), b"g1", None).len(), 1);
    }
}
