//! Compares SQLite's own reports of changed rows with the library's records of them.
//!
//! With the feature `pre-update-hook` SQLite reports every row of the library's database that is
//! inserted, updated or deleted, before and after, while statements run. The checks are:
//!
//! - a statement that was refused, or only reads, reports no change;
//! - a statement that ran reports only rows of the tables of the set;
//! - the undo log of a committed local transaction, played forward from the rows as they were first
//!   reported, matches its before images on the way and ends with the rows as they were last
//!   reported, column by column; and it names no row that was not reported;
//! - each reported row, even one that ends as it began, is locked exclusively under a key that
//!   denotes it;
//! - phase two of a committed global changes no row of the tables.
//!
//! The hook does not report the rollback of a savepoint or of a failed statement. The reports since
//! then are forgotten here, and a row that differs from its last report is a finding. Two things
//! are not checked: computed columns, which the undo log does not hold, and locks of rows that were
//! not reported, which reads for update and unchanged matches explain.
//!
//! Without the feature there are no reports and no checks.

#![cfg_attr(
    not(feature = "pre-update-hook"),
    expect(dead_code, reason = "without the hook nothing is reported")
)]

mod change;
#[cfg(feature = "pre-update-hook")]
mod hook;
mod locks;
mod rows;
mod undo;

use std::ops::AddAssign;
use std::sync::{Arc, Mutex, MutexGuard};

use handfast::Xid;
use sqlx::sqlite::SqlitePoolOptions;

use self::change::Change;
use self::rows::Rows;
use self::undo::UndoLog;
use crate::after;
use crate::database::Twin;
use crate::finding::Finding;
use crate::scene::Scene;
use crate::schema::Schema;

/// The reports of the connections of one database.
#[derive(Clone, Debug, Default)]
pub(crate) struct Witness {
    reported: Arc<Mutex<Vec<Change>>>,
}

/// The reports of one local transaction. SQLite has one writer, so all changes reported while the
/// transaction is open belong to it.
#[derive(Debug)]
pub(crate) struct Watch {
    witness: Witness,
    /// The number of reports before each savepoint.
    savepoints: Vec<(&'static str, usize)>,
}

/// A position in the reports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark(usize);

/// Counts of the checked reports.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Judged {
    /// Reported changes of rows that were not rolled back within their local transaction.
    pub(crate) changes: usize,
    /// The rows that were changed, counted per local transaction.
    pub(crate) rows: usize,
    /// The undo items that explain the changes.
    pub(crate) items: usize,
}

impl Witness {
    /// Makes every connection of a pool report its changes.
    #[cfg(feature = "pre-update-hook")]
    pub(crate) fn listen(&self, options: SqlitePoolOptions) -> SqlitePoolOptions {
        hook::listen(self.clone(), options)
    }

    /// Leaves the pool as it is: the feature `pre-update-hook` is off.
    #[cfg(not(feature = "pre-update-hook"))]
    pub(crate) fn listen(&self, options: SqlitePoolOptions) -> SqlitePoolOptions {
        options
    }

    fn report(&self, change: Change) {
        self.reported().push(change);
    }

    /// Watches a local transaction that has just begun.
    pub(crate) fn watch(&self) -> Watch {
        self.reported().clear();
        Watch { witness: self.clone(), savepoints: Vec::new() }
    }

    /// Checks that only the client's own tables were written since [`forget`](Self::forget).
    pub(crate) fn expect_own_tables_only(&self, schema: &Schema) -> Result<(), Finding> {
        let reported = self.reported();
        let of_the_set = reported.iter().find(|change| rows::table(schema, change).is_ok());
        match of_the_set {
            None => Ok(()),
            Some(change) => Err(Finding::new("phase two of a commit changes a row", change)),
        }
    }

    /// Forgets all reports.
    pub(crate) fn forget(&self) {
        self.reported().clear();
    }

    fn reported(&self) -> MutexGuard<'_, Vec<Change>> {
        self.reported.lock().expect("no holder of the lock panics")
    }
}

impl Watch {
    pub(crate) fn mark(&self) -> Mark {
        Mark(self.witness.reported().len())
    }

    /// Forgets the reports since a mark, which were rolled back.
    pub(crate) fn forget_since(&mut self, mark: Mark) {
        self.witness.reported().truncate(mark.0);
    }

    /// Checks that no change was reported since a mark.
    pub(crate) fn expect_nothing_since(
        &self,
        mark: Mark,
        what: &'static str,
    ) -> Result<(), Finding> {
        match self.witness.reported().get(mark.0) {
            None => Ok(()),
            Some(change) => Err(Finding::new(what, change)),
        }
    }

    pub(crate) fn savepoint(&mut self, name: &'static str) {
        let mark = self.mark();
        self.savepoints.push((name, mark.0));
    }

    pub(crate) fn roll_back_to(&mut self, name: &str) {
        let at = self.newest(name);
        self.savepoints.truncate(at + 1);
        self.forget_since(Mark(self.savepoints[at].1));
    }

    pub(crate) fn release(&mut self, name: &str) {
        let at = self.newest(name);
        self.savepoints.truncate(at);
    }

    fn newest(&self, name: &str) -> usize {
        let at = self.savepoints.iter().rposition(|(set, _)| *set == name);
        at.expect("a script names savepoints that are set")
    }

    /// Returns the changes of rows. They are certain only before COMMIT, which allows others to
    /// write.
    pub(crate) fn rows(&self, schema: &Schema) -> Result<Rows, Finding> {
        Rows::of(schema, &self.witness.reported())
    }

    /// Compares the undo log and the locks of the committed local transaction with its rows.
    pub(crate) async fn judge<DB: Twin>(
        self,
        scene: &Scene<DB>,
        schema: &Schema,
        xid: &Xid,
        rows: &Rows,
    ) -> Result<Judged, Finding> {
        let log = UndoLog::reported(&self.witness.reported(), xid)?;
        log.explains(schema, rows)?;
        if !rows.is_empty() {
            let locks = after::exclusive_locks(scene, xid).await;
            locks::cover(schema, rows, &locks)?;
        }
        Ok(Judged { changes: rows.changes(), rows: rows.count(), items: log.items() })
    }
}

impl AddAssign for Judged {
    fn add_assign(&mut self, more: Self) {
        self.changes += more.changes;
        self.rows += more.rows;
        self.items += more.items;
    }
}
