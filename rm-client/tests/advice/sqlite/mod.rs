//! SQLite.

mod along;
mod keys;
mod statements;
mod tables;
mod upserts;

use sqlx::Sqlite;

use super::case::Case;

/// The cases of every file.
pub(super) const CASES: &[&[Case<Sqlite>]] =
    &[along::CASES, keys::CASES, statements::CASES, tables::CASES, upserts::CASES];
