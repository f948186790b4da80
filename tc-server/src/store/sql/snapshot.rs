//! Reads all records as of one moment: those that are compacted, and the journal behind them.

use handfast_core::Record;
use hashbrown::HashMap;

use super::connection::{Connection, ConnectionSlot, SqlDatabase, Value};
use super::dialect::CallError;
use crate::off_the_loop::off_the_loop;
use crate::store::StoreError;
use crate::store::codec;
use crate::store::journal::frame::{self, Seed};

/// Records read in one call.
const RECORDS_AT_A_TIME: u64 = 5_000;
/// Batches read in one call. Most are small, and one may have megabytes.
pub(super) const BATCHES_AT_A_TIME: u64 = 100;

/// The content of the store.
#[derive(Debug, Default)]
pub(super) struct Content {
    records: HashMap<Vec<u8>, Vec<u8>>,
    /// The number up to which the journal is compacted.
    pub(super) applied: u64,
    /// The bytes of the journal above it.
    pub(super) journal_bytes: u64,
}

/// Reads the content up to a row of the journal.
pub(super) async fn read(
    slot: &mut ConnectionSlot,
    last: u64,
    seed: Seed,
) -> Result<Content, CallError> {
    let database = slot.database().clone();
    let mut connection = slot.take().await?;
    connection.run(database.dialect.statements().begin_snapshot).await?;
    let applied = read_applied(&mut connection, &database).await?;
    let mut content = Content { applied, ..Content::default() };
    read_records(&mut connection, &database, &mut content).await?;
    read_journal(&mut connection, &database, last, seed, &mut content).await?;
    connection.run("COMMIT").await?;
    slot.keep(connection);
    Ok(content)
}

/// Returns the number up to which the journal is compacted.
pub(super) async fn read_applied(
    connection: &mut Connection,
    database: &SqlDatabase,
) -> Result<u64, CallError> {
    let sql = database.dialect.statements().mark;
    let rows = connection.fetch(sql, &[database.namespace()]).await?;
    let missing = || CallError::Lasting("the row of tc_mark is missing".to_owned());
    rows.into_iter().next().ok_or_else(missing)?.number()
}

async fn read_records(
    connection: &mut Connection,
    database: &SqlDatabase,
    content: &mut Content,
) -> Result<(), CallError> {
    let sql = database.dialect.statements().records;
    let mut after = Vec::new();
    loop {
        let limit = Value::Number(RECORDS_AT_A_TIME);
        let values = [database.namespace(), Value::Bytes(&after), limit];
        let rows = connection.fetch(sql, &values).await?;
        let is_last = (rows.len() as u64) < RECORDS_AT_A_TIME;
        for mut row in rows {
            let (key, value) = (row.bytes()?, row.bytes()?);
            after.clone_from(&key);
            content.records.insert(key, value);
        }
        if is_last {
            return Ok(());
        }
    }
}

async fn read_journal(
    connection: &mut Connection,
    database: &SqlDatabase,
    last: u64,
    seed: Seed,
    content: &mut Content,
) -> Result<(), CallError> {
    let mut number = content.applied;
    while number < last {
        let batches = read_batches(connection, database, number, last).await?;
        for batch in &batches {
            content.journal_bytes += batch.bytes.len() as u64;
            batch.apply_to(&mut content.records, seed)?;
        }
        number += batches.len() as u64;
    }
    Ok(())
}

impl Content {
    /// Decodes the records.
    pub(super) async fn into_records(
        self,
        database: &SqlDatabase,
    ) -> Result<Vec<Record>, StoreError> {
        let decode = move || {
            let mut stored: Vec<(Vec<u8>, Vec<u8>)> = self.records.into_iter().collect();
            // In the order of keys, as every store returns them: the same records load in the same
            // way (PURE).
            stored.sort_unstable();
            let records = stored.into_iter().map(|(key, value)| codec::decode(&key, &value));
            records.collect::<Result<Vec<_>, _>>()
        };
        let unreadable =
            |source| StoreError::Unreadable { store: database.name.to_string(), source };
        off_the_loop(decode).await.map_err(unreadable)
    }
}

/// A row of the journal with its changes.
#[derive(Debug)]
pub(super) struct StoredBatch {
    pub(super) number: u64,
    /// A frame, or nothing in a mark.
    pub(super) bytes: Vec<u8>,
}

/// Reads some of the rows behind `number`, up to `last`, and at least one. No row in between is
/// ever missing, so a gap is damage.
pub(super) async fn read_batches(
    connection: &mut Connection,
    database: &SqlDatabase,
    number: u64,
    last: u64,
) -> Result<Vec<StoredBatch>, CallError> {
    let sql = database.dialect.statements().batches;
    let [limit, from, to] = [BATCHES_AT_A_TIME, number, last].map(Value::Number);
    let rows = connection.fetch(sql, &[database.namespace(), from, to, limit]).await?;
    let mut batches = Vec::with_capacity(rows.len());
    for (mut row, expected) in rows.into_iter().zip(number + 1..) {
        let batch = StoredBatch { number: row.number()?, bytes: row.bytes()? };
        if batch.number != expected {
            break;
        }
        batches.push(batch);
    }
    if batches.is_empty() {
        return Err(damaged(number + 1, "is missing"));
    }
    Ok(batches)
}

impl StoredBatch {
    /// Applies the changes, in order, to values by key.
    pub(super) fn apply_to(
        &self,
        records: &mut HashMap<Vec<u8>, Vec<u8>>,
        seed: Seed,
    ) -> Result<(), CallError> {
        self.visit(seed, |key, value| match value {
            Some(value) => drop(records.insert(key.to_vec(), value.to_vec())),
            None => drop(records.remove(key)),
        })
    }

    /// Calls `change` with each key and value; without a value it is deleted.
    pub(super) fn visit(
        &self,
        seed: Seed,
        mut change: impl FnMut(&[u8], Option<&[u8]>),
    ) -> Result<(), CallError> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        let unreadable = || damaged(self.number, "cannot be read");
        let (frames, _) = frame::scan(&self.bytes, seed);
        let &[frame] = &frames[..] else { return Err(unreadable()) };
        if frame.number != self.number {
            return Err(unreadable());
        }
        for stored in frame.changes() {
            let (key, value) = stored.ok_or_else(unreadable)?;
            change(key, value);
        }
        Ok(())
    }
}

fn damaged(number: u64, what: &str) -> CallError {
    let mend = "keep a copy of the tables, and put all of them back from one backup";
    CallError::Lasting(format!("batch {number} of tc_journal {what}: {mend}"))
}
