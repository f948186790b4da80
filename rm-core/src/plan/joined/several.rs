//! MySQL: one statement that writes several tables.

use sqlparser::ast::Update as Tree;

use super::super::{
    Plan, Several, SeveralChange, SeveralPart, StatementRefusal, Table, TableName,
    clauses::misread, image::RowLock, text::Text,
};
use super::clauses::JoinedClauses;
use super::images::Written;
use super::{Joined, checks, checks::Imaged};
use crate::plan::{image, keyed::JointKeys, keyed::JointQuery};

/// Plans an UPDATE that assigns columns of several tables.
pub(super) fn update(
    joined: &Joined,
    text: &Text,
    tree: &Tree,
    clauses: &JoinedClauses,
    targets: &[(usize, Vec<usize>)],
    tables: &[(TableName, &Table)],
) -> Result<Plan, StatementRefusal> {
    if checks::is_random(joined, tree) {
        return Err(refused("UPDATE", "it chooses rows by chance; choose them by a SELECT before"));
    }
    let assigned = tables_of(joined, targets.iter().map(|(place, _)| *place), tables)?;
    if repeated(&assigned).is_some() {
        return Err(refused(
            "UPDATE",
            "it writes one table under two names; write one statement a name",
        ));
    }
    unreferenced(&assigned, targets)?;
    let (mut parts, mut keys) = (Vec::new(), Vec::new());
    for ((place, columns), table) in targets.iter().zip(assigned) {
        let row = joined.sources.items[*place].row.as_str();
        let Imaged { maintained, columns, verdict, lock } =
            checks::of_update(text.dialect, table, clauses.reach(text), row, columns)?;
        let written = Written { text, clauses, table, row, outer: joined.sources.outer };
        let before = written.before(&columns, &verdict, lock);
        keys.push(JointKeys { columns: written.key(), optional: joined.sources.outer });
        let (table, judged) = (joined.place_of(*place)?, !verdict.is_empty());
        parts.push(SeveralPart { table, columns, maintained, before, judged });
    }
    let filter = clauses.condition(text).map(|own| format!("{own} AND ")).unwrap_or_default();
    let (_, first) = tables.first().ok_or_else(misread)?;
    let change = JointQuery {
        head: format!("{} WHERE {filter}", text.cut(0..clauses.assignments.end)),
        tail: image::mark(text.whole(), first),
        keys,
        arguments: text.argument_count(),
        dialect: text.dialect,
    };
    Ok(Plan::Several(Several { parts, change: SeveralChange::Update(change) }))
}

/// Plans a DELETE of rows of several tables.
pub(super) fn delete(
    joined: &Joined,
    text: &Text,
    clauses: &JoinedClauses,
    targets: &[usize],
    tables: &[(TableName, &Table)],
) -> Result<Plan, StatementRefusal> {
    let deleted = tables_of(joined, targets.iter().copied(), tables)?;
    if repeated(&deleted).is_some_and(|table| refers(table, table)) {
        return Err(refused(
            "DELETE",
            "it writes a table that refers to itself under two names; write one DELETE a name",
        ));
    }
    let mut left: Vec<(usize, &Table)> = targets.iter().copied().zip(deleted).collect();
    let (mut parts, mut changes) = (Vec::new(), Vec::new());
    // A table goes before those that it refers to, so that no row is deleted while others refer
    // to it; the undo, which runs backwards, puts the referenced rows back first.
    while !left.is_empty() {
        let free = |(_, table): &(usize, &Table)| {
            left.iter().all(|(_, other)| std::ptr::eq(*other, *table) || !refers(other, table))
        };
        let Some(next) = left.iter().position(free) else {
            return Err(refused(
                "DELETE",
                "the tables refer to each other; write one DELETE a table",
            ));
        };
        let (place, table) = left.swap_remove(next);
        let row = joined.sources.items[place].row.as_str();
        checks::goes_alone(table)?;
        let (columns, verdict) = checks::of_delete(text.dialect, table, clauses.reach(text), row)?;
        let written = Written { text, clauses, table, row, outer: joined.sources.outer };
        let before = written.before(&columns, &verdict, RowLock::Update);
        changes.push(written.delete_by_key());
        let (table, judged) = (joined.place_of(place)?, !verdict.is_empty());
        parts.push(SeveralPart { table, columns, maintained: Vec::new(), before, judged });
    }
    Ok(Plan::Several(Several { parts, change: SeveralChange::Delete(changes) }))
}

/// The written tables.
fn tables_of<'t>(
    joined: &Joined,
    places: impl Iterator<Item = usize>,
    tables: &[(TableName, &'t Table)],
) -> Result<Vec<&'t Table>, StatementRefusal> {
    let found: Option<Vec<&Table>> =
        places.map(|place| joined.sources.table(place, tables)).collect();
    found.ok_or_else(misread)
}

/// The first table that is written under two names.
fn repeated<'t>(tables: &[&'t Table]) -> Option<&'t Table> {
    let names: Vec<String> = tables.iter().map(|table| table.full_name()).collect();
    let again = (1..tables.len()).find(|at| names[..*at].contains(&names[*at]))?;
    Some(tables[again])
}

/// Refuses to assign columns by which the written tables refer to each other: the undo writes one
/// table after the other.
fn unreferenced(
    tables: &[&Table],
    targets: &[(usize, Vec<usize>)],
) -> Result<(), StatementRefusal> {
    for (table, (_, assigned)) in tables.iter().zip(targets) {
        let keys = table.referenced_by.iter().filter(|key| {
            tables.iter().any(|other| {
                key.referring.schema == other.schema && key.referring.table == other.name
            })
        });
        if keys.into_iter().any(|key| key.referenced.iter().any(|column| assigned.contains(column)))
        {
            return Err(refused(
                "UPDATE",
                "it assigns a column to which another of its tables refers; write one UPDATE a \
                 table",
            ));
        }
    }
    Ok(())
}

/// Returns whether a table has a foreign key to another one.
fn refers(table: &Table, to: &Table) -> bool {
    let keys = to.referenced_by.iter();
    keys.into_iter()
        .any(|key| key.referring.schema == table.schema && key.referring.table == table.name)
}

fn refused(statement: &'static str, reason: &'static str) -> StatementRefusal {
    StatementRefusal::SeveralTables { statement, reason }
}
