//! Placeholders: numbering them, writing them, and passing over arguments that a query ignores.
//!
//! A bound argument list cannot be cut or reordered, so every query of a plan takes the whole list:
//! PostgreSQL and SQLite name arguments by number, MySQL takes them by position and gets a term
//! that swallows each argument that the query has no use for.

use sqlparser::tokenizer::Token;

use super::{Dialect, StatementRefusal, lexeme::Lexeme};

/// Consumes one argument and changes nothing.
pub(super) const SWALLOW: &str = "(? IS NULL OR TRUE)";

/// Gives each placeholder token the index of its argument.
pub(super) fn number(dialect: Dialect, lexemes: &mut [Lexeme]) -> Result<(), StatementRefusal> {
    let mut bare = 0;
    let mut numbered = false;
    for index in 0..lexemes.len() {
        if dialect == Dialect::Sqlite {
            refuse_named(&lexemes[index..])?;
        }
        let Token::Placeholder(written) = &lexemes[index].token.token else { continue };
        let argument = match (dialect, written.as_str()) {
            (Dialect::MySql | Dialect::Sqlite, "?") => {
                bare += 1;
                bare - 1
            }
            (Dialect::Postgres | Dialect::Sqlite, _) => {
                numbered = true;
                explicit(dialect, written)?
            }
            (Dialect::MySql, _) => return Err(unsupported(dialect, written)),
        };
        lexemes[index].argument = Some(argument);
    }
    // SQLite counts a bare `?` from the largest number before it, the driver from the bare ones
    // before it: mixed, the two would not mean the same argument.
    if bare > 0 && numbered {
        return Err(unsupported(dialect, "? beside ?N"));
    }
    Ok(())
}

/// `$3` or `?3`: argument 2.
fn explicit(dialect: Dialect, written: &str) -> Result<usize, StatementRefusal> {
    let number = written.get(1..).and_then(|digits| digits.parse::<u16>().ok());
    let number = number.filter(|_| dialect == Dialect::Sqlite || written.starts_with('$'));
    match number {
        Some(number @ 1..) => Ok(usize::from(number) - 1),
        Some(0) | None => Err(unsupported(dialect, written)),
    }
}

/// SQLite's `:name` and `@name`, which the driver does not bind.
fn refuse_named(rest: &[Lexeme]) -> Result<(), StatementRefusal> {
    let [mark, name, ..] = rest else { return Ok(()) };
    let named = mark.is(&Token::Colon) || mark.is(&Token::AtSign);
    if let Token::Word(word) = &name.token.token
        && named
    {
        let written = format!("{}{}", mark.token.token, word.value);
        return Err(unsupported(Dialect::Sqlite, &written));
    }
    Ok(())
}

fn unsupported(dialect: Dialect, written: &str) -> StatementRefusal {
    let expected = match dialect {
        Dialect::Postgres => "$1, $2, ...",
        Dialect::MySql => "?",
        Dialect::Sqlite => "either ? or ?1, ?2, ... throughout",
    };
    StatementRefusal::Placeholder { placeholder: written.to_owned(), expected }
}

/// The placeholder of the argument at an index.
pub(super) fn write(dialect: Dialect, argument: usize) -> String {
    match dialect {
        Dialect::Postgres => format!("${}", argument + 1),
        Dialect::MySql => "?".to_owned(),
        Dialect::Sqlite => format!("?{}", argument + 1),
    }
}

/// Terms for `count` arguments that a query ignores: none where arguments go by number.
pub(super) fn swallow(dialect: Dialect, count: usize) -> Vec<String> {
    match dialect {
        Dialect::MySql => vec![SWALLOW.to_owned(); count],
        Dialect::Postgres | Dialect::Sqlite => Vec::new(),
    }
}
