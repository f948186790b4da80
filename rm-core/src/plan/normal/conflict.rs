//! `ON CONFLICT` targets with expressions and predicates, of which the parser knows names alone.
//!
//! A target `(a, lower(b)) WHERE c` is read as `(a, "\0lower(b)", "\0")`: no name of a statement
//! has a NUL.

use sqlparser::{
    ast::Ident,
    keywords::Keyword,
    tokenizer::{Token, Word},
};

use super::{Lexeme, Rewritten};

/// An item of the target as the parser reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::plan) enum ConflictColumn<'t> {
    /// A column.
    Name(&'t Ident),
    /// An expression, or a column with more words.
    Expression(&'t str),
    /// Stands for the predicate.
    Predicate,
}

/// Returns what an item of the target stands for.
pub(in crate::plan) fn conflict_column(name: &Ident) -> ConflictColumn<'_> {
    match name.value.strip_prefix('\0') {
        None => ConflictColumn::Name(name),
        Some("") => ConflictColumn::Predicate,
        Some(expression) => ConflictColumn::Expression(expression),
    }
}

/// Rewrites a target of `ON CONFLICT` that has more than names.
pub(super) fn target(lexemes: &[Lexeme], at: usize) -> Option<Rewritten> {
    let [on, conflict] = lexemes.get(at.checked_sub(2)?..at)? else { return None };
    let is_target = on.is_word("ON") && conflict.is_word("CONFLICT");
    if !is_target || !lexemes[at].is(&Token::LParen) {
        return None;
    }
    let depth = lexemes[at].depth;
    let inside = lexemes[at + 1..].iter().position(|own| own.depth == depth)?;
    let end = at + 1 + inside;
    let mut columns = Vec::new();
    for item in lexemes[at + 1..end].split(|own| own.depth == depth + 1 && own.is(&Token::Comma)) {
        columns.push(column(item)?);
    }
    let mut next = end + 1;
    if lexemes.get(next).is_some_and(|own| own.keyword() == Keyword::WHERE) {
        let rest = lexemes[next..].iter();
        next += rest.take_while(|own| own.depth > depth || !own.is_word("DO")).count();
        columns.push(marker(""));
    }
    let mut read = vec![Token::LParen];
    for (place, column) in columns.into_iter().enumerate() {
        if place > 0 {
            read.push(Token::Comma);
        }
        read.push(column);
    }
    read.push(Token::RParen);
    Some((read, next - at))
}

/// One item: a name as it is, else a name that holds the text.
fn column(item: &[Lexeme]) -> Option<Token> {
    match item {
        [] => None,
        [name] if name.word().is_some() => Some(name.token.token.clone()),
        words => {
            let words: Vec<String> = words.iter().map(|own| own.token.token.to_string()).collect();
            Some(marker(&words.join(" ")))
        }
    }
}

fn marker(text: &str) -> Token {
    let value = format!("\0{text}");
    Token::Word(Word { value, quote_style: Some('"'), keyword: Keyword::NoKeyword })
}
