//! Several statements in one call.
//!
//! MariaDB takes them as a compound statement, prepared as any other. Each statement in it answers
//! and fails as it would alone; one that fails ends the call. The count of changed rows is the sum
//! over all statements, and no generated key is reported. See
//! <https://mariadb.com/kb/en/begin-end/>.
//!
//! SQLite's driver takes them as they stand and runs one after the other in its own thread, which
//! spares the way there and back for each. Each answers by itself; one that fails ends the call.
//! Arguments go by number, so that each statement takes those of the whole call.

use either::Either;
use handfast_rm_core::plan::Dialect;

use crate::at::database::{Backend, Steps};

/// Begins the local transaction with its first statement.
pub(super) fn begin_and<DB: Backend>(statement: &str) -> String {
    together::<DB>(&[DB::BEGIN, statement])
}

/// Begins the local transaction, reads, then marks the transaction for guarded tables.
pub(super) fn begin_read_and_mark<DB: Backend>(read: &str, mark: &str) -> String {
    together::<DB>(&[DB::BEGIN, read, mark])
}

/// Changes rows, then reads them.
pub(super) fn change_and_read<DB: Backend>(change: &str, read: &str) -> String {
    together::<DB>(&[change, read])
}

/// Inserts, takes back a mark if there is one, then commits.
pub(super) fn insert_and_commit<DB: Backend>(insert: &str, unmark: Option<&str>) -> String {
    let statements: Vec<&str> = [insert].into_iter().chain(unmark).chain(["COMMIT"]).collect();
    together::<DB>(&statements)
}

/// Changes rows, inserts, then commits.
pub(super) fn change_insert_and_commit<DB: Backend>(change: &str, insert: &str) -> String {
    together::<DB>(&[change, insert, "COMMIT"])
}

/// Carries a statement out within a savepoint, which is gone after it.
pub(super) fn within_savepoint<DB: Backend>(savepoint: &str, statement: &str) -> String {
    let (set, release) = (format!("SAVEPOINT {savepoint}"), format!("RELEASE {savepoint}"));
    together::<DB>(&[&set, statement, &release])
}

/// The answers of a script but for those to its first and its last statement, which have no rows.
pub(super) fn inner_answers<DB: Backend>(mut steps: Steps<DB>) -> Steps<DB> {
    steps.pop();
    steps.into_iter().skip(1).collect()
}

/// The answer to the last statement of a call, or to all of them where they have one together.
pub(super) fn last_answer<DB: Backend>(steps: Steps<DB>) -> Steps<DB> {
    steps.into_iter().rfind(Either::is_left).into_iter().collect()
}

/// Whether a text of the application can be part of a compound statement: a semicolon of its own
/// would split it, and a key that it reports by `LAST_INSERT_ID` would be lost.
pub(super) fn takes(text: &str) -> bool {
    let reports_key = |word: &[u8]| word.eq_ignore_ascii_case(REPORTS_KEY);
    !text.contains(';') && !text.as_bytes().windows(REPORTS_KEY.len()).any(reports_key)
}

const REPORTS_KEY: &[u8] = b"LAST_INSERT_ID";

/// Joins statements. Each is followed by a line break, since it may end in a comment.
fn together<DB: Backend>(statements: &[&str]) -> String {
    if DB::DIALECT == Dialect::Sqlite {
        return statements.join("\n; ");
    }
    let mut text = "BEGIN NOT ATOMIC ".to_owned();
    for statement in statements {
        text.push_str(statement);
        text.push_str("\n; ");
    }
    text.push_str("END");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "mysql")]
    #[test]
    fn statements_end_where_they_end() {
        assert_eq!(
            change_and_read::<sqlx::MySql>("UPDATE t SET n = 1 -- all", "SELECT n FROM t"),
            "BEGIN NOT ATOMIC UPDATE t SET n = 1 -- all\n; SELECT n FROM t\n; END"
        );
    }

    #[cfg(feature = "sqlite")]
    #[test]
    fn statements_of_sqlite_stand_one_behind_the_other() {
        assert_eq!(
            begin_and::<sqlx::Sqlite>("UPDATE t SET n = 1 -- all"),
            "BEGIN IMMEDIATE\n; UPDATE t SET n = 1 -- all"
        );
    }

    #[test]
    fn a_text_with_a_semicolon_or_a_reported_key_stands_alone() {
        assert!(takes("UPDATE t SET n = n + 1 WHERE id = ?"));
        assert!(!takes("UPDATE t SET n = ';'"));
        assert!(!takes("UPDATE t SET n = last_Insert_id(n + 1)"));
    }
}
