//! INSERT into one table: chooses the plan by the effect on a row that conflicts with an existing
//! one.

use sqlparser::ast::{
    Insert as Tree, ObjectName, OnConflictAction, OnInsert, SqliteOnConflict, TableObject,
};

use super::{
    Column, Dialect, Generation, Plan, StatementRefusal, Table,
    guard::{self, Event, Reach},
    insert_select, plain_insert,
    text::Text,
    upsert::{self, Conflict},
};

/// Plans an INSERT or REPLACE whose shape [`super::parse`] has accepted.
pub(super) fn plan(text: &Text, tree: &Tree, table: &Table) -> Result<Plan, StatementRefusal> {
    guard::writable_whole(table, Reach::Own, Event::Insert)?;
    let conflict = conflict(tree)?;
    let adds = matches!(conflict, Conflict::Fail | Conflict::Ignore);
    let as_values = match text.dialect {
        Dialect::MySql if adds && (tree.returning.is_some() || table.whole_rows) => {
            return plain_insert::returned(text, tree, table);
        }
        Dialect::MySql => true,
        // RETURNING does not tell the rows that were there before.
        Dialect::Sqlite => matches!(conflict, Conflict::Update { .. } | Conflict::Replace),
        Dialect::Postgres => false,
    };
    if as_values && let Some(plan) = insert_select::plan(text, tree, table)? {
        return Ok(plan);
    }
    let plan = match (&conflict, text.dialect) {
        (Conflict::Fail, Dialect::MySql) => plain_insert::keyed(text, tree, table),
        (Conflict::Ignore, Dialect::MySql) | (Conflict::Update { .. } | Conflict::Replace, _) => {
            upsert::plan(text, tree, table, &conflict)
        }
        // RETURNING returns exactly the rows that were inserted, whatever was skipped.
        (Conflict::Fail | Conflict::Ignore, Dialect::Postgres | Dialect::Sqlite) => {
            plain_insert::returned(text, tree, table)
        }
    };
    match plan {
        Err(StatementRefusal::KeyUnknown { .. }) if adds && tells_keys(table) => {
            plain_insert::returned(text, tree, table)
        }
        plan => plan,
    }
}

/// Returns whether an INSERT can tell the keys that its text does not show. An answer that returns
/// rows has no number that was generated last, for which the application may look.
fn tells_keys(table: &Table) -> bool {
    let is_counted = |column: &Column| column.generation == Generation::AutoIncrement;
    table.returns_inserted && !table.columns.iter().any(is_counted)
}

/// The table's name; refuses clauses that no image can follow, without knowing the table.
pub(super) fn acceptable(tree: &Tree) -> Result<&ObjectName, StatementRefusal> {
    conflict(tree)?;
    let exotic = tree.overwrite
        || tree.partitioned.is_some()
        || tree.output.is_some()
        || tree.settings.is_some()
        || tree.format_clause.is_some()
        || tree.multi_table_insert_type.is_some();
    let TableObject::TableName(name) = &tree.table else {
        return Err(StatementRefusal::UnknownStatement {
            statement: "this form of INSERT".to_owned(),
        });
    };
    if exotic {
        return Err(StatementRefusal::UnknownStatement {
            statement: "this form of INSERT".to_owned(),
        });
    }
    Ok(name)
}

/// Returns the effect of the statement on a row that conflicts with an existing one.
fn conflict(tree: &Tree) -> Result<Conflict<'_>, StatementRefusal> {
    let written = match tree.or {
        None | Some(SqliteOnConflict::Abort) => None,
        Some(SqliteOnConflict::Ignore) => Some(Conflict::Ignore),
        Some(SqliteOnConflict::Replace) => Some(Conflict::Replace),
        Some(clause @ (SqliteOnConflict::Fail | SqliteOnConflict::Rollback)) => {
            let reason = "use OR ABORT, OR IGNORE or ON CONFLICT";
            return Err(StatementRefusal::ConflictClause { clause: clause.to_string(), reason });
        }
    };
    let replace = tree.replace_into.then_some(Conflict::Replace);
    let ignore = tree.ignore.then_some(Conflict::Ignore);
    let clause = tree.on.as_ref().map(on_insert).transpose()?;
    let mut said = [written, replace, ignore, clause].into_iter().flatten();
    match (said.next(), said.next()) {
        (None, _) => Ok(Conflict::Fail),
        (Some(conflict), None) => Ok(conflict),
        (Some(_), Some(_)) => Err(StatementRefusal::Upsert {
            reason: "it says twice what a conflict does: say it once",
        }),
    }
}

fn on_insert(clause: &OnInsert) -> Result<Conflict<'_>, StatementRefusal> {
    match clause {
        OnInsert::DuplicateKeyUpdate(assignments) => {
            Ok(Conflict::Update { target: None, assignments })
        }
        OnInsert::OnConflict(conflict) => Ok(match &conflict.action {
            OnConflictAction::DoNothing => Conflict::Ignore,
            OnConflictAction::DoUpdate(update) => Conflict::Update {
                target: conflict.conflict_target.as_ref(),
                assignments: &update.assignments,
            },
        }),
        // The parser's enum may grow.
        _ => Err(StatementRefusal::Upsert { reason: "its conflict clause is not known" }),
    }
}
