//! The undo log of a changed row, composed by the database itself: the same JSON as
//! [`UndoLog::encode`] makes of the images.

use handfast_rm_core::plan::{NotedUpdate, undo_sql};

use super::image::{Image, ImageRow};
use super::log::{UndoItem, UndoKind, UndoLog};
use crate::at::database::{Backend, LoadedTable};

/// The end of the log of an item with one row that has no columns.
const EMPTY_ROWS: &str = r#""before":[[]],"after":[[]]}]}"#;

/// Conditions without which the database would not write the values of the columns as the library
/// does.
pub(crate) fn types_of<DB: Backend>(
    loaded: &LoadedTable<DB>,
    columns: &[usize],
    update: &NotedUpdate,
) -> Vec<String> {
    let pairs = columns.iter().zip(&update.names);
    pairs.filter_map(|(column, name)| DB::has_type(&loaded.types[*column], name)).collect()
}

/// The undo log of an UPDATE, as an expression of the statement. `None` if the database would not
/// write a value as the library does.
pub(crate) fn log_of<DB: Backend>(
    loaded: &LoadedTable<DB>,
    columns: &[usize],
    update: &NotedUpdate,
) -> Option<String> {
    let empty = || -> Image { vec![ImageRow { key: Box::default(), values: Vec::new() }] };
    let item = UndoItem::new(UndoKind::Update, loaded, columns, &[], empty(), empty());
    let whole = String::from_utf8(UndoLog::encode(&[item]).ok()?).ok()?;
    let head = whole.strip_suffix(EMPTY_ROWS)?;
    let text = |text: &str| undo_sql::literal(DB::DIALECT, text);
    let row = |values: &[String]| -> Option<Vec<String>> {
        let value = |(column, value): (&usize, &String)| DB::json(&loaded.types[*column], value);
        columns.iter().zip(values).map(value).collect()
    };
    let comma = format!(", {}, ", text(","));
    let parts = [
        text(&format!("{head}\"before\":[[")),
        row(&update.before)?.join(&comma),
        text("]],\"after\":[["),
        row(&update.after)?.join(&comma),
        text("]]}]}"),
    ];
    Some(update.log(&DB::utf8(&format!("CONCAT({})", parts.join(", ")))))
}
