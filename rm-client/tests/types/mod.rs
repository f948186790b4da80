//! Round trips of whole tables, shared by the three databases.

mod mysql;
mod postgres;
mod sqlite;

use std::time::Duration;

use handfast::{AtDatabase, AtResource, Global};

use crate::at::{Stage, TestDatabase, TextRow, code};
use crate::columns::{self, Column, Key};

/// A database whose values can be shown exactly.
pub(crate) trait Typed: TestDatabase {
    /// Returns an SQL expression whose text differs for any two values of a column.
    fn shown(name: &str, declared: &str) -> String;
}

impl Typed for sqlx::MySql {
    fn shown(name: &str, declared: &str) -> String {
        columns::mysql::shown(name, declared)
    }
}

impl Typed for sqlx::Postgres {
    fn shown(name: &str, _: &str) -> String {
        columns::postgres::shown(name)
    }
}

impl Typed for sqlx::Sqlite {
    fn shown(name: &str, _: &str) -> String {
        columns::sqlite::shown(name)
    }
}

/// A table that is changed through the library, and one that gets the same statements without it.
struct Twins<'t, DB: Typed> {
    stage: &'t Stage<DB>,
    name: &'t str,
    columns: &'t [Column],
}

/// Tries every value of every column with INSERT, UPDATE and DELETE, rolled back and committed.
/// `tail` follows the table's columns in its definition.
pub(crate) async fn round_trip<DB: Typed>(
    stage: &Stage<DB>,
    name: &str,
    columns: &[Column],
    tail: &str,
) {
    let twins = Twins { stage, name, columns };
    twins.create(tail).await;
    let rows = columns.iter().map(|column| column.values.len()).max().unwrap_or(0) + 1;
    let inserts = |table: &str| (0..rows).map(|row| twins.insert(table, row)).collect::<Vec<_>>();
    let updates =
        |table: &str| (0..rows).map(|row| twins.update(table, row, rows)).collect::<Vec<_>>();
    let delete = |table: &str| vec![format!("DELETE FROM {table}")];
    twins.check(inserts).await;
    twins.check(updates).await;
    twins.check(delete).await;
}

impl<DB: Typed> Twins<'_, DB> {
    fn ours(&self) -> String {
        format!("{}_ours", self.name)
    }

    fn plain(&self) -> String {
        format!("{}_plain", self.name)
    }

    async fn create(&self, tail: &str) {
        let mut columns = vec!["id INTEGER NOT NULL PRIMARY KEY".to_owned()];
        for (index, column) in self.columns.iter().enumerate() {
            columns.push(format!("c{index} {}", column.declared));
        }
        for table in [self.ours(), self.plain()] {
            raw(self.stage, &format!("CREATE TABLE {table} ({}){tail}", columns.join(", "))).await;
        }
    }

    /// Returns the writable columns with the values of a row, NULL if a column has no more values.
    fn values(&self, row: usize) -> Vec<(String, &'static str)> {
        let columns = self.columns.iter().enumerate();
        let written = columns.filter(|(_, column)| !column.values.is_empty());
        written
            .map(|(index, column)| {
                (format!("c{index}"), column.values.get(row).copied().unwrap_or("NULL"))
            })
            .collect()
    }

    fn insert(&self, table: &str, row: usize) -> String {
        let (names, values): (Vec<_>, Vec<_>) = self.values(row).into_iter().unzip();
        let (names, values) = (names.join(", "), values.join(", "));
        format!("INSERT INTO {table} (id, {names}) VALUES ({row}, {values})")
    }

    /// Returns an UPDATE that gives every row the values of the next one.
    fn update(&self, table: &str, row: usize, rows: usize) -> String {
        let values = self.values((row + 1) % rows).into_iter();
        let assignments: Vec<_> = values.map(|(name, value)| format!("{name} = {value}")).collect();
        format!("UPDATE {table} SET {} WHERE id = {row}", assignments.join(", "))
    }

    /// Checks that the table is unchanged after a rollback of the statements, and equals its twin
    /// after a commit.
    async fn check(&self, statements: impl Fn(&str) -> Vec<String>) {
        let before = self.show(&self.ours()).await;
        let ours = statements(&self.ours());
        let global = self.stage.begin().await;
        branch(self.stage, &self.stage.resource, &global, &ours).await;
        let between = self.show(&self.ours()).await;
        self.stage.roll_back(global).await;
        assert_eq!(self.show(&self.ours()).await, before, "{ours:#?} are undone");

        let global = self.stage.begin().await;
        branch(self.stage, &self.stage.resource, &global, &ours).await;
        self.stage.commit(global).await;
        for sql in statements(&self.plain()) {
            raw(self.stage, &sql).await;
        }
        let after = self.show(&self.ours()).await;
        assert_eq!(after, self.show(&self.plain()).await, "{ours:#?} do what they say");
        assert_eq!(after, between, "{ours:#?} do the same twice");
        assert_ne!(after, before, "{ours:#?} change something");
    }

    async fn show(&self, table: &str) -> Vec<TextRow> {
        let columns = self.columns.iter().enumerate();
        let shown: Vec<_> = columns
            .map(|(index, column)| DB::shown(&format!("c{index}"), column.declared))
            .collect();
        let id = DB::shown("id", "INTEGER");
        let sql = format!("SELECT {id}, {} FROM {table} ORDER BY id", shown.join(", "));
        DB::raw_rows(&self.stage.pool, &sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }
}

async fn raw<DB: TestDatabase>(stage: &Stage<DB>, sql: &str) {
    DB::raw(&stage.pool, sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// Runs statements as one branch, and names the one that fails.
async fn branch<DB: TestDatabase>(
    _: &Stage<DB>,
    resource: &AtResource<DB>,
    global: &Global,
    statements: &[String],
) {
    global
        .scope(async {
            let mut local = resource.begin().await.unwrap();
            for sql in statements {
                let done = DB::run(&mut local, sql).await;
                done.unwrap_or_else(|error| panic!("{sql}: {error}"));
            }
            let committed = local.commit().await;
            committed.unwrap_or_else(|error| panic!("{statements:#?}: {error}"));
        })
        .await;
}

/// Checks that rows with such keys are found by their undo, and that two spellings of a key lock
/// the same row.
pub(crate) async fn keys<DB: Typed>(stage: &Stage<DB>, name: &str, keys: &[Key]) {
    for (index, key) in keys.iter().enumerate() {
        let table = format!("{name}_{index}");
        let declared = key.declared;
        raw(stage, &format!("CREATE TABLE {table} (k {declared} PRIMARY KEY, v INT)")).await;
        undone_by_key(stage, &table, key).await;
        for (one, other) in key.equal {
            raw(stage, &format!("DELETE FROM {table}")).await;
            same_row(stage, &table, declared, one, other).await;
        }
    }
}

async fn undone_by_key<DB: Typed>(stage: &Stage<DB>, table: &str, key: &Key) {
    let insert = |value: &&str| format!("INSERT INTO {table} (k, v) VALUES ({value}, 1)");
    let inserts: Vec<_> = key.values.iter().map(insert).collect();
    undone(stage, table, key.declared, &inserts).await;
    for sql in &inserts {
        raw(stage, sql).await;
    }
    undone(stage, table, key.declared, &[format!("UPDATE {table} SET v = v + 1")]).await;
    undone(stage, table, key.declared, &[format!("DELETE FROM {table}")]).await;
}

async fn undone<DB: Typed>(stage: &Stage<DB>, table: &str, declared: &str, statements: &[String]) {
    let before = rows(stage, table, declared).await;
    let global = stage.begin().await;
    branch(stage, &stage.resource, &global, statements).await;
    assert_ne!(rows(stage, table, declared).await, before, "{declared}: {statements:?}");
    stage.roll_back(global).await;
    assert_eq!(rows(stage, table, declared).await, before, "{declared}: {statements:?}");
}

async fn rows<DB: Typed>(stage: &Stage<DB>, table: &str, declared: &str) -> Vec<TextRow> {
    let (k, v) = (DB::shown("k", declared), DB::shown("v", "INT"));
    let sql = format!("SELECT {k}, {v} FROM {table} ORDER BY k");
    DB::raw_rows(&stage.pool, &sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"))
}

/// Checks that a row deleted under one spelling of its key cannot be inserted by another global
/// under another spelling.
async fn same_row<DB: Typed>(
    stage: &Stage<DB>,
    table: &str,
    declared: &str,
    one: &str,
    other: &str,
) {
    let insert = |value: &str| format!("INSERT INTO {table} (k, v) VALUES ({value}, 1)");
    raw(stage, &insert(one)).await;
    let before = rows(stage, table, declared).await;
    let (first, second) = (stage.begin().await, stage.begin().await);
    branch(stage, &stage.resource, &first, &[format!("DELETE FROM {table}")]).await;
    let taken = insert_at_once(stage, &second, &insert(other)).await;
    let refused = taken.expect_err(&format!("{declared}: {one} and {other} are one key"));
    assert_eq!(code(&refused), "HF-TC-ROW-LOCKED", "{declared}: {one}, {other}: {refused}");
    stage.roll_back(second).await;
    stage.roll_back(first).await;
    assert_eq!(rows(stage, table, declared).await, before, "{declared}: {one}, {other}");
}

/// Inserts a row without waiting for locks.
async fn insert_at_once<DB: AtDatabase + TestDatabase>(
    stage: &Stage<DB>,
    global: &Global,
    sql: &str,
) -> Result<(), sqlx::Error> {
    let resource = stage.handfast.at(stage.pool.clone()).lock_timeout(Duration::ZERO);
    let resource = resource.await.unwrap();
    global
        .scope(async {
            let mut local = resource.begin().await?;
            DB::run(&mut local, sql).await?;
            local.commit().await
        })
        .await
}
