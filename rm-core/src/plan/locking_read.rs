//! Reads whose rows are locked globally.
//!
//! The user's own statement shows which rows it read: the key texts ride behind its columns. So
//! NOWAIT and SKIP LOCKED keep their meaning, and there is no second read that could see other
//! rows.
//!
//! A globally committed read locks its rows in the database, until its local transaction ends: what
//! it has found is then unchanged when the coordinator is asked whether a global holds it. Read
//! without a lock, a row could be put back by a rollback in between, and would be found free.

use sqlparser::{
    ast::{Expr, GroupByExpr, LockType, Query as Tree, Select, SelectItem, SetExpr, TableFactor},
    keywords::Keyword,
};

use super::{
    Arguments, Dialect, LockMode, LockingRead, Plan, Query, StatementRefusal, Table, TableName,
    clauses::misread,
    guard::{self, Reach},
    image, names, stable,
    text::Text,
    walk::{TreeVisitor, walk},
};

/// The table of a read that can name its rows, without knowing the table.
pub(super) fn table(text: &Text, tree: &Tree) -> Result<TableName, StatementRefusal> {
    let SetExpr::Select(select) = &*tree.body else { return Err(refused(SEVERAL)) };
    let [from] = select.from.as_slice() else { return Err(refused(SEVERAL)) };
    let TableFactor::Table { name, args: None, .. } = &from.relation else {
        return Err(refused(SEVERAL));
    };
    if !from.joins.is_empty() {
        return Err(refused(SEVERAL));
    }
    let table = names::table(text.dialect, name)?;
    let with = tree.with.iter().flat_map(|with| &with.cte_tables);
    if with.map(|cte| names::folded(text.dialect, &cte.alias.name)).any(|cte| cte == table.name) {
        return Err(refused("it reads a WITH query; read the table itself"));
    }
    if text.dialect == Dialect::Postgres && projects(select, is_window) {
        return Err(refused(
            "it computes over a window; read the rows first and compute from them",
        ));
    }
    if groups(select) {
        return Err(refused("it groups rows; read the rows first and compute from them"));
    }
    Ok(table)
}

const SEVERAL: &str =
    "it reads more than plain rows of tables; lock the rows of each table by itself";

fn refused(reason: &'static str) -> StatementRefusal {
    StatementRefusal::LockingRead { reason }
}

/// Returns whether a row of the result stands for several rows of the table.
pub(super) fn groups(select: &Select) -> bool {
    let grouped = match &select.group_by {
        GroupByExpr::Expressions(by, _) => !by.is_empty(),
        GroupByExpr::All(_) => true,
    };
    grouped
        || select.distinct.is_some()
        || select.having.is_some()
        || projects(select, is_aggregate)
}

/// Returns whether the result computes an expression of this kind.
pub(super) fn projects(select: &Select, kind: fn(&Expr) -> bool) -> bool {
    select.projection.iter().any(|item| {
        let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item else {
            return false;
        };
        stable::contains(expr, kind)
    })
}

/// PostgreSQL locks no rows of such a read.
pub(super) fn is_window(expr: &Expr) -> bool {
    matches!(expr, Expr::Function(function) if function.over.is_some())
}

fn is_aggregate(expr: &Expr) -> bool {
    let Expr::Function(function) = expr else { return false };
    let name = function.name.to_string().to_ascii_lowercase();
    let prefixes = [
        "count", "sum", "avg", "min", "max", "std", "var", "bit_", "group_", "any_", "every",
        "bool_",
    ];
    prefixes.iter().any(|prefix| name.starts_with(prefix)) || name.ends_with("agg")
}

/// Plans a read that [`table`] has accepted.
pub(super) fn plan(text: &Text, table: &Table, mode: LockMode) -> Result<Plan, StatementRefusal> {
    let select = text.find(0, &[Keyword::SELECT]).ok_or_else(misread)?;
    let from = projection_end(text, select).ok_or_else(misread)?;
    guard::nameable(table, Reach::at(text, from + 1))?;
    let rewritten = format!(
        "{}, {} {}{}{}",
        text.cut(0..from),
        image::key_list(text.dialect, table),
        text.cut(from..end(text, from)),
        lock(text.dialect, mode),
        image::mark(text.whole(), table)
    );
    let query = Query { text: rewritten, arguments: Arguments::AsBound };
    Ok(Plan::LockingRead(LockingRead { query, key_columns: table.key.columns.len(), mode }))
}

/// Returns the lock clause that a read does not have yet.
pub(super) fn lock(dialect: Dialect, mode: LockMode) -> &'static str {
    match (mode, dialect) {
        (LockMode::Exclusive | LockMode::Shared, _) | (_, Dialect::Sqlite) => "",
        (LockMode::Committed, Dialect::Postgres) => " FOR SHARE",
        // MariaDB does not know FOR SHARE.
        (LockMode::Committed, Dialect::MySql) => " LOCK IN SHARE MODE",
    }
}

/// SQLite has no lock clause: the local transaction holds the lock on the whole database.
pub(super) fn end(text: &Text, from: usize) -> usize {
    let clause = text.find(from, &[Keyword::FOR]);
    clause.filter(|_| text.dialect == Dialect::Sqlite).unwrap_or(text.end())
}

/// Finds the FROM of the statement; the one in `a IS DISTINCT FROM b` is another.
pub(super) fn projection_end(text: &Text, select: usize) -> Option<usize> {
    let mut at = select;
    loop {
        at = text.find(at + 1, &[Keyword::FROM])?;
        if text.lexemes[at - 1].keyword() != Keyword::DISTINCT {
            return Some(at);
        }
    }
}

/// Returns how a read locks, by its own clauses.
pub(super) fn mode(tree: &Tree) -> Option<LockMode> {
    let shared = tree.locks.iter().all(|lock| lock.lock_type == LockType::Share);
    match tree.locks.as_slice() {
        [] => None,
        [..] if shared => Some(LockMode::Shared),
        [..] => Some(LockMode::Exclusive),
    }
}

/// Returns whether a read locks rows somewhere below its top level.
pub(super) fn locks_below(tree: &Tree) -> bool {
    struct Locks(usize);
    impl TreeVisitor for Locks {
        fn pre_visit_query(&mut self, query: &Tree) -> std::ops::ControlFlow<()> {
            self.0 += usize::from(!query.locks.is_empty());
            std::ops::ControlFlow::Continue(())
        }
    }
    let mut locks = Locks(0);
    let _ = walk(tree, &mut locks);
    locks.0 > usize::from(!tree.locks.is_empty())
}
