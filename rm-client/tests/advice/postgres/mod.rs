//! PostgreSQL.

mod along;
mod contested;
mod joined;
mod keys;
mod reads;
mod statements;
mod tables;
mod upserts;
mod with_writes;

use sqlx::Postgres;

use super::case::Case;

/// The cases of every file.
pub(super) const CASES: &[&[Case<Postgres>]] = &[
    along::CASES,
    contested::CASES,
    joined::CASES,
    keys::CASES,
    reads::CASES,
    statements::CASES,
    tables::CASES,
    upserts::CASES,
    with_writes::CASES,
];
