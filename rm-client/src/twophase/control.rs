//! Finds texts that would begin or end a transaction past the library.
//!
//! PostgreSQL would carry out a COMMIT in the middle of a branch, and what it committed could never
//! be taken back. MySQL refuses it inside of a branch by itself; here both are refused alike, before
//! they are sent.

use sqlparser::dialect::{GenericDialect, MySqlDialect, PostgreSqlDialect};
use sqlparser::tokenizer::{Token, Tokenizer};

use super::error::XaError;
use crate::at::plan::Dialect;

/// Words that no statement of a branch begins with.
const CONTROL: [&str; 6] = ["ABORT", "BEGIN", "COMMIT", "END", "START", "XA"];

/// Refuses a text any statement of which controls a transaction. Savepoints are left alone: the
/// database keeps them within the branch.
pub(super) fn refuse_control(dialect: Dialect, sql: &str) -> Result<(), XaError> {
    let tokens = match dialect {
        Dialect::Postgres => Tokenizer::new(&PostgreSqlDialect {}, sql).tokenize(),
        Dialect::MySql => Tokenizer::new(&MySqlDialect {}, sql).tokenize(),
        Dialect::Sqlite => Tokenizer::new(&GenericDialect {}, sql).tokenize(),
    };
    let tokens = tokens.map_err(|error| XaError::Unreadable { reason: error.to_string() })?;
    for statement in tokens.split(|token| *token == Token::SemiColon) {
        let words: Vec<String> = statement.iter().filter_map(unquoted_word).take(3).collect();
        if controls(&words) {
            return Err(XaError::TransactionControl { word: words.join(" ") });
        }
    }
    Ok(())
}

/// Whether the first words of a statement control a transaction.
fn controls(words: &[String]) -> bool {
    let word = |index: usize| words.get(index).map_or("", String::as_str);
    match word(0) {
        // ROLLBACK [WORK | TRANSACTION] TO [SAVEPOINT] a savepoint.
        "ROLLBACK" => word(1) != "TO" && word(2) != "TO",
        "PREPARE" => word(1) == "TRANSACTION",
        first => CONTROL.contains(&first),
    }
}

fn unquoted_word(token: &Token) -> Option<String> {
    let Token::Word(word) = token else { return None };
    word.quote_style.is_none().then(|| word.value.to_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_controls_a_transaction_is_refused() {
        for sql in [
            "COMMIT",
            "commit and chain",
            "/* a note */ Commit",
            "UPDATE t SET a = 1; COMMIT",
            "BEGIN",
            "START TRANSACTION",
            "END",
            "ABORT",
            "ROLLBACK",
            "ROLLBACK WORK",
            "ROLLBACK AND CHAIN",
            "ROLLBACK PREPARED 'x'",
            "PREPARE TRANSACTION 'x'",
            "XA END 'x'",
        ] {
            for dialect in [Dialect::Postgres, Dialect::MySql] {
                let error = refuse_control(dialect, sql).unwrap_err();
                assert_eq!(error.code(), "HF-XA-TRANSACTION-CONTROL", "{sql}");
            }
        }
    }

    #[test]
    fn everything_else_is_not() {
        for sql in [
            "",
            "UPDATE t SET a = 'COMMIT; COMMIT'",
            "SELECT 1; SELECT 2",
            "SAVEPOINT a",
            "ROLLBACK TO a",
            "ROLLBACK WORK TO SAVEPOINT a",
            "RELEASE SAVEPOINT a",
            "PREPARE p AS SELECT 1",
            "-- COMMIT\nDELETE FROM t",
            "SELECT a AS commit_date FROM t",
        ] {
            for dialect in [Dialect::Postgres, Dialect::MySql] {
                refuse_control(dialect, sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
            }
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        let error = refuse_control(Dialect::Postgres, "SELECT 'a\\'; COMMIT; '").unwrap_err();
        assert_eq!(error.code(), "HF-XA-UNREADABLE");
    }
}
