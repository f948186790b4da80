//! The undo log of a changed row, composed by the database itself: the same JSON as
//! [`UndoLog::encode`] makes of the images.

use handfast_rm_core::plan::{ComposedUpdate, undo_sql};

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
    update: &ComposedUpdate,
) -> Vec<String> {
    let pairs = columns.iter().zip(&update.names);
    pairs.filter_map(|(column, name)| DB::has_type(&loaded.types[*column], name)).collect()
}

/// The undo log of an UPDATE, as the terms of its two halves: up to the values before the change,
/// and the rest. `None` if the database would not write a value as the library does.
pub(crate) fn log_of<DB: Backend>(
    loaded: &LoadedTable<DB>,
    columns: &[usize],
    update: &ComposedUpdate,
) -> Option<[Vec<String>; 2]> {
    let empty = || -> Image { vec![ImageRow { key: Box::default(), values: Vec::new() }] };
    let item = UndoItem::new(UndoKind::Update, loaded, columns, &[], empty(), empty());
    let whole = String::from_utf8(UndoLog::encode(&[item]).ok()?).ok()?;
    let head = whole.strip_suffix(EMPTY_ROWS)?;
    let text = |text: &str| undo_sql::literal(DB::DIALECT, text);
    let row = |values: &[String]| -> Option<Vec<String>> {
        let value = |(column, value): (&usize, &String)| DB::json(&loaded.types[*column], value);
        let values: Vec<String> = columns.iter().zip(values).map(value).collect::<Option<_>>()?;
        let mut terms: Vec<String> = values.into_iter().flat_map(|it| [text(","), it]).collect();
        // Nothing stands before the first one.
        terms.remove(0);
        Some(terms)
    };
    let before = [
        vec![text(&format!("{head}\"before\":[["))],
        row(&update.before)?,
        vec![text("]],\"after\":[[")],
    ];
    let after = [row(&update.after)?, vec![text("]]}]}")]];
    Some([before.concat(), after.concat()])
}

/// Terms of a text as its bytes.
pub(crate) fn bytes_of<DB: Backend>(terms: &[String]) -> String {
    DB::utf8(&DB::concat(terms))
}
