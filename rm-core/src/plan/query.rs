//! The texts that a plan runs, and what is bound to them.

use super::Dialect;

/// A statement to run, and what to bind to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// One-to-one with the user's text (it ends in a comment with its hash where it is not the
    /// user's text), because drivers cache statements, types included, by text alone.
    pub text: String,
    /// The arguments to bind.
    pub arguments: Arguments,
}

/// The arguments of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arguments {
    /// The user's whole list, unchanged.
    AsBound,
    /// The user's whole list, then key cells: for each row its key columns in key order.
    AsBoundThenKeys,
}

/// A change whose rows are named by their keys instead of by the user's WHERE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyedQuery {
    /// The text up to the key predicate.
    pub(super) head: String,
    /// The text after it.
    pub(super) tail: String,
    /// The key columns, quoted.
    pub(super) key: Vec<String>,
    /// How many arguments the user bound, which come before the key cells.
    pub(super) arguments: usize,
    /// Whether what is assigned comes from a query, which in a second change of the same statement
    /// would see the first.
    pub(super) at_once: bool,
    /// Whether the rows were read by a join, which may show one of them several times.
    pub(super) joined: bool,
    pub(super) dialect: Dialect,
}

/// MySQL: a read of inserted rows by their generated keys. Its argument list is the user's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneratedKeys {
    /// The generated key column.
    pub column: usize,
    /// How many rows the statement inserts.
    pub rows: usize,
    /// Whether the statement gives the column no value. If it may give one, the database reports
    /// that, and remembers another one as the last that it has generated.
    pub is_sure: bool,
    /// `rows + 1` pieces of text; a generated number stands between each two.
    pub(super) pieces: Vec<String>,
}

impl GeneratedKeys {
    /// The read for the numbers `first`, `first + step`, ...: MySQL gives the rows of one statement
    /// numbers `auto_increment_increment` apart, and reports the first.
    ///
    /// If they are sure, the text is the same for all of them, and the database counts from the
    /// number that it remembers. Otherwise they stand in the text itself, so that it should not
    /// stay in a statement cache.
    pub fn query(&self, first: u64, step: u64) -> Query {
        let mut text = String::new();
        let mut number = first;
        let mut pieces = self.pieces.iter();
        text.extend(pieces.next().map(String::as_str));
        for piece in pieces {
            match (self.is_sure, number - first) {
                (true, 0) => text.push_str("LAST_INSERT_ID()"),
                (true, further) => text.push_str(&format!("LAST_INSERT_ID() + {further}")),
                (false, _) => text.push_str(&number.to_string()),
            }
            text.push_str(piece);
            number = number.saturating_add(step);
        }
        Query { text, arguments: Arguments::AsBound }
    }
}

/// An INSERT of the rows of a query, on MySQL, or on SQLite as an upsert. They are read first. Then
/// the INSERT of their values is planned and run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectedRows {
    /// The read.
    pub select: Query,
    /// The columns that the values are for, in their order.
    pub columns: Vec<usize>,
    /// The INSERT up to its rows.
    pub(super) head: String,
    /// ON DUPLICATE KEY UPDATE, or nothing.
    pub(super) tail: String,
}

impl SelectedRows {
    /// The INSERT of so many rows of so many values each.
    pub fn statement(&self, rows: usize, width: usize) -> String {
        let row = format!("({})", vec!["?"; width].join(", "));
        let rows = vec![row.as_str(); rows].join(", ");
        let tail = if self.tail.is_empty() { String::new() } else { format!(" {}", self.tail) };
        format!("{} VALUES {rows}{tail}", self.head)
    }
}
