//! AT mode compared with the database itself: generated tables and statements, run through the
//! library in globals that are rolled back or committed, and the same statements without the
//! library.
//!
//! A statement is refused before it runs, or undone exactly. A committed one has the same effect as
//! without the library, and returns the same rows, counts and errors. After the end of a global
//! there is no undo row and no lock. Built with the feature `pre-update-hook`, SQLite also reports
//! every row that changes, and each must be in the undo log and locked: see `witness`.
//!
//! One case is one generated statement, executed once in one local transaction with one end of its
//! global, whatever its result: done, failed on both sides alike, or refused. The first rows of
//! tables are not cases. SQLite gets most cases, because it is the fastest. Each database gets all
//! shapes. The choices follow from a seed, which is printed first:
//!
//! | variable | meaning |
//! | --- | --- |
//! | `HANDFAST_DIFFERENTIAL_SEED` | the seed |
//! | `HANDFAST_DIFFERENTIAL_CASES` | how many cases each database gets at least |
//! | `HANDFAST_DIFFERENTIAL_SET` | plays this set of tables alone, to look at what was found |

#![expect(clippy::unwrap_used, reason = "in a test an error is a failure")]

mod after;
#[path = "../columns/mod.rs"]
mod columns;
mod database;
mod finding;
mod forbidden;
mod grammar;
mod northwind;
mod play;
mod predicate;
mod random;
mod run;
mod scene;
mod schema;
mod script;
mod statement;
mod table;
mod tally;
mod together;
mod witness;

use run::run;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite() {
    run::<sqlx::Sqlite>(17_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres() {
    run::<sqlx::Postgres>(2_300).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql() {
    run::<sqlx::MySql>(2_000).await;
}
