//! SQLite's pre-update hook on every connection of a pool.

use futures::FutureExt;
use sqlx::sqlite::{PreupdateHookResult, SqlitePoolOptions, SqliteValueRef};
use sqlx::{Decode, Sqlite, TypeInfo, ValueRef};

use super::Witness;
use super::change::{Cell, Change, Value};

/// Makes every connection report to the witness. The hook is set before the first statement: SQLite
/// compiles a DELETE of all rows into one that reports no rows unless a hook is set.
pub(super) fn listen(witness: Witness, options: SqlitePoolOptions) -> SqlitePoolOptions {
    options.after_connect(move |connection, _| {
        let witness = witness.clone();
        async move {
            let mut handle = connection.lock_handle().await?;
            handle.set_preupdate_hook(move |row| witness.report(change(&row)));
            Ok(())
        }
        .boxed()
    })
}

/// The accessors return an error for the side that an operation does not have.
fn change(row: &PreupdateHookResult<'_>) -> Change {
    let table = match row.database {
        "main" => row.table.to_owned(),
        other => format!("{other}.{}", row.table),
    };
    let columns = || 0..row.get_column_count();
    let old = row.get_old_row_id().is_ok();
    let old = old.then(|| columns().map(|at| cell(row.get_old_column_value(at))).collect());
    let new = row.get_new_row_id().is_ok();
    let new = new.then(|| columns().map(|at| cell(row.get_new_column_value(at))).collect());
    Change { table, old, new }
}

fn cell<E: std::fmt::Display>(value: Result<SqliteValueRef<'_>, E>) -> Cell {
    let value = value.map_err(|error| error.to_string())?;
    if value.is_null() {
        return Ok(Value::Null);
    }
    let class = value.type_info().name().to_owned();
    let value = match class.as_str() {
        "INTEGER" => <i64 as Decode<Sqlite>>::decode(value).map(Value::Integer),
        "REAL" => <f64 as Decode<Sqlite>>::decode(value).map(Value::Real),
        "TEXT" => <String as Decode<Sqlite>>::decode(value).map(Value::Text),
        _ => <Vec<u8> as Decode<Sqlite>>::decode(value).map(Value::Blob),
    };
    value.map_err(|error| error.to_string())
}
