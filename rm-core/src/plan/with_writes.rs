//! PostgreSQL: writes inside WITH.
//!
//! All parts of such a statement run on one snapshot, and what a write returns is seen by its name
//! alone. Each write becomes a query of WITH that returns its images too, and the name keeps what
//! the application returned:
//!
//! ```sql
//! WITH hf_w1 AS (INSERT … RETURNING id, images), x AS (SELECT id FROM hf_w1)
//! SELECT hf_user.*, images FROM (SELECT …, row_number() OVER () AS hf_n FROM (…)) AS hf_user
//!   FULL JOIN hf_w1 ON FALSE ORDER BY hf_n
//! ```
//!
//! The join has no condition that holds, so that each of its rows is one of the application's
//! (`hf_n` counts them) or one image, in its own types.

use sqlparser::{
    ast::{Cte, Ident, Query as Tree, SelectItem, SetExpr, Statement as StatementTree},
    keywords::Keyword,
    tokenizer::Token,
};

use std::{collections::BTreeSet, ops::Range};

use super::{
    Arguments, DeleteImage, Dialect, InsertAfter, Plan, Query, Statement, StatementRefusal, Table,
    TableKind, TableName, UpdateImage, WithCount, WithPart, WithPartKind, WithWrites,
    clauses::misread, image, names, quote, text::Text,
};

/// A statement with writes in its WITH that is understood but not planned yet.
#[derive(Clone, Debug)]
pub(super) struct Writes {
    parts: Vec<Part>,
    tables: Vec<TableName>,
    recursive: bool,
}

/// A query of WITH, or the statement behind it.
#[derive(Clone, Debug)]
struct Part {
    /// Its name and columns as written; none for the statement behind WITH.
    head: Option<String>,
    /// Its whole text as a query of WITH, or as the statement.
    text: String,
    /// The write, if it is one.
    write: Option<Write>,
}

#[derive(Clone, Debug)]
struct Write {
    statement: Statement,
    /// Whether its effect depends on rows that are there: all but a plain INSERT.
    meets_rows: bool,
    /// The names of the columns that it returns to the application; `None` is `*`.
    own: Vec<Option<Ident>>,
}

impl Writes {
    /// Takes the statement apart, in which there are `count` writes. `parse` reads one by itself.
    pub(super) fn of(
        text: &Text,
        tree: &Tree,
        count: usize,
        parse: impl Fn(&str) -> Result<Statement, StatementRefusal>,
    ) -> Result<Self, StatementRefusal> {
        if text.dialect != Dialect::Postgres {
            return Err(refused("the database does not have it"));
        }
        let with = tree.with.as_ref().ok_or_else(misread)?;
        let places = places(text, with.cte_tables.len())?;
        let mut parts = Vec::with_capacity(places.queries.len() + 1);
        for (cte, place) in with.cte_tables.iter().zip(&places.queries) {
            parts.push(query_of_with(text, cte, place, &parse)?);
        }
        parts.push(behind(text, tree, places.rest, &parse)?);
        let found = parts.iter().filter(|part| part.write.is_some()).count();
        if found != count {
            return Err(refused("one is deeper inside; write it directly in the first WITH"));
        }
        let mut tables = Vec::new();
        for write in parts.iter().filter_map(|part| part.write.as_ref()) {
            let [table] = write.statement.tables() else { return Err(misread()) };
            if !tables.contains(table) {
                tables.push(table.clone());
            }
        }
        Ok(Self { parts, tables, recursive: with.recursive })
    }

    /// The tables that are written.
    pub(super) fn tables(&self) -> &[TableName] {
        &self.tables
    }

    /// Plans the statement; `tables` are those of [`Writes::tables`].
    pub(super) fn plan(&self, text: &Text, tables: &[&Table]) -> Result<Plan, StatementRefusal> {
        let (mut ctes, mut parts, mut images) = (Vec::new(), Vec::new(), Vec::new());
        let mut user = None;
        for part in &self.parts {
            let Some(write) = &part.write else {
                match &part.head {
                    Some(_) => ctes.push(part.text.clone()),
                    None => user = Some((format!("({}) AS hf_q", part.text), WithCount::Rows)),
                }
                continue;
            };
            let place = self.place_of(write)?;
            let table = *tables.get(place).ok_or_else(misread)?;
            let (kind, query) = imaged(write, table)?;
            let name = format!("hf_w{}", parts.len() + 1);
            ctes.push(format!("{name} AS ({query})"));
            let own = own_columns(write, table)?;
            match &part.head {
                Some(head) if !own.is_empty() => {
                    ctes.push(format!("{head} AS (SELECT {own} FROM {name})"));
                }
                Some(_) => {}
                None if own.is_empty() => {
                    user = Some((String::new(), WithCount::Part(parts.len())))
                }
                None => {
                    let rows = format!("(SELECT {own} FROM {name}) AS hf_q");
                    user = Some((rows, WithCount::Part(parts.len())));
                }
            }
            images.push(columns(&name, &kind, table));
            parts.push(WithPart { table: place, kind });
        }
        let (user, count) = user.ok_or_else(misread)?;
        let order = order(&parts, tables)?;
        self.check_order(&parts, tables)?;
        let first = *tables.first().ok_or_else(misread)?;
        let with = if self.recursive { "WITH RECURSIVE" } else { "WITH" };
        let user_rows = !user.is_empty();
        let user = if user_rows {
            format!("(SELECT hf_q.*, row_number() OVER () AS hf_n FROM {user}) AS hf_user")
        } else {
            "(SELECT CAST(NULL AS bigint) AS hf_n WHERE FALSE) AS hf_user".to_owned()
        };
        let joins: String =
            (1..=parts.len()).map(|n| format!(" FULL JOIN hf_w{n} ON FALSE")).collect();
        let query = format!(
            "{with} {} SELECT hf_user.*, {} FROM {user}{joins} ORDER BY hf_user.hf_n{}",
            ctes.join(", "),
            images.join(", "),
            image::mark(text.whole(), first)
        );
        let query = Query { text: query, arguments: Arguments::AsBound };
        Ok(Plan::With(WithWrites { query, parts, order, count }))
    }

    /// Refuses writes of one table whose order matters: beside their images they run in another one
    /// than without. `parts` are the planned ones, in the order of the writes.
    fn check_order(&self, parts: &[WithPart], tables: &[&Table]) -> Result<(), StatementRefusal> {
        let writes = self.parts.iter().filter_map(|part| part.write.as_ref());
        let all: Vec<(&Write, &WithPart)> = writes.zip(parts).collect();
        for (at, &(write, part)) in all.iter().enumerate() {
            for &(before, earlier) in &all[..at] {
                let (one, other) = (tables[earlier.table], tables[part.table]);
                if !share_rows(one, other) {
                    continue;
                }
                let matters = match (before.meets_rows, write.meets_rows) {
                    (false, false) => false,
                    (true, true) => true,
                    (true, false) => frees_values(&earlier.kind, one),
                    (false, true) => frees_values(&part.kind, other),
                };
                if matters {
                    return Err(refused(
                        "two of its writes may meet in one row or one unique value of a table, and \
                         the order in which they run is not known; execute each as a statement of \
                         its own",
                    ));
                }
            }
        }
        Ok(())
    }

    fn place_of(&self, write: &Write) -> Result<usize, StatementRefusal> {
        let table = write.statement.tables().first();
        let place = self.tables.iter().position(|known| Some(known) == table);
        place.ok_or_else(misread)
    }
}

/// Returns whether a row may be one of both: of the same table, or of a partition and the whole.
fn share_rows(one: &Table, other: &Table) -> bool {
    let same = (&one.schema, &one.name) == (&other.schema, &other.name);
    let names = |table: &Table| -> BTreeSet<String> {
        table.columns.iter().map(|column| column.name.clone()).collect()
    };
    let whole = [one, other].iter().any(|table| table.kind == TableKind::Partitioned);
    same || whole && names(one) == names(other)
}

/// Returns whether a write that meets rows may free or take a unique value, which an INSERT beside
/// it may offer.
fn frees_values(kind: &WithPartKind, table: &Table) -> bool {
    match kind {
        WithPartKind::Insert { .. } | WithPartKind::Delete { .. } => true,
        WithPartKind::Update { columns, .. } => table.unique.iter().any(|index| {
            let assigned = |column| columns.contains(column) && !table.key.columns.contains(column);
            !index.plain || index.columns.iter().any(assigned)
        }),
    }
}

fn refused(reason: &'static str) -> StatementRefusal {
    StatementRefusal::WriteInWith { reason }
}

/// The places of the queries of WITH, and of the statement behind them.
struct Places {
    queries: Vec<QueryPlace>,
    rest: Range<usize>,
}

struct QueryPlace {
    /// The name and its columns.
    head: Range<usize>,
    body: Range<usize>,
}

fn places(text: &Text, count: usize) -> Result<Places, StatementRefusal> {
    let closing = |open: usize| {
        let rest = text.lexemes.get(open + 1..).unwrap_or_default();
        let found = rest.iter().position(|lexeme| lexeme.is(&Token::RParen) && lexeme.depth == 0);
        found.map(|length| open + 1 + length).ok_or_else(misread)
    };
    let mut at = 1;
    if text.lexemes.get(at).is_some_and(|lexeme| lexeme.is_word("RECURSIVE")) {
        at += 1;
    }
    let mut queries = Vec::with_capacity(count);
    loop {
        let start = at;
        let named = text.find(at, &[Keyword::AS]).ok_or_else(misread)?;
        at = named + 1;
        while text.lexemes.get(at).is_some_and(|next| !next.is(&Token::LParen)) {
            at += 1;
        }
        let end = closing(at)?;
        queries.push(QueryPlace { head: start..named, body: at + 1..end });
        at = end + 1;
        if !text.lexemes.get(at).is_some_and(|next| next.is(&Token::Comma)) {
            break;
        }
        at += 1;
    }
    if queries.len() != count {
        Err(misread())
    } else {
        Ok(Places { queries, rest: at..text.end() })
    }
}

fn query_of_with(
    text: &Text,
    cte: &Cte,
    place: &QueryPlace,
    parse: &impl Fn(&str) -> Result<Statement, StatementRefusal>,
) -> Result<Part, StatementRefusal> {
    let head = text.cut(place.head.clone());
    let body = text.cut(place.body.clone());
    let write = written(&cte.query.body).map(|tree| write(&body, tree, parse)).transpose()?;
    // A query that only reads stays as it is, MATERIALIZED or not.
    let whole = text.cut(place.head.start..place.body.end + 1);
    Ok(Part { head: Some(head), text: whole, write })
}

fn behind(
    text: &Text,
    tree: &Tree,
    place: Range<usize>,
    parse: &impl Fn(&str) -> Result<Statement, StatementRefusal>,
) -> Result<Part, StatementRefusal> {
    if !tree.locks.is_empty() {
        return Err(refused("the statement behind it locks rows; lock them by a read before it"));
    }
    let body = text.cut(place);
    let write = written(&tree.body).map(|tree| write(&body, tree, parse)).transpose()?;
    Ok(Part { head: None, text: body, write })
}

fn written(body: &SetExpr) -> Option<&StatementTree> {
    match body {
        SetExpr::Insert(tree)
        | SetExpr::Update(tree)
        | SetExpr::Delete(tree)
        | SetExpr::Merge(tree) => Some(tree),
        SetExpr::Select(_)
        | SetExpr::Query(_)
        | SetExpr::SetOperation { .. }
        | SetExpr::Values(_)
        | SetExpr::Table(_) => None,
    }
}

fn write(
    body: &str,
    tree: &StatementTree,
    parse: &impl Fn(&str) -> Result<Statement, StatementRefusal>,
) -> Result<Write, StatementRefusal> {
    let (returning, row, joined) = if let StatementTree::Insert(tree) = tree {
        (&tree.returning, None, false)
    } else if let StatementTree::Delete(tree) = tree {
        (&tree.returning, None, tree.using.is_some())
    } else if let StatementTree::Update(tree) = tree {
        let row = super::constraint::row_of(&tree.table.relation)?;
        (&tree.returning, Some(row), tree.from.is_some())
    } else {
        return Err(refused("MERGE has no images; write it as UPDATE, DELETE and INSERT"));
    };
    let items = returning.as_deref().unwrap_or_default();
    let own = items.iter().map(own_name).collect::<Result<Vec<_>, _>>()?;
    let everything = own.iter().any(Option::is_none);
    if everything && own.len() > 1 {
        return Err(refused("it returns * beside other columns; name the columns"));
    }
    if everything && joined {
        return Err(refused("it returns * of several tables; name the columns"));
    }
    // `*` must not take in the columns of the image.
    let body = match row.filter(|_| everything) {
        Some(row) => body
            .trim_end()
            .strip_suffix('*')
            .map(|rest| format!("{rest}{row}.*"))
            .ok_or_else(misread)?,
        None => body.to_owned(),
    };
    let meets_rows = !matches!(tree, StatementTree::Insert(tree) if tree.on.is_none());
    Ok(Write { statement: parse(&body)?, meets_rows, own })
}

/// The name of a returned column as the database gives it; `None` for `*`.
fn own_name(item: &SelectItem) -> Result<Option<Ident>, StatementRefusal> {
    use sqlparser::ast::Expr;

    let name = if let SelectItem::Wildcard(_) = item {
        return Ok(None);
    } else if let SelectItem::ExprWithAlias { alias, .. } = item {
        Some(alias)
    } else if let SelectItem::UnnamedExpr(Expr::Identifier(name)) = item {
        Some(name)
    } else if let SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) = item {
        parts.last()
    } else {
        None
    };
    match name {
        Some(name) => Ok(Some(name.clone())),
        None => Err(refused("a value that it returns has no name; write one behind AS")),
    }
}

/// The columns that a write returns to the application, as a list.
fn own_columns(write: &Write, table: &Table) -> Result<String, StatementRefusal> {
    let mut columns = Vec::new();
    for name in &write.own {
        match name {
            Some(name) => columns.push(names::folded(Dialect::Postgres, name)),
            None => columns.extend(table.columns.iter().map(|column| column.name.clone())),
        }
    }
    let mut sorted = columns.clone();
    sorted.sort_unstable();
    if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(refused("it returns two columns of one name; name one of them otherwise"));
    }
    let quoted = columns.iter().map(|name| quote::identifier(Dialect::Postgres, name));
    Ok(quoted.collect::<Vec<_>>().join(", "))
}

/// The write with its images behind its own columns.
fn imaged(write: &Write, table: &Table) -> Result<(WithPartKind, String), StatementRefusal> {
    let statement = &write.statement;
    let (_, plan) = statement.plan(&[table], statement.argument_count())?;
    let (kind, query) = match plan {
        Plan::Insert(plan) => match plan.after {
            InsertAfter::Returned => (WithPartKind::Insert { columns: plan.columns }, plan.change),
            InsertAfter::ByValues { .. } | InsertAfter::ByGenerated(_) => {
                return Err(refused(ALONE));
            }
        },
        Plan::Update(plan) => match plan.image {
            UpdateImage::Together(query) => {
                let (columns, maintained) = (plan.columns, plan.maintained);
                (WithPartKind::Update { columns, maintained }, query)
            }
            UpdateImage::Read { .. } => return Err(refused(ALONE)),
        },
        Plan::Delete(plan) => match plan.image {
            DeleteImage::Returned(query) => (WithPartKind::Delete { columns: plan.columns }, query),
            DeleteImage::Read { .. } => return Err(refused(ALONE)),
        },
        Plan::Upsert(_) => {
            return Err(refused(
                "ON CONFLICT DO UPDATE needs a read before it; execute it as a statement of its \
                 own",
            ));
        }
        Plan::Pass
        | Plan::LockingRead(_)
        | Plan::JoinedRead(_)
        | Plan::Selected(_)
        | Plan::Several(_)
        | Plan::With(_) => return Err(refused(ALONE)),
    };
    let text = query.text.split(" /* hf:").next().unwrap_or_default().to_owned();
    Ok((kind, text))
}

const ALONE: &str =
    "one of its writes needs a read before it; execute it as a statement of its own";

/// The image columns of a part, in the order of its layout.
fn columns(name: &str, kind: &WithPartKind, table: &Table) -> String {
    let numbered = |prefix: &str, count: usize| -> Vec<String> {
        (1..=count).map(|number| format!("{name}.{prefix}{number}")).collect()
    };
    let width = kind.columns().len();
    let mut all = numbered("hf_col", width);
    all.extend(numbered("hf_key", table.key_width()));
    if matches!(kind, WithPartKind::Update { .. }) {
        all.extend(numbered("hf_old", width));
    }
    all.join(", ")
}

/// The order of the undo items, which are undone backwards. Rows that refer are undone before an
/// inserted row that they refer to, and after a deleted one. Of one table the inserted rows are
/// undone first, then the updated, then the deleted ones.
fn order(parts: &[WithPart], tables: &[&Table]) -> Result<Vec<usize>, StatementRefusal> {
    let ahead = |first: usize, second: usize| precedes(&parts[first], &parts[second], tables);
    let mut left: Vec<usize> = (0..parts.len()).collect();
    let mut order = Vec::with_capacity(parts.len());
    while !left.is_empty() {
        let free = |candidate: &usize| left.iter().all(|other| !ahead(*other, *candidate));
        let Some(next) = left.iter().position(free) else {
            return Err(refused(
                "its writes could be undone in no order, as their tables refer to each other; \
                 execute each as a statement of its own",
            ));
        };
        order.push(left.remove(next));
    }
    Ok(order)
}

/// Returns whether the undo item of one part must stand before that of another.
fn precedes(first: &WithPart, second: &WithPart, tables: &[&Table]) -> bool {
    let rank = |part: &WithPart| match part.kind {
        WithPartKind::Delete { .. } => 0,
        WithPartKind::Update { .. } => 1,
        WithPartKind::Insert { .. } => 2,
    };
    if first.table == second.table {
        let own = refers(tables[first.table], tables[first.table]);
        // Rows of one table that refer to each other: no order is right for all of them.
        return rank(first) < rank(second) || own && rank(first) != rank(second);
    }
    let (one, other) = (tables[first.table], tables[second.table]);
    let inserts = matches!(first.kind, WithPartKind::Insert { .. });
    let deletes = matches!(second.kind, WithPartKind::Delete { .. });
    let inserted_parent =
        inserts && !matches!(second.kind, WithPartKind::Delete { .. }) && refers(other, one);
    let deleted_parent =
        deletes && !matches!(first.kind, WithPartKind::Insert { .. }) && refers(one, other);
    inserted_parent || deleted_parent
}

/// Returns whether a table has a foreign key to another one.
fn refers(table: &Table, to: &Table) -> bool {
    let names = |key: &super::ForeignKey| {
        key.referring.schema == table.schema && key.referring.table == table.name
    };
    to.referenced_by.iter().any(names)
}
