//! Binding keys and values of a table's rows to the arguments of a query.

use handfast_rm_core::plan::ROWS_MAX;

use super::value::Value;
use super::{Backend, LoadedTable};
use crate::at::error::AtError;

/// Returns how many rows one query by key may name.
pub(crate) fn rows_max<DB: Backend>(key_columns: usize) -> usize {
    (DB::ARGUMENTS_MAX / key_columns.max(1)).clamp(1, ROWS_MAX)
}

/// Binds the key values of rows, in key order.
pub(crate) fn bind_keys<'r, DB: Backend>(
    arguments: &mut DB::Arguments,
    loaded: &LoadedTable<DB>,
    rows: impl IntoIterator<Item = &'r Vec<Value>>,
    columns: &[usize],
) -> Result<(), AtError> {
    for row in rows {
        bind_key(arguments, loaded, row, columns)?;
    }
    Ok(())
}

/// Binds the key values of one row, in key order.
pub(crate) fn bind_key<DB: Backend>(
    arguments: &mut DB::Arguments,
    loaded: &LoadedTable<DB>,
    values: &[Value],
    columns: &[usize],
) -> Result<(), AtError> {
    for part in &loaded.table.key.columns {
        let place = columns.iter().position(|column| column == part);
        let place = place.expect("every image holds the whole key");
        bind(arguments, loaded, *part, &values[place])?;
    }
    Ok(())
}

/// Binds a value as a column's type.
pub(crate) fn bind<DB: Backend>(
    arguments: &mut DB::Arguments,
    loaded: &LoadedTable<DB>,
    column: usize,
    value: &Value,
) -> Result<(), AtError> {
    let name = &loaded.table.columns[column].name;
    DB::bind(arguments, value, &loaded.types[column])
        .map_err(|misfit| AtError::misfit(name, &misfit))
}
