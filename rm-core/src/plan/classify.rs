//! The class of a statement by its first words: enough for all but queries and DML.
//!
//! Default deny: a first word that is not listed is refused.

use sqlparser::{keywords::Keyword, tokenizer::Token};

use super::{Dialect, StatementRefusal, lexeme::Lexeme, text::Text};

/// The class of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Harmless as it stands.
    Pass,
    /// SELECT, VALUES, TABLE, WITH and brackets: the whole statement must be parsed.
    Query,
    /// INSERT, REPLACE, UPDATE, DELETE: the whole statement must be parsed.
    Change,
}

/// Sorts a statement.
pub(super) fn classify(text: &Text) -> Result<Class, StatementRefusal> {
    let class = by_first_words(text)?;
    if text.dialect != Dialect::Postgres {
        return Ok(class);
    }
    let mut words = text.lexemes.windows(3).enumerate();
    let is_set = |(at, words): (usize, &[Lexeme])| {
        calls(words, "set_config") && !sets_for_transaction(&text.lexemes[at + 2..])
    };
    if class != Class::Pass && words.any(is_set) {
        return Err(StatementRefusal::SessionState { statement: "SET_CONFIG".to_owned() });
    }
    // EXPLAIN ANALYZE runs what it explains, so this counts for every class.
    if text.lexemes.windows(3).any(|words| calls(words, "pg_notify")) {
        return Err(StatementRefusal::Notify { statement: "PG_NOTIFY".to_owned() });
    }
    Ok(class)
}

fn by_first_words(text: &Text) -> Result<Class, StatementRefusal> {
    let Some(first) = text.lexemes.first() else { return Ok(Class::Pass) };
    let word = first.token.token.to_string().to_ascii_uppercase();
    let named = || opening(text);
    match word.as_str() {
        "SELECT" | "VALUES" | "TABLE" | "WITH" | "(" => Ok(Class::Query),
        "INSERT" | "REPLACE" | "UPDATE" | "DELETE" => Ok(Class::Change),
        "SHOW" => Ok(Class::Pass),
        "EXPLAIN" | "DESCRIBE" | "DESC" => explain(text),
        // MariaDB's EXPLAIN ANALYZE.
        "ANALYZE" if text.dialect == Dialect::MySql && !analyzes_tables(text) => explain(text),
        "SET" => setting(text),
        "PRAGMA" => pragma(text),
        "MERGE" => Err(StatementRefusal::Merge),
        "CALL" | "DO" | "EXEC" | "EXECUTE" | "PREPARE" | "DEALLOCATE" => {
            Err(StatementRefusal::Procedure { statement: word })
        }
        "BEGIN" | "START" | "COMMIT" | "END" | "ROLLBACK" | "ABORT" | "SAVEPOINT" | "RELEASE"
        | "XA" => Err(StatementRefusal::TransactionControl { statement: word }),
        "COPY" | "LOAD" | "IMPORT" => Err(StatementRefusal::BulkLoad { statement: word }),
        "NOTIFY" if text.dialect == Dialect::Postgres => {
            Err(StatementRefusal::Notify { statement: word })
        }
        "LOCK" | "UNLOCK" | "FLUSH" => Err(StatementRefusal::TableLock { statement: named() }),
        "USE" | "RESET" | "DISCARD" | "ATTACH" | "DETACH" => {
            Err(StatementRefusal::SessionState { statement: named() })
        }
        word if DDL.contains(&word) => Err(StatementRefusal::Ddl { statement: named() }),
        _ => Err(StatementRefusal::UnknownStatement { statement: named() }),
    }
}

/// Returns whether a function is called, such as `set_config`, which is SET as a function. A table
/// may have its name too.
fn calls(words: &[Lexeme], function: &str) -> bool {
    let [before, name, bracket] = words else { return false };
    let is_named = matches!(&name.token.token, Token::Word(word)
        if word.value.eq_ignore_ascii_case(function));
    is_named && bracket.is(&Token::LParen) && before.keyword() != Keyword::INTO
}

/// Returns whether the arguments of `set_config` set a value of the application (a name with a dot)
/// until the local transaction ends. They begin with their bracket.
fn sets_for_transaction(arguments: &[Lexeme]) -> bool {
    let [open, name, comma, rest @ ..] = arguments else { return false };
    let close = |lexeme: &Lexeme| lexeme.is(&Token::RParen) && lexeme.depth == open.depth;
    let Some(end) = rest.iter().position(close) else { return false };
    let named = matches!(&name.token.token, Token::SingleQuotedString(name) if name.contains('.'));
    let local = matches!(&rest[..end], [.., comma, last]
        if comma.is(&Token::Comma) && last.keyword() == Keyword::TRUE);
    named && comma.is(&Token::Comma) && local
}

const DDL: &[&str] = &[
    "ALTER",
    "ANALYZE",
    "CLUSTER",
    "COMMENT",
    "CREATE",
    "DROP",
    "GRANT",
    "INSTALL",
    "OPTIMIZE",
    "REASSIGN",
    "REFRESH",
    "REINDEX",
    "RENAME",
    "REPAIR",
    "REVOKE",
    "SECURITY",
    "TRUNCATE",
    "UNINSTALL",
    "VACUUM",
];

/// Refuses a statement that ends the local transaction, even if the application accepts that it is
/// not undone: the undo of all other statements would end with it.
pub(super) fn ends_transaction(text: &Text) -> Result<(), StatementRefusal> {
    match classify(text) {
        Err(
            refusal @ (StatementRefusal::TransactionControl { .. }
            | StatementRefusal::TableLock { .. }),
        ) => Err(refusal),
        // MySQL commits before and after DDL.
        Err(refusal @ StatementRefusal::Ddl { .. }) if text.dialect == Dialect::MySql => {
            Err(refusal)
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The first two words, for error texts.
pub(super) fn opening(text: &Text) -> String {
    let words = text.lexemes.iter().take(2).map(|lexeme| lexeme.token.token.to_string());
    words.collect::<Vec<_>>().join(" ").to_uppercase()
}

/// Classifies EXPLAIN, which runs nothing, and EXPLAIN ANALYZE, which runs what it explains.
fn explain(text: &Text) -> Result<Class, StatementRefusal> {
    // PostgreSQL spells it in two ways, and takes an option in quotes.
    let is_it = |word: &str| ["analyze", "analyse"].iter().any(|it| word.eq_ignore_ascii_case(it));
    let analyzes = text.lexemes.iter().filter_map(Lexeme::word).any(is_it);
    if analyzes && text.lexemes.iter().any(may_write) {
        return Err(StatementRefusal::ExplainAnalyze);
    }
    Ok(Class::Pass)
}

/// Returns whether ANALYZE gathers the statistics of tables, and runs no statement.
fn analyzes_tables(text: &Text) -> bool {
    let second = text.lexemes.get(1).and_then(Lexeme::word);
    let of_tables = ["table", "no_write_to_binlog", "local"];
    second.is_none_or(|second| of_tables.iter().any(|word| second.eq_ignore_ascii_case(word)))
}

/// Returns whether a word can be part of a write or of a lock.
pub(super) fn may_write(lexeme: &Lexeme) -> bool {
    let words = [
        Keyword::INSERT,
        Keyword::UPDATE,
        Keyword::DELETE,
        Keyword::MERGE,
        Keyword::REPLACE,
        Keyword::INTO,
        Keyword::SHARE,
        Keyword::LOCK,
        Keyword::CREATE,
        Keyword::EXECUTE,
        Keyword::CALL,
        Keyword::REFRESH,
    ];
    words.contains(&lexeme.keyword())
}

/// Lets settings pass that change neither what statements mean nor how values print.
fn setting(text: &Text) -> Result<Class, StatementRefusal> {
    const HARMLESS: &[&str] = &[
        "APPLICATION_NAME",
        "IDLE_IN_TRANSACTION_SESSION_TIMEOUT",
        "INNODB_LOCK_WAIT_TIMEOUT",
        "LOCK_TIMEOUT",
        "LOCK_WAIT_TIMEOUT",
        "MAX_EXECUTION_TIME",
        "MAX_STATEMENT_TIME",
        "STATEMENT_TIMEOUT",
        "WORK_MEM",
    ];
    let scope = |lexeme: &&Lexeme| lexeme.is_word("LOCAL") || lexeme.is_word("SESSION");
    let name = text.lexemes.iter().skip(1).find(|lexeme| !scope(lexeme));
    let several = text.lexemes.iter().any(|lexeme| lexeme.is(&Token::Comma));
    let postgres = text.dialect == Dialect::Postgres;
    // A name of the application's begins with its own word and a dot.
    let constraints = matches!(text.lexemes.as_slice(), [_, word, next, ..]
        if word.is_word("CONSTRAINTS") && !next.is(&Token::Period));
    if postgres && (constraints || !several && ends_with_transaction(&text.lexemes)) {
        return Ok(Class::Pass);
    }
    match name {
        Some(name) if !several && HARMLESS.iter().any(|known| name.is_word(known)) => {
            Ok(Class::Pass)
        }
        Some(_) | None => Err(StatementRefusal::SessionState { statement: opening(text) }),
    }
}

/// PostgreSQL: returns whether a setting ends with the local transaction and means nothing to an
/// undo, which has a transaction of its own: the isolation level, and settings of the application,
/// whose names have a dot. So does `SET CONSTRAINTS`, which may name several.
fn ends_with_transaction(lexemes: &[Lexeme]) -> bool {
    match lexemes {
        [_, transaction, isolation, level, ..] if transaction.is_word("TRANSACTION") => {
            isolation.is_word("ISOLATION") && level.is_word("LEVEL")
        }
        [_, local, _, dot, ..] => local.is_word("LOCAL") && dot.is(&Token::Period),
        _ => false,
    }
}

/// Lets the SQLite pragmas pass that only report something.
fn pragma(text: &Text) -> Result<Class, StatementRefusal> {
    const TELLING: &[&str] = &[
        "COLLATION_LIST",
        "COMPILE_OPTIONS",
        "DATABASE_LIST",
        "FOREIGN_KEY_CHECK",
        "FOREIGN_KEY_LIST",
        "FUNCTION_LIST",
        "INDEX_INFO",
        "INDEX_LIST",
        "INDEX_XINFO",
        "INTEGRITY_CHECK",
        "QUICK_CHECK",
        "TABLE_INFO",
        "TABLE_LIST",
        "TABLE_XINFO",
    ];
    let name = match text.lexemes.as_slice() {
        [_, _, dot, name, ..] if dot.is(&Token::Period) => Some(name),
        [_, name, ..] => Some(name),
        _ => None,
    };
    if name.is_some_and(|name| TELLING.iter().any(|known| name.is_word(known))) {
        return Ok(Class::Pass);
    }
    Err(StatementRefusal::SessionState { statement: opening(text) })
}
