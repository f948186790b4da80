//! DELETE over several sources.

use sqlparser::ast::Delete as Tree;

use super::super::{
    Arguments, Change, Delete, DeleteImage, Dialect, Plan, Query, StatementRefusal, Table,
    TableName,
    clauses::misread,
    image::{self, RowLock},
    text::Text,
};
use super::clauses::JoinedClauses;
use super::images::Written;
use super::{Joined, checks, several};

/// Plans a DELETE whose shape [`Joined::delete`] has accepted.
pub(super) fn plan(
    joined: &Joined,
    text: &Text,
    tree: &Tree,
    targets: &[usize],
    tables: &[(TableName, &Table)],
) -> Result<(usize, Plan), StatementRefusal> {
    let clauses = JoinedClauses::of_delete(text, tree)?;
    let [place] = targets else {
        return Ok((0, several::delete(joined, text, &clauses, targets, tables)?));
    };
    let table = joined.sources.table(*place, tables).ok_or_else(misread)?;
    let source = &joined.sources.items[*place];
    let row = source.row.as_str();
    let (columns, verdict) = checks::of_delete(text.dialect, table, clauses.reach(text), row)?;
    let outer = joined.sources.outer && text.dialect == Dialect::MySql;
    let written = Written { text, clauses: &clauses, table, row, outer };
    let judged = !verdict.is_empty();
    let user_returning = tree.returning.is_some();
    let acts = table.acting_on_delete().next().is_some();
    let image = if text.dialect == Dialect::Postgres && !judged && !acts {
        returned(&written, &columns)
    } else {
        let before = written.before(&columns, &verdict, RowLock::Update);
        // What is returned may come from the other tables.
        let change = if user_returning { written.whole_by_key() } else { written.delete_by_key() };
        DeleteImage::Read { before, change: Change::ByKey(change) }
    };
    let plan = Delete { columns, image, judged, acts, reads: Vec::new(), user_returning };
    Ok((joined.place_of(*place)?, Plan::Delete(plan)))
}

/// PostgreSQL: the DELETE itself returns each row that it removed, once.
fn returned(written: &Written<'_>, columns: &[usize]) -> DeleteImage {
    let (text, clauses) = (written.text, written.clauses);
    let sources = clauses.from.clone().map_or(text.end(), |from| from.end);
    let end = clauses.predicate.clone().map_or(sources, |predicate| predicate.end);
    let row = format!("{}.", written.row);
    let own = clauses.own_items(text);
    let returning = image::returning_of(text.dialect, written.table, columns, &own, &row);
    let mark = image::mark(text.whole(), written.table);
    let text = format!("{}{returning}{mark}", text.cut(0..end));
    DeleteImage::Returned(Query { text, arguments: Arguments::AsBound })
}
