//! Reads all records as of one moment, page by page, beside a leader that goes on storing.
//!
//! One transaction sees everything: the records, and the journal that they lack. The journal is
//! read first and kept in memory, since a leader compacts it meanwhile.

use handfast_core::Epoch;

use super::connection::{Connection, SqlDatabase};
use super::dialect::CallError;
use super::journal::Position;
use super::pages;
use crate::store::StoreError;
use crate::store::journal::frame::Seed;
use crate::store::snapshot::{
    PageReader, PageSender, RecordOverlay, RecordSnapshot, SnapshotOrigin,
};

/// The beginning of a transaction that reads everything.
struct Beginning {
    newest: Position,
    identity: String,
    overlay: RecordOverlay,
}

/// Begins to read.
///
/// # Errors
///
/// The database does not answer, or holds no store of this namespace.
pub(super) async fn open(database: &SqlDatabase) -> Result<RecordSnapshot, StoreError> {
    let unusable = |error: CallError| database.unusable(error.to_string());
    let mut connection = database.connect().await.map_err(unusable)?;
    let begun = begin(&mut connection, database).await.map_err(unusable)?;
    let origin = SnapshotOrigin {
        store: database.name.to_string(),
        identity: Some(begun.identity),
        epoch: begun.newest.epoch,
        number: begun.newest.number,
    };
    let (snapshot, pages) = RecordSnapshot::begin(origin);
    let database = database.clone();
    tokio::spawn(async move {
        let sent = send_pages(&mut connection, &database, begun.overlay, &pages).await;
        pages.end(sent.map_err(|error| database.unusable(error.to_string()))).await;
    });
    Ok(snapshot)
}

async fn begin(
    connection: &mut Connection,
    database: &SqlDatabase,
) -> Result<Beginning, CallError> {
    let statements = database.dialect.statements();
    // The usual limit of a session that is idle in a transaction would cut off a slow reader.
    connection.run(statements.wait_for_readers).await?;
    connection.run(statements.begin_snapshot).await?;
    let marks = connection.fetch(statements.mark, &[database.namespace()]).await?;
    let none = || CallError::Lasting("it holds no store of this namespace".to_owned());
    let mut mark = marks.into_iter().next().ok_or_else(none)?;
    let (applied, seed) = (mark.number()?, Seed::of_cluster(&mark.bytes()?));
    let newest = connection.fetch(statements.newest, &[database.namespace()]).await?;
    let empty = || CallError::Lasting("tc_journal is empty".to_owned());
    let mut newest = newest.into_iter().next().ok_or_else(empty)?;
    let newest = Position { number: newest.number()?, epoch: Epoch(newest.number()?) };
    let overlay = read_journal(connection, database, applied, newest.number, seed).await?;
    Ok(Beginning { newest, identity: seed.identity(), overlay })
}

async fn read_journal(
    connection: &mut Connection,
    database: &SqlDatabase,
    applied: u64,
    last: u64,
    seed: Seed,
) -> Result<RecordOverlay, CallError> {
    let (mut overlay, mut number) = (RecordOverlay::default(), applied);
    while number < last {
        let batches = pages::batches(connection, database, number, last).await?;
        for batch in &batches {
            batch.visit(seed, |key, value| overlay.change(key, value))?;
        }
        number += batches.len() as u64;
    }
    Ok(overlay)
}

async fn send_pages(
    connection: &mut Connection,
    database: &SqlDatabase,
    mut overlay: RecordOverlay,
    pages: &PageSender,
) -> Result<(), CallError> {
    let mut after = Vec::new();
    loop {
        let records = pages::records(connection, database, &after).await?;
        let Some((last, _)) = records.last() else { break };
        after.clone_from(last);
        if pages.send(overlay.lay_over(records)).await == PageReader::Gone {
            return Ok(());
        }
    }
    // All is read: what is left to send is in memory, and the transaction need not wait for it.
    connection.run("COMMIT").await?;
    pages.send(overlay.into_rest()).await;
    Ok(())
}
