//! The frames of a journal segment, one per batch.
//!
//! ```text
//! magic (4) · length of the changes (4) · checksum (8) · number (8) · changes · padding to 8 bytes
//! change: length of the key (1) · key · length of the value plus 1, or 0 to delete (4) · value
//! ```
//!
//! All numbers are little-endian. The checksum (XXH3, 64 bits, seeded) covers number and changes.
//! It distinguishes the next frame from one that was written in part and from one of an earlier use
//! of the segment. Pure: nothing here reads or writes files.

use handfast_core::Change;
use sha2::{Digest as _, Sha256};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::store::codec;

/// The first bytes of every frame of the first format.
const FIRST_MAGIC: [u8; 4] = *b"hfJ1";
const HEADER_BYTES: usize = 24;
/// The start of the part that the checksum covers.
const NUMBER_AT: usize = 16;
const ALIGNMENT: usize = 8;

/// The seed of every checksum of a journal, from which the magic of its frames is derived too. It
/// is secret: a client could otherwise put the bytes of a frame into a value, to be read when a
/// later frame ends before them. It could also send many values that only begin like a frame, so
/// that `has_later` computes the checksum of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) struct Seed {
    number: u64,
    magic: [u8; 4],
}

impl Seed {
    pub(in crate::store) fn new(number: u64) -> Self {
        let [a, b, c, d, ..] = xxh3_64_with_seed(b"magic", number).to_le_bytes();
        Self { number, magic: [a, b, c, d] }
    }

    /// Returns the seed of a cluster with this id, its first bytes.
    pub(in crate::store) fn of_cluster(id: &[u8]) -> Self {
        Self::new(u64::from_le_bytes(id.first_chunk().copied().unwrap_or_default()))
    }

    /// Returns a text that no other journal has, and that does not give the seed away.
    pub(in crate::store) fn identity(self) -> String {
        let digest =
            Sha256::new().chain_update(b"handfast journal").chain_update(self.number.to_le_bytes());
        digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns the seed of a journal whose frames begin with the magic of the first format.
    pub(in crate::store) fn of_first_format(number: u64) -> Self {
        Self { number, magic: FIRST_MAGIC }
    }

    /// Returns the seed for the frames that are written after a migration.
    pub(in crate::store) fn of_later_frames(self) -> Self {
        Self::new(self.number)
    }

    pub(in crate::store) fn number(self) -> u64 {
        self.number
    }

    fn checksum(self, bytes: &[u8]) -> u64 {
        xxh3_64_with_seed(bytes, self.number)
    }
}

/// A batch as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) struct Frame<'a> {
    /// One more than the number of the batch before it.
    pub(in crate::store) number: u64,
    changes: &'a [u8],
}

/// A key and its value; `None` deletes the key.
pub(in crate::store) type StoredChange<'a> = (&'a [u8], Option<&'a [u8]>);

/// Replaces the content of the buffer by the batch as a frame.
///
/// Returns `None` if the batch is too large for a frame; then the buffer holds no frame.
pub(in crate::store) fn encode(
    changes: &[Change],
    number: u64,
    seed: Seed,
    frame: &mut Vec<u8>,
) -> Option<()> {
    frame.clear();
    frame.resize(HEADER_BYTES, 0);
    changes.iter().try_for_each(|change| append(change, frame))?;
    let length = u32::try_from(frame.len() - HEADER_BYTES).ok()?;
    frame[..4].copy_from_slice(&seed.magic);
    frame[4..8].copy_from_slice(&length.to_le_bytes());
    frame[NUMBER_AT..HEADER_BYTES].copy_from_slice(&number.to_le_bytes());
    let checksum = seed.checksum(&frame[NUMBER_AT..]);
    frame[8..NUMBER_AT].copy_from_slice(&checksum.to_le_bytes());
    // `has_later` looks for the beginning of a frame at these places alone.
    frame.resize(frame.len().next_multiple_of(ALIGNMENT), 0);
    Some(())
}

fn append(change: &Change, frame: &mut Vec<u8>) -> Option<()> {
    let key_at = frame.len();
    frame.push(0);
    codec::append_key(change.key(), frame);
    frame[key_at] = u8::try_from(frame.len() - key_at - 1).ok()?;
    let value_at = frame.len();
    frame.extend_from_slice(&[0; 4]);
    if let Change::Put(record) = change {
        codec::append(record, frame);
        let length = u32::try_from(frame.len() - value_at - 3).ok()?;
        frame[value_at..value_at + 4].copy_from_slice(&length.to_le_bytes());
    }
    Some(())
}

/// Returns the consecutively numbered frames at the beginning of a segment, and the offset at which
/// they end.
pub(in crate::store) fn scan(segment: &[u8], seed: Seed) -> (Vec<Frame<'_>>, usize) {
    let (mut frames, mut at) = (Vec::<Frame<'_>>::new(), 0);
    while let Some((frame, length)) = segment.get(at..).and_then(|bytes| read(bytes, seed)) {
        // A frame of an earlier use of the segment may begin exactly where the last one ends.
        if frames.last().is_some_and(|last| frame.number != last.number + 1) {
            break;
        }
        frames.push(frame);
        at += length;
    }
    (frames, at)
}

/// Returns whether there is a frame behind `from` with a number above `last`. Such a frame was
/// written after the bytes that `scan` could not read, so those are damaged and not unfinished.
pub(in crate::store) fn has_later(segment: &[u8], from: usize, last: u64, seed: Seed) -> bool {
    beginnings(segment, from, last, seed).any(|bytes| read(bytes, seed).is_some())
}

/// Returns the places at which a frame with a number above `last` may begin. Other bytes match only
/// by chance, one place in four billion.
fn beginnings(segment: &[u8], from: usize, last: u64, seed: Seed) -> impl Iterator<Item = &[u8]> {
    let places = (from..segment.len()).step_by(ALIGNMENT).map(|at| &segment[at..]);
    places.filter(move |bytes| number(bytes, seed).is_some_and(|number| number > last))
}

/// Returns the frame at the beginning of the bytes, and its length.
fn read(bytes: &[u8], seed: Seed) -> Option<(Frame<'_>, usize)> {
    let number = number(bytes, seed)?;
    let length = u32::from_le_bytes(bytes[4..8].try_into().ok()?) as usize;
    let checksum = u64::from_le_bytes(bytes[8..NUMBER_AT].try_into().ok()?);
    let end = HEADER_BYTES.checked_add(length)?;
    if seed.checksum(bytes.get(NUMBER_AT..end)?) != checksum {
        return None;
    }
    let changes = &bytes[HEADER_BYTES..end];
    Some((Frame { number, changes }, end.next_multiple_of(ALIGNMENT)))
}

/// Returns the number in the header at the beginning of the bytes, if they begin like a frame. The
/// checksum is not verified.
fn number(bytes: &[u8], seed: Seed) -> Option<u64> {
    let header = bytes.get(..HEADER_BYTES)?;
    let number = header[NUMBER_AT..].try_into().ok()?;
    header.starts_with(&seed.magic).then(|| u64::from_le_bytes(number))
}

impl<'a> Frame<'a> {
    /// Returns the bytes of its changes.
    pub(in crate::store) fn length(self) -> u64 {
        self.changes.len() as u64
    }

    /// Returns the batch's changes, in order. The last item is `None` if the bytes are malformed,
    /// which the checksum rules out.
    pub(in crate::store) fn changes(self) -> impl Iterator<Item = Option<StoredChange<'a>>> {
        let mut rest = self.changes;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let change = take_change(&mut rest);
            if change.is_none() {
                rest = &[];
            }
            Some(change)
        })
    }
}

fn take_change<'a>(rest: &mut &'a [u8]) -> Option<StoredChange<'a>> {
    let (&key_length, after) = rest.split_first()?;
    let (key, after) = after.split_at_checked(key_length.into())?;
    let (length, after) = after.split_first_chunk()?;
    let Some(length) = (u32::from_le_bytes(*length) as usize).checked_sub(1) else {
        *rest = after;
        return Some((key, None));
    };
    let (value, after) = after.split_at_checked(length)?;
    *rest = after;
    Some((key, Some(value)))
}

#[cfg(test)]
mod tests {
    use handfast_core::{BranchId, RecordKey, Xid};
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const FIRST: Seed = Seed { number: 77, magic: FIRST_MAGIC };

    fn seed() -> Seed {
        Seed::new(77)
    }

    fn delete(xid: u64) -> Change {
        Change::Delete(RecordKey::Branch(Xid(xid), BranchId(xid)))
    }

    /// Returns a segment of consecutive frames, and where each ends, without its padding.
    fn segment(batches: &[Vec<u64>], first: u64) -> (Vec<u8>, Vec<usize>) {
        let (mut segment, mut ends, mut frame) = (Vec::new(), Vec::new(), Vec::new());
        for (batch, number) in batches.iter().zip(first..) {
            let changes: Vec<Change> = batch.iter().map(|xid| delete(*xid)).collect();
            encode(&changes, number, seed(), &mut frame).unwrap();
            ends.push(segment.len() + HEADER_BYTES + batch.len() * (1 + 17 + 4));
            segment.extend_from_slice(&frame);
        }
        (segment, ends)
    }

    fn keys(frame: Frame<'_>) -> Vec<u64> {
        let xid = |key: &[u8]| u64::from_be_bytes(key[1..9].try_into().unwrap());
        frame.changes().map(|change| xid(change.unwrap().0)).collect()
    }

    proptest! {
        #[test]
        fn written_frames_are_read_back(batches in vec(vec(any::<u64>(), 0..5), 0..6)) {
            let (segment, _) = segment(&batches, 7);
            let (frames, end) = scan(&segment, seed());
            prop_assert_eq!(end, segment.len());
            prop_assert_eq!(frames.iter().map(|frame| keys(*frame)).collect::<Vec<_>>(), batches);
        }

        /// Wherever a write was cut off or a bit has changed, all frames before that place are
        /// read, and no incomplete frame is.
        #[test]
        fn frames_behind_damage_are_not_read(
            batches in vec(vec(any::<u64>(), 0..5), 1..6),
            place in any::<prop::sample::Index>(),
            flip in 1..=255_u8,
        ) {
            let (mut segment, ends) = segment(&batches, 1);
            let place = place.index(segment.len());
            let whole = ends.iter().filter(|end| **end <= place).count();
            let (cut, _) = scan(&segment[..place], seed());
            prop_assert_eq!(cut.len(), whole);
            segment[place] ^= flip;
            let (frames, end) = scan(&segment, seed());
            // A change in the padding has no effect.
            prop_assert!(frames.len() == whole || frames.len() == ends.len());
            let last = frames.last().map_or(0, |frame| frame.number);
            let later = has_later(&segment, end, last, seed());
            prop_assert_eq!(later, frames.len() + 1 < ends.len());
        }
    }

    #[test]
    fn frames_of_an_earlier_use_are_not_read() {
        let (old, _) = segment(&[vec![1], vec![2], vec![3]], 1);
        let (new, ends) = segment(&[vec![4]], 4);
        let next = ends[0].next_multiple_of(ALIGNMENT);
        let mixed = [&new[..], &old[next..]].concat();
        let (frames, end) = scan(&mixed, seed());
        assert_eq!((frames.len(), end), (1, next));
        assert!(!has_later(&mixed, end, 4, seed()));
    }

    /// A client does not know the seed, so it cannot forge a frame, wherever its bytes are stored.
    #[test]
    fn a_frame_with_another_seed_is_not_read() {
        let (genuine, _) = segment(&[vec![1]], 1);
        let mut forged = Vec::new();
        encode(&[delete(2)], 2, Seed::new(0), &mut forged).unwrap();
        let mixed = [genuine.clone(), forged].concat();
        let (frames, end) = scan(&mixed, seed());
        assert_eq!((frames.len(), end), (1, genuine.len()));
        assert!(!has_later(&mixed, end, 1, seed()));
    }

    /// Regression: a segment full of forged headers, each announcing a long frame, took minutes of
    /// checksums.
    #[test]
    fn forged_headers_are_not_checksummed() {
        let header = [&FIRST_MAGIC[..], &8_000_000_u32.to_le_bytes(), &[0; 8], &[1; 8]].concat();
        let segment = header.repeat((16 << 20) / HEADER_BYTES);
        let looked_into = |seed| beginnings(&segment, 0, 7, seed).count();
        assert_eq!(looked_into(seed()), 0);
        assert_eq!(looked_into(FIRST), segment.len() / HEADER_BYTES);
    }

    #[test]
    fn frames_of_the_first_format_are_read() {
        let mut segment = Vec::new();
        encode(&[delete(1)], 1, FIRST, &mut segment).unwrap();
        assert_eq!(segment[..4], *b"hfJ1");
        assert_eq!(scan(&segment, FIRST).0.len(), 1);
        assert!(has_later(&segment, 0, 0, FIRST));
        assert_eq!(scan(&segment, seed()).0.len(), 0);
        assert!(!has_later(&segment, 0, 0, seed()));
    }
}
