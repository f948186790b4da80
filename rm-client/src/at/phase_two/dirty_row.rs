//! Rows of a refused branch as operators see them: before, after and current values in the
//! database's own text form.

use handfast_proto::v1::{DirtyColumn, DirtyRow};
use handfast_rm_core::plan::Dialect;

use crate::at::database::value::{Value, to_hex};
use crate::at::database::{Backend, LoadedTable, rows};
use crate::at::undo::log::{ColumnRole, UndoItem};

/// How many rows are described, the dirty ones first; the report counts them all. More: a table of
/// many rows makes the branch's record large. Fewer: an operator decides on what is not seen.
pub(crate) const ROWS_MAX: usize = 50;
/// How many characters of a value are shown.
pub(crate) const CHARS_MAX: usize = 200;
/// Describes a row by its before, after and current image, each `None` where there is no row.
pub(crate) async fn describe<DB: Backend>(
    connection: &mut DB::Connection,
    loaded: &LoadedTable<DB>,
    item: &UndoItem,
    columns: &[usize],
    images: [Option<&[Value]>; 3],
) -> DirtyRow {
    // Any image names the row, since its key is the same in all of them.
    let named = images.iter().flatten().next().copied().unwrap_or_default();
    let mut key = Vec::new();
    let mut shown = Vec::new();
    for (at, column) in item.columns.iter().enumerate() {
        let place = columns[at];
        if column.role == ColumnRole::Key {
            key.extend(text(connection, loaded, place, named.get(at)).await);
            continue;
        }
        if loaded.table.whole_rows {
            key.extend(text(connection, loaded, place, named.get(at)).await);
        }
        let [before, after, current] = images.map(|image| image.and_then(|image| image.get(at)));
        shown.push(DirtyColumn {
            name: column.name.clone(),
            before: text(connection, loaded, place, before).await,
            after: text(connection, loaded, place, after).await,
            current: text(connection, loaded, place, current).await,
        });
    }
    let table = loaded.table.full_name();
    DirtyRow { table, key: key.join(", "), columns: shown, ..DirtyRow::default() }
}

/// A value's text; `None` is NULL, or no row.
pub(crate) async fn text<DB: Backend>(
    connection: &mut DB::Connection,
    loaded: &LoadedTable<DB>,
    column: usize,
    value: Option<&Value>,
) -> Option<String> {
    let text = match value? {
        Value::Null => return None,
        Value::Bool(value) => value.to_string(),
        Value::Integer(value) => value.to_string(),
        Value::Real(value) => value.to_string(),
        Value::Text(value) => value.clone(),
        Value::Bytes(bytes) => match by_database(connection, loaded, column, value?).await {
            Some(text) => text,
            None => format!("0x{}", to_hex(bytes)),
        },
    };
    Some(text.chars().take(CHARS_MAX).collect())
}

/// Asks the database for the text of a value. `None` where it has none; only operators read it, so
/// that a failure is answered with the bytes instead.
async fn by_database<DB: Backend>(
    connection: &mut DB::Connection,
    loaded: &LoadedTable<DB>,
    column: usize,
    value: &Value,
) -> Option<String> {
    let cast = match DB::DIALECT {
        Dialect::Postgres => "SELECT CAST($1 AS text)",
        Dialect::MySql if DB::is_temporal(&loaded.types[column]) => "SELECT CAST(? AS CHAR)",
        Dialect::MySql | Dialect::Sqlite => return None,
    };
    let mut arguments = DB::Arguments::default();
    DB::bind(&mut arguments, value, &loaded.types[column]).ok()?;
    // One text serves values of all types, so it carries the type for the driver's cache.
    let text = format!("{cast} /* {} */", DB::type_name(&loaded.types[column]));
    let found = rows::<DB>(connection, text, arguments).await.ok()?;
    DB::text(found.first()?, 0).ok().flatten()
}
