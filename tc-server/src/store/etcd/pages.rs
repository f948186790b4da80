//! Reads a range of keys page by page, all as they were at one revision.

use handfast_etcd::{EtcdClient, EtcdError, KeyRange, KeyValue, RangePage};

use super::members::Members;
use crate::store::StoreError;

/// The number of keys of the first page.
const FIRST_KEYS: usize = 64;
/// The size of a page in bytes, from which its number of keys is estimated, within these bounds.
const PAGE_BYTES: usize = 4 << 20;
const KEYS_MIN: usize = 4;
const KEYS_MAX: usize = 4096;

/// The pages of a range.
#[derive(Debug)]
pub(super) struct Pages<'m> {
    members: &'m Members,
    range: KeyRange,
    revision: i64,
    keys: usize,
    has_more: bool,
}

/// Why a range was not read to its end.
#[derive(Debug)]
pub(super) enum ReadError {
    /// The revision has been compacted: read a later one.
    Compacted,
    /// The store cannot be read.
    Store(StoreError),
}

impl From<StoreError> for ReadError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl<'m> Pages<'m> {
    pub(super) fn of(members: &'m Members, range: KeyRange, revision: i64) -> Self {
        Self { members, range, revision, keys: FIRST_KEYS, has_more: true }
    }

    /// Returns the next keys, or `None` at the end of the range.
    pub(super) async fn next(
        &mut self,
        goes_on: impl Fn() -> bool,
    ) -> Result<Option<Vec<KeyValue>>, ReadError> {
        if !self.has_more {
            return Ok(None);
        }
        let page = self.members.until_answered(|etcd| self.read(etcd), goes_on).await?;
        let page = page.ok_or(ReadError::Compacted)?;
        let bytes: usize = page.keys.iter().map(|found| found.key.len() + found.value.len()).sum();
        if let Some(last) = page.keys.last() {
            self.range.from = [&last.key[..], b"\0"].concat();
            self.keys = (page.keys.len() * PAGE_BYTES / bytes.max(1)).clamp(KEYS_MIN, KEYS_MAX);
        }
        self.has_more = page.has_more;
        Ok(Some(page.keys))
    }

    /// Reads the rest of the range.
    pub(super) async fn all(
        mut self,
        goes_on: impl Fn() -> bool,
    ) -> Result<Vec<KeyValue>, ReadError> {
        let mut keys = Vec::new();
        while let Some(page) = self.next(&goes_on).await? {
            keys.extend(page);
        }
        Ok(keys)
    }

    /// Returns `None` if the revision has been compacted.
    async fn read(&self, etcd: EtcdClient) -> Result<Option<RangePage>, EtcdError> {
        let limit = self.keys.try_into().unwrap_or(i64::MAX);
        match etcd.range(&self.range, limit, self.revision).await {
            Ok(page) => Ok(Some(page)),
            Err(EtcdError::Compacted { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
