//! UPDATE over several sources.

use sqlparser::ast::Update as Tree;

use super::super::{
    Change, Dialect, KeyChange, KeyedQuery, Plan, StatementRefusal, Table, TableName, Update,
    UpdateImage, clauses::misread, text::Text,
};
use super::clauses::JoinedClauses;
use super::images::Written;
use super::together::{Together, by_chance, needs_no_other};
use super::{Joined, checks, checks::Imaged, several};

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
    let Imaged { maintained, columns, verdict, lock } =
        checks::of_update(text.dialect, table, clauses.reach(text), row, assigned)?;
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
    let (deltas, key_read, numbered_key, row_delta) = (Vec::new(), None, None, None);
    let plan = Update {
        columns,
        assigned,
        maintained,
        image,
        judged,
        keys,
        user_returning,
        deltas,
        key_read,
        numbered_key,
        row_delta,
        composed: None,
    };
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
    if checks::is_repeatable(written.text.dialect, joined, tree) {
        return Ok(written.whole_by_key());
    }
    if needs_no_other(joined, tree, written) {
        return Ok(written.assignments_by_key(item));
    }
    if checks::is_random(joined, tree) {
        return Err(by_chance());
    }
    Ok(written.whole_by_key())
}
