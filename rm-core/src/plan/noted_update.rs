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
//! IF ROW_COUNT() > 0 THEN INSERT INTO undo_log … VALUES (…, (SELECT …), …); COMMIT;
//! ELSE ROLLBACK; END IF; END
//! ```
//!
//! MariaDB returns no rows of an UPDATE. So a term that is always true keeps the old values in
//! variables of the session: it is evaluated for the locked row, before the row is changed. The
//! count of a compound statement is the sum of all its statements', but for those that return rows.
//! So where the local transaction stays open, the INSERT returns some, and the count of the change
//! is left. Where it commits they would be sent ahead of the COMMIT, and wake the client twice: it
//! counts a row too many instead.

use super::{Dialect, Table, clauses::Clauses, image, quote, text::Text, undo_sql};

/// The end of the text of an UPDATE that notes its own undo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotedEnd {
    /// Its own COMMIT. On PostgreSQL a statement that stands alone has none. On MariaDB the answer
    /// counts the undo row too.
    Commit,
    /// None: the local transaction stays open.
    Open,
}

/// An UPDATE of one row that notes its own undo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotedUpdate {
    /// The change, in two pieces between which further conditions of the row may stand. It takes
    /// the user's whole argument list.
    change: [String; 2],
    /// MariaDB: the row, of which the values after the change are read. It takes the cells of the
    /// key.
    row: Option<String>,
    mark: String,
    /// The image columns, as the conditions name them.
    pub names: Vec<String>,
    /// Their values before the change, as expressions.
    pub before: Vec<String>,
    /// The same after it.
    pub after: Vec<String>,
}

impl NotedUpdate {
    /// Whether it is a compound statement of MariaDB, which takes the cells of the key with the
    /// value of the undo log.
    #[must_use]
    pub fn is_compound(&self) -> bool {
        self.row.is_some()
    }

    /// The value of the undo log, of an expression of the values of both images.
    #[must_use]
    pub fn log(&self, expression: &str) -> String {
        match &self.row {
            Some(row) => format!("(SELECT {expression} FROM {row})"),
            None => expression.to_owned(),
        }
    }

    /// The text. `insert` is `INSERT INTO undo_log (…)`, and `values` are its values. A row for
    /// which one of the conditions does not hold is left alone.
    #[must_use]
    pub fn text(&self, conditions: &[String], insert: &str, values: &str, end: NotedEnd) -> String {
        let Self { change: [head, tail], mark, .. } = self;
        let conditions: String = conditions.iter().map(|it| format!(" AND {it}")).collect();
        let change = format!("{head}{conditions}{tail}");
        if self.row.is_none() {
            return format!(
                "{change}, hf_undo AS ({insert} SELECT {values} FROM hf_changed) \
                 SELECT FROM hf_changed{mark}"
            );
        }
        let end = match end {
            NotedEnd::Commit => "; COMMIT; ELSE ROLLBACK; END IF",
            NotedEnd::Open => " RETURNING log_status; END IF",
        };
        format!(
            "BEGIN NOT ATOMIC START TRANSACTION; {change}\n; IF ROW_COUNT() > 0 THEN \
             {insert} VALUES ({values}){end}; END{mark}"
        )
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
    let name = |&index: &usize| quote::identifier(text.dialect, &table.columns[index].name);
    let column_names: Vec<String> = columns.iter().map(name).collect();
    let (change, row, before, after) = match text.dialect {
        Dialect::Postgres => {
            let change = image::around_as_part(text, table, columns, clauses, lock);
            (change, None, names("hf_old"), names("hf_col"))
        }
        Dialect::MySql => {
            let before = names("@hf_old");
            let change = keeping(text, table, columns, clauses, &before)?;
            (change, Some(row_of(table)), before, column_names.clone())
        }
        Dialect::Sqlite => return None,
    };
    let mark = image::mark(text.whole(), table);
    Some(NotedUpdate { change, row, mark, names: column_names, before, after })
}

/// MariaDB: the user's UPDATE, with a term behind its condition that keeps the columns as they are
/// before the change in the variables. COALESCE looks at each of them, whatever it holds.
fn keeping(
    text: &Text,
    table: &Table,
    columns: &[usize],
    clauses: &Clauses,
    variables: &[String],
) -> Option<[String; 2]> {
    let predicate = clauses.predicate.clone()?;
    let kept = |(column, variable): (&usize, &String)| {
        let name = quote::identifier(text.dialect, &table.columns[*column].name);
        format!("COALESCE(LENGTH({variable} := {name}), 0)")
    };
    let kept: Vec<String> = columns.iter().zip(variables).map(kept).collect();
    let head = text.cut(0..predicate.start);
    let condition = text.cut(predicate);
    let change = format!("{head} ({condition}\n) AND {} >= 0", kept.join(" + "));
    Some([change, String::new()])
}

/// MariaDB: the row of a key.
fn row_of(table: &Table) -> String {
    let dialect = Dialect::MySql;
    format!("{} WHERE {}", quote::rows(dialect, table), undo_sql::keys(dialect, table, 1, 0))
}
