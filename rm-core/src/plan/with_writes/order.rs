//! The order of the undo items of writes in WITH.

use super::super::{ForeignKey, StatementRefusal, Table, WithEffect, WithPartKind, WithUndo};
use super::imaged::Imaged;
use super::part::refused;

/// The rows of one undo item.
struct Rows<'a> {
    undo: WithUndo,
    table: &'a Table,
    /// Which write it is, in the order in which they run.
    turn: usize,
    /// The columns that an UPDATE may have changed.
    changed: Vec<usize>,
}

/// The order of the undo items, which are undone backwards. Rows that refer are undone before an
/// inserted row that they refer to, and after a deleted one. Of one table the inserted rows are
/// undone first, then the updated, then the deleted ones: what stays in between was in the table at
/// some moment of the statement, so that it breaks no unique index. For the same reason the last
/// of several UPDATEs is undone first.
///
/// `writes` are in the order in which they run.
pub(super) fn order(writes: &[&Imaged<'_>]) -> Result<Vec<WithUndo>, StatementRefusal> {
    let turns = writes.iter().enumerate();
    let mut left: Vec<Rows<'_>> = turns.flat_map(|(turn, write)| rows_of(write, turn)).collect();
    let mut order = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let free = |candidate: &Rows<'_>| {
            let mut others = left.iter().filter(|other| other.undo != candidate.undo);
            !others.any(|other| precedes(other, candidate))
        };
        let Some(next) = left.iter().position(free) else {
            return Err(refused(
                "its writes could be undone in no order, as their tables refer to each other; \
                 execute each as a statement of its own",
            ));
        };
        order.push(left.remove(next).undo);
    }
    Ok(order)
}

fn rows_of<'a>(write: &Imaged<'a>, turn: usize) -> Vec<Rows<'a>> {
    let effects: &[WithEffect] = match write.part.kind {
        WithPartKind::Insert { .. } => &[WithEffect::Inserted],
        WithPartKind::Update { .. } => &[WithEffect::Updated],
        WithPartKind::Delete { .. } => &[WithEffect::Deleted],
        WithPartKind::Upsert { .. } => &[WithEffect::Updated, WithEffect::Inserted],
    };
    let table = write.table;
    let changed: Vec<usize> =
        write.part.kind.columns().iter().copied().filter(|at| !is_key(table, *at)).collect();
    let rows = |effect: &WithEffect| Rows {
        undo: WithUndo { part: write.number - 1, effect: *effect },
        table,
        turn,
        changed: changed.clone(),
    };
    effects.iter().map(rows).collect()
}

fn is_key(table: &Table, column: usize) -> bool {
    table.key.columns.contains(&column)
}

/// Returns whether the undo item of some rows must stand before that of others.
fn precedes(first: &Rows<'_>, second: &Rows<'_>) -> bool {
    let (one, other) = (first.table, second.table);
    if (&one.schema, &one.name) == (&other.schema, &other.name) {
        let place = |rows: &Rows<'_>| (rows.undo.effect, rows.turn);
        return place(first) < place(second) || are_inseparable(first, second);
    }
    let (before, after) = (first.undo.effect, second.undo.effect);
    let inserted_parent = before == WithEffect::Inserted
        && after != WithEffect::Deleted
        && keys_to(one, other).next().is_some();
    let deleted_parent = after == WithEffect::Deleted
        && before != WithEffect::Inserted
        && keys_to(other, one).next().is_some();
    // A row that refers to a value which an UPDATE has given or taken is there only beside it.
    let given = after != WithEffect::Deleted && gives(first, other);
    let taken = before != WithEffect::Inserted && gives(second, one);
    inserted_parent || deleted_parent || given || taken
}

/// Returns whether rows of one table can be undone at once alone. They may refer to each other. Or
/// what some take away the others give, and rows of another table refer to it all the time.
fn are_inseparable(first: &Rows<'_>, second: &Rows<'_>) -> bool {
    let own = |key: &ForeignKey| !key.own_columns.is_empty() || key.referring.own;
    let moves = |rows: &Rows<'_>, key: &ForeignKey| {
        let changes = key.referenced.iter().any(|column| rows.changed.contains(column));
        rows.undo.effect != WithEffect::Updated || changes
    };
    let exchange = |key: &ForeignKey| moves(first, key) && moves(second, key);
    let (one, other) = (first.undo.effect, second.undo.effect);
    // Rows that are all new, or all gone, exchange nothing.
    let alike = one == other && one != WithEffect::Updated;
    let mut keys = first.table.referenced_by.iter();
    keys.any(|key| own(key) || !alike && exchange(key))
}

/// Returns whether rows may have got other values that a table refers to.
fn gives(rows: &Rows<'_>, referring: &Table) -> bool {
    let changed = |key: &&ForeignKey| key.referenced.iter().any(|at| rows.changed.contains(at));
    rows.undo.effect == WithEffect::Updated
        && keys_to(rows.table, referring).any(|key| changed(&key))
}

/// The foreign keys of one table to another.
fn keys_to<'a>(table: &'a Table, from: &'a Table) -> impl Iterator<Item = &'a ForeignKey> {
    let names =
        |key: &&ForeignKey| key.referring.schema == from.schema && key.referring.table == from.name;
    table.referenced_by.iter().filter(names)
}
