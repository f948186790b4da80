//! Predicates that name rows by their keys, and the queries that end in one.

use super::query::{Arguments, KeyedQuery, Query};
use super::{Dialect, placeholder};

/// The condition that picks `rows` rows by key, whose first placeholder takes argument `first`.
///
/// Composite keys take the form that each database turns into index lookups: PostgreSQL does so
/// with tuples, MariaDB and SQLite only with an OR of their parts.
pub(super) fn predicate(dialect: Dialect, key: &[String], rows: usize, first: usize) -> String {
    let row = |row: usize| -> Vec<String> {
        let start = first + row * key.len();
        (start..start + key.len()).map(|argument| placeholder::write(dialect, argument)).collect()
    };
    let rows = (0..rows).map(row);
    match (dialect, key) {
        (_, [column]) => {
            let values: Vec<String> = rows.map(|row| row.concat()).collect();
            format!("{column} IN ({})", values.join(", "))
        }
        (Dialect::Postgres, _) => {
            let tuples: Vec<String> = rows.map(|row| format!("({})", row.join(", "))).collect();
            format!("({}) IN ({})", key.join(", "), tuples.join(", "))
        }
        (Dialect::MySql | Dialect::Sqlite, _) => {
            let equals = |row: Vec<String>| {
                let terms =
                    key.iter().zip(row).map(|(column, value)| format!("{column} = {value}"));
                format!("({})", terms.collect::<Vec<_>>().join(" AND "))
            };
            any_of(dialect, &rows.map(equals).collect::<Vec<_>>())
        }
    }
}

/// An OR of terms that are in brackets. SQLite allows expressions to be 1,000 levels deep and reads
/// a chain as one level a term, so that it gets a tree.
pub(super) fn any_of(dialect: Dialect, terms: &[String]) -> String {
    match terms {
        [term] => term.clone(),
        terms if dialect == Dialect::Sqlite && terms.len() > 100 => {
            let (left, right) = terms.split_at(terms.len() / 2);
            format!("({} OR {})", any_of(dialect, left), any_of(dialect, right))
        }
        terms => format!("({})", terms.join(" OR ")),
    }
}

impl KeyedQuery {
    /// The query for a number of rows (at least one), to be bound to the user's whole argument list
    /// followed by the key cells of each row in key order.
    pub fn for_rows(&self, rows: usize) -> Query {
        let predicate = predicate(self.dialect, &self.key, rows, self.arguments);
        Query {
            text: format!("{}{predicate}{}", self.head, self.tail),
            arguments: Arguments::AsBoundThenKeys,
        }
    }

    /// Returns whether one query must name all rows.
    pub fn is_at_once(&self) -> bool {
        self.at_once
    }

    /// Returns whether the before image may show a row several times.
    pub fn is_joined(&self) -> bool {
        self.joined
    }

    /// How many rows one query may name: what the database's limit on arguments leaves, and never
    /// more than 1,000 where others can follow.
    pub fn rows_max(&self) -> usize {
        let limit = match self.dialect {
            Dialect::Postgres | Dialect::Sqlite => 32_766,
            Dialect::MySql => 65_535,
        };
        let left = usize::saturating_sub(limit, self.arguments) / self.key.len().max(1);
        if self.at_once { left.max(1) } else { left.clamp(1, ROWS_MAX) }
    }
}

/// A change of rows of several tables, named by their keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JointQuery {
    /// The text up to the key predicates.
    pub(super) head: String,
    /// The text after them.
    pub(super) tail: String,
    pub(super) keys: Vec<JointKeys>,
    /// How many arguments the user bound, which come before the key cells.
    pub(super) arguments: usize,
    pub(super) dialect: Dialect,
}

/// The key of one written table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JointKeys {
    /// The key columns, quoted and with their row.
    pub(super) columns: Vec<String>,
    /// A row of the join may have no row of this table.
    pub(super) optional: bool,
}

impl JointQuery {
    /// The query for a number of rows of each table, to be bound to the user's whole argument list
    /// followed by the key cells of the tables, one table after the other. `None` if it can change
    /// nothing, or has more arguments than the database takes.
    pub fn for_rows(&self, rows: &[usize]) -> Option<Query> {
        let mut first = self.arguments;
        let mut terms = Vec::with_capacity(self.keys.len());
        for (key, &rows) in self.keys.iter().zip(rows) {
            let named = (rows > 0).then(|| predicate(self.dialect, &key.columns, rows, first));
            let none = key.optional.then(|| format!("{} IS NULL", key.columns[0]));
            terms.push(match (named, none) {
                (Some(named), Some(none)) => format!("({named} OR {none})"),
                (Some(only), None) | (None, Some(only)) => only,
                (None, None) => return None,
            });
            first += rows * key.columns.len();
        }
        let text = format!("{}{}{}", self.head, terms.join(" AND "), self.tail);
        (first <= JOINT_ARGUMENTS_MAX)
            .then_some(Query { text, arguments: Arguments::AsBoundThenKeys })
    }
}

/// MySQL's limit on the arguments of a statement.
const JOINT_ARGUMENTS_MAX: usize = 65_535;

/// How many rows a by-key query names at most: longer lists cost more to plan than they save.
pub const ROWS_MAX: usize = 1_000;
