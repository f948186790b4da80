//! Carries batches over from the journal into the records, and deletes them from it.
//!
//! ```text
//! batches ─▶ one transaction: mark, last change of each key, delete the batches but the last
//! ```
//!
//! The newest part of the journal stays as it is, and what it makes void is not carried over
//! ([`Leaving`]). The batches of a compaction that has failed are read, and all that they change is
//! carried over.
//!
//! Rows of the journal never change, so any process may carry them over. The mark ensures that it
//! is done once: a transaction sets it only if it is still where it was read. So a process that has
//! lost the lead meanwhile changes nothing.
//!
//! Records that were put and deleted within what is carried over are never in the table, and most
//! are not even looked for there ([`StoredKeys`]).
//!
//! The last batch stays, as the row behind which the next is stored. Compaction locks nothing that
//! a commit needs: a commit reads that row and adds another one.

use std::sync::{Arc, Mutex, PoisonError};

use handfast_core::RecordKey;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::connection::{Connection, ConnectionSlot, SqlDatabase, Value};
use super::dialect::CallError;
use super::pages::{self, StoredBatch};
use super::retries::Retries;
use super::snapshot::read_applied;
use super::tail::{LastChanges, Leaving, Tail};
use crate::store::journal::frame::Seed;
use crate::store::stored_keys::StoredKeys;

/// Bytes of the journal that are read and carried over in one transaction.
const BYTES_AT_A_TIME: u64 = 8 << 20;
/// Records and bytes in one statement.
const RECORDS_IN_A_STATEMENT: usize = 200;
const BYTES_IN_A_STATEMENT: usize = 1 << 20;

/// Bytes of stored batches that are handed over to the tail at once. Fewer would wake its task for
/// each of them.
const HANDED_BYTES: u64 = 256 << 10;
/// How often that many wait for the task. A caller waits when there are more.
const HANDED_MAX: usize = 4;

/// Keeps the tail of the journal, and carries over what leaves it, one compaction at a time. It
/// works beside the batches, so that no answer waits for it, and ends when it is dropped.
#[derive(Debug)]
pub(super) struct Compactor {
    gathered: Mutex<Gathered>,
    handed_bytes: u64,
    handed: mpsc::Sender<Vec<NewBatch>>,
    _task: AbortOnDropHandle<()>,
}

/// A batch that is stored, with the keys that it changes.
type NewBatch = (StoredBatch, Vec<RecordKey>);

/// Batches that are not handed over yet.
#[derive(Debug, Default)]
struct Gathered {
    batches: Vec<NewBatch>,
    bytes: u64,
}

impl Compactor {
    /// Starts with the journal as a term finds it, and with the keys that may have records.
    pub(super) fn start(
        database: SqlDatabase,
        compact_bytes: u64,
        mut tail: Tail,
        stored: StoredKeys,
    ) -> Self {
        let (handed, mut batches) = mpsc::channel::<Vec<NewBatch>>(HANDED_MAX);
        let stored = Arc::new(Mutex::new(stored));
        let work = async move {
            let mut compaction: Option<AbortOnDropHandle<()>> = None;
            loop {
                let is_running = compaction.as_ref().is_some_and(|task| !task.is_finished());
                if !is_running && tail.leaving_bytes() >= compact_bytes {
                    let (seed, leaving) = (tail.seed(), tail.take_leaving());
                    let compact = compact(database.clone(), seed, Arc::clone(&stored), leaving);
                    compaction = Some(AbortOnDropHandle::new(tokio::spawn(compact)));
                }
                let Some(batches) = batches.recv().await else { return };
                batches.into_iter().for_each(|(batch, keys)| tail.push(batch, keys));
            }
        };
        let (gathered, handed_bytes) = (Mutex::default(), HANDED_BYTES.min(compact_bytes));
        let task = AbortOnDropHandle::new(tokio::spawn(work));
        Self { gathered, handed_bytes, handed, _task: task }
    }

    /// Adds a batch that is stored, with the keys that it changes.
    pub(super) async fn add(&self, batch: StoredBatch, keys: Vec<RecordKey>) {
        if let Some(batches) = self.gather((batch, keys)) {
            // The task ends before the term only by a panic. The journal then grows, and stays
            // whole.
            drop(self.handed.send(batches).await);
        }
    }

    /// Returns the batches that are to be handed over now, if there are enough.
    fn gather(&self, batch: NewBatch) -> Option<Vec<NewBatch>> {
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        gathered.bytes += batch.0.length();
        gathered.batches.push(batch);
        (gathered.bytes >= self.handed_bytes).then(|| std::mem::take(&mut *gathered).batches)
    }
}

/// Carries over all batches that have left the tail. Logs a failure: the journal is all there then,
/// and a later compaction goes on.
async fn compact(
    database: SqlDatabase,
    seed: Seed,
    stored: Arc<Mutex<StoredKeys>>,
    leaving: Leaving,
) {
    let mut slot = ConnectionSlot::new(database.clone());
    let mut retries = Retries::of("compacting the journal");
    loop {
        match compact_some(&mut slot, seed, &stored, &leaving).await {
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
    seed: Seed,
    stored: &Mutex<StoredKeys>,
    leaving: &Leaving,
) -> Result<Progress, CallError> {
    let database = slot.database().clone();
    let mut connection = slot.take().await?;
    let applied = read_applied(&mut connection, &database).await?;
    if applied >= leaving.upto {
        return Ok(Progress::Done);
    }
    let read;
    let (changes, upto) = if applied >= leaving.behind {
        (&leaving.changes, leaving.upto)
    } else {
        let older = read_some(&mut connection, &database, seed, applied, leaving.behind).await;
        if older.is_err() && read_applied(&mut connection, &database).await? != applied {
            // Another process has carried over and deleted what was being read.
            return Ok(Progress::Done);
        }
        read = older?;
        (&read.0, read.1)
    };
    // What was read before this transaction is still true: rows of the journal never change, and
    // the mark shows below whether another process has carried them over.
    connection.run(database.dialect.statements().begin).await?;
    // The mark is set first: a second compaction waits for its row, and then finds it moved. Its
    // connection is dropped, which ends its transaction.
    if !advance(&mut connection, &database, applied, upto).await? {
        return Ok(Progress::Done);
    }
    write(&mut connection, &database, changes, stored).await?;
    let delete = database.dialect.statements().delete_batches;
    connection.execute(delete, &[database.namespace(), Value::Number(upto)]).await?;
    connection.run("COMMIT").await?;
    slot.keep(connection);
    tracing::debug!(from = applied, upto, records = changes.len(), "compacted the journal");
    Ok(Progress::Some)
}

/// Reads batches behind a number up to a last one, or up to a limit of bytes. Returns what they
/// change, and the number of the last one that was read.
async fn read_some(
    connection: &mut Connection,
    database: &SqlDatabase,
    seed: Seed,
    applied: u64,
    last: u64,
) -> Result<(LastChanges, u64), CallError> {
    let (mut changes, mut upto, mut bytes) = (LastChanges::new(), applied, 0);
    while upto < last && bytes < BYTES_AT_A_TIME {
        for batch in pages::batches(connection, database, upto, last).await? {
            (upto, bytes) = (batch.number, bytes + batch.length());
            batch.visit(seed, |key, value| {
                changes.insert(key.to_vec(), value.map(<[u8]>::to_vec));
            })?;
        }
    }
    Ok((changes, upto))
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
    changes: &LastChanges,
    stored: &Mutex<StoredKeys>,
) -> Result<(), CallError> {
    let mut puts: Vec<(&[u8], &[u8])> = Vec::new();
    let mut deletes: Vec<&[u8]> = Vec::new();
    {
        let mut stored = stored.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, value) in changes {
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
