//! The rows that an INSERT offers, expression by expression, cut from its text.

use std::ops::Range;

use sqlparser::{
    ast::{
        Expr, GroupByExpr, Insert as Tree, Query, Select, SelectItem, SetExpr, TableWithJoins,
        Value,
    },
    keywords::Keyword,
    tokenizer::Token,
};

use super::{
    Dialect, Generation, StatementRefusal, Table, clauses::misread, names, stable, text::Text,
};

/// The rows of VALUES or SET.
#[derive(Debug)]
pub(super) struct Offered<'a> {
    pub(super) rows: Vec<Vec<PlannedValue<'a>>>,
    /// The token after the last row.
    pub(super) end: usize,
    /// A condition decides whether the row is offered at all.
    pub(super) conditional: bool,
}

/// One value of a row.
#[derive(Debug)]
pub(super) struct PlannedValue<'a> {
    /// The column it is for.
    pub(super) column: usize,
    pub(super) tokens: Range<usize>,
    tree: &'a Expr,
}

impl PlannedValue<'_> {
    /// Returns whether the value is a literal or an argument, which takes the collation that it
    /// meets.
    pub(super) fn is_literal(&self) -> bool {
        matches!(self.tree, Expr::Value(_))
    }

    /// Returns whether the value is a literal other than NULL.
    pub(super) fn is_constant(&self) -> bool {
        let Expr::Value(value) = self.tree else { return false };
        !matches!(value.value, Value::Null | Value::Placeholder(_))
    }
}

/// The offer of a row for one column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Offer {
    /// The value at this position of the row: constant, so that it can be asked for again.
    Value(usize),
    /// The same, where NULL or 0 makes the database generate a value instead.
    ValueOrGenerated(usize),
    /// The database generates a value that no row has.
    Generated,
    /// The column's constant default.
    Default,
    /// NULL.
    Null,
    /// A value that cannot be known before the row is there.
    Unknown,
}

/// Cuts the rows out of an INSERT; `None` if they come from a query.
pub(super) fn offered<'a>(
    text: &Text,
    tree: &'a Tree,
    table: &Table,
) -> Result<Option<Offered<'a>>, StatementRefusal> {
    if !tree.assignments.is_empty() {
        return assigned(text, tree, table).map(Some);
    }
    let Some(source) = &tree.source else {
        let end = text.end();
        return Ok(Some(Offered { rows: vec![Vec::new()], end, conditional: false }));
    };
    if let SetExpr::Select(select) = &*source.body {
        return selected(text, tree, source, select, table);
    }
    let SetExpr::Values(values) = &*source.body else { return Ok(None) };
    if source.with.is_some() || source.order_by.is_some() || source.limit_clause.is_some() {
        return Ok(None);
    }
    let columns = columns(text.dialect, tree, table)?;
    let start = text.find(0, &[Keyword::VALUES, Keyword::VALUE]).ok_or_else(misread)?;
    let mut at = start + 1;
    let mut rows = Vec::new();
    for row in &values.rows {
        rows.push(cut_row(text, &mut at, &columns, row)?);
    }
    Ok(Some(Offered { rows, end: at, conditional: false }))
}

/// The row of `SELECT expressions [FROM DUAL] [WHERE condition]`: one row or none. `None` if the
/// rows come from a table.
fn selected<'a>(
    text: &Text,
    tree: &'a Tree,
    source: &'a Query,
    select: &'a Select,
    table: &Table,
) -> Result<Option<Offered<'a>>, StatementRefusal> {
    let found = text.find(0, &[Keyword::SELECT]);
    let (Some(found), true) = (found, is_one_row(text.dialect, source, select)) else {
        return Ok(None);
    };
    let ends = [Keyword::FROM, Keyword::WHERE, Keyword::ON, Keyword::RETURNING, Keyword::AS];
    let mut end = found + 1;
    // The names that items are given do not end the list.
    loop {
        end = text.find(end, &ends).unwrap_or(text.end());
        if text.lexemes.get(end).is_none_or(|at| at.keyword() != Keyword::AS) {
            break;
        }
        end += 1;
    }
    let columns = columns(text.dialect, tree, table)?;
    let pieces = split(text, found + 1..end, 0);
    if pieces.len() != select.projection.len() || pieces.len() > columns.len() {
        return Err(misread());
    }
    let mut row = Vec::with_capacity(pieces.len());
    for ((&column, tokens), item) in columns.iter().zip(pieces).zip(&select.projection) {
        let value = if let SelectItem::UnnamedExpr(expr) = item {
            cell(text, column, tokens, expr)?
        } else if let SelectItem::ExprWithAlias { expr, .. } = item {
            cell(text, column, unnamed(text, tokens), expr)?
        } else {
            return Ok(None);
        };
        row.push(value);
    }
    Ok(Some(Offered { rows: vec![row], end, conditional: true }))
}

/// Returns whether a query reads no table for its rows, and gives one at most.
fn is_one_row(dialect: Dialect, source: &Query, select: &Select) -> bool {
    let plain = source.with.is_none()
        && source.order_by.is_none()
        && source.limit_clause.is_none()
        && source.fetch.is_none()
        && source.locks.is_empty();
    let grouped = match &select.group_by {
        GroupByExpr::Expressions(by, _) => !by.is_empty(),
        GroupByExpr::All(_) => true,
    };
    let dual = |item: &TableWithJoins| {
        let name = item.relation.to_string();
        dialect == Dialect::MySql && item.joins.is_empty() && name.eq_ignore_ascii_case("dual")
    };
    let rowless = match select.from.as_slice() {
        [] => true,
        [only] => dual(only),
        _ => false,
    };
    plain && rowless && !grouped && select.having.is_none() && select.distinct.is_none()
}

/// An item of a select list without the name that it is given.
fn unnamed(text: &Text, tokens: Range<usize>) -> Range<usize> {
    let before = tokens.end.saturating_sub(2);
    let named = tokens.contains(&before) && text.lexemes[before].keyword() == Keyword::AS;
    tokens.start..if named { before } else { tokens.end - 1 }
}

/// The columns that the values of a row are for, in their order.
pub(super) fn columns(
    dialect: Dialect,
    tree: &Tree,
    table: &Table,
) -> Result<Vec<usize>, StatementRefusal> {
    if !tree.columns.is_empty() {
        let column = |name| names::object_column(dialect, table, name);
        return tree.columns.iter().map(column).collect();
    }
    Ok(match dialect {
        Dialect::Sqlite => table.stored(),
        Dialect::Postgres | Dialect::MySql => {
            (0..table.columns.len()).filter(|index| !table.columns[*index].invisible).collect()
        }
    })
}

/// Splits one `(a, b, ...)` at the commas, and moves `at` behind it and its comma.
fn cut_row<'a>(
    text: &Text,
    at: &mut usize,
    columns: &[usize],
    row: &'a [Expr],
) -> Result<Vec<PlannedValue<'a>>, StatementRefusal> {
    if text.lexemes.get(*at).is_some_and(|lexeme| lexeme.is_word("ROW")) {
        *at += 1;
    }
    let open = text.lexemes.get(*at).filter(|open| open.is(&Token::LParen)).ok_or_else(misread)?;
    let depth = open.depth;
    let rest = &text.lexemes[*at + 1..];
    let length = rest.iter().position(|lexeme| lexeme.depth == depth).ok_or_else(misread)?;
    let pieces = split(text, *at + 1..*at + 1 + length, depth + 1);
    *at += length + 2;
    if text.lexemes.get(*at).is_some_and(|lexeme| lexeme.is(&Token::Comma)) {
        *at += 1;
    }
    if row.is_empty() && length == 0 {
        return Ok(Vec::new());
    }
    if pieces.len() != row.len() || row.len() > columns.len() {
        return Err(misread());
    }
    let cells = columns.iter().zip(pieces).zip(row);
    cells.map(|((&column, tokens), tree)| cell(text, column, tokens, tree)).collect()
}

fn cell<'a>(
    text: &Text,
    column: usize,
    tokens: Range<usize>,
    tree: &'a Expr,
) -> Result<PlannedValue<'a>, StatementRefusal> {
    if text.reads_as(tokens.clone(), tree) {
        Ok(PlannedValue { column, tokens, tree })
    } else {
        Err(misread())
    }
}

/// Splits a token range at the commas of a depth.
fn split(text: &Text, tokens: Range<usize>, depth: usize) -> Vec<Range<usize>> {
    let mut pieces = Vec::new();
    let mut start = tokens.start;
    for index in tokens.clone() {
        let lexeme = &text.lexemes[index];
        if lexeme.depth == depth && lexeme.is(&Token::Comma) {
            pieces.push(start..index);
            start = index + 1;
        }
    }
    pieces.push(start..tokens.end);
    pieces
}

/// MySQL `INSERT ... SET a = 1, b = 2`: one row.
fn assigned<'a>(
    text: &Text,
    tree: &'a Tree,
    table: &Table,
) -> Result<Offered<'a>, StatementRefusal> {
    let set = text.find(0, &[Keyword::SET]).ok_or_else(misread)?;
    let end = text.find(set, &[Keyword::ON, Keyword::AS]).unwrap_or(text.end());
    let pieces = split(text, set + 1..end, 0);
    if pieces.len() != tree.assignments.len() {
        return Err(misread());
    }
    let mut row = Vec::new();
    for (assignment, tokens) in tree.assignments.iter().zip(pieces) {
        let [column] = names::assigned(text.dialect, table, std::slice::from_ref(assignment))?[..]
        else {
            return Err(misread());
        };
        let equals = |index: &usize| text.lexemes[*index].is(&Token::Eq);
        let equals = tokens.clone().find(equals).ok_or_else(misread)?;
        row.push(cell(text, column, equals + 1..tokens.end, &assignment.value)?);
    }
    Ok(Offered { rows: vec![row], end, conditional: false })
}

/// Returns what a row offers for a column.
pub(super) fn offer(text: &Text, table: &Table, row: &[PlannedValue<'_>], column: usize) -> Offer {
    let Some(position) = row.iter().position(|cell| cell.column == column) else {
        return omitted(text.dialect, table, column);
    };
    let cell = &row[position];
    let generates = generates(table, column);
    match &text.lexemes[cell.tokens.clone()] {
        [only] if only.keyword() == Keyword::DEFAULT => omitted(text.dialect, table, column),
        [only] if only.keyword() == Keyword::NULL && generates => Offer::Generated,
        [only]
            if only.keyword() == Keyword::NULL && null_is_default(text.dialect, table, column) =>
        {
            omitted(text.dialect, table, column)
        }
        [only] if only.keyword() == Keyword::NULL => Offer::Null,
        [only] if generates && text.dialect == Dialect::MySql && is_zero(&only.token.token) => {
            Offer::Generated
        }
        _ if !stable::is_constant(text.dialect, cell.tree) => Offer::Unknown,
        _ if generates => Offer::ValueOrGenerated(position),
        _ => Offer::Value(position),
    }
}

fn is_zero(token: &Token) -> bool {
    matches!(token, Token::Number(digits, _) if digits.chars().all(|digit| digit == '0'))
}

/// Returns whether NULL makes the database generate a value.
fn generates(table: &Table, column: usize) -> bool {
    table.columns[column].generation == Generation::AutoIncrement
}

/// Returns whether NULL may become the column's default: what SQLite's REPLACE does where NULL is
/// barred.
pub(super) fn null_is_default(dialect: Dialect, table: &Table, column: usize) -> bool {
    let column = &table.columns[column];
    dialect == Dialect::Sqlite && !column.nullable && column.default.is_some()
}

/// Returns the value that the database stores if the row gives none.
fn omitted(dialect: Dialect, table: &Table, column: usize) -> Offer {
    let column = &table.columns[column];
    match column.generation {
        Generation::AutoIncrement | Generation::IdentityAlways | Generation::IdentityByDefault => {
            return Offer::Generated;
        }
        Generation::Computed => return Offer::Unknown,
        Generation::None => {}
    }
    match &column.default {
        Some(default) if is_constant_default(dialect, default) => Offer::Default,
        Some(_) => Offer::Unknown,
        None if column.nullable => Offer::Null,
        // INSERT IGNORE stores the type's zero value, which no text names.
        None => Offer::Unknown,
    }
}

/// Returns whether a default is the same for every row. MySQL's catalogue gives strings without
/// quotes, so expressions are recognised by their brackets, and clocks and users by their words.
pub(super) fn is_constant_default(dialect: Dialect, default: &str) -> bool {
    const WORDS: [&str; 5] = ["current_", "local", "session_", "system_", "user"];
    let written = default.to_ascii_lowercase();
    let quoted = dialect == Dialect::Postgres && written.starts_with('\'');
    quoted || !(written.contains('(') || WORDS.iter().any(|word| written.starts_with(word)))
}
