//! Batches as they stand in etcd: the journal's frame behind epoch and number of parts.
//!
//! ```text
//! epoch (8) · parts (4) · frame, or nothing if it is in parts
//! ```
//!
//! Both numbers are big-endian. The frame's checksum is seeded with the epoch, and so covers it.

use bytes::{BufMut, Bytes, BytesMut};
use handfast_core::{Change, Epoch};
use hashbrown::HashMap;

use super::keys::Position;
use crate::store::journal::frame::{self, Seed, StoredChange};

/// The most bytes of one key's value. etcd refuses requests of more than 1.5 MiB by default.
pub(super) const VALUE_MAX: usize = 1 << 20;

const HEADER_BYTES: usize = 12;

/// A batch of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JournalBatch {
    pub(super) position: Position,
    frame: Bytes,
}

/// The value of a batch's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) epoch: Epoch,
    /// The number of parts that hold the frame; 0 if it is here.
    pub(super) parts: usize,
    pub(super) frame: Bytes,
}

impl JournalBatch {
    /// Returns `None` if the changes are too large for a frame.
    pub(super) fn encode(position: Position, changes: &[Change]) -> Option<Self> {
        let mut frame = Vec::new();
        let seed = Seed::new(position.epoch.0);
        frame::encode(changes, position.number, seed, &mut frame)?;
        Some(Self { position, frame: frame.into() })
    }

    /// Returns `None` if the frame is damaged or another batch's.
    pub(super) fn decode(position: Position, frame: Bytes) -> Option<Self> {
        let batch = Self { position, frame };
        batch.changes().map(|_| ())?;
        Some(batch)
    }

    pub(super) fn len(&self) -> usize {
        self.frame.len()
    }

    /// Returns what no single request can hold, in order; nothing for most batches.
    pub(super) fn parts(&self) -> impl ExactSizeIterator<Item = Bytes> {
        let count = if self.len() > VALUE_MAX { self.len().div_ceil(VALUE_MAX) } else { 0 };
        (0..count).map(|part| {
            let from = part * VALUE_MAX;
            self.frame.slice(from..self.len().min(from + VALUE_MAX))
        })
    }

    /// Returns the value of the batch's key.
    pub(super) fn entry(&self) -> Bytes {
        let parts = self.parts().len();
        let frame = if parts == 0 { &self.frame[..] } else { &[] };
        let mut value = BytesMut::with_capacity(HEADER_BYTES + frame.len());
        value.put_u64(self.position.epoch.0);
        value.put_u32(parts.try_into().expect("a frame has fewer than 2^32 bytes"));
        value.put_slice(frame);
        value.freeze()
    }

    /// Returns the changes, in order, or `None` if the frame is damaged or another batch's.
    pub(super) fn changes(&self) -> Option<Vec<StoredChange<'_>>> {
        let (frames, end) = frame::scan(&self.frame, Seed::new(self.position.epoch.0));
        let &[frame] = &frames[..] else { return None };
        let is_whole = frame.number == self.position.number && end == self.frame.len();
        if is_whole { frame.changes().collect() } else { None }
    }
}

impl Entry {
    pub(super) fn read(value: &Bytes) -> Option<Self> {
        let (epoch, rest) = value.split_first_chunk()?;
        let (parts, _) = rest.split_first_chunk()?;
        let parts = u32::from_be_bytes(*parts).try_into().ok()?;
        let epoch = Epoch(u64::from_be_bytes(*epoch));
        Some(Self { epoch, parts, frame: value.slice(HEADER_BYTES..) })
    }
}

/// Returns the last change of each key.
pub(super) fn newest(batches: &[JournalBatch]) -> HashMap<&[u8], Option<&[u8]>> {
    let whole = "a batch was encoded or decoded here";
    batches.iter().flat_map(|batch| batch.changes().expect(whole)).collect()
}

#[cfg(test)]
mod tests {
    use handfast_core::{LeaseId, RecordKey};

    use super::*;

    fn batch(changes: u64) -> JournalBatch {
        let changes: Vec<Change> =
            (0..changes).map(|id| Change::Delete(RecordKey::Lease(LeaseId(id)))).collect();
        JournalBatch::encode(Position { epoch: Epoch(7), number: 5 }, &changes).unwrap()
    }

    #[test]
    fn a_batch_is_read_back() {
        let small = batch(2);
        let entry = Entry::read(&small.entry()).unwrap();
        assert_eq!((entry.epoch, entry.parts), (Epoch(7), 0));
        let read = JournalBatch::decode(small.position, entry.frame.clone()).unwrap();
        assert_eq!(read, small);
        assert_eq!(newest(&[read]).len(), 2);
        let next = Position { number: 6, ..small.position };
        assert_eq!(JournalBatch::decode(next, entry.frame.clone()), None, "of another number");
        let later = Position { epoch: Epoch(8), ..small.position };
        assert_eq!(JournalBatch::decode(later, entry.frame.clone()), None, "of another epoch");
        let cut = entry.frame.slice(..entry.frame.len() - 8);
        assert_eq!(JournalBatch::decode(small.position, cut), None, "damaged");
    }

    #[test]
    fn a_large_batch_is_read_back_from_its_parts() {
        let large = batch(200_000);
        assert!(large.len() > 2 * VALUE_MAX);
        let entry = Entry::read(&large.entry()).unwrap();
        assert_eq!((entry.parts, entry.frame.len()), (large.parts().len(), 0));
        let parts: Vec<u8> = large.parts().flatten().collect();
        assert_eq!(JournalBatch::decode(large.position, parts.into()), Some(large));
    }
}
