//! Carries batches over from the journal into the records, and deletes them from it.
//!
//! ```text
//! batches ─▶ one transaction: mark, last change of each key, delete the batches but the last
//! ```
//!
//! Most batches are still here from when they were stored ([`RecentBatches`]). The others are read.
//!
//! Rows of the journal never change, so any process may carry them over. The mark ensures that it
//! is done once: a transaction sets it only if it is still where the batches were read from. So a
//! process that has lost the lead meanwhile changes nothing.
//!
//! Records that were put and deleted within what is carried over are never in the table, and most
//! are not even looked for there ([`StoredKeys`]).
//!
//! The last batch stays, as the row behind which the next is stored. Compaction locks nothing that
//! a commit needs: a commit reads that row and adds another one.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use hashbrown::HashMap;

use super::connection::{Connection, ConnectionSlot, SqlDatabase, Value};
use super::dialect::CallError;
use super::pages::{self, StoredBatch};
use super::recent_batches::RecentBatches;
use super::retries::Retries;
use super::snapshot::read_applied;
use crate::store::journal::frame::Seed;
use crate::store::stored_keys::StoredKeys;

/// Bytes of the journal that are carried over in one transaction.
const BYTES_AT_A_TIME: usize = 8 << 20;
/// Records and bytes in one statement.
const RECORDS_IN_A_STATEMENT: usize = 200;
const BYTES_IN_A_STATEMENT: usize = 1 << 20;

/// The last change of each key; `None` deletes it.
type Changes<'b> = HashMap<&'b [u8], Option<&'b [u8]>>;

/// Carries over all up to a row of the journal. Logs a failure: the journal is all there then, and
/// a later compaction goes on.
pub(super) async fn compact(
    database: SqlDatabase,
    last: u64,
    seed: Seed,
    stored: Arc<Mutex<StoredKeys>>,
    recent: RecentBatches,
) {
    let mut slot = ConnectionSlot::new(database.clone());
    let mut retries = Retries::of("compacting the journal");
    loop {
        match compact_some(&mut slot, last, seed, &stored, &recent).await {
            Ok(Progress::Some) => retries.succeeded(),
            Ok(Progress::Done) => return,
            Err(failure) => {
                if let Err(error) = retries.pause(&database, failure).await {
                    tracing::error!(%error, "compacting the journal failed");
                    return;
                }
            }
        }
    }
}

/// How far a transaction came.
enum Progress {
    Some,
    /// Nothing is left, or another process compacts.
    Done,
}

async fn compact_some(
    slot: &mut ConnectionSlot,
    last: u64,
    seed: Seed,
    stored: &Mutex<StoredKeys>,
    recent: &RecentBatches,
) -> Result<Progress, CallError> {
    let database = slot.database().clone();
    let mut connection = slot.take().await?;
    let applied = read_applied(&mut connection, &database).await?;
    if applied >= last {
        return Ok(Progress::Done);
    }
    let older = read_older(&mut connection, &database, applied..last, recent).await;
    if older.is_err() && read_applied(&mut connection, &database).await? != applied {
        // Another process has carried over and deleted what was being read.
        return Ok(Progress::Done);
    }
    let older = older?;
    let batches = batches_to_carry(&older, recent, applied..last);
    let Some(upto) = batches.last().map(|batch| batch.number) else { return Ok(Progress::Done) };
    let changes = changes_of(&batches, seed)?;
    // What was read before this transaction is still true: rows of the journal never change, and
    // the mark shows below whether another process has carried them over.
    connection.run(database.dialect.statements().begin).await?;
    // The mark is set first: a second compaction waits for its row, and then finds it moved. Its
    // connection is dropped, which ends its transaction.
    if !advance(&mut connection, &database, applied, upto).await? {
        return Ok(Progress::Done);
    }
    write(&mut connection, &database, &changes, stored).await?;
    let delete = database.dialect.statements().delete_batches;
    connection.execute(delete, &[database.namespace(), Value::Number(upto)]).await?;
    connection.run("COMMIT").await?;
    slot.keep(connection);
    tracing::debug!(from = applied, upto, records = changes.len(), "compacted the journal");
    Ok(Progress::Some)
}

/// Reads the batches behind a number up to a last one, as far as they are not kept, or up to a
/// limit of bytes.
async fn read_older(
    connection: &mut Connection,
    database: &SqlDatabase,
    Range { start: applied, end: last }: Range<u64>,
    recent: &RecentBatches,
) -> Result<Vec<StoredBatch>, CallError> {
    let first_kept = recent.first().filter(|first| *first > applied);
    let last = first_kept.map_or(last, |first| last.min(first - 1));
    let (mut older, mut bytes) = (Vec::new(), 0);
    let mut upto = if recent.has(applied + 1) { last } else { applied };
    while upto < last && bytes < BYTES_AT_A_TIME {
        for batch in pages::batches(connection, database, upto, last).await? {
            (upto, bytes) = (batch.number, bytes + batch.bytes.len());
            older.push(batch);
        }
    }
    Ok(older)
}

/// The batches behind a number up to a last one, as many as are carried over in one transaction.
fn batches_to_carry<'b>(
    older: &'b [StoredBatch],
    recent: &'b RecentBatches,
    Range { start: applied, end: last }: Range<u64>,
) -> Vec<&'b StoredBatch> {
    let mut bytes = 0;
    let is_one_more = |batch: &&StoredBatch| {
        let fits = bytes < BYTES_AT_A_TIME && batch.number <= last;
        bytes += batch.bytes.len();
        fits
    };
    let read_upto = older.last().map_or(applied, |batch| batch.number);
    older.iter().chain(recent.behind(read_upto)).take_while(is_one_more).collect()
}

fn changes_of<'b>(batches: &[&'b StoredBatch], seed: Seed) -> Result<Changes<'b>, CallError> {
    let mut changes = Changes::new();
    for batch in batches {
        batch.visit(seed, |key, value| {
            changes.insert(key, value);
        })?;
    }
    Ok(changes)
}

/// Sets the mark, unless another process has set it since it was read.
async fn advance(
    connection: &mut Connection,
    database: &SqlDatabase,
    applied: u64,
    upto: u64,
) -> Result<bool, CallError> {
    let sql = database.dialect.statements().advance_mark;
    let [applied, upto] = [applied, upto].map(Value::Number);
    Ok(connection.execute(sql, &[upto, database.namespace(), applied]).await? == 1)
}

async fn write(
    connection: &mut Connection,
    database: &SqlDatabase,
    changes: &Changes<'_>,
    stored: &Mutex<StoredKeys>,
) -> Result<(), CallError> {
    let mut puts: Vec<(&[u8], &[u8])> = Vec::new();
    let mut deletes: Vec<&[u8]> = Vec::new();
    {
        let mut stored = stored.lock().unwrap_or_else(PoisonError::into_inner);
        for (&key, &value) in changes {
            match value {
                Some(value) => puts.push((key, value)),
                None if stored.may_have(key) => deletes.push(key),
                None => {}
            }
        }
        // Before they are there: this may fail behind them.
        puts.iter().for_each(|(key, _)| stored.note(key));
    }
    // Neighbouring keys share a page.
    puts.sort_unstable();
    deletes.sort_unstable();
    for puts in statements_of(&puts) {
        let values = puts.iter().flat_map(|(key, value)| {
            [database.namespace(), Value::Bytes(key), Value::Bytes(value)]
        });
        let values: Vec<Value<'_>> = values.collect();
        let (count, sql) = (puts.len(), database.dialect.put_records(puts.len()));
        connection.execute_many(sql, &values, count == RECORDS_IN_A_STATEMENT).await?;
    }
    for keys in deletes.chunks(RECORDS_IN_A_STATEMENT) {
        let (count, sql) = (keys.len(), database.dialect.delete_records(keys.len()));
        let keys = keys.iter().map(|key| Value::Bytes(key));
        let values: Vec<Value<'_>> = std::iter::once(database.namespace()).chain(keys).collect();
        connection.execute_many(sql, &values, count == RECORDS_IN_A_STATEMENT).await?;
    }
    Ok(())
}

/// Divides records into statements, each of bounded size but for a single large record.
fn statements_of<'p, 'r>(
    mut puts: &'p [(&'r [u8], &'r [u8])],
) -> impl Iterator<Item = &'p [(&'r [u8], &'r [u8])]> {
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |(_, value): &&(&[u8], &[u8])| {
            bytes += value.len();
            bytes <= BYTES_IN_A_STATEMENT
        };
        let count = puts.iter().take(RECORDS_IN_A_STATEMENT).take_while(fits).count();
        let (statement, rest) = puts.split_at(count.max(1).min(puts.len()));
        puts = rest;
        (!statement.is_empty()).then_some(statement)
    })
}
