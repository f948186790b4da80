//! Every column type of each database, with SQL for values of it.

pub(crate) mod mysql;
pub(crate) mod postgres;
pub(crate) mod sqlite;

/// A column, and SQL for the values to try in it.
pub(crate) struct Column {
    pub(crate) declared: &'static str,
    /// Empty for a column that the database computes.
    pub(crate) values: &'static [&'static str],
}

/// A type of key, and spellings of keys.
pub(crate) struct Key {
    pub(crate) declared: &'static str,
    /// Values that all differ for the database.
    pub(crate) values: &'static [&'static str],
    /// Pairs of values that are equal for the database, though written differently.
    pub(crate) equal: &'static [(&'static str, &'static str)],
}
