//! Reads of rows by the values that an INSERT offers: probes before it, images after it.

use super::{
    Arguments, Dialect, GeneratedKeys, Query, Table, UniqueIndex, image, keyed, placeholder, quote,
    text::Text,
    values::{Offer, Offered, PlannedValue, is_constant_default, null_is_default, offer},
};

/// A read of the rows that have the offered values in some columns.
pub(super) struct ByValues<'a> {
    pub(super) text: &'a Text,
    pub(super) table: &'a Table,
    pub(super) offered: &'a Offered<'a>,
    /// The index whose columns are compared.
    pub(super) by: &'a UniqueIndex,
    /// The image columns to read.
    pub(super) columns: &'a [usize],
    /// The lock clause, or nothing.
    pub(super) lock: &'static str,
    /// A key column that gets a generated number instead of what the rows offer.
    pub(super) number: Option<usize>,
}

/// Stands for a generated number while a text is being built: a text with a NUL is refused.
const NUMBER: &str = "\u{0}";

impl ByValues<'_> {
    /// The read, or `None` if no row can have an equal in these columns.
    pub(super) fn query(&self) -> Option<Query> {
        self.judged("")
    }

    /// The same, each row with its verdict behind it.
    pub(super) fn judged(&self, verdict: &str) -> Option<Query> {
        let comparable = |row: &&Vec<PlannedValue<'_>>| self.is_comparable(row);
        self.offered
            .rows
            .iter()
            .any(|row| comparable(&row))
            .then(|| Query { text: self.written(verdict), arguments: Arguments::AsBound })
    }

    /// Returns a query with one column for each row offered: whether a row with its values exists.
    pub(super) fn found(&self) -> Query {
        let (dialect, table) = (self.text.dialect, quote::rows(self.text.dialect, self.table));
        let asked: Vec<String> = self
            .offered
            .rows
            .iter()
            .map(|row| {
                let terms = self.row(row).unwrap_or_else(|| "FALSE".to_owned());
                format!("EXISTS (SELECT 1 FROM {table} WHERE {terms})")
            })
            .collect();
        let rest = self.text.arguments(self.offered.end..self.text.end());
        let rest = match placeholder::swallow(dialect, rest.len()).join(" AND ") {
            none if none.is_empty() => none,
            swallowed => format!(" FROM DUAL WHERE {swallowed}"),
        };
        let mark = image::mark(self.text.whole(), self.table);
        let text = format!("SELECT {}{rest}{mark}", asked.join(", "));
        Query { text, arguments: Arguments::AsBound }
    }

    /// Returns the read with gaps for the numbers that the database generates for `column`.
    pub(super) fn generated(&self, column: usize, is_sure: bool) -> GeneratedKeys {
        let numbered = Self { number: Some(column), ..*self };
        let pieces = numbered.written("").split(NUMBER).map(str::to_owned).collect();
        GeneratedKeys { column, rows: self.offered.rows.len(), is_sure, pieces }
    }

    /// Returns whether an existing row can equal this one in the columns. None can if one is NULL
    /// or gets a generated number.
    pub(super) fn is_comparable(&self, row: &[PlannedValue<'_>]) -> bool {
        self.by.columns.iter().all(|&column| match offer(self.text, self.table, row, column) {
            Offer::Value(_) | Offer::ValueOrGenerated(_) | Offer::Default => true,
            Offer::Generated | Offer::Null | Offer::Unknown => false,
        })
    }

    fn written(&self, verdict: &str) -> String {
        let dialect = self.text.dialect;
        let rows: Vec<String> = self.offered.rows.iter().filter_map(|row| self.row(row)).collect();
        let mut terms = keyed::any_of(dialect, &rows);
        let rest = self.text.arguments(self.offered.end..self.text.end());
        for swallow in placeholder::swallow(dialect, rest.len()) {
            terms = format!("{terms} AND {swallow}");
        }
        let list = image::select_list(dialect, self.table, self.columns);
        let table = quote::rows(dialect, self.table);
        let mark = image::mark(self.text.whole(), self.table);
        format!("SELECT {list}{verdict} FROM {table} WHERE {terms}{}{mark}", self.lock)
    }

    /// The terms of one row, in the order of its arguments. `None` if it needs none.
    fn row(&self, row: &[PlannedValue<'_>]) -> Option<String> {
        let comparable = self.number.is_some() || self.is_comparable(row);
        if !comparable && self.text.dialect != Dialect::MySql {
            return None;
        }
        // A row without an equal still consumes its arguments.
        let mut terms = if comparable { self.unwritten(row) } else { vec!["FALSE".to_owned()] };
        for cell in row {
            if comparable && self.is_written(row, cell.column) {
                let value = self.text.cut(cell.tokens.clone());
                terms.push(self.equals(cell.column, &self.stored(cell, value)));
                terms.extend(self.zero_is_stored(row, cell.column));
            } else {
                let arguments = self.text.arguments(cell.tokens.clone());
                terms.extend(placeholder::swallow(self.text.dialect, arguments.len()));
            }
        }
        Some(format!("({})", terms.join(" AND ")))
    }

    /// On MySQL a row with the number 0 is no equal if the server generates a number in place of 0.
    fn zero_is_stored(&self, row: &[PlannedValue<'_>], column: usize) -> Option<String> {
        let offer = offer(self.text, self.table, row, column);
        let generates = matches!(offer, Offer::ValueOrGenerated(_));
        let name = quote::identifier(self.text.dialect, &self.table.columns[column].name);
        (generates && self.text.dialect == Dialect::MySql).then(|| {
            format!("({name} <> 0 OR FIND_IN_SET('NO_AUTO_VALUE_ON_ZERO', @@SESSION.sql_mode))")
        })
    }

    /// The value that a given one is stored as: another one if it turns out to be NULL, and under
    /// the collation of its column if it may bring one along, as MySQL's casts do.
    fn stored(&self, cell: &PlannedValue<'_>, value: String) -> String {
        let column = cell.column;
        if self.text.dialect == Dialect::MySql
            && !cell.is_literal()
            && let Some(collation) = self.by.collation(column)
        {
            let charset = collation.split('_').next().unwrap_or_default();
            return format!("CONVERT({value} USING {charset}) COLLATE {collation}");
        }
        let default = self.table.columns[column].default.as_deref();
        match default.filter(|_| null_is_default(self.text.dialect, self.table, column)) {
            Some(default) if is_constant_default(self.text.dialect, default) => {
                format!("coalesce({value}, {default})")
            }
            Some(_) | None => value,
        }
    }

    /// The terms of columns whose value the row does not give.
    fn unwritten(&self, row: &[PlannedValue<'_>]) -> Vec<String> {
        let number = self.number.map(|column| self.equals(column, NUMBER));
        let others = self.by.columns.iter().filter(|column| Some(**column) != self.number);
        let default =
            |column: &&usize| offer(self.text, self.table, row, **column) == Offer::Default;
        let defaults = others.filter(default).map(|&column| self.equals_default(column));
        number.into_iter().chain(defaults).collect()
    }

    /// Returns whether a column is compared with the value that the row gives it.
    fn is_written(&self, row: &[PlannedValue<'_>], column: usize) -> bool {
        let offer = offer(self.text, self.table, row, column);
        let given = matches!(offer, Offer::Value(_) | Offer::ValueOrGenerated(_));
        given && self.by.columns.contains(&column) && Some(column) != self.number
    }

    /// The value is cast where the comparison would not convert as the assignment does: 1.005 is
    /// stored as 1.01 in a `numeric(10,2)`, and bytes too few are filled up.
    ///
    /// SQLite compares as the index does, which may hold more values for equal than the column.
    fn equals(&self, column: usize, value: &str) -> String {
        let collation = self.by.collation(column);
        let column = &self.table.columns[column];
        let name = quote::identifier(self.text.dialect, &column.name);
        match self.text.dialect {
            Dialect::Postgres => format!("{name} = ({value})::{}", column.type_text),
            Dialect::MySql => match filled_type(&column.type_text) {
                Some(filled) => format!("{name} = CAST({value} AS {filled})"),
                None => format!("{name} = {value}"),
            },
            Dialect::Sqlite => match collation {
                Some(collation) => {
                    let collation = quote::identifier(Dialect::Sqlite, collation);
                    format!("{name} = ({value}) COLLATE {collation}")
                }
                None => format!("{name} = {value}"),
            },
        }
    }

    fn equals_default(&self, column: usize) -> String {
        let own = &self.table.columns[column];
        let name = quote::identifier(self.text.dialect, &own.name);
        match self.text.dialect {
            Dialect::MySql => format!("{name} = DEFAULT({name})"),
            Dialect::Postgres | Dialect::Sqlite => {
                self.equals(column, own.default.as_deref().unwrap_or("NULL"))
            }
        }
    }
}

/// The part of a MySQL type that rounds or fills up what it is given, if it is such a type.
fn filled_type(type_text: &str) -> Option<&str> {
    let filled = ["binary(", "decimal("].iter().any(|start| type_text.starts_with(start));
    type_text.find(')').filter(|_| filled).map(|end| &type_text[..=end])
}

/// Returns whether a row may turn out to offer NULL, or a number that is generated instead, in each
/// unique index.
pub(super) fn may_hide(
    text: &Text,
    table: &Table,
    indexes: &[&UniqueIndex],
    offered: &Offered<'_>,
) -> bool {
    let is_sure = |row: &[PlannedValue<'_>], column: usize| match offer(text, table, row, column) {
        Offer::Value(at) => !table.columns[column].nullable || row[at].is_constant(),
        Offer::ValueOrGenerated(at) => row[at].is_constant(),
        Offer::Default => true,
        Offer::Generated | Offer::Null | Offer::Unknown => false,
    };
    let is_seen = |row: &Vec<PlannedValue<'_>>| {
        indexes.iter().any(|index| index.columns.iter().all(|column| is_sure(row, *column)))
    };
    !offered.rows.iter().all(is_seen)
}
