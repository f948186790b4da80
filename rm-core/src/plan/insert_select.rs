//! INSERT of the rows of a query, where the database does not tell what it does to which row: any
//! on MySQL, an upsert on SQLite. The query runs first, on MySQL as a locking read, and its rows
//! are inserted as values.

use std::ops::ControlFlow;

use sqlparser::ast::{Expr, Insert as Tree, OnInsert, SetExpr};
use sqlparser::keywords::Keyword;

use super::{
    Arguments, Dialect, Plan, Query, SelectedRows, StatementRefusal, Table,
    clauses::misread,
    image,
    text::Text,
    values,
    walk::{TreeVisitor, walk},
};

/// Plans an INSERT whose rows come from a query, as one of values. `None` if it gives the rows
/// itself.
pub(super) fn plan(
    text: &Text,
    tree: &Tree,
    table: &Table,
) -> Result<Option<Plan>, StatementRefusal> {
    if values::offered(text, tree, table)?.is_some() {
        return Ok(None);
    }
    let source = tree.source.as_ref().ok_or_else(misread)?;
    let SetExpr::Select(_) = &*source.body else {
        return Err(refused("its rows come from UNION, TABLE or brackets"));
    };
    if tree.returning.is_some() {
        return Err(refused("it has RETURNING"));
    }
    let start = text.find(0, &[Keyword::WITH, Keyword::SELECT]).ok_or_else(misread)?;
    if start == 0 {
        return Err(refused("its WITH stands before INSERT; write it before SELECT"));
    }
    let end = if tree.on.is_some() { conflict_clause(text)? } else { text.end() };
    if !text.arguments(end..text.end()).is_empty() {
        return Err(refused("the clause about conflicts has arguments"));
    }
    names_target_only(tree, table)?;
    // The read has the locks that the INSERT would take, and like it sees what is committed. SQLite
    // has one writer.
    let shares = text.dialect == Dialect::MySql && source.locks.is_empty();
    let lock = if shares { " LOCK IN SHARE MODE" } else { "" };
    let mark = image::mark(text.whole(), table);
    let select = Query {
        text: format!("{}{lock}{mark}", text.cut(start..end)),
        arguments: Arguments::AsBound,
    };
    let (head, tail) = (text.cut(0..start), text.cut(end..text.end()));
    let columns = values::columns(text.dialect, tree, table)?;
    let rows = SelectedRows { select, columns, head, tail };
    Ok(Some(Plan::Selected(rows)))
}

fn refused(reason: &'static str) -> StatementRefusal {
    StatementRefusal::InsertSelect { reason }
}

/// The place of ON DUPLICATE KEY UPDATE or ON CONFLICT, which is the last of its kind: a join may
/// be on a column `conflict`.
pub(super) fn conflict_clause(text: &Text) -> Result<usize, StatementRefusal> {
    let second = if text.dialect == Dialect::MySql { "DUPLICATE" } else { "CONFLICT" };
    let clause = text
        .lexemes
        .windows(2)
        .rposition(|pair| pair[0].depth == 0 && pair[0].is_word("ON") && pair[1].is_word(second));
    clause.ok_or_else(misread)
}

/// Refuses an ON DUPLICATE KEY UPDATE that names columns of the query, which the values do not
/// have.
fn names_target_only(tree: &Tree, table: &Table) -> Result<(), StatementRefusal> {
    struct Names<'t>(&'t Table);
    impl TreeVisitor for Names<'_> {
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            let target = self.0;
            let known = if let Expr::Identifier(name) = expr {
                target.column(Dialect::MySql, &name.value).is_some()
            } else if let Expr::CompoundIdentifier(names) = expr {
                let table = names.iter().rev().nth(1);
                table.is_some_and(|table| table.value.eq_ignore_ascii_case(&target.name))
            } else {
                true
            };
            if known { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        }
    }
    let Some(OnInsert::DuplicateKeyUpdate(assignments)) = &tree.on else { return Ok(()) };
    let mut names = Names(table);
    if assignments.iter().any(|one| walk(&one.value, &mut names).is_break()) {
        return Err(refused("its ON DUPLICATE KEY UPDATE reads columns of the query"));
    }
    Ok(())
}
