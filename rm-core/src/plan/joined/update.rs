//! UPDATE over several sources.

use sqlparser::ast::{Expr, Update as Tree};

use super::super::{
    Change, Dialect, KeyChange, KeyedQuery, Plan, StatementRefusal, Table, TableName, Update,
    UpdateImage,
    clauses::misread,
    constraint,
    guard::{self, Event},
    image::RowLock,
    repeatable,
    text::Text,
    update as single,
};
use super::clauses::JoinedClauses;
use super::images::Written;
use super::together::{Together, by_chance, needs_no_other};
use super::{Joined, several};

/// Plans an UPDATE whose shape [`Joined::update`] has accepted.
pub(super) fn plan(
    joined: &Joined,
    text: &Text,
    tree: &Tree,
    tables: &[(TableName, &Table)],
) -> Result<(usize, Plan), StatementRefusal> {
    let clauses = JoinedClauses::of_update(text, tree)?;
    if text.dialect == Dialect::MySql {
        let written = joined.sources.written(text.dialect, &tree.assignments, tables)?;
        return match written.as_slice() {
            [(place, assigned)] => one(joined, text, tree, &clauses, *place, assigned, tables),
            several => Ok((0, several::update(joined, text, tree, &clauses, several, tables)?)),
        };
    }
    let (_, table) = tables.first().ok_or_else(misread)?;
    let assigned = super::super::names::assigned(text.dialect, table, &tree.assignments)?;
    one(joined, text, tree, &clauses, 0, &assigned, tables)
}

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
pub(super) fn imaged(
    dialect: Dialect,
    table: &Table,
    row: &str,
    assigned: &[usize],
) -> Result<Imaged, StatementRefusal> {
    guard::writable(table, &[Event::Update])?;
    guard::keeps_keys(table, assigned, OTHER_KEY)?;
    guard::assignable(table, assigned)?;
    let maintained = single::maintained(table, assigned);
    let columns = single::image_columns(table, assigned, &maintained);
    let constraints = constraint::of_update(table, &[assigned, &maintained].concat());
    let verdict = constraint::verdict_among(dialect, table, row, &constraints);
    Ok(Imaged { maintained, columns, verdict, lock: single::row_lock(table, assigned) })
}

fn one(
    joined: &Joined,
    text: &Text,
    tree: &Tree,
    clauses: &JoinedClauses,
    place: usize,
    assigned: &[usize],
    tables: &[(TableName, &Table)],
) -> Result<(usize, Plan), StatementRefusal> {
    let table = joined.sources.table(place, tables).ok_or_else(misread)?;
    let source = &joined.sources.items[place];
    let row = source.row.as_str();
    let Imaged { maintained, columns, verdict, lock } = imaged(text.dialect, table, row, assigned)?;
    // PostgreSQL's target stands apart from the joins, so that each row of the join has one of it.
    let outer = joined.sources.outer && text.dialect == Dialect::MySql;
    let written = Written { text, clauses, table, row, outer };
    let judged = !verdict.is_empty();
    let image = if text.dialect == Dialect::Postgres && !judged {
        let together = Together { written: &written, joined, tree, columns: &columns, lock };
        UpdateImage::Together(together.query()?)
    } else {
        UpdateImage::Read {
            before: written.before(&columns, &verdict, lock),
            change: Change::ByKey(by_key(joined, tree, &written, &source.item)?),
            returns_after: false,
        }
    };
    let user_returning = tree.returning.is_some();
    let assigned = assigned.to_vec();
    let keys = KeyChange::Never;
    let plan = Update { columns, assigned, maintained, image, judged, keys, user_returning };
    Ok((joined.place_of(place)?, Plan::Update(plan)))
}

/// The change of the imaged rows. Evaluated again, the join must give them again: it is compared
/// how many it gave. Where it may well not, the assignments must do without it.
fn by_key(
    joined: &Joined,
    tree: &Tree,
    written: &Written<'_>,
    item: &str,
) -> Result<KeyedQuery, StatementRefusal> {
    if is_repeatable(written.text.dialect, joined, tree) {
        return Ok(written.whole_by_key());
    }
    if needs_no_other(joined, tree, written) {
        return Ok(written.assignments_by_key(item));
    }
    if is_random(joined, tree) {
        return Err(by_chance());
    }
    Ok(written.whole_by_key())
}

/// Returns whether the join gives the same rows on the same data.
fn is_repeatable(dialect: Dialect, joined: &Joined, tree: &Tree) -> bool {
    let with = joined.with.iter().flat_map(|with| &with.cte_tables);
    repeatable::is_repeatable(dialect, &tree.table)
        && repeatable::is_repeatable(dialect, &tree.from)
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
