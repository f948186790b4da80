//! The records of a store, read while a coordinator is made of them.
//!
//! The store reads on a thread of its own and is a few pages ahead (BOUNDED), so that reading and
//! loading share two processors, and no million of records is held at once.

use std::fmt;
use std::io;
use std::mem;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::vec;

use handfast_core::Record;

use super::StoreError;

/// Pages that wait for their reader.
const PAGES_WAITING: usize = 16;
/// Records of a page.
const PAGE_RECORDS: usize = 1_024;

/// The records in the order in which they are loaded: those of the branches of a global follow its
/// own. An iterator that ends early if the store fails; [`RecordFeed::end`] tells.
pub struct RecordFeed {
    page: vec::IntoIter<Record>,
    /// The further ones, and the directory that they come from.
    pages: Option<(Receiver<Message>, PathBuf)>,
    ended: Result<(), StoreError>,
    count: usize,
    /// How many there are in all.
    total: usize,
}

/// The end is a message too, so that a reading thread that vanishes is not taken for it.
enum Message {
    Page(Vec<Record>),
    End(Result<(), StoreError>),
}

/// The side that reads the store.
pub(super) struct FeedSender {
    page: Vec<Record>,
    pages: SyncSender<Message>,
}

impl RecordFeed {
    /// Returns a feed of so many records in a directory, and the side that sends them.
    pub(super) fn begin(directory: &Path, total: usize) -> (Self, FeedSender) {
        let (sender, pages) = sync_channel(PAGES_WAITING);
        let pages = Some((pages, directory.to_owned()));
        let feed = Self { page: Vec::new().into_iter(), pages, ended: Ok(()), count: 0, total };
        (feed, FeedSender { page: Vec::new(), pages: sender })
    }

    /// Returns how many records there were.
    ///
    /// # Errors
    /// The store could not be read to the end.
    pub fn end(self) -> Result<usize, StoreError> {
        self.ended.map(|()| self.count)
    }

    /// Waits for the next page. Returns `None` behind the last one.
    fn next_page(&mut self) -> Option<Vec<Record>> {
        let (pages, directory) = self.pages.take()?;
        self.ended = match pages.recv() {
            Ok(Message::Page(page)) => {
                self.pages = Some((pages, directory));
                return Some(page);
            }
            Ok(Message::End(ended)) => ended,
            Err(_) => {
                let source = io::Error::other("reading its records was broken off");
                Err(StoreError::Open { directory, source })
            }
        };
        None
    }
}

impl From<Vec<Record>> for RecordFeed {
    /// Feeds records that are in memory, in an order in which they can be loaded.
    fn from(mut records: Vec<Record>) -> Self {
        records.sort_unstable_by_key(Record::place_to_load);
        let total = records.len();
        Self { page: records.into_iter(), pages: None, ended: Ok(()), count: 0, total }
    }
}

impl Iterator for RecordFeed {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        loop {
            if let Some(record) = self.page.next() {
                self.count += 1;
                return Some(record);
            }
            self.page = self.next_page()?.into_iter();
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.total.saturating_sub(self.count)))
    }
}

impl fmt::Debug for RecordFeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordFeed").field("count", &self.count).finish_non_exhaustive()
    }
}

impl FeedSender {
    /// Sends a record, with others. Breaks off if the feed was dropped.
    pub(super) fn send(&mut self, record: Record) -> ControlFlow<()> {
        self.page.push(record);
        if self.page.len() < PAGE_RECORDS { ControlFlow::Continue(()) } else { self.send_page() }
    }

    /// Sends what is left, and that it is all, or why it is not.
    pub(super) fn end(mut self, ended: Result<(), StoreError>) {
        // A feed that was dropped is told nothing.
        if self.send_page().is_continue() {
            drop(self.pages.send(Message::End(ended)));
        }
    }

    fn send_page(&mut self) -> ControlFlow<()> {
        let page = mem::replace(&mut self.page, Vec::with_capacity(PAGE_RECORDS));
        match self.pages.send(Message::Page(page)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use handfast_core::{ClosureReason, ClosureRecord, Timestamp};

    use super::*;

    fn record() -> Record {
        let place = "elsewhere".into();
        Record::Closure(ClosureRecord { reason: ClosureReason::Moved, place, at: Timestamp(1) })
    }

    fn feed(send: impl FnOnce(FeedSender) + Send + 'static) -> (usize, Result<usize, StoreError>) {
        let (mut feed, sender) = RecordFeed::begin(Path::new("data"), usize::MAX);
        let sending = thread::spawn(move || send(sender));
        let count = feed.by_ref().count();
        sending.join().unwrap();
        (count, feed.end())
    }

    #[test]
    fn it_has_all_records() {
        let all = PAGE_RECORDS * (PAGES_WAITING + 3) + 1;
        let (count, ended) = feed(move |mut sender| {
            assert!((0..all).all(|_| sender.send(record()).is_continue()));
            sender.end(Ok(()));
        });
        assert_eq!((count, ended.unwrap()), (all, all));
    }

    #[test]
    fn it_tells_how_many_are_to_come() {
        let mut feed = RecordFeed::from(vec![record(), record()]);
        assert_eq!(feed.size_hint(), (0, Some(2)));
        feed.next();
        assert_eq!(feed.size_hint(), (0, Some(1)));
        let (feed, _sender) = RecordFeed::begin(Path::new("data"), 7);
        assert_eq!(feed.size_hint(), (0, Some(7)));
    }

    #[test]
    fn a_store_that_fails_is_told_behind_what_was_read() {
        let (count, ended) = feed(|mut sender| {
            assert!(sender.send(record()).is_continue());
            sender.end(Err(StoreError::LostLeadership));
        });
        assert!(matches!(ended, Err(StoreError::LostLeadership)), "{ended:?}");
        assert_eq!(count, 1);
    }

    #[test]
    fn a_reader_that_vanishes_is_not_the_end() {
        let (_, ended) = feed(drop);
        assert_eq!(ended.unwrap_err().to_string(), "opening data failed");
    }

    #[test]
    fn a_feed_that_is_dropped_ends_the_reading() {
        let (feed, mut sender) = RecordFeed::begin(Path::new("data"), 0);
        drop(feed);
        let breaks = (0..PAGE_RECORDS).any(|_| sender.send(record()).is_break());
        assert!(breaks);
        sender.end(Ok(()));
    }
}
