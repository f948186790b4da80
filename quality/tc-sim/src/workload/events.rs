//! The effects of events: a consumer adds the units of each event to a row of another database.

use crate::model::values::RowId;

/// The first row of effects.
const FIRST_ROW: u32 = 3_000;
/// The number of keys of one outbox.
const KEYS: u32 = 32;
/// The first key of purses. The keys of products come before it.
const FIRST_PURSE_KEY: u32 = 16;
/// The number of purses that share a key. Transactions on them share no row lock, and their events
/// must still take effect in the order of their numbers.
const PURSES_PER_KEY: u32 = 4;

/// Returns the key of a purse's events.
pub(crate) fn purse_key(purse: u32) -> u32 {
    FIRST_PURSE_KEY + purse / PURSES_PER_KEY
}

/// Returns the database in which the events of an outbox take effect.
pub(crate) fn target_database(outbox: usize, databases: usize) -> usize {
    (outbox + 1) % databases
}

/// Returns the row that the events of a key add to.
pub(crate) fn target_row(outbox: usize, key: u32) -> RowId {
    RowId(FIRST_ROW + KEYS * u32::try_from(outbox).unwrap_or(0) + key)
}

/// Returns the rows of effects of a database, and their initial values.
pub(super) fn initial_rows(
    database: usize,
    databases: usize,
    rows: u32,
) -> impl Iterator<Item = (RowId, i64)> {
    let here = move |outbox: &usize| target_database(*outbox, databases) == database;
    let keys = move |outbox| {
        let keys = (0..rows).chain(FIRST_PURSE_KEY..FIRST_PURSE_KEY + rows);
        keys.map(move |key| (target_row(outbox, key), 0))
    };
    (0..databases).filter(here).flat_map(keys)
}
