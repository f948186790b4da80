//! PostgreSQL: a probe for the rows that an upsert can meet, by all that it offers at once: the
//! rows of a query, or of VALUES where the conflict is by an expression.
//!
//! The probe runs the query, and the upsert runs it again. So the query must be one that changes
//! nothing and gives the same twice on the same data. If others have added rows in between, the
//! upsert returns a row as updated that was not probed, and is refused.

use std::ops::Range;

use sqlparser::{
    ast::{ConflictTarget, Insert as Tree, SetExpr, Statement},
    keywords::Keyword,
    parser::Parser,
    tokenizer::Token,
};

use super::{
    Arguments, Dialect, Query, StatementRefusal, Table,
    image::{self, RowLock},
    insert_select::conflict_clause,
    names,
    normal::{ConflictColumn, conflict_column, tokens},
    quote,
    repeatable::is_repeatable,
    text::{Text, grammar},
    values,
};

/// Why an index cannot be looked up.
pub(super) const NOT_PLAIN: &str =
    "it is partial, on an expression or on a prefix; write UPDATE, then INSERT if needed";

/// A part of a conflict target.
enum Part<'t> {
    Column(usize),
    Expression(&'t str),
}

/// Returns the probe, or `None` if the conflict is by columns of rows that the text shows.
pub(super) fn probe(
    text: &Text,
    tree: &Tree,
    table: &Table,
    target: &ConflictTarget,
    columns: &[usize],
    verdict: &str,
) -> Result<Option<Query>, StatementRefusal> {
    let parts = parts(text.dialect, table, target)?;
    let by_expression = parts.iter().any(|part| matches!(part, Part::Expression(_)));
    if !by_expression && values::offered(text, tree, table)?.is_some() {
        return Ok(None);
    }
    let insert = text.find(0, &[Keyword::INSERT]).ok_or_else(unplaced)?;
    let source = [Keyword::WITH, Keyword::SELECT, Keyword::VALUES];
    let start = text.find(insert, &source).ok_or_else(unplaced)?;
    let end = conflict_clause(text)?;
    check_repeatable(text, tree, start..end)?;
    let values = tree.source.as_ref().is_some_and(|own| matches!(*own.body, SetExpr::Values(_)));
    if values && text.lexemes[start..end].iter().any(|own| own.keyword() == Keyword::DEFAULT) {
        return Err(StatementRefusal::Upsert {
            reason: "DEFAULT among its values is not known before; write the value",
        });
    }
    let offered = values::columns(text.dialect, tree, table)?;
    let needed = needed(table, &parts, &offered)?;
    let given: Vec<String> = (1..=needed.last().map_or(0, |(place, _)| place + 1))
        .map(|number| format!("hf_given{number}"))
        .collect();
    let cast = |(place, column): &(usize, usize)| {
        let own = &table.columns[*column];
        let name = quote::identifier(Dialect::Postgres, &own.name);
        // Beside the column's own collation the default one gives way.
        let is_text = ["text", "char", "citext"].iter().any(|kind| own.type_text.starts_with(kind));
        let collation = if is_text { " COLLATE \"default\"" } else { "" };
        format!("({}::{}){collation} AS {name}", given[*place], own.type_text)
    };
    let casts: Vec<String> = needed.iter().map(cast).collect();
    let terms: Vec<String> = parts.iter().map(|part| part.term(table)).collect();
    let (terms, casts, given) = (terms.join(", "), casts.join(", "), given.join(", "));
    let list = image::select_list(Dialect::Postgres, table, columns);
    let own = quote::rows(Dialect::Postgres, table);
    let lock = RowLock::Update.clause(Dialect::Postgres);
    let mark = image::mark(text.whole(), table);
    let with = text.cut(0..insert);
    let rows = text.cut(start..end);
    let probe = format!(
        "{with} SELECT {list}{verdict} FROM {own} WHERE ({terms}) IN (SELECT {terms} FROM \
         (SELECT {casts} FROM ({rows}) AS hf_source ({given})) AS hf_offered){lock}{mark}"
    );
    Ok(Some(Query { text: probe.trim_start().to_owned(), arguments: Arguments::AsBound }))
}

/// Refuses a source that may do more than read, or give other rows the second time, and one that is
/// not what stands in the text.
fn check_repeatable(text: &Text, tree: &Tree, place: Range<usize>) -> Result<(), StatementRefusal> {
    let source = tree.source.as_ref().ok_or_else(unplaced)?;
    let parser = |tokens| Parser::new(grammar(text.dialect)).with_tokens_with_locations(tokens);
    let mut of_source = parser(tokens(text.dialect, &text.lexemes[place]));
    let read = of_source.parse_query();
    let is_it =
        read.is_ok_and(|read| read == *source) && of_source.peek_token_ref().token == Token::EOF;
    let whole = parser(text.tokens()).parse_statement();
    let with = match &whole {
        Ok(Statement::Query(query)) => query.with.as_ref(),
        _ => None,
    };
    let repeats = is_repeatable(text.dialect, source)
        && with.is_none_or(|with| is_repeatable(text.dialect, with));
    if !is_it || !repeats {
        return Err(StatementRefusal::Upsert {
            reason: "its query may give other rows when it runs again, or do more than read; \
                     select them first and insert them with VALUES",
        });
    }
    Ok(())
}

fn unplaced() -> StatementRefusal {
    StatementRefusal::Upsert {
        reason: "its rows cannot be read before; select them first and insert them with VALUES",
    }
}

impl Part<'_> {
    /// Its text, the same for a row of the table and for one that is offered.
    fn term(&self, table: &Table) -> String {
        match self {
            Self::Column(column) => {
                quote::identifier(Dialect::Postgres, &table.columns[*column].name)
            }
            Self::Expression(text) => format!("({text})"),
        }
    }

    fn names(&self, table: &Table) -> Vec<usize> {
        match self {
            Self::Column(column) => vec![*column],
            Self::Expression(text) => {
                let is_named = |column: &usize| {
                    super::constraint::mentions(text, &table.columns[*column].name)
                };
                (0..table.columns.len()).filter(is_named).collect()
            }
        }
    }
}

fn parts<'t>(
    dialect: Dialect,
    table: &Table,
    target: &'t ConflictTarget,
) -> Result<Vec<Part<'t>>, StatementRefusal> {
    match target {
        ConflictTarget::Columns(items) => items
            .iter()
            .filter_map(|item| match conflict_column(item) {
                ConflictColumn::Name(name) => {
                    Some(names::column(dialect, table, name).map(Part::Column))
                }
                ConflictColumn::Expression(text) => Some(expression(dialect, text)),
                // No row has a predicate that the rest of the target does not find.
                ConflictColumn::Predicate => None,
            })
            .collect(),
        ConflictTarget::OnConstraint(constraint) => {
            let constraint = names::table(dialect, constraint)?.name;
            let mut all = std::iter::once(&table.key).chain(&table.unique);
            let index = all.find(|index| index.plain && index.name == constraint);
            let columns = index.map(|index| index.columns.as_slice()).unwrap_or_default();
            Ok(columns.iter().copied().map(Part::Column).collect())
        }
    }
}

/// An expression alone: the name of an operator class may stand behind it.
fn expression(dialect: Dialect, text: &str) -> Result<Part<'_>, StatementRefusal> {
    let parser = Parser::new(grammar(dialect)).try_with_sql(text);
    let is_whole = parser.is_ok_and(|mut parser| {
        parser.parse_expr().is_ok() && parser.peek_token_ref().token == Token::EOF
    });
    if is_whole {
        return Ok(Part::Expression(text));
    }
    Err(StatementRefusal::UpsertIndex { index: format!("({text})"), reason: NOT_PLAIN })
}

/// The columns that the target depends on, each behind its place among those offered.
fn needed(
    table: &Table,
    parts: &[Part<'_>],
    offered: &[usize],
) -> Result<Vec<(usize, usize)>, StatementRefusal> {
    let mut needed = Vec::new();
    for column in parts.iter().flat_map(|part| part.names(table)) {
        let Some(place) = offered.iter().position(|own| *own == column) else {
            return Err(StatementRefusal::KeyUnknown {
                column: table.columns[column].name.clone(),
                reason: "the conflict is by it, and the rows do not give it; give it",
            });
        };
        needed.push((place, column));
    }
    needed.sort_unstable();
    needed.dedup();
    if needed.is_empty() { Err(unplaced()) } else { Ok(needed) }
}
