//! The parts of a statement with writes in its WITH, as they stand in its text.

use std::{collections::BTreeSet, ops::Range};

use sqlparser::{
    ast::{
        Cte, CteAsMaterialized, Expr, Ident, OnConflictAction, OnInsert, Query as Tree, SelectItem,
        SetExpr, Statement as StatementTree,
    },
    keywords::Keyword,
    tokenizer::Token,
};

use super::super::{
    Dialect, Statement, StatementRefusal, clauses::misread, constraint, names,
    repeatable::is_repeatable, text::Text,
};

/// A query of WITH, or the statement behind it.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// Its name and columns as written; none for the statement behind WITH.
    pub(super) head: Option<String>,
    /// Its name alone, folded.
    pub(super) name: Option<String>,
    /// Its whole text as a query of WITH, or as the statement.
    pub(super) text: String,
    /// The words of its body in lower case, in quotes or not.
    words: BTreeSet<String>,
    /// Whether it gives the same wherever it is read: most queries of WITH run once.
    pub(super) repeats: bool,
    /// The write, if it is one.
    pub(super) write: Option<Write>,
}

#[derive(Clone, Debug)]
pub(super) struct Write {
    pub(super) statement: Statement,
    /// The effect of an INSERT on a row that it meets; `Fail` for other writes.
    pub(super) on_conflict: OnConflict,
    /// Whether it joins its rows with others.
    pub(super) joins: bool,
    /// The names of the columns that it returns to the application; `None` is `*`.
    pub(super) own: Vec<Option<Ident>>,
}

/// The effect of an INSERT on a row that conflicts with what it offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnConflict {
    Fail,
    Ignore,
    Update,
}

pub(super) fn refused(reason: &'static str) -> StatementRefusal {
    StatementRefusal::WriteInWith { reason }
}

impl Part {
    /// Returns whether its text has the name of another part, so that it may read that.
    pub(super) fn may_read(&self, other: &Part) -> bool {
        other.name.as_ref().is_some_and(|name| self.words.contains(&name.to_lowercase()))
    }
}

/// Takes a statement apart. `parse` reads one write by itself.
pub(super) fn parts(
    text: &Text,
    tree: &Tree,
    parse: impl Fn(&str) -> Result<Statement, StatementRefusal>,
) -> Result<Vec<Part>, StatementRefusal> {
    let with = tree.with.as_ref().ok_or_else(misread)?;
    let places = places(text, with.cte_tables.len())?;
    let mut parts = Vec::with_capacity(places.queries.len() + 1);
    for (cte, place) in with.cte_tables.iter().zip(&places.queries) {
        parts.push(query_of_with(text, cte, place, &parse)?);
    }
    parts.push(behind(text, tree, places.rest, &parse)?);
    Ok(parts)
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
    let body = text.cut(place.body.clone());
    let write = written(&cte.query.body).map(|tree| write(&body, tree, parse)).transpose()?;
    let again = matches!(cte.materialized, Some(CteAsMaterialized::NotMaterialized));
    Ok(Part {
        head: Some(text.cut(place.head.clone())),
        name: Some(names::folded(Dialect::Postgres, &cte.alias.name)),
        // A query that only reads stays as it is, MATERIALIZED or not.
        text: text.cut(place.head.start..place.body.end + 1),
        words: words(text, place.body.clone()),
        repeats: write.is_some() || !again || is_repeatable(Dialect::Postgres, &*cte.query),
        write,
    })
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
    let body = text.cut(place.clone());
    let write = written(&tree.body).map(|tree| write(&body, tree, parse)).transpose()?;
    let words = words(text, place);
    Ok(Part { head: None, name: None, text: body, words, repeats: true, write })
}

fn words(text: &Text, place: Range<usize>) -> BTreeSet<String> {
    let lexemes = text.lexemes.get(place).unwrap_or_default();
    lexemes.iter().filter_map(|lexeme| lexeme.word()).map(str::to_lowercase).collect()
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
    let (returning, row, joins) = if let StatementTree::Insert(tree) = tree {
        (&tree.returning, None, false)
    } else if let StatementTree::Delete(tree) = tree {
        (&tree.returning, None, tree.using.is_some())
    } else if let StatementTree::Update(tree) = tree {
        let row = constraint::row_of(&tree.table.relation)?;
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
    if everything && joins {
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
    Ok(Write { statement: parse(&body)?, on_conflict: on_conflict(tree), joins, own })
}

fn on_conflict(tree: &StatementTree) -> OnConflict {
    let StatementTree::Insert(tree) = tree else { return OnConflict::Fail };
    match &tree.on {
        None => OnConflict::Fail,
        Some(OnInsert::OnConflict(clause))
            if matches!(clause.action, OnConflictAction::DoUpdate(_)) =>
        {
            OnConflict::Update
        }
        Some(_) => OnConflict::Ignore,
    }
}

/// The name of a returned column as the database gives it; `None` for `*`.
fn own_name(item: &SelectItem) -> Result<Option<Ident>, StatementRefusal> {
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
