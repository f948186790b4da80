//! PostgreSQL: UPDATE with FROM in one statement that also reads both images.
//!
//! ```sql
//! WITH hf_from1 AS MATERIALIZED (sub-select of FROM),
//!   hf_before AS MATERIALIZED (SELECT … FROM target, hf_from1 q WHERE condition FOR … OF target)
//! UPDATE target SET … FROM hf_from1 q, hf_before
//!   WHERE (condition) AND key = hf_before.key RETURNING …
//! ```
//!
//! A sub-select in FROM is evaluated once, whatever it chooses by. The rest of FROM and the
//! condition are evaluated twice in one snapshot, so they must be a function of it. If they are
//! not, and what is assigned needs no other source, the UPDATE has `hf_before` alone.

use std::ops::Range;

use sqlparser::{
    ast::{
        Expr, Join, JoinConstraint, JoinOperator, SelectItem, SelectItemQualifiedWildcardKind,
        TableFactor, TableWithJoins, Update as Tree, UpdateTableFromKind,
    },
    keywords::Keyword,
    tokenizer::Token,
};

use super::super::{
    Arguments, Dialect, Query, StatementRefusal, clauses::misread, image, image::RowLock, names,
    quote, repeatable,
};
use super::Joined;
use super::clauses::is_keyword;
use super::images::Written;
use super::sources::{Sources, unmaterialized};

/// The change, and where its parts come from.
pub(super) struct Together<'a> {
    pub(super) written: &'a Written<'a>,
    pub(super) joined: &'a Joined,
    pub(super) tree: &'a Tree,
    pub(super) columns: &'a [usize],
    pub(super) lock: RowLock,
}

impl Together<'_> {
    /// The statement, or a refusal if it could be evaluated in two ways.
    pub(super) fn query(&self) -> Result<Query, StatementRefusal> {
        let alone = if self.is_repeatable() {
            false
        } else if needs_no_other(self.joined, self.tree, self.written) {
            true
        } else {
            return Err(by_chance());
        };
        let lifted = self.lifted()?;
        let (read, same, old) = self.before_columns();
        let (text, clauses) = (self.written.text, self.written.clauses);
        let target = text.cut(clauses.target.clone());
        let condition = clauses.condition(text);
        let filter = condition.as_ref().map(|own| format!(" WHERE {own}")).unwrap_or_default();
        let row = self.written.row;
        let lock = self.lock.clause(Dialect::Postgres);
        let mut ctes: Vec<String> = lifted.ctes;
        ctes.push(format!(
            "hf_before AS MATERIALIZED (SELECT {} FROM {target}, {}{filter}{lock} OF {row})",
            read.join(", "),
            lifted.from
        ));
        let (from, condition) = if alone {
            (String::new(), String::new())
        } else {
            (
                format!("{}, ", lifted.from),
                condition.map(|own| format!("{own} AND ")).unwrap_or_default(),
            )
        };
        let with = text.cut(clauses.with.clone());
        let query = [
            if with.is_empty() { "WITH ".to_owned() } else { format!("{with}, ") },
            ctes.join(", "),
            format!(" UPDATE {target} SET {}", text.cut(clauses.assignments.clone())),
            format!(" FROM {from}hf_before WHERE {condition}{}", same.join(" AND ")),
            self.returning()?,
            old,
            image::mark(text.whole(), self.written.table),
        ];
        Ok(Query { text: query.concat(), arguments: Arguments::AsBound })
    }

    /// Returns whether what is evaluated twice gives the same twice.
    fn is_repeatable(&self) -> bool {
        let same = |part: &TableFactor| repeatable::is_repeatable(Dialect::Postgres, part);
        let from = from_items(self.tree);
        let sources = from.iter().all(|item| {
            let factors = std::iter::once(&item.relation);
            let mut factors = factors.chain(item.joins.iter().map(|join| &join.relation));
            factors.all(|factor| is_lifted(factor) || same(factor))
                && item.joins.iter().all(condition_is_repeatable)
        });
        let with = unmaterialized(self.joined.with.as_ref());
        sources
            && repeatable::is_repeatable(Dialect::Postgres, &self.tree.selection)
            && with.iter().all(|query| repeatable::is_repeatable(Dialect::Postgres, *query))
    }

    /// The items of FROM with their sub-selects moved into WITH.
    fn lifted(&self) -> Result<Lifted, StatementRefusal> {
        let text = self.written.text;
        let from = self.written.clauses.from.clone().ok_or_else(misread)?;
        let mut lifted = Lifted { ctes: Vec::new(), from: String::new() };
        let mut at = from.start;
        for open in from.clone() {
            let Some(inside) = sub_select(text, &from, open) else { continue };
            let name = format!("hf_from{}", lifted.ctes.len() + 1);
            lifted.from.push_str(&spaced(text.cut(at..open)));
            lifted.from.push_str(&name);
            lifted.from.push(' ');
            at = inside.end + 1;
            lifted.ctes.push(format!("{name} AS MATERIALIZED ({})", text.cut(inside)));
        }
        lifted.from.push_str(&text.cut(at..from.end));
        let items = from_items(self.tree).iter();
        let factors = items.flat_map(|item| {
            std::iter::once(&item.relation).chain(item.joins.iter().map(|join| &join.relation))
        });
        let expected = factors.filter(|factor| is_lifted(factor)).count();
        if expected == lifted.ctes.len() { Ok(lifted) } else { Err(misread()) }
    }

    /// The items of the locking read, the terms that find its rows again, and its items behind the
    /// after image.
    fn before_columns(&self) -> (Vec<String>, Vec<String>, String) {
        let (mut read, mut same, mut old) = (Vec::new(), Vec::new(), String::new());
        let table = self.written.table;
        for (position, &index) in self.columns.iter().enumerate() {
            let name = quote::identifier(Dialect::Postgres, &table.columns[index].name);
            let name = format!("{}.{name}", self.written.row);
            let before = format!("hf_old{}", position + 1);
            read.push(format!("{name} AS {before}"));
            if table.key.columns.contains(&index) {
                same.push(format!("{name} = hf_before.{before}"));
            }
            old.push_str(&format!(", hf_before.{before}"));
        }
        (read, same, old)
    }

    /// The application's items, `*` without the columns of the read, then ours.
    fn returning(&self) -> Result<String, StatementRefusal> {
        let own = own_items(self.joined, self.tree, self.written)?;
        let row = format!("{}.", self.written.row);
        Ok(image::returning_of(Dialect::Postgres, self.written.table, self.columns, &own, &row))
    }
}

struct Lifted {
    ctes: Vec<String>,
    from: String,
}

pub(super) fn by_chance() -> StatementRefusal {
    StatementRefusal::SeveralTables {
        statement: "UPDATE",
        reason: "which rows it chooses may differ between the image and the change, and what it \
                 assigns or returns needs the other tables; choose the rows in a sub-select of \
                 FROM (on PostgreSQL), or by a SELECT before",
    }
}

/// Returns whether assignments and returned items need no source but the target.
pub(super) fn needs_no_other(joined: &Joined, tree: &Tree, written: &Written<'_>) -> bool {
    let dialect = written.text.dialect;
    let place = joined.sources.items.iter().position(|source| source.row == written.row);
    let Some(place) = place else { return false };
    let values: Vec<&Expr> = tree.assignments.iter().map(|assigned| &assigned.value).collect();
    let own = |expr: &Expr| joined.sources.uses_only(dialect, place, written.table, expr);
    let row = |item: &SelectItem| {
        use SelectItemQualifiedWildcardKind::ObjectName;

        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
            own(expr)
        } else if let SelectItem::QualifiedWildcard(ObjectName(name), _) = item {
            let name = super::last(name).map(|name| names::folded(dialect, name));
            name.as_ref() == Some(&joined.sources.items[place].name)
        } else {
            // On SQLite `*` stands for the target's columns.
            matches!(item, SelectItem::Wildcard(_)) && dialect == Dialect::Sqlite
        }
    };
    values.into_iter().all(own) && tree.returning.iter().flatten().all(row)
}

/// The application's RETURNING items; `*` becomes the columns of each source by itself.
fn own_items(
    joined: &Joined,
    tree: &Tree,
    written: &Written<'_>,
) -> Result<String, StatementRefusal> {
    let own = written.clauses.own_items(written.text);
    let wildcard = |item: &SelectItem| matches!(item, SelectItem::Wildcard(_));
    if !tree.returning.iter().flatten().any(wildcard) {
        return Ok(own);
    }
    if own.trim() != "*" || !names_all(&joined.sources) {
        return Err(StatementRefusal::SeveralTables {
            statement: "UPDATE",
            reason: "RETURNING * cannot be told from the library's own columns here; name the \
                     tables, as in RETURNING a.*, b.*",
        });
    }
    let each = joined.sources.items.iter().map(|source| format!("{}.*", source.row));
    Ok(each.collect::<Vec<_>>().join(", "))
}

fn names_all(sources: &Sources) -> bool {
    !sources.merges && sources.items.iter().all(|source| !source.name.is_empty())
}

fn from_items(tree: &Tree) -> &[TableWithJoins] {
    match &tree.from {
        Some(UpdateTableFromKind::AfterSet(items) | UpdateTableFromKind::BeforeSet(items)) => items,
        None => &[],
    }
}

fn is_lifted(item: &TableFactor) -> bool {
    matches!(item, TableFactor::Derived { lateral: false, .. })
}

fn condition_is_repeatable(join: &Join) -> bool {
    let (JoinOperator::Join(constraint)
    | JoinOperator::Inner(constraint)
    | JoinOperator::Left(constraint)
    | JoinOperator::LeftOuter(constraint)
    | JoinOperator::Right(constraint)
    | JoinOperator::RightOuter(constraint)
    | JoinOperator::FullOuter(constraint)
    | JoinOperator::CrossJoin(constraint)) = &join.join_operator
    else {
        return false;
    };
    match constraint {
        JoinConstraint::On(expr) => repeatable::is_repeatable(Dialect::Postgres, expr),
        JoinConstraint::Using(_) | JoinConstraint::Natural | JoinConstraint::None => true,
    }
}

/// The inside of a sub-select that opens here and is an item of FROM itself.
fn sub_select(text: &super::Text, from: &Range<usize>, open: usize) -> Option<Range<usize>> {
    let first = text.lexemes.get(open).filter(|lexeme| lexeme.is(&Token::LParen))?;
    let depth = first.depth;
    let begins = open == from.start
        || text.lexemes[open - 1].is(&Token::Comma)
        || is_keyword(text.lexemes.get(open - 1), Keyword::JOIN);
    let next = text.lexemes.get(open + 1);
    let query = [Keyword::SELECT, Keyword::WITH, Keyword::VALUES];
    let is_query = query.iter().any(|keyword| is_keyword(next, *keyword));
    if depth != 0 || !begins || !is_query {
        return None;
    }
    let rest = &text.lexemes[open + 1..from.end];
    let length = rest.iter().position(|lexeme| lexeme.depth == depth)?;
    Some(open + 1..open + 1 + length)
}

fn spaced(mut text: String) -> String {
    if !text.is_empty() {
        text.push(' ');
    }
    text
}
