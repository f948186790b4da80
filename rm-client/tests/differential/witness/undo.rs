//! Plays the written undo log forward over the reported rows.

use std::collections::BTreeMap;

use handfast::Xid;
use serde::Deserialize;
use serde_json::Value as Json;

use super::change::{Change, Value};
use super::rows::{Row, RowName, Rows, name};
use crate::finding::Finding;
use crate::schema::Schema;
use crate::table::Table;

/// The indexes of columns in `undo_log`.
const XID: usize = 1;
const LOG: usize = 3;

/// The undo log of one local transaction, empty if it changed no row.
#[derive(Debug, Default, Deserialize)]
pub(super) struct UndoLog {
    items: Vec<Item>,
}

#[derive(Debug, Deserialize)]
struct Item {
    kind: Kind,
    schema: String,
    table: String,
    columns: Vec<ItemColumn>,
    before: Vec<Vec<Json>>,
    after: Vec<Vec<Json>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Insert,
    Update,
    Delete,
}

#[derive(Debug, Deserialize)]
struct ItemColumn {
    name: String,
}

/// The state of the rows while the log is played.
type State = BTreeMap<RowName, Option<Row>>;

impl UndoLog {
    /// Returns the log that was inserted into `undo_log` for a branch of a global.
    pub(super) fn reported(changes: &[Change], xid: &Xid) -> Result<Self, Finding> {
        let xid = Ok(Value::Text(xid.to_string()));
        let rows = changes.iter().filter(|change| change.table == "undo_log");
        let mut rows = rows.filter_map(|change| change.new.as_ref());
        let Some(row) = rows.find(|row| row.get(XID) == Some(&xid)) else {
            return Ok(Self::default());
        };
        let Some(Ok(Value::Blob(log))) = row.get(LOG) else {
            return Err(Finding::new("an undo row holds no log", row));
        };
        let unreadable = |error| Finding::new("an undo log cannot be read", error);
        serde_json::from_slice(log).map_err(unreadable)
    }

    pub(super) fn items(&self) -> usize {
        self.items.len()
    }

    /// Checks that the items, played forward, lead from the first state of each row to its last.
    pub(super) fn explains(&self, schema: &Schema, rows: &Rows) -> Result<(), Finding> {
        let first = rows.stories().map(|(name, story)| (name.clone(), story.first.clone()));
        let mut state: State = first.collect();
        for item in &self.items {
            item.play(schema, &mut state)?;
        }
        for (name, story) in rows.stories() {
            if state[name] != story.last {
                let table = &schema.tables[name.0].name;
                let details = format!(
                    "{table}:\n  first {:?}\n  last {:?}\n  undo log {:?}",
                    story.first, story.last, state[name]
                );
                return Err(Finding::new("the undo log does not explain a changed row", details));
            }
        }
        Ok(())
    }
}

impl Item {
    fn play(&self, schema: &Schema, state: &mut State) -> Result<(), Finding> {
        let found = schema.tables.iter().position(|table| table.name == self.table);
        let Some(place) = found.filter(|_| self.schema == "main") else {
            return Err(self.finding("an undo item names an unknown table", &()));
        };
        let table = &schema.tables[place];
        let rows = self.before.len().max(self.after.len());
        for at in 0..rows {
            let before = self.before.get(at).map(|values| self.row(table, values)).transpose()?;
            let after = self.after.get(at).map(|values| self.row(table, values)).transpose()?;
            let Some(named) = before.as_ref().or(after.as_ref()) else { continue };
            let Some(row) = state.get_mut(&(place, name(table, named))) else {
                return Err(self.finding("an undo item names a row that did not change", named));
            };
            self.step(row, before.as_ref(), after)?;
        }
        Ok(())
    }

    fn step(
        &self,
        row: &mut Option<Row>,
        before: Option<&Row>,
        after: Option<Row>,
    ) -> Result<(), Finding> {
        let fits = match (self.kind, &row, before) {
            (Kind::Insert, None, None) => true,
            (Kind::Delete, Some(row), Some(before)) => **row == *before,
            (Kind::Update, Some(row), Some(before)) => self.covers(before, row),
            (Kind::Insert | Kind::Delete | Kind::Update, _, _) => false,
        };
        if !fits {
            return Err(self.finding("a before image is not the row before", &(before, row)));
        }
        match (self.kind, row, after) {
            (Kind::Update, Some(row), Some(after)) => {
                for (value, after) in row.iter_mut().zip(after) {
                    if after.is_some() {
                        *value = after;
                    }
                }
            }
            (Kind::Insert | Kind::Update | Kind::Delete, row, after) => *row = after,
        }
        Ok(())
    }

    /// Returns whether the values of an image equal those of the row.
    fn covers(&self, image: &Row, row: &Row) -> bool {
        image.iter().zip(row).all(|(image, value)| image.is_none() || image == value)
    }

    /// Returns the values in the table's order, `None` if the item has no value.
    fn row(&self, table: &Table, values: &[Json]) -> Result<Row, Finding> {
        let mut row: Row = vec![None; table.columns.len()];
        for (column, value) in self.columns.iter().zip(values) {
            let place = table.columns.iter().position(|known| known.name == column.name);
            let (Some(place), Some(value)) = (place, decoded(value)) else {
                return Err(self.finding("an undo item cannot be read", &(column, value)));
            };
            row[place] = Some(value);
        }
        Ok(row)
    }

    fn finding(&self, what: &'static str, details: &impl std::fmt::Debug) -> Finding {
        Finding::new(what, format!("{:?} {}: {details:?}", self.kind, self.table))
    }
}

/// Decodes a value of the undo log. `at/database/value.rs` describes the forms.
fn decoded(json: &Json) -> Option<Value> {
    match json {
        Json::Null => Some(Value::Null),
        Json::Number(number) => number.as_i64().map(Value::Integer),
        Json::String(text) => Some(Value::Text(text.clone())),
        Json::Object(object) => {
            let (tag, value) = object.iter().next().filter(|_| object.len() == 1)?;
            match tag.as_str() {
                "real" => value.as_str()?.parse().ok().map(Value::Real),
                "hex" => bytes(value.as_str()?).map(Value::Blob),
                _ => None,
            }
        }
        Json::Bool(_) | Json::Array(_) => None,
    }
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let pairs = (0..hex.len()).step_by(2);
    pairs.map(|at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok()).collect()
}
