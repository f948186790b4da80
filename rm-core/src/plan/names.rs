//! Names as statements write them.

use sqlparser::ast::{Assignment, AssignmentTarget, Ident, ObjectName};

use super::{Dialect, StatementRefusal, Table, TableName};

/// A name as the dialect reads it: PostgreSQL folds the ASCII letters of unquoted ones to lower
/// case, and leaves others as they are in an encoding of several bytes, such as UTF-8.
pub(super) fn folded(dialect: Dialect, name: &Ident) -> String {
    match dialect {
        Dialect::Postgres if name.quote_style.is_none() => name.value.to_ascii_lowercase(),
        Dialect::Postgres | Dialect::MySql | Dialect::Sqlite => name.value.clone(),
    }
}

/// The table that a name of one or two parts stands for.
pub(super) fn table(dialect: Dialect, name: &ObjectName) -> Result<TableName, StatementRefusal> {
    let parts: Option<Vec<&Ident>> = name.0.iter().map(|part| part.as_ident()).collect();
    match parts.as_deref() {
        Some([name]) => Ok(TableName { schema: None, name: folded(dialect, name) }),
        Some([schema, name]) => {
            Ok(TableName { schema: Some(folded(dialect, schema)), name: folded(dialect, name) })
        }
        Some(_) | None => Err(StatementRefusal::Clause {
            clause: "a table name of three or more parts",
            reason: "name the schema and the table",
        }),
    }
}

/// The column that a name stands for.
pub(super) fn column(
    dialect: Dialect,
    table: &Table,
    name: &Ident,
) -> Result<usize, StatementRefusal> {
    table.column(dialect, &folded(dialect, name)).ok_or_else(|| StatementRefusal::UnknownColumn {
        column: name.value.clone(),
        table: table.full_name(),
    })
}

/// The column of a qualified name. PostgreSQL's qualifier is the column (of a composite type),
/// elsewhere it is the table.
pub(super) fn object_column(
    dialect: Dialect,
    table: &Table,
    name: &ObjectName,
) -> Result<usize, StatementRefusal> {
    let part = match dialect {
        Dialect::Postgres => name.0.first(),
        Dialect::MySql | Dialect::Sqlite => name.0.last(),
    };
    let unknown =
        || StatementRefusal::UnknownColumn { column: name.to_string(), table: table.full_name() };
    column(dialect, table, part.and_then(|part| part.as_ident()).ok_or_else(unknown)?)
}

/// The columns that assignments write, in table order, each once.
pub(super) fn assigned(
    dialect: Dialect,
    table: &Table,
    assignments: &[Assignment],
) -> Result<Vec<usize>, StatementRefusal> {
    let mut columns = Vec::new();
    for assignment in assignments {
        let targets = match &assignment.target {
            AssignmentTarget::ColumnName(name) => std::slice::from_ref(name),
            AssignmentTarget::Tuple(names) => names,
        };
        for name in targets {
            columns.push(object_column(dialect, table, name)?);
        }
    }
    columns.sort_unstable();
    columns.dedup();
    Ok(columns)
}
