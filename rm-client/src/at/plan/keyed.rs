//! Predicates that name rows by their keys, and the queries that end in one.

use super::shape::KeyedQuery;
use super::{Arguments, Dialect, Query, placeholder};

/// `(k) IN (...)` for `rows` rows, whose first placeholder takes argument `first`.
///
/// Composite keys take the form that each database turns into index lookups.
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
        (Dialect::MySql, _) => {
            let equals = |row: Vec<String>| {
                let terms =
                    key.iter().zip(row).map(|(column, value)| format!("{column} = {value}"));
                format!("({})", terms.collect::<Vec<_>>().join(" AND "))
            };
            format!("({})", rows.map(equals).collect::<Vec<_>>().join(" OR "))
        }
        (Dialect::Postgres | Dialect::Sqlite, _) => {
            let tuples: Vec<String> = rows.map(|row| format!("({})", row.join(", "))).collect();
            let values = if dialect == Dialect::Sqlite { "VALUES " } else { "" };
            format!("({}) IN ({values}{})", key.join(", "), tuples.join(", "))
        }
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

    /// How many rows one query may name: what the database's limit on arguments leaves, and never
    /// more than 1,000.
    pub fn rows_max(&self) -> usize {
        let limit = match self.dialect {
            Dialect::Postgres | Dialect::Sqlite => 32_766,
            Dialect::MySql => 65_535,
        };
        let left = usize::saturating_sub(limit, self.arguments) / self.key.len().max(1);
        left.clamp(1, ROWS_MAX)
    }
}

/// How many rows a by-key query names at most: longer lists cost more to plan than they save.
pub const ROWS_MAX: usize = 1_000;
