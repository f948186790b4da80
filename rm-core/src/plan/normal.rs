//! Forms that the databases know and the parser does not, brought to forms that it does.
//!
//! Only the parser sees these tokens; queries are cut from the text as it was written.

use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::{Dialect, lexeme::Lexeme, text::Text};

/// The statement's tokens for the parser.
pub(super) fn tokens(text: &Text) -> Vec<TokenWithSpan> {
    let mut rest = text.lexemes.as_slice();
    let mut tokens = Vec::with_capacity(rest.len());
    while let Some((first, tail)) = rest.split_first() {
        let (kept, dropped) = rewrite(text.dialect, rest);
        match kept {
            Some(words) => {
                tokens.extend(words.iter().map(|word| as_word(first, word)));
                rest = &rest[dropped..];
            }
            None => {
                tokens.push(first.token.clone());
                rest = tail;
            }
        }
    }
    tokens
}

/// Returns the words of the parser's text for those at the front, and how many those are.
fn rewrite(dialect: Dialect, rest: &[Lexeme]) -> (Option<Words>, usize) {
    let stands = |words: Words| {
        words.len() <= rest.len() && words.iter().zip(rest).all(|(word, own)| own.is_word(word))
    };
    let own = if dialect == Dialect::Postgres { POSTGRES } else { &[] };
    match FORMS.iter().chain(own).find(|(written, _)| stands(written)) {
        Some((written, read)) => (Some(read), written.len()),
        None => (None, 0),
    }
}

type Words = &'static [&'static str];

/// Pairs of words: as written, and as the parser reads them.
const FORMS: &[(Words, Words)] = &[
    (&["FOR", "NO", "KEY", "UPDATE"], &["FOR", "UPDATE"]),
    (&["FOR", "KEY", "SHARE"], &["FOR", "SHARE"]),
    (&["LOCK", "IN", "SHARE", "MODE"], &["FOR", "SHARE"]),
    (&["OVERRIDING", "SYSTEM", "VALUE"], &[]),
    (&["OVERRIDING", "USER", "VALUE"], &[]),
];

/// The forms of PostgreSQL alone, where ONLY is a reserved word; elsewhere it is a table's name.
const POSTGRES: &[(Words, Words)] =
    &[(&["UPDATE", "ONLY"], &["UPDATE"]), (&["FROM", "ONLY"], &["FROM"])];

fn as_word(place: &Lexeme, word: &str) -> TokenWithSpan {
    TokenWithSpan { token: Token::make_keyword(word), span: place.token.span }
}
