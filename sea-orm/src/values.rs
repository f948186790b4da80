//! The values of statements that a database cannot be sent.
//!
//! SeaORM's own conversion binds the values. It panics at those that a database cannot take, so
//! they are refused here first, as far as every build of SeaORM has them.

use sea_orm::{DbBackend, Statement, Value};

use crate::error::OrmError;

/// Refuses values that the conversion would panic at.
pub(crate) fn admit(backend: DbBackend, statement: &Statement) -> Result<(), OrmError> {
    let values = statement.values.iter().flat_map(|values| &values.0);
    for (index, value) in values.enumerate() {
        if let Some(what) = refused(backend, value) {
            let product = product(backend);
            return Err(OrmError::Value { position: index + 1, what, product });
        }
    }
    Ok(())
}

fn refused(backend: DbBackend, value: &Value) -> Option<&'static str> {
    let is_mysql = matches!(backend, DbBackend::MySql);
    if let Value::BigUnsigned(Some(number)) = value {
        return (!is_mysql && i64::try_from(*number).is_err()).then_some("larger than a BIGINT");
    }
    #[cfg(feature = "postgres")]
    if let Value::Array(..) = value {
        return (!matches!(backend, DbBackend::Postgres)).then_some("an array");
    }
    None
}

/// The name of the database in messages.
pub(crate) fn product(backend: DbBackend) -> &'static str {
    match backend {
        DbBackend::MySql => "MySQL",
        DbBackend::Postgres => "PostgreSQL",
        DbBackend::Sqlite => "SQLite",
        _ => "this database",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(backend: DbBackend, value: Value) -> Option<String> {
        let statement = Statement::from_sql_and_values(backend, "SELECT ?, ?", [1.into(), value]);
        admit(backend, &statement).err().map(|error| error.to_string())
    }

    #[test]
    fn numbers_beyond_bigint_are_for_mysql_alone() {
        assert_eq!(code(DbBackend::MySql, u64::MAX.into()), None);
        for backend in [DbBackend::Postgres, DbBackend::Sqlite] {
            let text = code(backend, u64::MAX.into()).unwrap();
            assert!(text.starts_with("argument 2 is larger than a BIGINT"), "{text}");
            assert_eq!(code(backend, (u64::MAX / 2).into()), None);
            assert_eq!(code(backend, Value::BigUnsigned(None)), None);
        }
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn arrays_are_for_postgresql_alone() {
        let array: Value = vec![1_i32, 2].into();
        assert_eq!(code(DbBackend::Postgres, array.clone()), None);
        for backend in [DbBackend::MySql, DbBackend::Sqlite] {
            assert!(code(backend, array.clone()).unwrap().contains("an array"));
        }
    }
}
