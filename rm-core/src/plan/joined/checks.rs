//! Checks that every change over several sources has to pass.

use sqlparser::ast::{Delete, Expr, Update as Tree};

use super::super::{
    Dialect, StatementRefusal, Table, along, constraint,
    guard::{self, Event, Reach},
    image::RowLock,
    repeatable, update as single,
};
use super::Joined;

/// The rows of the join would have to be followed to their other keys.
const OTHER_KEY: &str = "by an UPDATE over several tables: change the key by an UPDATE of its own";

/// The parts of one table that an UPDATE images.
pub(super) struct Imaged {
    pub(super) maintained: Vec<usize>,
    pub(super) columns: Vec<usize>,
    pub(super) verdict: String,
    pub(super) lock: RowLock,
}

/// Checks that a table's columns can be assigned, and says what is to be imaged.
pub(super) fn of_update(
    dialect: Dialect,
    table: &Table,
    reach: Reach,
    row: &str,
    assigned: &[usize],
) -> Result<Imaged, StatementRefusal> {
    guard::writable(table, reach, &[Event::Update])?;
    guard::keeps_keys(table, assigned, OTHER_KEY)?;
    guard::assignable(table, assigned)?;
    let maintained = single::maintained(table, assigned);
    let columns = single::image_columns(table, assigned, &maintained);
    let constraints = constraint::of_update(table, &[assigned, &maintained].concat());
    let verdict = constraint::verdict_among(dialect, table, row, &constraints);
    Ok(Imaged { maintained, columns, verdict, lock: single::row_lock(table, assigned) })
}

/// Refuses to delete rows of several tables where others go along with them.
pub(super) fn goes_alone(table: &Table) -> Result<(), StatementRefusal> {
    match table.acting_on_delete().next() {
        Some(key) => {
            let (constraint, reason) = (key.name.clone(), along::reason::SEVERAL_TABLES);
            Err(StatementRefusal::CascadeLimit { constraint, reason })
        }
        None => Ok(()),
    }
}

/// Checks that rows of a table can be deleted, and says what is to be imaged, and the verdict.
pub(super) fn of_delete(
    dialect: Dialect,
    table: &Table,
    reach: Reach,
    row: &str,
) -> Result<(Vec<usize>, String), StatementRefusal> {
    guard::writable(table, reach, &[Event::Delete])?;
    let constraints = constraint::of_whole_rows(table);
    let verdict = constraint::verdict_among(dialect, table, row, &constraints);
    Ok((table.imaged(), verdict))
}

/// Returns whether the join gives the same rows on the same data.
pub(super) fn is_repeatable(dialect: Dialect, joined: &Joined, tree: &Tree) -> bool {
    let with = joined.with.iter().flat_map(|with| &with.cte_tables);
    repeatable::is_repeatable(dialect, &tree.table)
        && repeatable::is_repeatable(dialect, &tree.from)
        && repeatable::is_repeatable(dialect, &tree.selection)
        && with.into_iter().all(|cte| repeatable::is_repeatable(dialect, &*cte.query))
}

/// The same of a DELETE.
pub(super) fn is_repeatable_delete(dialect: Dialect, joined: &Joined, tree: &Delete) -> bool {
    let with = joined.with.iter().flat_map(|with| &with.cte_tables);
    repeatable::is_repeatable(dialect, &tree.using)
        && repeatable::is_repeatable(dialect, &tree.selection)
        && with.into_iter().all(|cte| repeatable::is_repeatable(dialect, &*cte.query))
}

/// Returns whether the join chooses its rows by chance.
pub(super) fn is_random(joined: &Joined, tree: &Tree) -> bool {
    let with = joined.with.iter().flat_map(|with| &with.cte_tables);
    let selection: &Option<Expr> = &tree.selection;
    repeatable::is_random(&tree.table)
        || repeatable::is_random(&tree.from)
        || repeatable::is_random(selection)
        || with.into_iter().any(|cte| repeatable::is_random(&*cte.query))
}
