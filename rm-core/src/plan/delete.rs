//! DELETE of one table.

use std::ops::ControlFlow;

use sqlparser::ast::{Delete as Tree, FromTable, TableFactor};

use super::{
    Change, Delete, DeleteImage, Dialect, Plan, Query, StatementRefusal, Table,
    clauses::{Clauses, Expected, misread},
    constraint,
    guard::{self, Event, Reach},
    image::{self, RowLock},
    repeatable::is_repeatable,
    text::Text,
    update,
    walk::{TreeVisitor, walk},
};

/// Plans a DELETE whose shape [`super::parse`] has accepted.
pub(super) fn plan(text: &Text, tree: &Tree, table: &Table) -> Result<Plan, StatementRefusal> {
    let clauses = clauses(text, tree)?;
    let reach = Reach::at(text, clauses.target.start);
    guard::writable_whole(table, reach, Event::Delete)?;
    let columns = table.imaged();
    let constraints = constraint::of_whole_rows(table);
    let judged = !constraints.is_empty();
    let acts = table.acting_on_delete().next().is_some();
    // The change could choose other rows than a read before it, and cannot name them by a key.
    let unnamed =
        table.whole_rows && !update::chooses_again(text, tree.selection.as_ref(), &clauses);
    if unnamed && judged {
        return Err(StatementRefusal::NoPrimaryKey { table: table.full_name() });
    }
    // Rows that are returned are gone already, too late to judge them, and so are the rows that
    // went along with them.
    let returns = text.dialect.returns_rows() || tree.returning.is_some() || unnamed;
    let image = if returns && !judged && !acts {
        DeleteImage::Returned(returned(text, table, &columns, &clauses))
    } else {
        let row = constraint::row_of(acceptable(text.dialect, tree)?)?;
        let verdict = constraint::verdict(text.dialect, table, &row, &constraints);
        read(text, tree, table, &columns, &verdict, &clauses)
    };
    let reads = if acts && text.dialect == Dialect::MySql { tables_read(tree) } else { Vec::new() };
    let user_returning = tree.returning.is_some();
    Ok(Plan::Delete(Delete { columns, image, judged, acts, reads, user_returning }))
}

/// Returns the names of the tables in sub-selects of the condition.
fn tables_read(tree: &Tree) -> Vec<String> {
    struct Tables(Vec<String>);

    impl TreeVisitor for Tables {
        fn pre_visit_table_factor(&mut self, item: &TableFactor) -> ControlFlow<()> {
            if let TableFactor::Table { name, .. } = item {
                let last = name.0.last().and_then(|part| part.as_ident());
                self.0.extend(last.map(|name| name.value.to_lowercase()));
            }
            ControlFlow::Continue(())
        }
    }

    let mut tables = Tables(Vec::new());
    // Nothing ends the walk.
    let _ = walk(&tree.selection, &mut tables);
    tables.0
}

/// PostgreSQL: as [`update::chosen_keys`].
pub(super) fn chosen_keys(
    text: &Text,
    tree: &Tree,
    table: &Table,
) -> Result<Option<String>, StatementRefusal> {
    let clauses = clauses(text, tree)?;
    let repeats = clauses.with.is_empty() && is_repeatable(text.dialect, &tree.selection);
    let row = constraint::row_of(acceptable(text.dialect, tree)?)?;
    Ok(repeats.then(|| image::chosen_keys(text, table, &clauses, &row)))
}

fn read(
    text: &Text,
    tree: &Tree,
    table: &Table,
    columns: &[usize],
    verdict: &str,
    clauses: &Clauses,
) -> DeleteImage {
    let own = clauses.returning.clone().map(|items| text.cut(items));
    let returning = own.map(|own| format!(" RETURNING {own}")).unwrap_or_default();
    // InnoDB deletes row by row, and what foreign keys change along may change which rows match; a
    // row that has gone along would hide one that another transaction has added. So the rows that
    // were found are named. SQLite has one writer, and finds its rows first.
    let acts = table.acting_on_delete().next().is_some();
    let change = if acts && text.dialect != Dialect::Sqlite {
        Change::ByKey(image::by_key(text, table, clauses, text.argument_count(), &returning))
    } else {
        update::change_by(text, table, clauses, tree.selection.as_ref(), &returning)
    };
    let before = image::before(text, table, columns, &[], verdict, clauses, RowLock::Update);
    DeleteImage::Read { before, change }
}

/// The table's item; refuses clauses that no image can follow, without knowing the table.
pub(super) fn acceptable(dialect: Dialect, tree: &Tree) -> Result<&TableFactor, StatementRefusal> {
    let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &tree.from;
    // What has several sources is planned elsewhere.
    let [target] = from.as_slice() else { return Err(misread()) };
    guard::no_limit(dialect, !tree.order_by.is_empty() || tree.limit.is_some())?;
    Ok(&target.relation)
}

fn clauses(text: &Text, tree: &Tree) -> Result<Clauses, StatementRefusal> {
    let expected = Expected {
        predicate: tree.selection.as_ref(),
        order: !tree.order_by.is_empty(),
        limit: tree.limit.is_some(),
        returning: tree.returning.is_some(),
    };
    Clauses::of_delete(text, &expected)
}

/// The DELETE that returns its rows.
pub(super) fn returning(
    text: &Text,
    tree: &Tree,
    table: &Table,
) -> Result<Query, StatementRefusal> {
    Ok(returned(text, table, &table.imaged(), &clauses(text, tree)?))
}

fn returned(text: &Text, table: &Table, columns: &[usize], clauses: &Clauses) -> Query {
    let tail = [&clauses.predicate, &clauses.order, &clauses.limit];
    let ends = tail.into_iter().flatten().map(|clause| clause.end);
    let end = ends.max().unwrap_or(clauses.assignments.end);
    let own = clauses.returning.clone().map(|items| text.cut(items)).unwrap_or_default();
    let returning = image::returning(text, table, columns, &own);
    image::rewritten(text, table, end, &returning)
}
