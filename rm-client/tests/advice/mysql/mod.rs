//! MariaDB.

mod along;
mod joined;
mod keys;
mod reads;
mod statements;
mod tables;
mod upserts;

use sqlx::MySql;

use super::case::Case;

/// The cases of every file.
pub(super) const CASES: &[&[Case<MySql>]] = &[
    along::CASES,
    joined::CASES,
    keys::CASES,
    reads::CASES,
    statements::CASES,
    tables::CASES,
    upserts::CASES,
];
