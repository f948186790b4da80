//! An UPDATE of one row that notes its own undo: the database itself composes the undo row, in the
//! same call. The row's lock has to be granted before.
//!
//! ```sql
//! -- PostgreSQL, which commits it as any single statement
//! WITH hf_before AS MATERIALIZED (SELECT … WHERE condition FOR NO KEY UPDATE),
//! hf_changed AS (UPDATE … SET … FROM hf_before WHERE key = hf_before.key RETURNING …),
//! hf_undo AS (INSERT INTO undo_log … SELECT … FROM hf_changed)
//! SELECT FROM hf_changed
//! -- MariaDB
//! BEGIN NOT ATOMIC START TRANSACTION; UPDATE … WHERE (condition) AND …;
//! IF ROW_COUNT() > 0 THEN SELECT … INTO …; INSERT INTO undo_log … VALUES …; COMMIT;
//! ELSE ROLLBACK; END IF; END
//! ```
//!
//! MariaDB returns no rows of an UPDATE. So a term that is always true keeps the old values in
//! variables of the session: it is evaluated for the locked row, before the row is changed.

use super::{Dialect, Table, clauses::Clauses, image, quote, text::Text, undo_sql};

/// An UPDATE of one row that notes its own undo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotedUpdate {
    /// The change. It takes the user's whole argument list.
    change: String,
    /// MariaDB: reads the row as it is after the change. Takes the cells of the key.
    read: Option<String>,
    mark: String,
    /// The values of the image columns before the change, as expressions.
    pub before: Vec<String>,
    /// The same after it.
    pub after: Vec<String>,
}

impl NotedUpdate {
    /// Whether it is a compound statement of MariaDB, which takes the cells of the key behind the
    /// user's arguments.
    #[must_use]
    pub fn is_compound(&self) -> bool {
        self.read.is_some()
    }

    /// The whole text. `insert` is `INSERT INTO undo_log (…)`, and `values` are its values.
    #[must_use]
    pub fn text(&self, insert: &str, values: &str) -> String {
        let Self { change, mark, .. } = self;
        match &self.read {
            None => format!(
                "{change}, hf_undo AS ({insert} SELECT {values} FROM hf_changed) \
                 SELECT FROM hf_changed{mark}"
            ),
            Some(read) => format!(
                "BEGIN NOT ATOMIC START TRANSACTION; {change}\n; IF ROW_COUNT() > 0 THEN {read}; \
                 {insert} VALUES ({values}); COMMIT; ELSE ROLLBACK; END IF; END{mark}"
            ),
        }
    }
}

/// Returns the UPDATE with these image columns, if the dialect has a form of it. The statement
/// consists of its assignments and a condition.
pub(super) fn of_update(
    text: &Text,
    table: &Table,
    columns: &[usize],
    clauses: &Clauses,
    lock: image::RowLock,
) -> Option<NotedUpdate> {
    let names = |prefix: &str| -> Vec<String> {
        (1..=columns.len()).map(|place| format!("{prefix}{place}")).collect()
    };
    let (change, read, before, after) = match text.dialect {
        Dialect::Postgres => {
            let change = image::around_as_part(text, table, columns, clauses, lock);
            (change, None, names("hf_old"), names("hf_col"))
        }
        Dialect::MySql => {
            let (before, after) = (names("@hf_old"), names("@hf_new"));
            let change = keeping(text, table, columns, clauses, &before)?;
            (change, Some(read_into(table, columns, &after)), before, after)
        }
        Dialect::Sqlite => return None,
    };
    Some(NotedUpdate { change, read, mark: image::mark(text.whole(), table), before, after })
}

/// MariaDB: the user's UPDATE, with a term behind its condition that keeps the columns as they are
/// before the change in the variables. COALESCE looks at each of them, whatever it holds.
fn keeping(
    text: &Text,
    table: &Table,
    columns: &[usize],
    clauses: &Clauses,
    variables: &[String],
) -> Option<String> {
    let predicate = clauses.predicate.clone()?;
    let kept = |(column, variable): (&usize, &String)| {
        let name = quote::identifier(text.dialect, &table.columns[*column].name);
        format!("COALESCE(LENGTH({variable} := {name}), 0)")
    };
    let kept: Vec<String> = columns.iter().zip(variables).map(kept).collect();
    let head = text.cut(0..predicate.start);
    let condition = text.cut(predicate);
    Some(format!("{head} ({condition}\n) AND {} >= 0", kept.join(" + ")))
}

/// MariaDB: reads the columns of the row of a key into the variables.
fn read_into(table: &Table, columns: &[usize], variables: &[String]) -> String {
    let dialect = Dialect::MySql;
    format!(
        "SELECT {} INTO {} FROM {} WHERE {}",
        quote::columns(dialect, columns.iter().map(|&index| &table.columns[index])),
        variables.join(", "),
        quote::rows(dialect, table),
        undo_sql::keys(dialect, table, 1, 0)
    )
}
