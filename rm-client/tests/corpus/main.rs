//! AT mode's coverage of the SQL that applications send: the statements of `quality/corpus`, each
//! run through the library and past it on a twin.
//!
//! A statement is undone exactly, or refused with a code. It fails this program if it leaves other
//! rows than the database alone, if it does not come back, or if the database alone refuses it. The
//! counts and the refusals are the generated part of `docs/at-coverage.md`, so that each change of
//! what AT accepts is seen in review; `cargo xtask corpus --update` writes the page again.
//!
//! | variable | meaning |
//! | --- | --- |
//! | `HANDFAST_CORPUS_APPLICATION` | runs this application alone, and leaves the page |
//! | `HANDFAST_CORPUS_DATABASE` | runs this database alone, and leaves the page |

#![expect(clippy::unwrap_used, reason = "in a test an error is a failure")]

mod application;
mod database;
mod entry;
mod judge;
mod mask;
mod mysql;
mod page;
mod postgres;
mod run;
mod sqlite;
mod stage;

use run::Chosen;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_statement_is_exact_or_refused() {
    let chosen = Chosen::from_environment();
    let coverage = run::all(&chosen).await;
    page::print(&coverage);
    let wrong = coverage.wrong();
    assert!(wrong.is_empty(), "{} wrong:\n\n{}", wrong.len(), wrong.join("\n\n"));
    if chosen.is_everything() {
        page::check(&coverage);
    }
}
