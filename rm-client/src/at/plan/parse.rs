//! From a text to a statement that the planner knows, or to a pass, or to a refusal.

use super::{Dialect, Plan, Refusal, Table, TableName};

/// What [`parse`] found.
#[derive(Clone, Debug)]
pub enum Parsed {
    /// Run the text as it is.
    Pass,
    /// A statement that needs the metadata of its table to be planned.
    Statement(Box<Statement>),
}

/// How plain reads are to be treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Reads {
    /// As the database isolates them: they may see rows of globals that are still undecided.
    #[default]
    Local,
    /// Globally committed: plain reads of one table are planned as [`super::LockMode::Committed`],
    /// other plain reads are refused.
    Committed,
}

/// A statement that is understood but not planned yet.
#[derive(Clone, Debug)]
pub struct Statement {
    dialect: Dialect,
    table: TableName,
}

impl Statement {
    /// The table whose metadata [`Statement::plan`] needs.
    pub fn table(&self) -> &TableName {
        &self.table
    }

    /// Plans the statement for a table.
    ///
    /// `argument_count` is how many arguments are bound (0 for a text sent without any).
    ///
    /// # Errors
    ///
    /// The reason why the statement cannot be undone exactly.
    pub fn plan(&self, table: &Table, argument_count: usize) -> Result<Plan, Refusal> {
        let _ = (self.dialect, table, argument_count);
        Err(Refusal::UnknownStatement { statement: "statement".to_owned() })
    }
}

/// Reads a text: the first of the planner's two steps.
///
/// # Errors
///
/// What can be refused without knowing the table.
pub fn parse(dialect: Dialect, reads: Reads, sql: &str) -> Result<Parsed, Refusal> {
    let _ = (dialect, reads, sql);
    Err(Refusal::UnknownStatement { statement: "statement".to_owned() })
}
