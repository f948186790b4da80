//! Counts of tried statements and their results.

use std::collections::BTreeMap;
use std::fmt;

use crate::statement::Kind;
use crate::witness::Judged;

/// The counts of one run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// Statements, by their kind and the library's answer.
    pub(crate) statements: BTreeMap<(Kind, Answered), usize>,
    /// Refusals by their code.
    pub(crate) refusals: BTreeMap<String, usize>,
    pub(crate) tables: usize,
    pub(crate) committed: usize,
    pub(crate) rolled_back: usize,
    /// Rows changed without the library before a rollback.
    pub(crate) dirtied: usize,
    /// Rows whose lock another global was refused.
    pub(crate) lock_refused: usize,
    /// Rows inserted, deleted or restored by rollbacks.
    pub(crate) rows_undone: usize,
    /// The changes that SQLite reported.
    pub(crate) witnessed: Judged,
}

/// The answer of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Answered {
    /// The same success as of the database alone.
    Done,
    /// The same error as of the database alone.
    Failed,
    /// The statement was refused before it ran.
    Refused,
    /// The library found while the statement ran that it cannot undo it exactly, and the local
    /// transaction could only be rolled back.
    Withdrawn,
}

impl Tally {
    pub(crate) fn count(&mut self, kind: Kind, came: Answered) {
        *self.statements.entry((kind, came)).or_default() += 1;
    }

    /// Returns the number of generated statements that were executed, each once in one transaction
    /// with one end.
    pub(crate) fn cases(&self) -> usize {
        self.statements.values().sum()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} statements over {} sets of tables; globals committed {}, rolled back {} \
             ({} rows undone, {} dirtied); {} rows kept from others",
            self.cases(),
            self.tables,
            self.committed,
            self.rolled_back,
            self.rows_undone,
            self.dirtied,
            self.lock_refused,
        )?;
        if self.witnessed.changes > 0 {
            let Judged { changes, rows, items } = self.witnessed;
            writeln!(
                f,
                "  SQLite reported {changes} changes of {rows} rows, explained by {items} undo items"
            )?;
        }
        for ((kind, came), count) in &self.statements {
            writeln!(f, "  {kind:?} {came:?}: {count}")?;
        }
        for (code, count) in &self.refusals {
            writeln!(f, "  {code}: {count}")?;
        }
        Ok(())
    }
}
