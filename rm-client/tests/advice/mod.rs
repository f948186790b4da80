//! The cases: a statement that a branch refuses, and the advice in the text of the refusal. One
//! file for each subject of a database, and one for what holds on all of them.

mod case;
mod codes;
mod everywhere;
mod mysql;
mod plain;
mod postgres;
mod run;
mod sqlite;
