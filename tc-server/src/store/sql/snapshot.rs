//! Reads all records as of one moment: those that are compacted, and the journal behind them.

use handfast_core::Record;
use hashbrown::HashMap;

use super::connection::{Connection, ConnectionSlot, SqlDatabase};
use super::dialect::CallError;
use super::pages;
use super::tail::Tail;
use crate::off_the_loop::off_the_loop;
use crate::store::StoreError;
use crate::store::codec;
use crate::store::journal::frame::Seed;
use crate::store::stored_keys::StoredKeys;

/// Values by their keys.
pub(super) type StoredRecords = HashMap<Vec<u8>, Vec<u8>>;

/// The content of the store.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) records: StoredRecords,
    /// The number up to which the journal is compacted.
    pub(super) applied: u64,
    /// The journal above it.
    pub(super) tail: Tail,
    /// Keys of both: what an earlier leader still carries over comes from this journal.
    pub(super) stored: StoredKeys,
}

/// Reads the content up to a row of the journal.
pub(super) async fn read(
    slot: &mut ConnectionSlot,
    last: u64,
    seed: Seed,
    tail_bytes: u64,
) -> Result<Content, CallError> {
    let database = slot.database().clone();
    let mut connection = slot.take().await?;
    connection.run(database.dialect.statements().begin_snapshot).await?;
    let applied = read_applied(&mut connection, &database).await?;
    let tail = Tail::behind(applied, seed, tail_bytes);
    let (records, stored) = (StoredRecords::new(), StoredKeys::default());
    let mut content = Content { records, applied, tail, stored };
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
    let mut after = Vec::new();
    loop {
        let page = pages::records(connection, database, &after).await?;
        let Some((last, _)) = page.last() else { return Ok(()) };
        after.clone_from(last);
        page.iter().for_each(|(key, _)| content.stored.note(key));
        content.records.extend(page);
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
        for batch in pages::batches(connection, database, number, last).await? {
            number = batch.number;
            batch.visit(seed, |key, value| {
                content.stored.note(key);
                match value {
                    Some(value) => drop(content.records.insert(key.to_vec(), value.to_vec())),
                    None => drop(content.records.remove(key)),
                }
            })?;
            content.tail.push_read(batch)?;
        }
    }
    Ok(())
}

/// Decodes the records of a content, in the order of keys, as every store returns them: the same
/// records load in the same way (PURE).
pub(super) async fn decode(
    records: StoredRecords,
    database: &SqlDatabase,
) -> Result<Vec<Record>, StoreError> {
    let decode = move || {
        let mut stored: Vec<(Vec<u8>, Vec<u8>)> = records.into_iter().collect();
        stored.sort_unstable();
        let records = stored.into_iter().map(|(key, value)| codec::decode(&key, &value));
        records.collect::<Result<Vec<_>, _>>()
    };
    let unreadable = |source| StoreError::Unreadable { store: database.name.to_string(), source };
    off_the_loop(decode).await.map_err(unreadable)
}
