//! Conditions that must hold after the statements have run: rows are locked, dirty writes are
//! detected, and no undo row or lock is left when the global has ended.

use std::collections::BTreeSet;

use handfast::{AtError, Global, GlobalStatus, Xid};
use handfast_core::{
    BranchState, Command, LockFilter, LockMode, LockView, OperatorAction, PageBounds, Resolution,
};
use handfast_rm_core::plan::Dialect;

use crate::database::{TextRow, Twin};
use crate::finding::{Finding, differences};
use crate::random::Random;
use crate::scene::{Scene, Shown, Snapshot};
use crate::schema::Schema;
use crate::statement::{Kind, Statement};
use crate::table::{Class, Table, quoted};

/// Returns how many rows differ between two snapshots.
pub(crate) fn changed_rows(before: &Snapshot, after: &Snapshot) -> usize {
    before.iter().zip(after).map(|(before, after)| gone(before, after).len()).sum::<usize>()
        + after.iter().zip(before).map(|(after, before)| gone(after, before).len()).sum::<usize>()
}

/// Returns the rows of one snapshot that the other lacks.
fn gone<'r>(one: &'r [TextRow], other: &[TextRow]) -> Vec<&'r TextRow> {
    one.iter().filter(|row| !other.contains(row)).collect()
}

/// Checks that every changed row is locked: there are at least as many locks as keys of changed
/// rows, counted on either side.
pub(crate) async fn rows_are_locked<DB: Twin>(
    scene: &Scene<DB>,
    schema: &Schema,
    xid: &Xid,
    before: &Snapshot,
    after: &Snapshot,
) -> Result<(), Finding> {
    let locks = exclusive_locks(scene, xid).await;
    for (at, table) in schema.tables.iter().enumerate() {
        let name = format!(".{}", table.name);
        let held = locks.iter().filter(|lock| lock.table.ends_with(&name)).count();
        for (one, other) in [(&before[at], &after[at]), (&after[at], &before[at])] {
            let keys: BTreeSet<_> =
                gone(one, other).into_iter().map(|row| key_of(table, row)).collect();
            if held < keys.len() {
                let details = format!("{}: {held} of {}", table.name, keys.len());
                return Err(Finding::new("changed rows are not locked", details));
            }
        }
    }
    Ok(())
}

/// Returns the rows that a global has locked exclusively.
pub(crate) async fn exclusive_locks<DB: Twin>(scene: &Scene<DB>, xid: &Xid) -> Vec<LockView> {
    let holder = number(xid);
    let view = scene.server.engine().view(move |coordinator| {
        let filter = LockFilter { holder: Some(holder), ..LockFilter::default() };
        coordinator.locks(&filter, None, PageBounds::NONE).items
    });
    let mut locks = view.await.unwrap();
    locks.retain(|lock| {
        lock.holders.iter().any(|it| it.xid == holder && it.mode == LockMode::Exclusive)
    });
    locks
}

fn key_of(table: &Table, row: &TextRow) -> Vec<Option<String>> {
    table.key.iter().map(|place| row[*place].clone()).collect()
}

fn number(xid: &Xid) -> handfast_core::Xid {
    let (_, number) = xid.as_str().rsplit_once(':').unwrap();
    handfast_core::Xid(number.parse().unwrap())
}

/// Checks that no undo row and no lock is left after the end of a global.
pub(crate) async fn no_trace_is_left<DB: Twin>(scene: &Scene<DB>) -> Result<(), Finding> {
    let locks = scene.server.engine().view(|coordinator| coordinator.counts().locks);
    let locks = locks.await.unwrap();
    let text = match DB::SPEAKS {
        Dialect::MySql => "CHAR",
        Dialect::Postgres | Dialect::Sqlite => "TEXT",
    };
    let count = format!("SELECT CAST(COUNT(*) AS {text}) FROM undo_log");
    let undo_rows = DB::texts(&scene.ours, &count).await.unwrap();
    let undo_rows = undo_rows[0][0].clone().unwrap();
    if locks == 0 && undo_rows == "0" {
        return Ok(());
    }
    let details = format!("{locks} locks, {undo_rows} undo rows");
    Err(Finding::new("something is left of a global", details))
}

/// Returns why a branch is not rolled back.
pub(crate) async fn refusal<DB: Twin>(scene: &Scene<DB>, xid: &Xid) -> String {
    let xid = number(xid);
    let view = scene.server.engine().view(move |coordinator| coordinator.global(xid)).await;
    let branches = view.unwrap().map(|global| global.branches).unwrap_or_default();
    let refused = branches.iter().filter_map(|branch| {
        let BranchState::Refused(error, rows) = &branch.state else { return None };
        Some(format!("{error} {rows:?}"))
    });
    refused.collect::<Vec<_>>().join("; ")
}

/// Rolls back a global with a dirty row, and checks that no row is changed and the global needs an
/// operator. After the operator has forced the before image, all rows must be as before the global.
pub(crate) async fn an_operator_is_needed<DB: Twin>(
    scene: &Scene<DB>,
    schema: &Schema,
    global: Global,
) -> Result<(), Finding> {
    let xid = global.xid().clone();
    let dirty = scene.ours(schema, Shown::All).await;
    // The rollback returns an error, since it needs an operator.
    global.rollback("differential").await.ok();
    let done = |status| matches!(status, GlobalStatus::RolledBack(_));
    if scene.await_status(&xid, done).await.is_ok() {
        return Err(Finding::new("a dirty row is overwritten", ()));
    }
    let found = scene.ours(schema, Shown::All).await;
    differences("the tables after a refused rollback", schema, &dirty, &found)?;
    let id = number(&xid);
    let view = scene.server.engine().view(move |coordinator| coordinator.global(id)).await;
    let branch = view.unwrap().unwrap().branches.remove(0).id;
    let action = OperatorAction::Resolve { branch, resolution: Resolution::ForceBefore };
    let command = Command::Operate { xid: id, action, operator: "differential".into() };
    scene.server.engine().call(command).await.unwrap();
    scene.await_end(&xid).await;
    Ok(())
}

/// Writes to rows that a global has changed.
pub(crate) struct Touched<'s, DB: Twin> {
    pub(crate) scene: &'s Scene<DB>,
    pub(crate) schema: &'s Schema,
    pub(crate) random: Random,
}

impl<DB: Twin> Touched<'_, DB> {
    /// Checks that another global cannot lock a changed row.
    pub(crate) async fn other_globals_are_refused(
        &mut self,
        before: &Snapshot,
        after: &Snapshot,
    ) -> Result<Option<usize>, Finding> {
        if !self.random.chance(30) {
            return Ok(None);
        }
        let Some((table, row)) = self.changed(before, after, |_, _, _| true) else {
            return Ok(None);
        };
        let Some(&assigned) = table.assignable().first() else { return Ok(None) };
        let name = quoted(DB::SPEAKS, &table.columns[assigned].name);
        let sql = format!(
            "UPDATE {} SET {name} = {name} WHERE {}",
            table.quoted(DB::SPEAKS),
            named::<DB>(table, row)
        );
        let kind = Kind::Update;
        let statement = Statement { kind, sql, plain_sql: None, arguments: Vec::new() };
        let global = self.scene.begin().await;
        let attempt = global.scope(async {
            let mut local = self.scene.rival.begin().await?;
            DB::ours(&mut local, &statement).await?;
            local.commit().await
        });
        let attempt = attempt.await;
        global.rollback("differential").await.unwrap();
        match attempt.as_ref().map_err(AtError::of) {
            Err(Some(AtError::Coordinator(error))) if error.code() == "HF-TC-ROW-LOCKED" => {
                Ok(Some(1))
            }
            // A trigger that is not trusted, for example.
            Err(Some(AtError::Refused(_))) => Ok(None),
            _ => Err(Finding::new("another global has a changed row", (statement.sql, attempt))),
        }
    }

    /// Writes, without the library, to a column that the global has written. Returns whether the
    /// write succeeded.
    pub(crate) async fn dirty(&mut self, before: &Snapshot, after: &Snapshot) -> bool {
        let mut columns: Vec<usize> = Vec::new();
        let changed = self.changed(before, after, |table, old, new| {
            columns = table
                .assignable()
                .into_iter()
                .filter(|place| {
                    let class = table.columns[*place].class;
                    let is_plain = matches!(class, Class::Whole | Class::Text);
                    let refers = table.columns[*place].values.iter().any(|value| value == "NULL");
                    // Of a table without a key equal rows would be written along.
                    let names_one = !table.keyless;
                    old[*place] != new[*place] && is_plain && !refers && names_one
                })
                .collect();
            !columns.is_empty()
        });
        let Some((table, row)) = changed else { return false };
        let column = &table.columns[columns[0]];
        let value = if column.class == Class::Whole { "1234" } else { "'zz'" };
        let sql = format!(
            "UPDATE {} SET {} = {value} WHERE {}",
            table.quoted(DB::SPEAKS),
            quoted(DB::SPEAKS, &column.name),
            named::<DB>(table, row)
        );
        // A constraint may prevent the write.
        DB::raw(&self.scene.ours, &sql).await.is_ok_and(|written| written == 1)
    }

    /// Returns a row that existed before and still exists, with changed values.
    fn changed<'t>(
        &self,
        before: &Snapshot,
        after: &'t Snapshot,
        mut fits: impl FnMut(&Table, &TextRow, &TextRow) -> bool,
    ) -> Option<(&Table, &'t TextRow)> {
        for (at, table) in self.schema.tables.iter().enumerate() {
            for new in gone(&after[at], &before[at]) {
                let key = key_of(table, new);
                let old = before[at].iter().find(|old| key_of(table, old) == key);
                if let Some(old) = old
                    && fits(table, old, new)
                {
                    return Some((table, new));
                }
            }
        }
        None
    }
}

/// Returns a condition that only one row meets.
fn named<DB: Twin>(table: &Table, row: &TextRow) -> String {
    let parts = table.key.iter().map(|place| {
        let column = &table.columns[*place];
        let shown = DB::shown(&quoted(DB::SPEAKS, &column.name), &column.type_text);
        let text = row[*place].clone().unwrap_or_default();
        let text = match DB::SPEAKS {
            Dialect::MySql => text.replace('\\', "\\\\"),
            Dialect::Postgres | Dialect::Sqlite => text,
        };
        format!("{shown} = '{}'", text.replace('\'', "''"))
    });
    parts.collect::<Vec<_>>().join(" AND ")
}
