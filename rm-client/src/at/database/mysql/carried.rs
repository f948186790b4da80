//! Values of a query's answer on their way into an INSERT.
//!
//! The server converts a column that it stores in another one, and an argument as well, but not
//! always in the same way: the number of an ENUM goes into an INT, its text does not. Only those
//! pairs of types are carried whose conversions are the same.

use sqlx::mysql::{MySqlArguments, MySqlRow};
use sqlx::{Column, Row, Type, TypeInfo};

use super::catalogue::is_geometry;
use super::{Form, MySqlColumn};
use crate::at::database::value::{Misfit, Value};
use crate::at::database::{Backend, Carried};

/// Binds a value as it was answered, for a column that is to hold it.
pub(super) fn carry(
    arguments: &mut MySqlArguments,
    row: &MySqlRow,
    index: usize,
    target: &MySqlColumn,
) -> Result<Carried, sqlx::Error> {
    let bind_as = row.try_column(index)?.type_info().clone();
    let name = bind_as.name().to_owned();
    // The driver calls a text binary if its collation compares bytes.
    let is_text = <str as Type<sqlx::MySql>>::compatible(&bind_as);
    let form = match name.as_str() {
        "BOOLEAN" | "TINYINT" => Form::Integer { bytes: 1, unsigned: false },
        "TINYINT UNSIGNED" => Form::Integer { bytes: 1, unsigned: true },
        "SMALLINT" => Form::Integer { bytes: 2, unsigned: false },
        "SMALLINT UNSIGNED" | "YEAR" => Form::Integer { bytes: 2, unsigned: true },
        "MEDIUMINT" | "INT" => Form::Integer { bytes: 4, unsigned: false },
        "MEDIUMINT UNSIGNED" | "INT UNSIGNED" => Form::Integer { bytes: 4, unsigned: true },
        "BIGINT" => Form::Integer { bytes: 8, unsigned: false },
        "BIGINT UNSIGNED" => Form::Integer { bytes: 8, unsigned: true },
        "FLOAT" => Form::Float,
        "DOUBLE" => Form::Double,
        "DATE" | "TIME" | "DATETIME" | "TIMESTAMP" => Form::Temporal,
        "BINARY" | "VARBINARY" | "TINYBLOB" | "BLOB" | "MEDIUMBLOB" | "LONGBLOB" | "GEOMETRY"
            if !is_text =>
        {
            Form::Bytes
        }
        "BIT" => Form::Bits,
        _ => Form::Text,
    };
    // Addresses and UUIDs are answered as bytes, but are texts.
    let form = if form == Form::Bytes && is_written_as_text(target) { Form::Text } else { form };
    let source = MySqlColumn { form, type_text: name, bind_as };
    let value = <sqlx::MySql as Backend>::value(row, index, &source)?;
    if !converts_alike(&source, &value, target) {
        return Ok(Carried::No);
    }
    if is_geometry(&target.type_text.to_lowercase()) && value == Value::Bytes(Vec::new()) {
        return Ok(Carried::EmptyGeometry);
    }
    let misfit = |misfit: Misfit| sqlx::Error::Decode(misfit.to_string().into());
    <sqlx::MySql as Backend>::bind(arguments, &value, &source).map_err(misfit)?;
    let is_instant =
        |column: &MySqlColumn| column.type_text.to_lowercase().starts_with("timestamp");
    let is_instant = is_instant(&source) && is_instant(target) && !value.is_null();
    Ok(if is_instant { Carried::AtFixedOffset } else { Carried::Exactly })
}

fn is_written_as_text(column: &MySqlColumn) -> bool {
    ["inet4", "inet6", "uuid"].contains(&column.type_text.to_lowercase().as_str())
}

/// Returns whether an argument of the source's type is stored as a column of it would be.
fn converts_alike(source: &MySqlColumn, value: &Value, target: &MySqlColumn) -> bool {
    let decimal = |column: &MySqlColumn| column.type_text.to_lowercase().starts_with("decimal");
    let number =
        matches!(target.form, Form::Integer { .. } | Form::Float | Form::Double) || decimal(target);
    match source.form {
        _ if value.is_null() => true,
        // The driver does not tell whether it has a sign.
        Form::Integer { .. } if source.type_text == "BOOLEAN" => {
            number && matches!(value, Value::Integer(number) if (0..128).contains(number))
        }
        Form::Integer { .. } | Form::Double => number,
        Form::Text if decimal(source) => number,
        Form::Float => matches!(target.form, Form::Float | Form::Double),
        Form::Text => {
            target.form == Form::Temporal || target.form == Form::Text && !decimal(target)
        }
        Form::Bytes => matches!(target.form, Form::Bytes | Form::Text) && !decimal(target),
        Form::Temporal => target.form == Form::Temporal,
        Form::Bits => target.form == Form::Bits,
    }
}
