//! Reads all records as of one revision, page by page, beside a leader that goes on storing.
//!
//! A leader compacts etcd's history behind the checkpoint before the last one, so a reader that is
//! slower than two checkpoints finds its revision gone, and has to begin again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use handfast_etcd::{EtcdClient, KeyRange, read_all};

use super::batch::newest;
use super::content::Reader;
use super::keys::{Keys, Position};
use super::members::Members;
use super::pages::ReadError;
use super::record_parts::Assembler;
use crate::store::StoreError;
use crate::store::snapshot::{
    GatheredPage, PageReader, PageSender, RecordOverlay, RecordSnapshot, SnapshotOrigin,
};

/// How long to ask the members until one of them must have answered.
const ANSWER_LIMIT: Duration = Duration::from_secs(15);

/// The place in the journal at which the records are read.
struct Beginning {
    head: Position,
    applied: u64,
    revision: i64,
}

/// Begins to read.
///
/// # Errors
///
/// No member answers, or there is no store under this namespace.
pub(super) async fn open(members: Arc<Members>, keys: Keys) -> Result<RecordSnapshot, StoreError> {
    let begun = begin(&members, &keys).await?;
    let overlay = read_journal(&members, &keys, &begun).await;
    let overlay = overlay.map_err(|error| gone(&members, error))?;
    let origin = SnapshotOrigin {
        store: members.store().to_owned(),
        identity: None,
        epoch: begun.head.epoch,
        number: begun.head.number,
    };
    let (snapshot, pages) = RecordSnapshot::begin(origin);
    tokio::spawn(async move {
        let sent = send_pages(&members, &keys, begun.revision, overlay, &pages).await;
        pages.end(sent.map_err(|error| gone(&members, error))).await;
    });
    Ok(snapshot)
}

async fn begin(members: &Members, keys: &Keys) -> Result<Beginning, StoreError> {
    let [head, mark] = [keys.head(), keys.mark()].map(KeyRange::one);
    let read = |etcd: EtcdClient| {
        let steps = vec![read_all(&head), read_all(&mark)];
        async move { etcd.run(steps).await }
    };
    let mut read = answered(members, members.until_answered(read, within_limit()).await)?;
    let positions = [0, 1].map(|step| {
        let found = read.found(step).into_iter().next();
        found.and_then(|found| Position::read(&found.value))
    });
    let [Some(head), Some(mark)] = positions else {
        return Err(unusable(members, "it holds no store under this namespace"));
    };
    Ok(Beginning { head, applied: mark.number, revision: read.revision })
}

async fn read_journal(
    members: &Members,
    keys: &Keys,
    begun: &Beginning,
) -> Result<RecordOverlay, ReadError> {
    let reader = reader(members, keys, begun.revision);
    let journal = reader.journal(begun.applied, begun.head.number).await?;
    let mut overlay = RecordOverlay::default();
    newest(&journal).into_iter().for_each(|(key, value)| overlay.change(key, value));
    Ok(overlay)
}

async fn send_pages(
    members: &Members,
    keys: &Keys,
    revision: i64,
    mut overlay: RecordOverlay,
    pages: &PageSender,
) -> Result<(), ReadError> {
    let reader = reader(members, keys, revision);
    let (mut assembler, mut gathered) = (Assembler::default(), GatheredPage::default());
    let mut found_pages = reader.pages(keys.records());
    while let Some(found) = found_pages.next(within_limit()).await? {
        for found in found {
            let Some((key, value)) = reader.assemble(&mut assembler, found)? else { continue };
            let Some(page) = gathered.push(key, value) else { continue };
            if pages.send(overlay.lay_over(page)).await == PageReader::Gone {
                return Ok(());
            }
        }
    }
    if !assembler.is_complete() {
        return Err(unusable(members, "a part of its last record is missing").into());
    }
    pages.send(overlay.lay_over(gathered.take())).await;
    pages.send(overlay.into_rest()).await;
    Ok(())
}

fn reader<'a>(
    members: &'a Members,
    keys: &'a Keys,
    revision: i64,
) -> Reader<'a, impl Fn() -> bool + Send + Sync> {
    Reader { members, keys, revision, goes_on: within_limit() }
}

/// Returns whether to ask again, from this moment on.
fn within_limit() -> impl Fn() -> bool + Send + Sync {
    let begun = Instant::now();
    move || begun.elapsed() < ANSWER_LIMIT
}

/// Converts the error of an attempt that was given up: a reader has no lead to lose.
fn answered<T>(members: &Members, answer: Result<T, StoreError>) -> Result<T, StoreError> {
    match answer {
        Err(StoreError::LostLeadership) => Err(unusable(members, "no member answers")),
        answer => answer,
    }
}

fn gone(members: &Members, error: ReadError) -> StoreError {
    match error {
        ReadError::Compacted => unusable(
            members,
            "its history was compacted while it was read: read it again, or where it is read faster",
        ),
        ReadError::Store(StoreError::LostLeadership) => unusable(members, "no member answers"),
        ReadError::Store(error) => error,
    }
}

fn unusable(members: &Members, reason: &str) -> StoreError {
    StoreError::Unusable { store: members.store().to_owned(), reason: reason.to_owned() }
}
