//! Several statements in one call: MariaDB's compound statement, prepared as any other.
//!
//! Each statement in it answers and fails as it would alone; one that fails ends the call. The
//! count of changed rows is the sum over all statements, and no generated key is reported. See
//! <https://mariadb.com/kb/en/begin-end/>.

/// Begins the local transaction with its first statement.
pub(super) fn begin_and(statement: &str) -> String {
    together(&["START TRANSACTION", statement])
}

/// Begins the local transaction, reads, then marks the transaction for guarded tables.
pub(super) fn begin_read_and_mark(read: &str, mark: &str) -> String {
    together(&["START TRANSACTION", read, mark])
}

/// Changes rows, then reads them.
pub(super) fn change_and_read(change: &str, read: &str) -> String {
    together(&[change, read])
}

/// Inserts, takes back a mark if there is one, then commits.
pub(super) fn insert_and_commit(insert: &str, unmark: Option<&str>) -> String {
    let statements: Vec<&str> = [insert].into_iter().chain(unmark).chain(["COMMIT"]).collect();
    together(&statements)
}

/// Changes rows, inserts, then commits.
pub(super) fn change_insert_and_commit(change: &str, insert: &str) -> String {
    together(&[change, insert, "COMMIT"])
}

/// Whether a text of the application can be part of a compound statement: a semicolon of its own
/// would split it, and a key that it reports by `LAST_INSERT_ID` would be lost.
pub(super) fn takes(text: &str) -> bool {
    let reports_key = |word: &[u8]| word.eq_ignore_ascii_case(REPORTS_KEY);
    !text.contains(';') && !text.as_bytes().windows(REPORTS_KEY.len()).any(reports_key)
}

const REPORTS_KEY: &[u8] = b"LAST_INSERT_ID";

/// Joins statements. Each is followed by a line break, since it may end in a comment.
fn together(statements: &[&str]) -> String {
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

    #[test]
    fn statements_end_where_they_end() {
        assert_eq!(
            change_and_read("UPDATE t SET n = 1 -- all", "SELECT n FROM t"),
            "BEGIN NOT ATOMIC UPDATE t SET n = 1 -- all\n; SELECT n FROM t\n; END"
        );
    }

    #[test]
    fn a_text_with_a_semicolon_or_a_reported_key_stands_alone() {
        assert!(takes("UPDATE t SET n = n + 1 WHERE id = ?"));
        assert!(!takes("UPDATE t SET n = ';'"));
        assert!(!takes("UPDATE t SET n = last_Insert_id(n + 1)"));
    }
}
