//! UPDATE of one table.

use sqlparser::ast::{Expr, SelectItem, SqliteOnConflict, Update as Tree};

use super::{
    Change, Dialect, Generation, KeyChange, Plan, Reference, StatementRefusal, Table, Update,
    UpdateImage,
    clauses::{Clauses, Expected},
    composed_update, constraint,
    delta_update::{self, DeltaUpdate},
    foretold_key,
    guard::{self, Event, Reach},
    image::{self, RowLock},
    key_change, names, numbered_key,
    repeatable::is_repeatable,
    stable,
    text::Text,
};

/// Plans an UPDATE whose shape [`super::parse`] has accepted.
pub(super) fn plan(text: &Text, tree: &Tree, table: &Table) -> Result<Plan, StatementRefusal> {
    let clauses = clauses(text, tree)?;
    guard::writable(table, Reach::at(text, clauses.target.start), &[Event::Update])?;
    let keys = key_change::by_update(text.dialect, table, &tree.table.relation, &tree.assignments)?;
    let mut assigned = names::assigned(text.dialect, table, &tree.assignments)?;
    // What certainly keeps its value is no change.
    assigned.retain(|index| !table.key.columns.contains(index) || keys.contains(index));
    guard::assignable(table, &assigned)?;
    let DeltaUpdate { deltas, row: row_delta } =
        delta_update::of_update(text, tree, table, &clauses);
    // The undo of a delta changes the row too, and the database sets such columns then.
    let maintained = if deltas.is_empty() { maintained(table, &assigned) } else { Vec::new() };
    let columns = image_columns(table, &assigned, &maintained);
    let lock = row_lock(table, &assigned);
    let (columns, keys) = if keys.is_empty() {
        (columns, KeyChange::Never)
    } else {
        let foretold = foretold_key::of_update(text, table, &clauses, &tree.assignments, &keys)?;
        let obstacle = key_change::obstacle(table, &keys);
        (table.imaged(), KeyChange::Possible { kept: columns, foretold, obstacle })
    };
    let constraints = match keys {
        KeyChange::Never => constraint::of_update(table, &[&assigned[..], &maintained].concat()),
        // The undo may have to insert the row again.
        KeyChange::Possible { .. } => constraint::of_whole_rows(table),
    };
    let judged = !constraints.is_empty();
    let numbered_key = match (&keys, &tree.selection) {
        (KeyChange::Never, Some(condition)) => numbered_key::of_condition(text, table, condition),
        _ => None,
    };
    let row_delta = row_delta.filter(|_| numbered_key.is_some());
    let together = text.dialect == Dialect::Postgres && keys == KeyChange::Never && !judged;
    let is_alone = numbered_key.is_some() && deltas.is_empty() && !judged && maintained.is_empty();
    let repeats = chooses_again(text, tree.selection.as_ref(), &clauses);
    let composed = (is_alone && can_compose(text, tree, table, &assigned, &clauses))
        .then(|| composed_update::of_update(text, table, &columns, &clauses, lock, repeats))
        .flatten();
    // A row is judged before it is changed, which takes a read of its own. `RETURNING *` would show
    // the columns of the joined read too, and a name of the statement could mean one of them.
    let image = if together && !returns_everything(tree) && !is_ambiguous(text, table) {
        UpdateImage::Together(image::around(text, table, &columns, &clauses, lock))
    } else {
        let row = constraint::row_of(&tree.table.relation)?;
        let verdict = constraint::verdict(text.dialect, table, &row, &constraints);
        UpdateImage::Read {
            before: image::before(text, table, &columns, keys.items(), &verdict, &clauses, lock),
            change: at_once(change(text, tree, table, &columns, &clauses), &keys),
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
        keys,
        key_read: (!deltas.is_empty()).then(|| image::key_read(text, table, &clauses)),
        numbered_key: numbered_key.map(Box::new),
        row_delta: row_delta.map(Box::new),
        composed: composed.map(Box::new),
        deltas,
    }))
}

/// Whether the statement does nothing but change its row, which needs no other lock.
fn can_compose(
    text: &Text,
    tree: &Tree,
    table: &Table,
    assigned: &[usize],
    clauses: &Clauses,
) -> bool {
    let is_bare = clauses.with.is_empty() && clauses.order.is_none() && clauses.limit.is_none();
    let refers = |reference: &Reference| reference.columns.iter().any(|it| assigned.contains(it));
    is_bare
        && tree.returning.is_none()
        && !is_ambiguous(text, table)
        && table.triggers.is_empty()
        && (text.dialect != Dialect::MySql || table.returns_inserted)
        && !table.references.iter().any(refers)
}

/// PostgreSQL: reads the keys of the rows that the condition chooses by the snapshot. `None`: asked
/// again, it may choose others.
pub(super) fn chosen_keys(
    text: &Text,
    tree: &Tree,
    table: &Table,
) -> Result<Option<String>, StatementRefusal> {
    let clauses = clauses(text, tree)?;
    let repeats = clauses.with.is_empty() && is_repeatable(text.dialect, &tree.selection);
    let row = constraint::row_of(&tree.table.relation)?;
    Ok(repeats.then(|| image::chosen_keys(text, table, &clauses, &row)))
}

/// Refuses clauses that no image can follow, without knowing the table.
pub(super) fn acceptable(dialect: Dialect, tree: &Tree) -> Result<(), StatementRefusal> {
    no_clause_without_image(dialect, tree)?;
    guard::no_limit(dialect, !tree.order_by.is_empty() || tree.limit.is_some())
}

/// The same for any number of sources.
pub(super) fn no_clause_without_image(
    dialect: Dialect,
    tree: &Tree,
) -> Result<(), StatementRefusal> {
    match tree.or {
        None | Some(SqliteOnConflict::Abort) => {}
        Some(clause) => {
            return Err(StatementRefusal::ConflictClause {
                clause: format!("UPDATE {clause}"),
                reason: "leave it out, and delete the rows that are in the way before, or leave \
                         out by WHERE those that would conflict",
            });
        }
    }
    guard::no_returning(dialect, tree.returning.is_some())
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

/// Returns whether the statement or the table has names as the joined read has them.
fn is_ambiguous(text: &Text, table: &Table) -> bool {
    let ours = |name: &str| {
        let name = name.to_ascii_lowercase();
        name.starts_with("hf_old") || name == "hf_before"
    };
    table.columns.iter().any(|column| ours(&column.name))
        || text.lexemes.iter().filter_map(|lexeme| lexeme.word()).any(ours)
}

/// Returns the columns that the database may change along with the assigned ones.
pub(super) fn maintained(table: &Table, assigned: &[usize]) -> Vec<usize> {
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

pub(super) fn image_columns(table: &Table, assigned: &[usize], maintained: &[usize]) -> Vec<usize> {
    if table.key.moves {
        return table.imaged();
    }
    let imaged = |index: &usize| {
        table.key.columns.contains(index) || assigned.contains(index) || maintained.contains(index)
    };
    (0..table.columns.len()).filter(imaged).collect()
}

/// Returns the lock of the image. Checks of foreign keys of other tables may read the row
/// meanwhile, unless the columns that they refer to are changed.
pub(super) fn row_lock(table: &Table, assigned: &[usize]) -> RowLock {
    let unique = |column: &usize| {
        let mut indexes = std::iter::once(&table.key).chain(&table.unique);
        indexes.any(|index| index.columns.contains(column))
    };
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

/// Rows that get other keys are named all in one statement: a later one could name a row by the key
/// that an earlier one has given it.
fn at_once(mut change: Change, keys: &KeyChange) -> Change {
    if let Change::ByKey(keyed) = &mut change {
        keyed.at_once |= *keys != KeyChange::Never;
    }
    change
}

/// Changes by the user's WHERE if that certainly chooses the imaged rows again, else by key.
pub(super) fn change_by(
    text: &Text,
    table: &Table,
    clauses: &Clauses,
    predicate: Option<&Expr>,
    returning: &str,
) -> Change {
    if chooses_again(text, predicate, clauses) {
        let end = clauses.predicate.clone().map_or(clauses.assignments.end, |found| found.end);
        return Change::ByPredicate(image::rewritten(text, table, end, returning));
    }
    Change::ByKey(image::by_key(text, table, clauses, text.argument_count(), returning))
}

/// Returns whether the user's own clauses certainly choose the rows of a read before again.
pub(super) fn chooses_again(text: &Text, predicate: Option<&Expr>, clauses: &Clauses) -> bool {
    clauses.order.is_none()
        && clauses.limit.is_none()
        && predicate.is_none_or(|predicate| stable::is_stable(text.dialect, predicate))
}
