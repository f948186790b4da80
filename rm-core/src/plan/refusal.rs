//! Why a statement is not run: one variant a reason, each with a stable code and a way out.

use thiserror::Error;

/// A statement that cannot be undone exactly, found before it ran.
///
/// The text says what was found and what to do instead. An application that accepts that a
/// statement is not undone writes `/* handfast: unprotected */` in front of it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StatementRefusal {
    /// The text is not understood, and may write.
    #[error(
        "statement not understood ({reason}), so it cannot be undone: use a simpler form ({})",
        self.code()
    )]
    Unparsed {
        /// The parser's message.
        reason: String,
    },
    /// Several statements in one text, one of which may write, with arguments.
    #[error(
        "several statements in one text cannot share its arguments: execute them one by one ({})",
        self.code()
    )]
    SeveralStatements,
    /// A kind of statement that the planner does not know to be harmless.
    #[error(
        "{statement} inside a branch is not known to be harmless: write it as a plain SELECT, INSERT, UPDATE or DELETE, or execute it outside ({})",
        self.code()
    )]
    UnknownStatement {
        /// Its first words.
        statement: String,
    },
    /// DDL, TRUNCATE and the like.
    #[error(
        "{statement} cannot be undone: execute it outside of a global transaction ({})",
        self.code()
    )]
    Ddl {
        /// Its first words.
        statement: String,
    },
    /// BEGIN, COMMIT, SAVEPOINT and the like in a text.
    #[error(
        "{statement} in a text would end or split the branch unseen: use the methods of the local transaction ({})",
        self.code()
    )]
    TransactionControl {
        /// Its first word.
        statement: String,
    },
    /// SET, PRAGMA, USE and the like that change what later statements mean.
    #[error(
        "{statement} changes what later statements and their undo mean: set it when the connection is made ({})",
        self.code()
    )]
    SessionState {
        /// Its first words.
        statement: String,
    },
    /// NOTIFY of PostgreSQL, as a statement or as a function.
    #[error(
        "{statement} sends its message with the local COMMIT, whatever becomes of the global transaction: emit an event of the outbox, which is held until the global commits ({})",
        self.code()
    )]
    Notify {
        /// NOTIFY or PG_NOTIFY.
        statement: String,
    },
    /// CALL, DO, EXECUTE.
    #[error(
        "{statement} may write anything unseen: send its statements themselves ({})",
        self.code()
    )]
    Procedure {
        /// Its first word.
        statement: String,
    },
    /// EXPLAIN ANALYZE of a write runs the write.
    #[error(
        "EXPLAIN ANALYZE runs the write it explains: explain it without ANALYZE ({})",
        self.code()
    )]
    ExplainAnalyze,
    /// MERGE.
    #[error("MERGE cannot be imaged: write it as UPDATE, DELETE and INSERT ({})", self.code())]
    Merge,
    /// COPY, LOAD DATA.
    #[error("{statement} writes rows unseen: use INSERT with several rows ({})", self.code())]
    BulkLoad {
        /// Its first word.
        statement: String,
    },
    /// LOCK TABLES and the like.
    #[error(
        "{statement} ends or blocks the local transaction: lock rows with SELECT ... FOR UPDATE ({})",
        self.code()
    )]
    TableLock {
        /// Its first words.
        statement: String,
    },
    /// INSERT, UPDATE or DELETE inside WITH whose images the statement cannot return.
    #[error(
        "a write inside WITH cannot be imaged: {reason} ({})",
        self.code()
    )]
    WriteInWith {
        /// Why, and what to do.
        reason: &'static str,
    },
    /// UPDATE or DELETE over several tables whose rows cannot be chosen twice.
    #[error(
        "{statement} over several tables cannot be imaged: {reason} ({})",
        self.code()
    )]
    SeveralTables {
        /// UPDATE or DELETE.
        statement: &'static str,
        /// Why, and what to do.
        reason: &'static str,
    },
    /// No primary key, nor a unique index in its place.
    #[error(
        "table {table} has no primary key and no unique index over whole NOT NULL columns, so its rows cannot be told apart: add one ({})",
        self.code()
    )]
    NoPrimaryKey {
        /// The table.
        table: String,
    },
    /// A row gets another key in a way that cannot be followed.
    #[error("key column {column} gets another value, {reason} ({})", self.code())]
    KeyChanged {
        /// The key column.
        column: String,
        /// The circumstance that counts, and what to do.
        reason: &'static str,
    },
    /// The key of an inserted row cannot be known.
    #[error("key column {column}: {reason} ({})", self.code())]
    KeyUnknown {
        /// The key column.
        column: String,
        /// Why, and what to do.
        reason: &'static str,
    },
    /// NULL in a key column.
    #[error(
        "key column {column} is NULL, and a row with a NULL in its key has no identity: give it a value ({})",
        self.code()
    )]
    KeyNull {
        /// The key column.
        column: String,
    },
    /// Equal keys that have no common text.
    #[error(
        "equal values of key column {column} have several texts, so that one row would have several keys: use a deterministic collation, or a type other than jsonb, composites and the like ({})",
        self.code()
    )]
    KeyCollation {
        /// The key column.
        column: String,
    },
    /// A foreign key changes other rows along with a column that is assigned.
    #[error(
        "foreign key {constraint} would change the rows that refer to a column that is assigned (ON UPDATE CASCADE, SET NULL or SET DEFAULT): insert a row with the other value, point those rows to it, and delete the old row ({})",
        self.code()
    )]
    Cascade {
        /// The constraint.
        constraint: String,
    },
    /// A foreign key deletes or changes rows along, of a table in which that cannot be undone.
    #[error(
        "foreign key {constraint} would delete or change rows of another table along, which cannot be undone there: {reason} ({})",
        self.code()
    )]
    CascadeTo {
        /// The constraint.
        constraint: String,
        /// The refusal of a statement that does the same in the other table.
        reason: Box<StatementRefusal>,
    },
    /// A foreign key deletes or changes rows along that cannot be put back.
    #[error(
        "foreign key {constraint} would delete or change other rows along, and {reason} ({})",
        self.code()
    )]
    CascadeLimit {
        /// The constraint.
        constraint: String,
        /// Why, and what to do.
        reason: &'static str,
    },
    /// A trigger that may write elsewhere.
    #[error(
        "trigger {trigger} may write unseen: declare it as writing its own row only, or disable it ({})",
        self.code()
    )]
    Trigger {
        /// The trigger.
        trigger: String,
    },
    /// A trigger that may write elsewhere, of the statement that undoes this one.
    #[error(
        "trigger {trigger} would fire when the statement is undone (by {undo}), and {reason} ({})",
        self.code()
    )]
    TriggerOfUndo {
        /// The trigger.
        trigger: String,
        /// INSERT, UPDATE or DELETE.
        undo: &'static str,
        /// Why, and what to do.
        reason: &'static str,
    },
    /// A row that breaks a constraint, and so could not be put back.
    #[error(
        "a row of {table} breaks constraint {constraint} as it is, so that it could not be put back: repair it outside of a global transaction first ({})",
        self.code()
    )]
    RowBreaksConstraint {
        /// The table.
        table: String,
        /// The constraint's name, or its text where it has none.
        constraint: String,
    },
    /// MySQL: a row that refers to itself, which InnoDB does not delete.
    #[error(
        "a row of {table} refers to itself, and this database does not delete such a row: insert it without the reference and set that by an UPDATE ({})",
        self.code()
    )]
    RowRefersToItself {
        /// The table.
        table: String,
    },
    /// A view, a foreign table, ...
    #[error(
        "{table} is {kind}, whose rows cannot be imaged: write to an ordinary table, with transactions ({})",
        self.code()
    )]
    NotATable {
        /// The relation.
        table: String,
        /// The kind of relation.
        kind: &'static str,
    },
    /// PostgreSQL: a table from which others inherit, whose rows the statement would mean too.
    #[error(
        "{table} has inheritance children, and the statement means their rows too: write ONLY before its name, and name each child in a statement of its own ({})",
        self.code()
    )]
    Inherited {
        /// The table.
        table: String,
    },
    /// Rules or ON CONFLICT clauses in the table's definition.
    #[error(
        "table {table} is defined with rules or ON CONFLICT clauses that change what a statement does: take them out, and say in the statement what it is to do ({})",
        self.code()
    )]
    Rewritten {
        /// The table.
        table: String,
    },
    /// Row-level security of PostgreSQL that applies to the connection.
    #[error(
        "row-level security of table {table} may hide its rows from their undo: connect as a role that it does not apply to (BYPASSRLS, or an owner without FORCE), or use XA mode ({})",
        self.code()
    )]
    RowSecurity {
        /// The table.
        table: String,
    },
    /// A column that the metadata does not have.
    #[error("column {column} is unknown in table {table}: correct the name ({})", self.code())]
    UnknownColumn {
        /// The column as written.
        column: String,
        /// The table.
        table: String,
    },
    /// Placeholders and bound arguments differ in number.
    #[error(
        "{placeholders} placeholders and {arguments} bound arguments: bind one for each ({})",
        self.code()
    )]
    ArgumentCount {
        /// As the text counts them.
        placeholders: usize,
        /// As bound.
        arguments: usize,
    },
    /// A placeholder that the driver cannot number.
    #[error("placeholder {placeholder} is not supported: use {expected} ({})", self.code())]
    Placeholder {
        /// As written.
        placeholder: String,
        /// The dialect's own.
        expected: &'static str,
    },
    /// A unique index that cannot be probed before an upsert.
    #[error(
        "unique index {index} cannot be looked up before the upsert: {reason} ({})",
        self.code()
    )]
    UpsertIndex {
        /// The index.
        index: String,
        /// Why, and what to do.
        reason: &'static str,
    },
    /// An upsert whose rows cannot be known before it runs.
    #[error("upsert cannot be made exact: {reason} ({})", self.code())]
    Upsert {
        /// Why, and what to do.
        reason: &'static str,
    },
    /// INSERT ... SELECT of rows that cannot be read first and inserted as values, as MySQL needs
    /// it, and an upsert on SQLite.
    #[error(
        "INSERT ... SELECT cannot be made exact: {reason}; select the rows first and insert them with VALUES ({})",
        self.code()
    )]
    InsertSelect {
        /// Why.
        reason: &'static str,
    },
    /// SQLite `OR FAIL`, `OR ROLLBACK`, and `UPDATE OR` anything.
    #[error(
        "conflict clause {clause} may remove other rows, leave part of a failed statement or end the local transaction: {reason} ({})",
        self.code()
    )]
    ConflictClause {
        /// The clause.
        clause: String,
        /// The way out.
        reason: &'static str,
    },
    /// A locking read whose rows cannot be named.
    #[error("locking read cannot be protected globally: {reason} ({})", self.code())]
    LockingRead {
        /// Why, and what to do.
        reason: &'static str,
    },
    /// A sub-select of a change, where reads are to be globally committed.
    #[error(
        "what a sub-select of {statement} reads is not checked for locks of other globals: read the rows of each table by a statement of its own ({})",
        self.code()
    )]
    UncheckedRead {
        /// INSERT, UPDATE or DELETE.
        statement: &'static str,
    },
    /// MySQL `/*! ... */`.
    #[error(
        "executable comment hides SQL: write it plainly, or bind the text as an argument ({})",
        self.code()
    )]
    ExecutableComment,
    /// A clause that the image cannot follow.
    #[error("{clause} is not supported in a branch: {reason} ({})", self.code())]
    Clause {
        /// The clause.
        clause: &'static str,
        /// The way out.
        reason: &'static str,
    },
}

impl StatementRefusal {
    /// The stable code, documented in `docs/errors.md`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unparsed { .. } => "HF-AT-UNPARSED",
            Self::SeveralStatements => "HF-AT-SEVERAL-STATEMENTS",
            Self::UnknownStatement { .. } => "HF-AT-UNKNOWN-STATEMENT",
            Self::Ddl { .. } => "HF-AT-DDL",
            Self::TransactionControl { .. } => "HF-AT-TRANSACTION-CONTROL",
            Self::SessionState { .. } => "HF-AT-SESSION-STATE",
            Self::Notify { .. } => "HF-AT-NOTIFY",
            Self::Procedure { .. } => "HF-AT-PROCEDURE",
            Self::ExplainAnalyze => "HF-AT-EXPLAIN-ANALYZE",
            Self::Merge => "HF-AT-MERGE",
            Self::BulkLoad { .. } => "HF-AT-BULK-LOAD",
            Self::TableLock { .. } => "HF-AT-TABLE-LOCK",
            Self::WriteInWith { .. } => "HF-AT-WRITE-IN-WITH",
            Self::SeveralTables { .. } => "HF-AT-SEVERAL-TABLES",
            Self::NoPrimaryKey { .. } => "HF-AT-NO-PRIMARY-KEY",
            Self::KeyChanged { .. } => "HF-AT-KEY-CHANGED",
            Self::KeyUnknown { .. } => "HF-AT-KEY-UNKNOWN",
            Self::KeyNull { .. } => "HF-AT-KEY-NULL",
            Self::KeyCollation { .. } => "HF-AT-KEY-COLLATION",
            Self::Cascade { .. } | Self::CascadeTo { .. } | Self::CascadeLimit { .. } => {
                "HF-AT-CASCADE"
            }
            Self::Trigger { .. } | Self::TriggerOfUndo { .. } => "HF-AT-TRIGGER",
            Self::RowBreaksConstraint { .. } => "HF-AT-ROW-BREAKS-CONSTRAINT",
            Self::RowRefersToItself { .. } => "HF-AT-ROW-REFERS-TO-ITSELF",
            Self::NotATable { .. } | Self::Inherited { .. } => "HF-AT-NOT-A-TABLE",
            Self::Rewritten { .. } => "HF-AT-REWRITTEN",
            Self::RowSecurity { .. } => "HF-AT-ROW-SECURITY",
            Self::UnknownColumn { .. } => "HF-AT-UNKNOWN-COLUMN",
            Self::ArgumentCount { .. } => "HF-AT-ARGUMENT-COUNT",
            Self::Placeholder { .. } => "HF-AT-PLACEHOLDER",
            Self::UpsertIndex { .. } => "HF-AT-UPSERT-INDEX",
            Self::Upsert { .. } => "HF-AT-UPSERT",
            Self::InsertSelect { .. } => "HF-AT-INSERT-SELECT",
            Self::ConflictClause { .. } => "HF-AT-CONFLICT-CLAUSE",
            Self::LockingRead { .. } => "HF-AT-LOCKING-READ",
            Self::UncheckedRead { .. } => "HF-AT-UNCHECKED-READ",
            Self::ExecutableComment => "HF-AT-EXECUTABLE-COMMENT",
            Self::Clause { .. } => "HF-AT-CLAUSE",
        }
    }
}
