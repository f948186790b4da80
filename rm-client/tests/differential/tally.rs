//! What was tried and what came of it.

use std::collections::BTreeMap;
use std::fmt;

use crate::statement::Kind;
use crate::witness::Judged;

/// Counts of one run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// Statements, by what they are and what the library answered.
    pub(crate) statements: BTreeMap<(Kind, Came), usize>,
    /// Refusals by their code.
    pub(crate) refusals: BTreeMap<String, usize>,
    pub(crate) tables: usize,
    pub(crate) committed: usize,
    pub(crate) rolled_back: usize,
    /// Rows changed by a foreign hand before a rollback.
    pub(crate) dirtied: usize,
    /// Rows that another global was kept from.
    pub(crate) kept_from: usize,
    /// Rows put back, taken away or restored by rollbacks.
    pub(crate) rows_undone: usize,
    /// What SQLite reported of itself.
    pub(crate) witnessed: Judged,
}

/// What the library answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Came {
    /// As the database alone.
    Done,
    /// As the database alone: an error.
    Failed,
    /// Refused before it ran.
    Refused,
    /// Found not to be exact while it ran: the local transaction could only be rolled back.
    Withdrawn,
}

impl Tally {
    pub(crate) fn count(&mut self, kind: Kind, came: Came) {
        *self.statements.entry((kind, came)).or_default() += 1;
    }

    /// Generated statements that were executed, each once in one transaction with one end.
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
            self.kept_from,
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
