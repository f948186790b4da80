//! The records of a store as they are at one moment, read page by page while the store is in use.
//!
//! Each store reads them in a task or thread of its own and sends a few pages ahead (BOUNDED). The
//! end is a message too, so that a reader that vanishes is not taken for the end of the records.

use std::collections::BTreeMap;
use std::fmt;
use std::mem;

use futures::future::BoxFuture;
use handfast_core::{Epoch, Record};
use tokio::sync::mpsc;

use super::{StoreError, codec};

/// Pages that wait for their reader.
const PAGES_WAITING: usize = 2;
/// The bytes at which a page is sent.
const PAGE_BYTES: usize = 256 << 10;

/// A store whose records can be read while it is in use.
pub trait RecordSource: fmt::Debug + Send + Sync + 'static {
    /// Reads the records as they are at one moment. Every batch that was acknowledged before the
    /// call is among them as a whole, and every other batch as a whole or not at all.
    fn snapshot(&self) -> BoxFuture<'_, Result<RecordSnapshot, StoreError>>;
}

/// A key and a value as they are stored.
pub type StoredRecord = (Vec<u8>, Vec<u8>);

/// The store that a snapshot shows, and the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotOrigin {
    /// Which store, without secrets.
    pub store: String,
    /// Tells stores of the same name apart, if the store has an identity.
    pub identity: Option<String>,
    /// The last epoch that the store has given out.
    pub epoch: Epoch,
    /// The number of the last batch that is in it.
    pub number: u64,
}

/// The records of one moment, in the order of their keys.
#[derive(Debug)]
pub struct RecordSnapshot {
    /// The store and the moment that it shows.
    pub origin: SnapshotOrigin,
    pages: mpsc::Receiver<Message>,
    has_ended: bool,
}

#[derive(Debug)]
enum Message {
    Page(Vec<StoredRecord>),
    Failed(StoreError),
    End,
}

/// The side of a snapshot that reads the store.
#[derive(Debug)]
pub(super) struct PageSender(mpsc::Sender<Message>);

impl RecordSnapshot {
    pub(super) fn begin(origin: SnapshotOrigin) -> (Self, PageSender) {
        let (sender, pages) = mpsc::channel(PAGES_WAITING);
        (Self { origin, pages, has_ended: false }, PageSender(sender))
    }

    /// Returns a snapshot of records that are in memory.
    pub(super) fn of(origin: SnapshotOrigin, records: Vec<StoredRecord>) -> Self {
        let (snapshot, PageSender(pages)) = Self::begin(origin);
        for message in [Message::Page(records), Message::End] {
            pages.try_send(message).expect("both messages find room");
        }
        snapshot
    }

    /// Returns the next records, or `None` behind the last one.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    pub async fn next(&mut self) -> Result<Option<Vec<StoredRecord>>, StoreError> {
        if self.has_ended {
            return Ok(None);
        }
        match self.pages.recv().await {
            Some(Message::Page(records)) => Ok(Some(records)),
            Some(Message::Failed(error)) => Err(error),
            Some(Message::End) => {
                self.has_ended = true;
                Ok(None)
            }
            None => Err(self.unusable("reading its records was broken off")),
        }
    }

    /// Reads and decodes all records.
    ///
    /// # Errors
    ///
    /// The store or a record cannot be read.
    pub async fn records(mut self) -> Result<Vec<Record>, StoreError> {
        let mut records = Vec::new();
        while let Some(page) = self.next().await? {
            for (key, value) in page {
                let record = codec::decode(&key, &value);
                let store = || self.origin.store.clone();
                let unreadable = |source| StoreError::Unreadable { store: store(), source };
                records.push(record.map_err(unreadable)?);
            }
        }
        Ok(records)
    }

    fn unusable(&self, reason: &str) -> StoreError {
        StoreError::Unusable { store: self.origin.store.clone(), reason: reason.to_owned() }
    }
}

/// The reader of a snapshot, as its pages are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageReader {
    /// It waits for more.
    Waiting,
    /// It has gone: the rest need not be read.
    Gone,
}

impl PageSender {
    /// Sends some records, and waits for room.
    pub(super) async fn send(&self, records: Vec<StoredRecord>) -> PageReader {
        let sent = self.0.send(Message::Page(records)).await;
        if sent.is_ok() { PageReader::Waiting } else { PageReader::Gone }
    }

    /// Sends the end, or why there is none.
    pub(super) async fn end(self, read: Result<(), StoreError>) {
        // The reader may have gone.
        drop(self.0.send(read.map_or_else(Message::Failed, |()| Message::End)).await);
    }

    /// As [`Self::send`], on a thread.
    pub(super) fn send_blocking(&self, records: Vec<StoredRecord>) -> PageReader {
        let sent = self.0.blocking_send(Message::Page(records));
        if sent.is_ok() { PageReader::Waiting } else { PageReader::Gone }
    }

    /// As [`Self::end`], on a thread.
    pub(super) fn end_blocking(self, read: Result<(), StoreError>) {
        drop(self.0.blocking_send(read.map_or_else(Message::Failed, |()| Message::End)));
    }
}

/// Records that are gathered to a page.
#[derive(Debug, Default)]
pub(super) struct GatheredPage {
    records: Vec<StoredRecord>,
    bytes: usize,
}

impl GatheredPage {
    /// Adds a record. Returns all that are gathered when they are enough for a page.
    pub(super) fn push(&mut self, key: Vec<u8>, value: Vec<u8>) -> Option<Vec<StoredRecord>> {
        self.bytes += key.len() + value.len();
        self.records.push((key, value));
        (self.bytes >= PAGE_BYTES).then(|| self.take())
    }

    /// Takes what is gathered.
    pub(super) fn take(&mut self) -> Vec<StoredRecord> {
        self.bytes = 0;
        mem::take(&mut self.records)
    }
}

/// The last changes of a journal, to be laid over the records that lack them.
#[derive(Debug, Default)]
pub(super) struct RecordOverlay(BTreeMap<Vec<u8>, Option<Vec<u8>>>);

impl RecordOverlay {
    /// Adds a later change; without a value it deletes.
    pub(super) fn change(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.0.insert(key.to_vec(), value.map(<[u8]>::to_vec));
    }

    /// Takes the changes up to the last key of a page, and returns the page after them. Pages come
    /// in the order of their keys.
    pub(super) fn lay_over(&mut self, page: Vec<StoredRecord>) -> Vec<StoredRecord> {
        let Some((last, _)) = page.last() else { return page };
        let first_behind = [&last[..], b"\0"].concat();
        let behind = self.0.split_off(&first_behind);
        let changes = mem::replace(&mut self.0, behind);
        let mut records: BTreeMap<Vec<u8>, Vec<u8>> = page.into_iter().collect();
        for (key, value) in changes {
            match value {
                Some(value) => drop(records.insert(key, value)),
                None => drop(records.remove(&key)),
            }
        }
        records.into_iter().collect()
    }

    /// Returns the records behind the last page.
    pub(super) fn into_rest(self) -> Vec<StoredRecord> {
        self.0.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(key: &str, value: &str) -> StoredRecord {
        (key.as_bytes().to_vec(), value.as_bytes().to_vec())
    }

    fn origin() -> SnapshotOrigin {
        SnapshotOrigin { store: "a test".to_owned(), identity: None, epoch: Epoch(1), number: 1 }
    }

    #[test]
    fn a_journal_is_laid_over_the_records_page_by_page() {
        let mut overlay = RecordOverlay::default();
        for (key, value) in [("a", Some("1")), ("c", None), ("d", Some("4")), ("e", Some("5"))] {
            overlay.change(key.as_bytes(), value.map(str::as_bytes));
        }
        overlay.change(b"e", None);
        overlay.change(b"f", Some(b"6"));
        let pages = [
            overlay.lay_over(vec![record("b", "0"), record("c", "0")]),
            overlay.lay_over(vec![record("d", "0"), record("da", "0")]),
            overlay.lay_over(Vec::new()),
            overlay.into_rest(),
        ];
        let expected = [
            vec![record("a", "1"), record("b", "0")],
            vec![record("d", "4"), record("da", "0")],
            Vec::new(),
            vec![record("f", "6")],
        ];
        assert_eq!(pages, expected);
    }

    #[tokio::test]
    async fn a_reader_that_vanishes_is_not_the_end() {
        let (mut snapshot, pages) = RecordSnapshot::begin(origin());
        assert_eq!(pages.send(vec![record("a", "1")]).await, PageReader::Waiting);
        drop(pages);
        assert!(snapshot.next().await.unwrap().is_some());
        let broken_off = snapshot.next().await;
        assert!(matches!(broken_off, Err(StoreError::Unusable { .. })), "{broken_off:?}");
    }

    #[tokio::test]
    async fn an_end_stays_the_end() {
        let mut snapshot = RecordSnapshot::of(origin(), vec![record("a", "1")]);
        assert!(snapshot.next().await.unwrap().is_some());
        assert!(snapshot.next().await.unwrap().is_none());
        assert!(snapshot.next().await.unwrap().is_none());
    }
}
