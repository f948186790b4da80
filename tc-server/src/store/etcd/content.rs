//! Reads what the store holds, as of the mark of the leader that begins.
//!
//! The records are as the last checkpoint left them, except for some that a checkpoint has written
//! before it was broken off. The journal behind the records' mark has a later change of each of
//! those. So the journal's last change of a key counts, and the record under that key is not even
//! decoded.

use bytes::{Bytes, BytesMut};
use handfast_core::Record;
use handfast_etcd::{KeyRange, KeyValue};

use super::batch::{Entry, JournalBatch, newest};
use super::keys::{Keys, Position};
use super::members::Members;
use super::pages::{Pages, ReadError};
use super::record_parts::{Assembler, StoredRecord};
use crate::store::{StoreError, codec};

/// All that the store holds.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) records: Vec<Record>,
    /// The batches of the journal that are not among the records as they are stored.
    pub(super) unapplied: Vec<JournalBatch>,
}

/// Reads the content.
#[derive(Debug)]
pub(super) struct Reader<'a, G> {
    pub(super) members: &'a Members,
    pub(super) keys: &'a Keys,
    /// The revision at which everything is read.
    pub(super) revision: i64,
    pub(super) goes_on: G,
}

impl<G: Fn() -> bool> Reader<'_, G> {
    /// Reads the batches behind `applied` up to `last`, and the records.
    pub(super) async fn read(&self, applied: u64, last: u64) -> Result<Content, ReadError> {
        let unapplied = self.journal(applied, last).await?;
        let records = self.records(&unapplied).await?;
        Ok(Content { records, unapplied })
    }

    /// Reads the batches behind `applied` up to `last`.
    pub(super) async fn journal(
        &self,
        applied: u64,
        last: u64,
    ) -> Result<Vec<JournalBatch>, ReadError> {
        let mut pages = self.pages(self.keys.journal_between(applied, last));
        let mut batches = Vec::new();
        let mut expected = applied + 1;
        while let Some(page) = pages.next(&self.goes_on).await? {
            for found in page {
                if self.keys.journal_number(&found.key) != Some(expected) {
                    return Err(self.lacks(expected).into());
                }
                batches.push(self.batch(expected, &found.value).await?);
                expected += 1;
            }
        }
        if expected <= last { Err(self.lacks(expected).into()) } else { Ok(batches) }
    }

    async fn batch(&self, number: u64, value: &Bytes) -> Result<JournalBatch, ReadError> {
        let damaged = || self.unusable(&format!("batch {number} of the journal is damaged"));
        let entry = Entry::read(value).ok_or_else(damaged)?;
        let position = Position { epoch: entry.epoch, number };
        let frame =
            if entry.parts == 0 { entry.frame } else { self.parts(position, entry.parts).await? };
        Ok(JournalBatch::decode(position, frame).ok_or_else(damaged)?)
    }

    /// Puts a frame together. A missing part shows in its checksum.
    async fn parts(&self, batch: Position, count: usize) -> Result<Bytes, ReadError> {
        let parts = self.pages(self.keys.parts_of(batch)).all(&self.goes_on).await?;
        let mut frame = BytesMut::new();
        parts.iter().take(count).for_each(|part| frame.extend_from_slice(&part.value));
        Ok(frame.freeze())
    }

    async fn records(&self, unapplied: &[JournalBatch]) -> Result<Vec<Record>, ReadError> {
        let newest = newest(unapplied);
        let mut records = Vec::new();
        let mut assembler = Assembler::default();
        let mut pages = self.pages(self.keys.records());
        while let Some(page) = pages.next(&self.goes_on).await? {
            for found in page {
                let Some((key, value)) = self.assemble(&mut assembler, found)? else { continue };
                if !newest.contains_key(&key[..]) {
                    records.push(self.decode(&key, &value)?);
                }
            }
        }
        if !assembler.is_complete() {
            return Err(self.unusable("a part of the last record is missing").into());
        }
        for (key, value) in newest {
            let Some(value) = value else { continue };
            records.push(self.decode(key, value)?);
        }
        Ok(records)
    }

    pub(super) fn assemble(
        &self,
        assembler: &mut Assembler,
        found: KeyValue,
    ) -> Result<Option<StoredRecord>, StoreError> {
        let wrong = |key| self.unusable(&format!("its key {key} is foreign, or one is missing"));
        assembler.take(self.keys, found).map_err(wrong)
    }

    fn decode(&self, key: &[u8], value: &[u8]) -> Result<Record, StoreError> {
        let store = || self.members.store().to_owned();
        codec::decode(key, value)
            .map_err(|source| StoreError::Unreadable { store: store(), source })
    }

    pub(super) fn pages(&self, range: KeyRange) -> Pages<'_> {
        Pages::of(self.members, range, self.revision)
    }

    fn lacks(&self, number: u64) -> StoreError {
        self.unusable(&format!("batch {number} of the journal is missing"))
    }

    fn unusable(&self, reason: &str) -> StoreError {
        let reason = format!("{reason}; restore it from a backup");
        StoreError::Unusable { store: self.members.store().to_owned(), reason }
    }
}
