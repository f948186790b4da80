//! The before image of one written table among several sources, and the change by its keys.

use super::super::{
    Arguments, Dialect, KeyedQuery, Query, Table, image, image::RowLock, quote, text::Text,
};
use super::clauses::JoinedClauses;

/// One written table of a statement.
pub(super) struct Written<'a> {
    pub(super) text: &'a Text,
    pub(super) clauses: &'a JoinedClauses,
    pub(super) table: &'a Table,
    /// The name of its row in the statement, as it is written.
    pub(super) row: &'a str,
    /// A row of the join may have no row of this table.
    pub(super) outer: bool,
}

impl Written<'_> {
    /// Reads and locks the rows of the table in the join, perhaps several times.
    pub(super) fn before(&self, columns: &[usize], verdict: &str, lock: RowLock) -> Query {
        let (text, clauses) = (self.text, self.clauses);
        let list = image::select_list_of(text.dialect, self.table, columns, self.row);
        let mut terms = JoinedClauses::swallowed(text, [Some(clauses.assignments.clone())]);
        terms.extend(clauses.predicate.clone().map(|tokens| text.cut(tokens)));
        let mut filter = image::condition(&terms);
        if self.outer {
            let key = self.key().swap_remove(0);
            let rest = filter.strip_prefix(" WHERE ").map(|rest| format!("({rest}) AND "));
            filter = format!(" WHERE {}{key} IS NOT NULL", rest.unwrap_or_default());
        }
        let with = text.cut(clauses.with.clone());
        let space = if with.is_empty() { "" } else { " " };
        let query = [
            format!("{with}{space}SELECT {list}{verdict} FROM {}", self.sources()),
            filter,
            self.lock(lock),
            image::mark(text.whole(), self.table),
        ];
        Query { text: query.concat(), arguments: Arguments::AsBound }
    }

    /// PostgreSQL: the keys of the rows of the table in the join, without locks.
    pub(super) fn chosen_keys(&self) -> String {
        let (text, clauses) = (self.text, self.clauses);
        let list = image::key_list_of(text.dialect, self.table, &format!("{}.", self.row));
        let with = text.cut(clauses.with.clone());
        let space = if with.is_empty() { "" } else { " " };
        let filter = clauses.condition(text).map(|own| format!(" WHERE {own}"));
        format!("{with}{space}SELECT {list} FROM {}{}", self.sources(), filter.unwrap_or_default())
    }

    /// The lock of the written table alone, where the database can say that.
    fn lock(&self, lock: RowLock) -> String {
        let clause = lock.clause(self.text.dialect);
        match self.text.dialect {
            Dialect::Postgres => format!("{clause} OF {}", self.row),
            // MariaDB does not know OF.
            Dialect::MySql | Dialect::Sqlite => clause.to_owned(),
        }
    }

    /// All sources, as items of a FROM.
    fn sources(&self) -> String {
        let (text, clauses) = (self.text, self.clauses);
        let target = text.cut(clauses.target.clone());
        match (&clauses.from, text.dialect) {
            (None, _) => target,
            (Some(from), Dialect::MySql) => text.cut(from.clone()),
            (Some(from), Dialect::Postgres | Dialect::Sqlite) => {
                format!("{target}, {}", text.cut(from.clone()))
            }
        }
    }

    /// The key columns of the row.
    pub(super) fn key(&self) -> Vec<String> {
        let name = |&key: &usize| {
            let name = quote::identifier(self.text.dialect, &self.table.columns[key].name);
            format!("{}.{name}", self.row)
        };
        self.table.key.columns.iter().map(name).collect()
    }

    /// The statement itself, for rows named by key.
    pub(super) fn whole_by_key(&self) -> KeyedQuery {
        let (text, clauses) = (self.text, self.clauses);
        let end = clauses.from.clone().map_or(clauses.assignments.end, |from| from.end);
        let filter = clauses.condition(text).map(|own| format!("{own} AND ")).unwrap_or_default();
        self.keyed(format!("{} WHERE {filter}", text.cut(0..end)), self.returning(), self.key())
    }

    /// The assignments alone, for rows named by key: they need no other source.
    pub(super) fn assignments_by_key(&self, item: &str) -> KeyedQuery {
        let (text, clauses) = (self.text, self.clauses);
        let dialect = text.dialect;
        let target = match dialect {
            // The arguments of the sources come before those of the assignments.
            Dialect::MySql => {
                let count = text.arguments(clauses.target.clone()).len();
                format!("{item}{}", super::clauses::swallowing_source(dialect, count))
            }
            // With its ONLY.
            Dialect::Postgres => text.cut(clauses.target.clone()),
            Dialect::Sqlite => item.to_owned(),
        };
        let with = text.cut(clauses.with.clone());
        let space = if with.is_empty() { "" } else { " " };
        let mut filter = JoinedClauses::swallowed(text, [clauses.predicate.clone()]).join(" AND ");
        if !filter.is_empty() {
            filter.push_str(" AND ");
        }
        let assignments = text.cut(clauses.assignments.clone());
        let head = format!("{with}{space}UPDATE {target} SET {assignments} WHERE {filter}");
        self.keyed(head, self.returning(), self.key())
    }

    /// A DELETE of rows named by key, which needs no other source.
    pub(super) fn delete_by_key(&self) -> KeyedQuery {
        let dialect = self.text.dialect;
        let mut filter = image::swallow_in(self.text, 0..self.text.end()).join(" AND ");
        if !filter.is_empty() {
            filter.push_str(" AND ");
        }
        let head = format!("DELETE FROM {} WHERE {filter}", quote::rows(dialect, self.table));
        let name = |&key: &usize| quote::identifier(dialect, &self.table.columns[key].name);
        let key = self.table.key.columns.iter().map(name).collect();
        KeyedQuery { at_once: false, ..self.keyed(head, String::new(), key) }
    }

    fn returning(&self) -> String {
        match self.clauses.own_items(self.text) {
            none if none.is_empty() => none,
            own => format!(" RETURNING {own}"),
        }
    }

    fn keyed(&self, head: String, returning: String, key: Vec<String>) -> KeyedQuery {
        let tail = format!("{returning}{}", image::mark(self.text.whole(), self.table));
        KeyedQuery {
            head,
            tail,
            key,
            arguments: self.text.argument_count(),
            // A source may be the written table once more.
            at_once: true,
            joined: true,
            dialect: self.text.dialect,
        }
    }
}
