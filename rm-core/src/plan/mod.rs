//! The AT planner: SQL text, dialect and table metadata in; a plan or a refusal out.
//!
//! Pure: it knows no driver, runs nothing and waits for nothing, so that every decision about what
//! can be undone is tested by text cases. Two steps, because the metadata needs IO between them:
//! `parse` names the table that a statement writes (or says at once that it may pass, or that it is
//! refused), `Statement::plan` turns it into the queries to run.
//!
//! Default deny: a statement whose shape is not known here is refused, never run without an image.

pub mod along;
mod classify;
mod clauses;
mod composed_update;
mod constraint;
mod delete;
mod delta;
mod delta_update;
mod dialect;
mod foretold_key;
mod fuzz;
mod guard;
pub mod guarded_sql;
mod image;
mod insert;
mod insert_select;
mod inserted;
mod joined;
mod joined_read;
mod key;
mod key_change;
mod keyed;
mod lexeme;
mod locking_read;
mod names;
mod normal;
mod numbered_key;
pub mod parent_key;
mod parse;
mod placeholder;
mod plain_insert;
mod query;
mod quote;
pub mod referring_sql;
mod refusal;
mod repeatable;
mod row_delta;
mod savepoint;
mod shape;
mod stable;
mod table;
mod term;
mod text;
mod trigger;
pub mod undo_sql;
mod update;
mod upsert;
mod upsert_source;
mod values;
mod view;
mod walk;
mod with_shape;
mod with_writes;

pub use self::{
    composed_update::{ComposedEnd, ComposedRow, ComposedUpdate},
    constraint::{Constraint, Rule, checks},
    delta::{Bounds, Counter, CounterFault, Delta, DeltaKind, Direction},
    dialect::Dialect,
    fuzz::fuzz_entry,
    key::row_key,
    keyed::{JointQuery, ROWS_MAX},
    numbered_key::NumberedKey,
    parse::{OPT_OUT, Parsed, Reads, Statement, parse},
    query::{Arguments, GeneratedKeys, KeyedQuery, Query, SelectedRows},
    refusal::StatementRefusal,
    row_delta::{Comparison, CounterGuard, RowDelta, RowEffect},
    savepoint::Savepoint,
    shape::{
        Change, Delete, DeleteImage, ForetoldKey, Insert, InsertAfter, InsertedMark, JoinedRead,
        KeyChange, LockMode, LockingRead, Plan, ReadPart, Several, SeveralChange, SeveralPart,
        Update, UpdateImage, Upsert, UpsertAfter, UpsertKind,
    },
    table::{
        Column, ForeignKey, Generation, KeyFold, Reference, ReferentialAction, Referring, Table,
        TableKind, TableName, Trigger, UniqueIndex,
    },
    term::Operand,
    trigger::{Returns, TriggerBody, TriggerWrites},
    view::shown_columns,
    with_shape::{WithCount, WithEffect, WithPart, WithPartKind, WithUndo, WithWrites},
};
