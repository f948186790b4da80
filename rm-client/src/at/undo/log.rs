//! The undo log of a branch: for each statement its rows before and after, as JSON.
//!
//! ```json
//! {"version": 1, "items": [{"kind": "update", "schema": "public", "table": "stock",
//!   "columns": [{"name": "product_id", "type": "oid 20", "role": "key"},
//!               {"name": "units", "type": "oid 23", "role": "written"}],
//!   "before": [[7, 40]], "after": [[7, 39]]}]}
//! ```
//!
//! Columns come in table order, key columns among them; rows of `before` and `after` correspond.
//!
//! A log with a column in the role `counter` has form 2. A version that knows form 1 alone refuses
//! it: it does not know the role either, and would write the value of before over what others have
//! added.

use handfast_rm_core::plan::TableName;
use serde::{Deserialize, Serialize};

use super::image::Image;
use crate::at::database::value::Value;
use crate::at::database::{Backend, LoadedTable};
use crate::at::error::AtError;

/// The form of a log without counters.
const VERSION: u32 = 1;
/// The form of a log with counters. Both are read.
const VERSION_WITH_COUNTERS: u32 = 2;

/// Everything that one branch did to its database, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UndoLog {
    version: u32,
    pub(crate) items: Vec<UndoItem>,
}

/// The effect of one statement on rows of one table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UndoItem {
    pub(crate) kind: UndoKind,
    pub(crate) schema: String,
    pub(crate) table: String,
    pub(crate) columns: Vec<UndoColumn>,
    /// The rows before; empty for an insert.
    pub(crate) before: Vec<Vec<Value>>,
    /// The rows after; empty for a delete.
    pub(crate) after: Vec<Vec<Value>>,
}

/// The kind of change to be undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum UndoKind {
    Insert,
    Update,
    Delete,
}

impl UndoKind {
    /// Returns the statement that makes such a change.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Insert => "INSERT",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

/// A column of an undo item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UndoColumn {
    pub(crate) name: String,
    /// Equal to the column's type when the log is read, or its values cannot go back.
    #[serde(rename = "type")]
    pub(crate) type_name: String,
    pub(crate) role: ColumnRole,
}

/// The role of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ColumnRole {
    /// Names the row.
    Key,
    /// Written by the transaction: compared, then restored.
    Written,
    /// Changed along by the database: restored, never compared.
    Maintained,
    /// Added to or taken from, as others may have done since: the difference is given back, and the
    /// value never compared.
    Counter,
}

/// An undo log that cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnreadableLog {
    #[error("undo log is malformed: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("undo log has form {0}, which this version of Handfast does not know: update it")]
    Version(u32),
    #[error("undo log item {0} has no rows, or rows of unequal width")]
    Rows(usize),
}

impl UndoLog {
    pub(crate) fn encode(items: &[UndoItem]) -> Result<Vec<u8>, serde_json::Error> {
        #[derive(Serialize)]
        struct Borrowed<'i> {
            version: u32,
            items: &'i [UndoItem],
        }
        let counts = items.iter().flat_map(|item| &item.columns);
        let counts = counts.into_iter().any(|column| column.role == ColumnRole::Counter);
        let version = if counts { VERSION_WITH_COUNTERS } else { VERSION };
        serde_json::to_vec(&Borrowed { version, items })
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, UnreadableLog> {
        let log: Self = serde_json::from_slice(bytes)?;
        if ![VERSION, VERSION_WITH_COUNTERS].contains(&log.version) {
            return Err(UnreadableLog::Version(log.version));
        }
        match log.items.iter().position(|item| !item.is_sound()) {
            Some(item) => Err(UnreadableLog::Rows(item)),
            None => Ok(log),
        }
    }
}

impl UndoItem {
    /// Makes an item from images over the table's columns named.
    pub(crate) fn new<DB: Backend>(
        kind: UndoKind,
        loaded: &LoadedTable<DB>,
        columns: &[usize],
        maintained: &[usize],
        before: Image,
        after: Image,
    ) -> Self {
        let role = |index: usize| match index {
            _ if loaded.table.key.columns.contains(&index) => ColumnRole::Key,
            _ if maintained.contains(&index) => ColumnRole::Maintained,
            _ => ColumnRole::Written,
        };
        let column = |&index: &usize| UndoColumn {
            name: loaded.table.columns[index].name.clone(),
            type_name: DB::type_name(&loaded.types[index]),
            role: role(index),
        };
        let values = |image: Image| image.into_iter().map(|row| row.values).collect();
        Self {
            kind,
            schema: loaded.table.schema.clone(),
            table: loaded.table.name.clone(),
            columns: columns.iter().map(column).collect(),
            before: values(before),
            after: values(after),
        }
    }

    /// Makes an item of counters that were added to or taken from.
    pub(crate) fn counted<DB: Backend>(
        loaded: &LoadedTable<DB>,
        columns: &[usize],
        before: Image,
        after: Image,
    ) -> Self {
        let mut item = Self::new(UndoKind::Update, loaded, columns, &[], before, after);
        for column in item.columns.iter_mut().filter(|it| it.role == ColumnRole::Written) {
            column.role = ColumnRole::Counter;
        }
        item
    }

    pub(crate) fn table_name(&self) -> TableName {
        TableName { schema: Some(self.schema.clone()), name: self.table.clone() }
    }

    /// For each column of the item, its place in the table as it is now.
    ///
    /// # Errors
    /// [`AtError::SchemaChanged`].
    pub(crate) fn columns_in<DB: Backend>(
        &self,
        loaded: &LoadedTable<DB>,
    ) -> Result<Vec<usize>, AtError> {
        let table = &loaded.table;
        let changed = |reason| AtError::SchemaChanged { table: table.full_name(), reason };
        let mut places = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            let known = |known: &handfast_rm_core::plan::Column| known.name == column.name;
            let Some(place) = table.columns.iter().position(known) else {
                return Err(changed(format!("column {} is gone", column.name)));
            };
            let type_name = DB::type_name(&loaded.types[place]);
            if type_name != column.type_name {
                return Err(changed(format!(
                    "column {} was {} and is {type_name}",
                    column.name, column.type_name
                )));
            }
            places.push(place);
        }
        // Rows are named by their key, so it has to consist of the same columns.
        let named = self.columns.iter().zip(&places);
        let was_key = named.filter(|(column, _)| column.role == ColumnRole::Key);
        let mut key: Vec<usize> = was_key.map(|(_, place)| *place).collect();
        let mut is_key = table.key.columns.clone();
        key.sort_unstable();
        is_key.sort_unstable();
        if key != is_key {
            return Err(changed("its key has other columns".to_owned()));
        }
        Ok(places)
    }

    fn is_sound(&self) -> bool {
        let (before, after) = (self.before.len(), self.after.len());
        let counts = match self.kind {
            UndoKind::Insert => before == 0 && after > 0,
            UndoKind::Update => before == after && after > 0,
            UndoKind::Delete => before > 0 && after == 0,
        };
        let width = self.columns.len();
        let counters = self.columns.iter().any(|column| column.role == ColumnRole::Counter);
        (!counters || self.kind == UndoKind::Update)
            && counts
            && self.before.iter().chain(&self.after).all(|row| row.len() == width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(role: ColumnRole) -> UndoItem {
        let column = |name: &str, role| UndoColumn {
            name: name.to_owned(),
            type_name: "INTEGER".to_owned(),
            role,
        };
        let row = |units| vec![vec![Value::Integer(7), Value::Integer(units)]];
        UndoItem {
            kind: UndoKind::Update,
            schema: "main".to_owned(),
            table: "stock".to_owned(),
            columns: vec![column("id", ColumnRole::Key), column("units", role)],
            before: row(40),
            after: row(39),
        }
    }

    /// A version that knows form 1 alone would put the value of before back: it has to refuse.
    #[test]
    fn a_log_with_counters_has_a_form_of_its_own() {
        let form = |items: &[UndoItem]| {
            let bytes = UndoLog::encode(items).unwrap();
            assert_eq!(UndoLog::decode(&bytes).unwrap().items, items);
            serde_json::from_slice::<serde_json::Value>(&bytes).unwrap()["version"].clone()
        };
        assert_eq!(form(&[item(ColumnRole::Written)]), 1);
        assert_eq!(form(&[item(ColumnRole::Written), item(ColumnRole::Counter)]), 2);
    }

    #[test]
    fn logs_of_the_first_form_are_read() {
        let kept = r#"{"version":1,"items":[{"kind":"update","schema":"main","table":"stock",
            "columns":[{"name":"id","type":"INTEGER","role":"key"},
            {"name":"units","type":"INTEGER","role":"written"}],
            "before":[[7,40]],"after":[[7,39]]}]}"#;
        let log = UndoLog::decode(kept.as_bytes()).unwrap();
        assert_eq!(log.items, [item(ColumnRole::Written)]);
    }

    #[test]
    fn logs_that_make_no_sense_are_refused() {
        let mut inserted = item(ColumnRole::Counter);
        inserted.kind = UndoKind::Insert;
        inserted.before.clear();
        let bytes = UndoLog::encode(&[inserted]).unwrap();
        assert!(matches!(UndoLog::decode(&bytes), Err(UnreadableLog::Rows(0))));
        let later = br#"{"version":3,"items":[]}"#;
        assert!(matches!(UndoLog::decode(later), Err(UnreadableLog::Version(3))));
    }
}
