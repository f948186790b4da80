//! Rows of a refused branch for people: before, after and current values in the database's own text
//! form.

use handfast_proto::v1::{DirtyColumn, DirtyRow, Refused, RowChange, RowStanding};
use handfast_rm_core::plan::Dialect;
use prost::Message;

use super::database::{AtDatabase, Backend, LoadedTable, rows};
use super::survey::{Cell, Survey, SurveyedRow};
use super::undo::{Role, UndoItem};
use super::value::{Value, to_hex};

/// How many rows are described, the dirty ones first; the report counts them all. More: a table of
/// many rows makes the branch's record large. Fewer: an operator decides on what is not seen.
pub(crate) const ROWS_MAX: usize = 50;
/// How many characters of a value are shown.
pub(crate) const CHARS_MAX: usize = 200;
/// With how many bytes of text the list ends before its most rows (BOUNDED).
const BYTES_MAX: usize = 256 << 10;

/// Adds all rows of the branch to a refusal, which names those in its way.
pub(crate) async fn report<DB: AtDatabase>(
    connection: &mut DB::Connection,
    survey: Survey<'_, DB>,
    refused: Refused,
) -> Refused {
    let Survey { tables, rows } = survey;
    let total = rows.len() as u64;
    let mut dirty = rows.iter().filter(|row| row.standing() == RowStanding::Dirty).count() as u64;
    // The oldest first, as the branch has written them.
    let mut ordered: Vec<&SurveyedRow<'_>> = rows.iter().collect();
    ordered.sort_by_key(|row| (row.standing(), row.item));
    let (mut listed, mut bytes) = (Vec::new(), 0);
    for row in ordered.into_iter().take(ROWS_MAX) {
        let Some(loaded) = tables.get(&row.table_name()) else { continue };
        let mut shown = describe_surveyed(connection, loaded, row).await;
        if row.standing() == RowStanding::Clean && names(&refused.rows, &shown) {
            // As the branch left it, but rows of others refer to it: it counts as dirty.
            shown.set_standing(RowStanding::Dirty);
            shown.set_on_restore_clean(RowChange::Left);
            dirty += 1;
        }
        bytes += shown.encoded_len();
        listed.push(shown);
        if bytes > BYTES_MAX {
            break;
        }
    }
    let (rows_total, rows_dirty) = (total, dirty);
    let foreign = foreign_rows(refused.rows, &listed);
    let rows = foreign.into_iter().chain(listed).collect();
    Refused { error: refused.error, rows, rows_total, rows_dirty, ..Refused::default() }
}

/// What a refusal names beside the rows that are listed.
fn foreign_rows(named: Vec<DirtyRow>, listed: &[DirtyRow]) -> Vec<DirtyRow> {
    named.into_iter().filter(|row| !names(listed, row)).collect()
}

/// Whether the row is among those.
fn names(rows: &[DirtyRow], row: &DirtyRow) -> bool {
    rows.iter().any(|known| (&known.table, &known.key) == (&row.table, &row.key))
}

/// Describes a row with what each resolution would do to it.
async fn describe_surveyed<DB: Backend>(
    connection: &mut DB::Connection,
    loaded: &LoadedTable<DB>,
    row: &SurveyedRow<'_>,
) -> DirtyRow {
    let mut key = Vec::new();
    let mut columns = Vec::new();
    for (&place, value) in &row.key {
        key.extend(text(connection, loaded, place, Some(value)).await);
    }
    for (&place, Cell { before, after, current }) in &row.cells {
        columns.push(DirtyColumn {
            name: loaded.table.columns[place].name.clone(),
            before: text(connection, loaded, place, *before).await,
            after: text(connection, loaded, place, *after).await,
            current: text(connection, loaded, place, current.as_ref()).await,
        });
    }
    DirtyRow {
        table: loaded.table.full_name(),
        key: key.join(", "),
        columns,
        standing: row.standing().into(),
        on_restore_clean: row.on_restore_clean().into(),
        on_force_before: row.on_force_before().into(),
    }
}

/// Describes a row by its before, after and current image, each `None` where there is no row.
pub(crate) async fn describe<DB: Backend>(
    connection: &mut DB::Connection,
    loaded: &LoadedTable<DB>,
    item: &UndoItem,
    columns: &[usize],
    images: [Option<&[Value]>; 3],
) -> DirtyRow {
    let named = images.iter().flatten().next().copied().unwrap_or_default();
    let mut key = Vec::new();
    let mut shown = Vec::new();
    for (at, column) in item.columns.iter().enumerate() {
        let place = columns[at];
        if column.role == Role::Key {
            key.extend(text(connection, loaded, place, named.get(at)).await);
            continue;
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

/// Asks the database for the text of a value. `None` where it has none; this serves people only, so
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
