//! An UPDATE of one row whose undo row the database itself composes, in the same call. The row's
//! lock has to be granted before.
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
//! -- SQLite, whose driver runs one statement after the other in its own thread
//! BEGIN IMMEDIATE; INSERT INTO undo_log … SELECT …, before, … FROM … WHERE condition;
//! UPDATE … WHERE condition; UPDATE undo_log SET rollback_info = rollback_info || after …; COMMIT
//! ```
//!
//! MariaDB returns no rows of an UPDATE. So a term that is always true keeps the old values in
//! variables of the session: it is evaluated for the locked row, before the row is changed. The
//! count of a compound statement is the sum of all its statements', but for those that return rows.
//! So where the local transaction stays open, the INSERT returns some, and the count of the change
//! is left. Where it commits they would be sent ahead of the COMMIT, and wake the client twice: it
//! counts a row too many instead.
//!
//! SQLite has neither variables nor an UPDATE within another statement. The condition is therefore
//! looked at twice, and has to be one that chooses the same row again under the writer lock. If it
//! chooses none, there is no undo row either.

use super::{Dialect, Table, clauses::Clauses, image, quote, text::Text, undo_sql};

/// The end of the text of an UPDATE with a composed undo row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComposedEnd {
    /// Its own COMMIT. On PostgreSQL a statement that stands alone has none. On MariaDB the answer
    /// counts the undo row too.
    Commit,
    /// None: the local transaction stays open.
    Open,
    /// None, and it does not begin the local transaction either. In a script alone.
    Within,
}

/// How the statement and its undo row go to the database.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    /// PostgreSQL: in one statement.
    Single,
    /// MariaDB: in a compound statement. The row is read again by its key.
    Compound { row: String },
    /// SQLite: in a script.
    Script {
        /// The row before the change.
        chosen: String,
        /// The same after it, read by its key.
        row: String,
        /// The arguments that the application has to bind: those behind them go by number.
        arguments: usize,
    },
}

/// An UPDATE of one row whose undo row the database composes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComposedUpdate {
    /// The change, in two pieces between which further conditions of the row may stand. It takes
    /// the user's whole argument list.
    change: [String; 2],
    form: Form,
    mark: String,
    /// The image columns, as the conditions name them.
    pub names: Vec<String>,
    /// Their values before the change, as expressions.
    pub before: Vec<String>,
    /// The same after it.
    pub after: Vec<String>,
}

impl ComposedUpdate {
    /// Whether it is several statements in one call, the first of which begins the local
    /// transaction. They take the cells of the key behind what the undo row takes.
    #[must_use]
    pub fn is_several(&self) -> bool {
        self.form != Form::Single
    }

    /// Whether the statement may be sent with so many arguments of the application.
    #[must_use]
    pub fn takes_arguments(&self, count: usize) -> bool {
        match &self.form {
            Form::Single | Form::Compound { .. } => true,
            Form::Script { arguments, .. } => *arguments == count,
        }
    }

    /// Whether it is a script.
    #[must_use]
    pub fn is_script(&self) -> bool {
        matches!(self.form, Form::Script { .. })
    }

    /// The value of the undo log as it is inserted, of the terms of its two halves: up to the
    /// values before the change, and the rest. `bytes` joins terms to a value.
    #[must_use]
    pub fn log(
        &self,
        [before, after]: [&[String]; 2],
        bytes: impl Fn(&[String]) -> String,
    ) -> String {
        match &self.form {
            Form::Single => bytes(&[before, after].concat()),
            Form::Compound { row } => {
                format!("(SELECT {} FROM {row})", bytes(&[before, after].concat()))
            }
            Form::Script { .. } => bytes(before),
        }
    }

    /// The text. `undo.insert` is `INSERT INTO undo_log (…)`, and `undo.values` are its values. A
    /// row for which one of the conditions does not hold is left alone.
    #[must_use]
    pub fn text(&self, conditions: &[String], undo: &ComposedRow, end: ComposedEnd) -> String {
        let Self { change: [head, tail], mark, .. } = self;
        let ComposedRow { insert, values, complete } = undo;
        let conditions: String = conditions.iter().map(|it| format!(" AND {it}")).collect();
        let change = format!("{head}{conditions}{tail}");
        match &self.form {
            Form::Single => format!(
                "{change}, hf_undo AS ({insert} SELECT {values} FROM hf_changed) \
                 SELECT FROM hf_changed{mark}"
            ),
            Form::Compound { .. } => {
                let end = match end {
                    ComposedEnd::Commit => "; COMMIT; ELSE ROLLBACK; END IF",
                    ComposedEnd::Open | ComposedEnd::Within => " RETURNING log_status; END IF",
                };
                format!(
                    "BEGIN NOT ATOMIC START TRANSACTION; {change}\n; IF ROW_COUNT() > 0 THEN \
                     {insert} VALUES ({values}){end}; END{mark}"
                )
            }
            Form::Script { chosen, row, .. } => {
                let [set, rest, which] = complete;
                let (begin, end) = match end {
                    ComposedEnd::Commit => ("BEGIN IMMEDIATE; ", "; COMMIT"),
                    ComposedEnd::Open => ("BEGIN IMMEDIATE; ", ""),
                    ComposedEnd::Within => ("", ""),
                };
                format!(
                    "{begin}{insert} SELECT {values} FROM {chosen}\n; {change}\n; \
                     {set} (SELECT CASE changes() WHEN 1 THEN {rest} END FROM {row}) {which}\
                     {end}{mark}"
                )
            }
        }
    }
}

/// The parts of an undo row that the database composes.
#[derive(Clone, Debug)]
pub struct ComposedRow {
    /// `INSERT INTO undo_log (…)`.
    pub insert: String,
    /// Its values.
    pub values: String,
    /// For a script, the statement that adds the second half of the log: up to the value of the
    /// log, that value, and what names the row.
    pub complete: [String; 3],
}

/// Returns the UPDATE with these image columns, if the dialect has a form of it. The statement
/// consists of its assignments and a condition, which certainly chooses the same row again if it
/// `repeats`.
pub(super) fn of_update(
    text: &Text,
    table: &Table,
    columns: &[usize],
    clauses: &Clauses,
    lock: image::RowLock,
    repeats: bool,
) -> Option<ComposedUpdate> {
    let names = |prefix: &str| -> Vec<String> {
        (1..=columns.len()).map(|place| format!("{prefix}{place}")).collect()
    };
    let name = |&index: &usize| quote::identifier(text.dialect, &table.columns[index].name);
    let column_names: Vec<String> = columns.iter().map(name).collect();
    let (change, form, before, after) = match text.dialect {
        Dialect::Postgres => {
            let change = image::around_as_part(text, table, columns, clauses, lock);
            (change, Form::Single, names("hf_old"), names("hf_col"))
        }
        Dialect::MySql => {
            let before = names("@hf_old");
            let change = keeping(text, table, columns, clauses, &before)?;
            let row = row_of(text.dialect, table, 0);
            (change, Form::Compound { row }, before, column_names.clone())
        }
        Dialect::Sqlite if repeats => {
            let (change, form) = script(text, table, clauses)?;
            (change, form, column_names.clone(), column_names.clone())
        }
        Dialect::Sqlite => return None,
    };
    let mark = image::mark(text.whole(), table);
    Some(ComposedUpdate { change, form, mark, names: column_names, before, after })
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

/// SQLite: the user's UPDATE, and the row that it changes before and after it.
fn script(text: &Text, table: &Table, clauses: &Clauses) -> Option<([String; 2], Form)> {
    let predicate = clauses.predicate.clone()?;
    let (head, condition) = (text.cut(0..predicate.start), text.cut(predicate));
    let chosen = format!("{} WHERE {condition}", text.cut(clauses.target.clone()));
    let arguments = text.argument_count();
    // The branch's id and its XID stand between.
    let row = row_of(text.dialect, table, arguments + 2);
    let change = [format!("{head} {condition}"), String::new()];
    Some((change, Form::Script { chosen, row, arguments }))
}

/// The row of a key, which takes its cells behind so many arguments.
fn row_of(dialect: Dialect, table: &Table, first: usize) -> String {
    format!("{} WHERE {}", quote::rows(dialect, table), undo_sql::keys(dialect, table, 1, first))
}
