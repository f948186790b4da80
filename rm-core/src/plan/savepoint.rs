//! Savepoints that a text sets, returns to or releases.

use sqlparser::tokenizer::Token;

use super::{Dialect, lexeme::Lexeme, text::Text};

/// A statement about a savepoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Savepoint {
    /// `SAVEPOINT name`.
    Set(String),
    /// `ROLLBACK TO SAVEPOINT name`.
    RollBackTo(String),
    /// `RELEASE SAVEPOINT name`.
    Release(String),
}

/// The words in front of the name, and what they ask for.
type Form = (&'static [&'static str], fn(String) -> Savepoint);

const FORMS: [Form; 9] = [
    (&["SAVEPOINT"], Savepoint::Set),
    (&["RELEASE", "SAVEPOINT"], Savepoint::Release),
    (&["RELEASE"], Savepoint::Release),
    (&["ROLLBACK", "TO", "SAVEPOINT"], Savepoint::RollBackTo),
    (&["ROLLBACK", "TO"], Savepoint::RollBackTo),
    (&["ROLLBACK", "WORK", "TO", "SAVEPOINT"], Savepoint::RollBackTo),
    (&["ROLLBACK", "WORK", "TO"], Savepoint::RollBackTo),
    (&["ROLLBACK", "TRANSACTION", "TO", "SAVEPOINT"], Savepoint::RollBackTo),
    (&["ROLLBACK", "TRANSACTION", "TO"], Savepoint::RollBackTo),
];

/// Reads such a statement. `None`: it is another one.
pub(super) fn of(text: &Text) -> Option<Savepoint> {
    let (last, words) = text.lexemes.split_last()?;
    let stands = |form: &[&str]| {
        form.len() == words.len() && form.iter().zip(words).all(|(word, own)| own.is_word(word))
    };
    let (_, make) = FORMS.iter().find(|(form, _)| stands(form))?;
    Some(make(name(text.dialect, last)?))
}

/// The name as the database tells it from others.
fn name(dialect: Dialect, lexeme: &Lexeme) -> Option<String> {
    let Token::Word(word) = &lexeme.token.token else { return None };
    match dialect {
        Dialect::Postgres if word.quote_style.is_some() => Some(word.value.clone()),
        Dialect::Postgres | Dialect::MySql | Dialect::Sqlite => Some(word.value.to_lowercase()),
    }
}
