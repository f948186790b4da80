//! What events do: a service in another database adds up what it is told.

use crate::model::database::RowId;

/// Where the rows of effects begin.
const FIRST: u32 = 3_000;
/// Keys of one outbox.
const KEYS: u32 = 32;
/// Where the keys of purses begin; those of products come before them.
const PURSES: u32 = 16;
/// How many purses have a key in common: what is done to them is done without a lock in common, and
/// still in the order of the events' numbers.
const PURSES_OF_A_KEY: u32 = 4;

/// The key of a purse's events.
pub(crate) fn key_of_purse(purse: u32) -> u32 {
    PURSES + purse / PURSES_OF_A_KEY
}

/// The database in which the events of an outbox take effect.
pub(crate) fn database_of(outbox: usize, databases: usize) -> usize {
    (outbox + 1) % databases
}

/// The row that events of one key add to.
pub(crate) fn row_of(outbox: usize, key: u32) -> RowId {
    RowId(FIRST + KEYS * u32::try_from(outbox).unwrap_or(0) + key)
}

/// The rows of a database in which effects are added up.
pub(crate) fn set_up(
    database: usize,
    databases: usize,
    rows: u32,
) -> impl Iterator<Item = (RowId, i64)> {
    let here = move |outbox: &usize| database_of(*outbox, databases) == database;
    let keys = move |outbox| {
        (0..rows).chain(PURSES..PURSES + rows).map(move |key| (row_of(outbox, key), 0))
    };
    (0..databases).filter(here).flat_map(keys)
}
