//! The changes of each row by a local transaction: all reports of a row are folded into its first
//! and its last state.

use std::collections::BTreeMap;

use super::change::{Cell, Change, Value};
use crate::finding::Finding;
use crate::schema::Schema;
use crate::table::{Column, Role, Table};

/// The rows that a local transaction has touched.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    stories: BTreeMap<RowName, FirstAndLast>,
    changes: usize,
}

/// A row's table, by its index in the schema, and the exact values of its key.
pub(super) type RowName = (usize, String);

/// A row's values by column; `None` for computed columns.
pub(super) type Row = Vec<Option<Value>>;

/// The state of a row before its first change and after its last.
#[derive(Clone, Debug)]
pub(super) struct FirstAndLast {
    pub(super) first: Option<Row>,
    pub(super) last: Option<Row>,
}

impl Rows {
    /// Folds changes.
    pub(super) fn of(schema: &Schema, changes: &[Change]) -> Result<Self, Finding> {
        let mut rows = Self::default();
        for change in changes {
            rows.fold(schema, change)?;
        }
        Ok(rows)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.stories.is_empty()
    }

    pub(super) fn changes(&self) -> usize {
        self.changes
    }

    pub(super) fn count(&self) -> usize {
        self.stories.len()
    }

    pub(super) fn stories(&self) -> impl Iterator<Item = (&RowName, &FirstAndLast)> {
        self.stories.iter()
    }

    /// Folds one change. An update is treated as a removal and an addition, since it may also
    /// change the key.
    fn fold(&mut self, schema: &Schema, change: &Change) -> Result<(), Finding> {
        self.changes += 1;
        let (place, table) = table(schema, change)?;
        if let Some(old) = &change.old {
            self.remove(place, table, row(table, old)?)?;
        }
        if let Some(new) = &change.new {
            self.add(place, table, row(table, new)?)?;
        }
        Ok(())
    }

    fn remove(&mut self, place: usize, table: &Table, old: Row) -> Result<(), Finding> {
        let fresh = || FirstAndLast { first: Some(old.clone()), last: Some(old.clone()) };
        let story = self.stories.entry((place, name(table, &old))).or_insert_with(fresh);
        if story.last.as_ref() != Some(&old) {
            return Err(broken(table, story, &old));
        }
        story.last = None;
        Ok(())
    }

    fn add(&mut self, place: usize, table: &Table, new: Row) -> Result<(), Finding> {
        let fresh = || FirstAndLast { first: None, last: None };
        let story = self.stories.entry((place, name(table, &new))).or_insert_with(fresh);
        if story.last.is_some() {
            return Err(broken(table, story, &new));
        }
        story.last = Some(new);
        Ok(())
    }
}

/// Returns the table of the schema that a change concerns.
pub(super) fn table<'s>(
    schema: &'s Schema,
    change: &Change,
) -> Result<(usize, &'s Table), Finding> {
    let mut tables = schema.tables.iter().enumerate();
    let found = tables.find(|(_, table)| table.name == change.table);
    found.ok_or_else(|| Finding::new("a row of a table that no statement names changes", change))
}

/// Returns the exact name of a row within its table.
pub(super) fn name(table: &Table, row: &Row) -> String {
    let parts: Vec<&Option<Value>> = table.key.iter().map(|place| &row[*place]).collect();
    format!("{parts:?}")
}

fn row(table: &Table, cells: &[Cell]) -> Result<Row, Finding> {
    if cells.len() != table.columns.len() {
        return Err(Finding::new("a reported row has other columns", (&table.name, cells)));
    }
    let values = table.columns.iter().zip(cells).map(|(column, cell)| match (column.role, cell) {
        (Role::Computed, _) => Ok(None),
        (_, Ok(value)) => Ok(Some(as_read(column, value))),
        (_, Err(error)) => Err(Finding::new("a reported value cannot be read", error)),
    });
    values.collect()
}

/// Returns a value as a statement would read it. SQLite stores whole numbers of a REAL column as
/// integers, which have no negative zero, and the hook shows some of them in that form.
fn as_read(column: &Column, value: &Value) -> Value {
    match value {
        #[expect(clippy::cast_precision_loss, reason = "as SQLite reads it")]
        Value::Integer(number) if is_real(column) => Value::Real(*number as f64),
        Value::Real(number) if *number == 0.0 && is_real(column) => Value::Real(0.0),
        Value::Null | Value::Integer(_) | Value::Real(_) | Value::Text(_) | Value::Blob(_) => {
            value.clone()
        }
    }
}

/// Returns whether a column has the affinity REAL, by SQLite's rules in their order.
fn is_real(column: &Column) -> bool {
    let declared = column.type_text.to_ascii_uppercase();
    let says = |parts: &[&str]| parts.iter().any(|part| declared.contains(part));
    !says(&["INT", "CHAR", "CLOB", "TEXT", "BLOB"]) && says(&["REAL", "FLOA", "DOUB"])
}

fn broken(table: &Table, story: &FirstAndLast, row: &Row) -> Finding {
    let details = format!("{}: last {:?}, then {row:?}", table.name, story.last);
    Finding::new("a row is not as it was last reported", details)
}
