//! SQLite's own word on the rows that change, held against what the library recorded of them.
//!
//! With the feature `pre-update-hook` SQLite reports every row of the library's database that is
//! inserted, updated or deleted, before and after, while statements run. Judged is
//!
//! - of a statement that was refused, or reads, that nothing was reported;
//! - of a statement that ran, that only rows of the tables of the set were;
//! - of a local transaction that has committed, that its undo log, played forward over the rows as
//!   they were first reported, meets its before images on the way and ends with the rows as they
//!   were last reported, column by column, and that it names no row that was not reported;
//! - of each row reported, also one that ends as it began, that it is locked exclusively under a
//!   key that means it;
//! - of a global that has committed, that phase two changed no row of the tables.
//!
//! The hook is silent when a savepoint or a failed statement is rolled back; what was reported
//! since is forgotten here, and a row that is then not as it was last shown is a finding. Not
//! judged: computed columns, which the undo log does not hold, and locks of rows that were not
//! reported, which reads for update and rows that were met and left alone explain.
//!
//! Without the feature nothing is reported, and nothing is judged.

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

/// What the connections of one database report.
#[derive(Clone, Debug, Default)]
pub(crate) struct Witness {
    reported: Arc<Mutex<Vec<Change>>>,
}

/// One local transaction as it is reported. SQLite has one writer, so that whatever is reported
/// while it is open is its own.
#[derive(Debug)]
pub(crate) struct Watch {
    witness: Witness,
    /// How much was reported before each savepoint that is set.
    savepoints: Vec<(&'static str, usize)>,
}

/// A place in what was reported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark(usize);

/// What was judged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Judged {
    /// Changes of rows that were reported and not rolled back within their local transaction.
    pub(crate) changes: usize,
    /// Rows that they were made to, one count a local transaction.
    pub(crate) rows: usize,
    /// Undo items that explain them.
    pub(crate) items: usize,
}

impl Witness {
    /// Has every connection of a pool report its changes.
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

    /// Nothing was written since [`forget`](Self::forget) but the client's own tables.
    pub(crate) fn expect_own_tables_only(&self, schema: &Schema) -> Result<(), Finding> {
        let reported = self.reported();
        let of_the_set = reported.iter().find(|change| rows::table(schema, change).is_ok());
        match of_the_set {
            None => Ok(()),
            Some(change) => Err(Finding::new("phase two of a commit changes a row", change)),
        }
    }

    /// Forgets what was reported.
    pub(crate) fn forget(&self) {
        self.reported().clear();
    }

    fn reported(&self) -> MutexGuard<'_, Vec<Change>> {
        self.reported.lock().expect("whoever holds it does not panic")
    }
}

impl Watch {
    pub(crate) fn mark(&self) -> Mark {
        Mark(self.witness.reported().len())
    }

    /// What was reported since was rolled back.
    pub(crate) fn forget_since(&mut self, mark: Mark) {
        self.witness.reported().truncate(mark.0);
    }

    /// Nothing was changed since.
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

    /// What was done to rows, which is known for certain only before the COMMIT lets others write.
    pub(crate) fn rows(&self, schema: &Schema) -> Result<Rows, Finding> {
        Rows::of(schema, &self.witness.reported())
    }

    /// Holds the undo log and the locks of the committed local transaction against its rows.
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
