//! Finds texts that would begin or end a transaction past the library, and those that only read.
//!
//! PostgreSQL would carry out a COMMIT in the middle of a branch, and that could never be undone.
//! MySQL itself refuses one inside of a branch. The library refuses such texts for both, before
//! they are sent.

use handfast_rm_core::plan::Dialect;
use sqlparser::dialect::{GenericDialect, MySqlDialect, PostgreSqlDialect};
use sqlparser::tokenizer::{Token, Tokenizer};

use super::error::XaError;

/// Words that no statement of a branch begins with.
const CONTROL: [&str; 6] = ["ABORT", "BEGIN", "COMMIT", "END", "START", "XA"];

/// First words of statements that write nothing, unless they call a function that does.
const READING: [&str; 7] = ["DESC", "DESCRIBE", "EXPLAIN", "SELECT", "SHOW", "TABLE", "VALUES"];

/// The possible effect of a text, by its first words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// It reads. Whether a function that it calls writes cannot be seen.
    Reads,
    /// It may write.
    MayWrite,
}

/// Refuses a text any statement of which controls a transaction. Savepoints are left alone: the
/// database keeps them within the branch.
pub(super) fn admit(dialect: Dialect, sql: &str) -> Result<Effect, XaError> {
    let tokens = match dialect {
        Dialect::Postgres => Tokenizer::new(&PostgreSqlDialect {}, sql).tokenize(),
        Dialect::MySql => Tokenizer::new(&MySqlDialect {}, sql).tokenize(),
        Dialect::Sqlite => Tokenizer::new(&GenericDialect {}, sql).tokenize(),
    };
    let tokens = tokens.map_err(|error| XaError::Unreadable { reason: error.to_string() })?;
    let mut effect = Effect::Reads;
    for statement in tokens.split(|token| *token == Token::SemiColon) {
        let words: Vec<String> = statement.iter().filter_map(unquoted_word).take(3).collect();
        if controls(&words) {
            return Err(XaError::TransactionControl { word: words.join(" ") });
        }
        if words.first().is_some_and(|first| !READING.contains(&first.as_str())) {
            effect = Effect::MayWrite;
        }
    }
    Ok(effect)
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
    fn transaction_control_is_refused() {
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
                let error = admit(dialect, sql).unwrap_err();
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
                admit(dialect, sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
            }
        }
    }

    #[test]
    fn unreadable_sql_is_refused() {
        let error = admit(Dialect::Postgres, "SELECT 'a\\'; COMMIT; '").unwrap_err();
        assert_eq!(error.code(), "HF-XA-UNREADABLE");
    }

    #[test]
    fn a_text_reads_if_each_of_its_statements_does() {
        for (sql, expected) in [
            ("SELECT 1", Effect::Reads),
            ("/* first */ select 1; Show TABLES;", Effect::Reads),
            ("SELECT 1; DELETE FROM t", Effect::MayWrite),
            ("WITH a AS (SELECT 1) DELETE FROM t", Effect::MayWrite),
            ("CALL f()", Effect::MayWrite),
            ("SET @a = 1", Effect::MayWrite),
        ] {
            assert_eq!(admit(Dialect::MySql, sql).unwrap(), expected, "{sql}");
        }
    }
}
