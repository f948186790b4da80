//! Records and batches, read page by page. A call brings a bounded number of bytes.
//!
//! A call has a time limit, and a row may be as large as a saga or a batch. So a first call asks
//! for the lengths of the next rows, and a second one reads the rows that fit.

use super::compressed;
use super::connection::{Connection, SqlDatabase, Value};
use super::dialect::CallError;
use crate::store::journal::frame::{self, Seed, StoredChange};
use crate::store::snapshot::StoredRecord;

/// Rows of a page: as many lengths are asked for.
const ROWS_MAX: u64 = 5_000;
/// Bytes of a page, unless its only row has more.
const BYTES_MAX: u64 = 8 << 20;

/// A row of the journal with its changes.
#[derive(Debug)]
pub(super) struct StoredBatch {
    pub(super) number: u64,
    /// A frame, perhaps compressed, or nothing in a mark.
    pub(super) bytes: Vec<u8>,
}

/// Reads the records behind a key, in the order of keys; none at the end.
pub(super) async fn records(
    connection: &mut Connection,
    database: &SqlDatabase,
    after: &[u8],
) -> Result<Vec<StoredRecord>, CallError> {
    let (namespace, statements) = (database.namespace(), database.dialect.statements());
    let behind = [namespace, Value::Bytes(after), Value::Number(ROWS_MAX)];
    let rows = connection.fetch(statements.record_lengths, &behind).await?;
    let rows = rows.into_iter().map(|mut row| Ok((row.bytes()?, row.number()?)));
    let Some(upto) = last_that_fits(rows.collect::<Result<Vec<_>, _>>()?) else {
        return Ok(Vec::new());
    };
    let values = [namespace, Value::Bytes(after), Value::Bytes(&upto)];
    let rows = connection.fetch(statements.records, &values).await?;
    rows.into_iter().map(|mut row| Ok((row.bytes()?, row.bytes()?))).collect()
}

/// Reads some of the rows of the journal behind `number`, up to `last`, and at least one. No row in
/// between is ever missing, so a gap is damage.
pub(super) async fn batches(
    connection: &mut Connection,
    database: &SqlDatabase,
    number: u64,
    last: u64,
) -> Result<Vec<StoredBatch>, CallError> {
    let (namespace, statements) = (database.namespace(), database.dialect.statements());
    let [limit, from, to] = [ROWS_MAX, number, last].map(Value::Number);
    let rows = connection.fetch(statements.batch_lengths, &[namespace, from, to, limit]).await?;
    let rows = rows.into_iter().map(|mut row| Ok((row.number()?, row.number()?)));
    let upto = last_that_fits(rows.collect::<Result<Vec<_>, _>>()?).unwrap_or(number);
    let values = [namespace, from, Value::Number(upto)];
    let rows = connection.fetch(statements.batches, &values).await?;
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

/// Returns the last row of a page, of rows with their lengths; `None` if there is no row.
fn last_that_fits<K>(rows: Vec<(K, u64)>) -> Option<K> {
    let (mut last, mut bytes) = (None, 0);
    for (row, length) in rows {
        bytes += length;
        if last.is_some() && bytes > BYTES_MAX {
            break;
        }
        last = Some(row);
    }
    last
}

impl StoredBatch {
    /// Returns its length in bytes.
    pub(super) fn length(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Returns what `read` makes of its changes, in their order; a change without a value deletes.
    pub(super) fn read<T>(
        &self,
        seed: Seed,
        read: impl FnOnce(Vec<StoredChange<'_>>) -> T,
    ) -> Result<T, CallError> {
        if self.bytes.is_empty() {
            return Ok(read(Vec::new()));
        }
        let bytes = compressed::decompress(&self.bytes);
        let (frames, _) = frame::scan(&bytes, seed);
        let changes = match &frames[..] {
            [frame] if frame.number == self.number => frame.changes().collect::<Option<Vec<_>>>(),
            _ => None,
        };
        changes.map(read).ok_or_else(|| damaged(self.number, "cannot be read"))
    }

    /// Calls `change` with each key and value; without a value it is deleted.
    pub(super) fn visit(
        &self,
        seed: Seed,
        mut change: impl FnMut(&[u8], Option<&[u8]>),
    ) -> Result<(), CallError> {
        self.read(seed, |changes| changes.into_iter().for_each(|(key, value)| change(key, value)))
    }
}

fn damaged(number: u64, what: &str) -> CallError {
    let mend = "keep a copy of the tables, and put all of them back from one backup";
    CallError::Lasting(format!("batch {number} of tc_journal {what}: {mend}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_bounded_by_its_bytes() {
        let rows = |lengths: &[u64]| (1..).zip(lengths.iter().copied()).collect::<Vec<_>>();
        assert_eq!(last_that_fits(rows(&[])), None);
        assert_eq!(last_that_fits(rows(&[10, 10, 10])), Some(3));
        assert_eq!(last_that_fits(rows(&[BYTES_MAX / 2, BYTES_MAX / 2, 1])), Some(2));
        assert_eq!(last_that_fits(rows(&[BYTES_MAX + 1, 1])), Some(1), "one at least");
    }
}
