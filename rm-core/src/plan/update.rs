//! UPDATE of one table.

use sqlparser::ast::{SelectItem, SqliteOnConflict, Update as Tree};

use super::{
    Change, Dialect, Generation, Plan, StatementRefusal, Table, Update, UpdateImage,
    clauses::{Clauses, Expected},
    constraint,
    guard::{self, Event},
    image::{self, RowLock},
    names, stable,
    text::Text,
};

/// Plans an UPDATE whose shape [`super::parse`] has accepted.
pub(super) fn plan(text: &Text, tree: &Tree, table: &Table) -> Result<Plan, StatementRefusal> {
    guard::writable(table, &[Event::Update])?;
    let assigned = names::assigned(text.dialect, table, &tree.assignments)?;
    guard::assignable(table, &assigned)?;
    let clauses = clauses(text, tree)?;
    let maintained = maintained(table, &assigned);
    let columns = image_columns(table, &assigned, &maintained);
    let lock = row_lock(table, &assigned);
    let constraints = constraint::of_update(table, &[&assigned[..], &maintained].concat());
    let judged = !constraints.is_empty();
    // A row is judged before it is changed, which takes a read of its own. `RETURNING *` would show
    // the columns of the joined read too.
    let image = if text.dialect == Dialect::Postgres && !returns_everything(tree) && !judged {
        UpdateImage::Together(image::around(text, table, &columns, &clauses, lock))
    } else {
        let row = constraint::row_of(&tree.table.relation)?;
        let verdict = constraint::verdict(text.dialect, table, &row, &constraints);
        UpdateImage::Read {
            before: image::before(text, table, &columns, &verdict, &clauses, lock),
            change: change(text, tree, table, &columns, &clauses),
            returns_after: text.dialect.returns_rows(),
        }
    };
    Ok(Plan::Update(Update {
        user_returning: tree.returning.is_some(),
        columns,
        assigned,
        maintained,
        image,
        judged,
    }))
}

/// Refuses clauses that no image can follow, without knowing the table.
pub(super) fn acceptable(dialect: Dialect, tree: &Tree) -> Result<(), StatementRefusal> {
    if tree.from.is_some() || !tree.table.joins.is_empty() {
        return Err(StatementRefusal::SeveralTables { statement: "UPDATE" });
    }
    match tree.or {
        None | Some(SqliteOnConflict::Abort) => {}
        Some(clause) => {
            return Err(StatementRefusal::ConflictClause { clause: format!("UPDATE {clause}") });
        }
    }
    guard::no_returning(dialect, tree.returning.is_some())?;
    guard::no_limit(dialect, !tree.order_by.is_empty() || tree.limit.is_some())
}

fn clauses(text: &Text, tree: &Tree) -> Result<Clauses, StatementRefusal> {
    let expected = Expected {
        predicate: tree.selection.as_ref(),
        order: !tree.order_by.is_empty(),
        limit: tree.limit.is_some(),
        returning: tree.returning.is_some(),
    };
    Clauses::of_update(text, &expected)
}

/// Returns whether the user asked for `*`, which would take in the columns of another row source
/// too.
fn returns_everything(tree: &Tree) -> bool {
    let items = tree.returning.iter().flatten();
    items.into_iter().any(|item| matches!(item, SelectItem::Wildcard(_)))
}

/// Returns the columns that the database may change along with the assigned ones.
fn maintained(table: &Table, assigned: &[usize]) -> Vec<usize> {
    let triggers = guard::own_row_triggers(table, &[Event::Update]);
    let along = |index: &usize| {
        let column = &table.columns[*index];
        let triggered = triggers && column.generation != Generation::IdentityAlways;
        !table.key.columns.contains(index)
            && !assigned.contains(index)
            && (column.on_update || triggered)
    };
    table.stored().into_iter().filter(along).collect()
}

fn image_columns(table: &Table, assigned: &[usize], maintained: &[usize]) -> Vec<usize> {
    let imaged = |index: &usize| {
        table.key.columns.contains(index) || assigned.contains(index) || maintained.contains(index)
    };
    (0..table.columns.len()).filter(imaged).collect()
}

/// Returns the lock of the image. Checks of foreign keys of other tables may read the row
/// meanwhile, unless the columns that they refer to are changed.
fn row_lock(table: &Table, assigned: &[usize]) -> RowLock {
    let unique = |column: &usize| table.unique.iter().any(|index| index.columns.contains(column));
    if assigned.iter().any(unique) { RowLock::Update } else { RowLock::NoKeyUpdate }
}

fn change(text: &Text, tree: &Tree, table: &Table, columns: &[usize], clauses: &Clauses) -> Change {
    let own = clauses.returning.clone().map(|items| text.cut(items)).unwrap_or_default();
    let returning = if text.dialect.returns_rows() {
        image::returning(text, table, columns, &own)
    } else {
        String::new()
    };
    change_by(text, table, clauses, tree.selection.as_ref(), &returning)
}

/// Changes by the user's WHERE if that certainly chooses the imaged rows again, else by key.
pub(super) fn change_by(
    text: &Text,
    table: &Table,
    clauses: &Clauses,
    predicate: Option<&sqlparser::ast::Expr>,
    returning: &str,
) -> Change {
    let chosen = clauses.order.is_none() && clauses.limit.is_none();
    if chosen && predicate.is_none_or(|predicate| stable::is_stable(text.dialect, predicate)) {
        let end = clauses.predicate.clone().map_or(clauses.assignments.end, |found| found.end);
        return Change::ByPredicate(image::rewritten(text, table, end, returning));
    }
    Change::ByKey(image::by_key(text, table, clauses, text.argument_count(), returning))
}
