//! Reads a backup, and refuses one that is not whole.

use std::io::{self, Read};

use super::BackupHead;
use super::format::{FIRST_SEED, FrameKind, HEADER_BYTES, MAGIC, checksum};
use crate::store::StoredRecord;

/// Why a backup cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The file itself cannot be read.
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// It is no backup, or one of a later version, or not as it was written.
    #[error("it is no whole backup: {0}")]
    Damaged(String),
}

impl BackupError {
    /// Returns the stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unreadable(_) => "HF-CLI-FILE",
            Self::Damaged(_) => "HF-TC-BACKUP-DAMAGED",
        }
    }
}

/// Reads a backup to its end. Calls `take` with each record before it is known whether the rest is
/// whole. Returns its head and the number of records.
///
/// # Errors
///
/// The bytes cannot be read, or are not all of a backup and nothing else.
pub fn read_backup(
    input: impl Read,
    mut take: impl FnMut(StoredRecord),
) -> Result<(BackupHead, u64), BackupError> {
    let mut frames = Frames { input, before: FIRST_SEED, number: 0 };
    frames.read_magic()?;
    let (FrameKind::Head, head) = frames.next()? else { return Err(damaged("it has no head")) };
    let head = serde_json::from_slice(&head);
    let head = head.map_err(|error| damaged(&format!("its head cannot be read: {error}")))?;
    let mut records = 0;
    loop {
        match frames.next()? {
            (FrameKind::Records, body) => records += take_records(&body, &mut take)?,
            (FrameKind::End, body) if body == u64::to_le_bytes(records) => break,
            (FrameKind::End, _) => return Err(damaged("it has another number of records")),
            (FrameKind::Head, _) => return Err(damaged("it has two heads")),
        }
    }
    frames.check_end()?;
    Ok((head, records))
}

fn damaged(what: &str) -> BackupError {
    BackupError::Damaged(what.to_owned())
}

/// The frames of a backup, in order.
struct Frames<R> {
    input: R,
    /// The checksum of the frame before.
    before: u64,
    number: u64,
}

impl<R: Read> Frames<R> {
    fn read_magic(&mut self) -> Result<(), BackupError> {
        let magic: [u8; MAGIC.len()] = self.read_array()?;
        if magic == MAGIC {
            return Ok(());
        }
        let is_other_format = magic[..MAGIC.len() - 1] == MAGIC[..MAGIC.len() - 1];
        let (other, none) = ("a later version of this program made it", "it begins like none");
        Err(damaged(if is_other_format { other } else { none }))
    }

    fn next(&mut self) -> Result<(FrameKind, Vec<u8>), BackupError> {
        self.number += 1;
        let [kind, rest @ ..]: [u8; HEADER_BYTES] = self.read_array()?;
        let (length, found) = rest.split_first_chunk().expect("a header has a length");
        let length = u32::from_le_bytes(*length);
        let found = u64::from_le_bytes(found.try_into().expect("a header has a checksum"));
        let mut body = Vec::new();
        // Not reserved in advance: a length that has changed would claim gigabytes.
        let read = self.input.by_ref().take(length.into()).read_to_end(&mut body)?;
        if read as u64 != u64::from(length) {
            return Err(self.cut());
        }
        self.before = checksum(kind, &body, self.before);
        let kind = FrameKind::of(kind).filter(|_| self.before == found);
        let kind = kind.ok_or_else(|| damaged(&format!("frame {} has changed", self.number)))?;
        Ok((kind, body))
    }

    fn check_end(&mut self) -> Result<(), BackupError> {
        let behind = self.input.read(&mut [0])?;
        if behind == 0 { Ok(()) } else { Err(damaged("it goes on behind its end")) }
    }

    fn read_array<const LENGTH: usize>(&mut self) -> Result<[u8; LENGTH], BackupError> {
        let mut bytes = [0; LENGTH];
        match self.input.read_exact(&mut bytes) {
            Ok(()) => Ok(bytes),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(self.cut()),
            Err(error) => Err(error.into()),
        }
    }

    fn cut(&self) -> BackupError {
        damaged(&format!("it ends before its end, in frame {}", self.number))
    }
}

fn take_records(mut body: &[u8], take: &mut impl FnMut(StoredRecord)) -> Result<u64, BackupError> {
    let mut records = 0;
    while !body.is_empty() {
        take(take_record(&mut body).ok_or_else(|| damaged("a record ends before its end"))?);
        records += 1;
    }
    Ok(records)
}

fn take_record(body: &mut &[u8]) -> Option<StoredRecord> {
    let (&length, rest) = body.split_first()?;
    let (key, rest) = rest.split_at_checked(length.into())?;
    let (length, rest) = rest.split_first_chunk()?;
    let (value, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    *body = rest;
    Some((key.to_vec(), value.to_vec()))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::backup::BackupWriter;

    fn head() -> BackupHead {
        BackupHead {
            store: "a test".to_owned(),
            identity: Some("77".to_owned()),
            epoch: 7,
            number: 8,
            at_ms: 9,
            version: "0.1.0".to_owned(),
        }
    }

    fn written(pages: &[Vec<StoredRecord>]) -> Vec<u8> {
        let (mut writer, mut bytes) = BackupWriter::begin(&head());
        pages.iter().for_each(|page| bytes.extend(writer.records(page)));
        bytes.extend(writer.end());
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Vec<StoredRecord>, BackupError> {
        let mut records = Vec::new();
        let (found, count) = read_backup(bytes, |record| records.push(record))?;
        assert_eq!((found, count), (head(), records.len() as u64));
        Ok(records)
    }

    fn pages() -> impl Strategy<Value = Vec<Vec<StoredRecord>>> {
        let record = (vec(any::<u8>(), 0..20), vec(any::<u8>(), 0..50));
        vec(vec(record, 0..5), 0..4)
    }

    proptest! {
        #[test]
        fn written_backups_are_read_back(pages in pages()) {
            prop_assert_eq!(read(&written(&pages)).unwrap(), pages.concat());
        }

        #[test]
        fn a_changed_byte_is_noticed(
            pages in pages(),
            place in any::<prop::sample::Index>(),
            bits in 1_u8..,
        ) {
            let mut bytes = written(&pages);
            let place = place.index(bytes.len());
            bytes[place] ^= bits;
            prop_assert!(matches!(read(&bytes), Err(BackupError::Damaged(_))));
        }

        #[test]
        fn a_cut_is_noticed(pages in pages(), place in any::<prop::sample::Index>()) {
            let bytes = written(&pages);
            let cut = &bytes[..place.index(bytes.len())];
            prop_assert!(matches!(read(cut), Err(BackupError::Damaged(_))));
        }
    }

    #[test]
    fn bytes_behind_the_end_are_noticed() {
        let bytes = [written(&[]), vec![0]].concat();
        assert!(matches!(read(&bytes), Err(BackupError::Damaged(_))));
    }

    /// Each frame is whole by itself, and the number of records is right.
    #[test]
    fn a_frame_that_has_moved_or_replaces_another_is_noticed() {
        let pages = [1, 2].map(|key| vec![(vec![key], vec![7])]);
        let bytes = written(&pages);
        let frame = bytes.len() - written(&pages[..1]).len();
        let end = bytes.len() - (HEADER_BYTES + 8);
        let [first, second] = [end - 2 * frame..end - frame, end - frame..end];
        let with = |[one, other]: [&std::ops::Range<usize>; 2]| {
            let frames = [&bytes[one.clone()], &bytes[other.clone()]].concat();
            [&bytes[..first.start], &frames, &bytes[end..]].concat()
        };
        assert_eq!(with([&first, &second]), bytes);
        for order in [[&second, &first], [&first, &first], [&second, &second]] {
            assert!(matches!(read(&with(order)), Err(BackupError::Damaged(_))), "{order:?}");
        }
    }

    #[test]
    fn a_large_record_is_read_back() {
        let page = vec![(vec![1], vec![7; 3 << 20]), (vec![2], vec![8; 10])];
        assert_eq!(read(&written(std::slice::from_ref(&page))).unwrap(), page);
    }

    #[test]
    fn a_later_format_is_named() {
        let mut bytes = written(&[]);
        bytes[MAGIC.len() - 1] = b'2';
        let error = read(&bytes).unwrap_err().to_string();
        assert!(error.contains("later version"), "{error}");
    }
}
