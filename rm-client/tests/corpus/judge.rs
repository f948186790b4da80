//! The verdict on one statement.
//!
//! The statement runs twice through the library: once in a global that is rolled back after its
//! local transaction has committed, once in one that is committed. Each time the twin runs it
//! first, without the library, and answer and rows must be the same.

use handfast::{AtError, Global, GlobalStatus};

use crate::database::{Answer, Product};
use crate::entry::Entry;
use crate::mask::masked;
use crate::stage::{Snapshot, Stage};

/// The outcome of a statement in AT mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The same as the database alone, and undone exactly.
    Exact,
    /// Refused with this code; no row changed.
    Refused(String),
    /// Anything else, or a statement that is no case.
    Wrong(String),
}

/// Judges a statement. After a wrong one the stage is not used again.
pub(crate) async fn judge<DB: Product>(stage: &mut Stage<DB>, entry: &Entry) -> Verdict {
    match try_both_ends(stage, entry).await {
        Ok(Verdict::Refused(code)) if entry.is_advice => {
            Verdict::Wrong(format!("advice is refused: {code}"))
        }
        Ok(verdict) => verdict,
        Err(text) => Verdict::Wrong(text),
    }
}

async fn try_both_ends<DB: Product>(
    stage: &mut Stage<DB>,
    entry: &Entry,
) -> Result<Verdict, String> {
    let expected = stage.twin.try_out(entry).await?;
    check_point(entry, &expected, &stage.start)?;
    let global = stage.begin().await;
    if let Some(code) = run(stage, &global, entry, &expected).await? {
        return refused(stage, global, code).await;
    }
    let xid = global.xid().clone();
    global.rollback("corpus").await.map_err(|error| format!("the rollback fails: {error}"))?;
    stage.await_status(&xid, |status| matches!(status, GlobalStatus::RolledBack(_))).await?;
    compare("after the rollback", &stage.start, &stage.ours.rows().await)?;
    stage.no_trace_is_left().await?;

    let expected = stage.twin.try_out(entry).await?;
    let global = stage.begin().await;
    if let Some(code) = run(stage, &global, entry, &expected).await? {
        return Err(format!("refused the second time: {code}"));
    }
    let xid = global.xid().clone();
    global.commit().await.map_err(|error| format!("the commit fails: {error}"))?;
    stage.await_status(&xid, |status| status == GlobalStatus::Committed).await?;
    compare("after the commit", &without_chance(&expected.1), &rows_without_chance(stage).await)?;
    stage.no_trace_is_left().await?;
    if expected.1 != stage.start {
        stage.put_back().await?;
    }
    Ok(Verdict::Exact)
}

/// Checks that a statement changes or locks a row, so that it shows something.
fn check_point(
    entry: &Entry,
    expected: &(Answer, Snapshot),
    start: &Snapshot,
) -> Result<(), String> {
    let touches = !expected.0.rows.is_empty() || &expected.1 != start;
    match (touches, entry.changes_nothing) {
        (false, false) => Err("it changes and returns no row".to_owned()),
        (true, true) => Err("it is marked to change nothing, and does".to_owned()),
        (true, false) | (false, true) => Ok(()),
    }
}

/// Runs a statement as a branch of a global. Returns the code of a refusal.
async fn run<DB: Product>(
    stage: &mut Stage<DB>,
    global: &Global,
    entry: &Entry,
    expected: &(Answer, Snapshot),
) -> Result<Option<String>, String> {
    stage.ours.reset_generators(entry).await;
    let branch = global.scope(async {
        let mut local = stage.resource.begin().await?;
        match DB::ours(&mut local, entry).await {
            Ok(answer) => local.commit().await.map(|()| answer),
            Err(error) => {
                local.rollback().await?;
                Err(error)
            }
        }
    });
    let answer = match branch.await {
        Ok(answer) => answer,
        Err(error) => match AtError::of(&error) {
            Some(refusal) => return Ok(Some(refusal.code().to_owned())),
            None => return Err(format!("it fails in AT mode: {error}")),
        },
    };
    if answer != expected.0 {
        return Err(format!("the answer is {answer:?}, of the database alone {:?}", expected.0));
    }
    let between = rows_without_chance(stage).await;
    compare("after the statement", &without_chance(&expected.1), &between)?;
    Ok(None)
}

/// Checks that a refused statement has changed nothing.
async fn refused<DB: Product>(
    stage: &Stage<DB>,
    global: Global,
    code: String,
) -> Result<Verdict, String> {
    global.rollback("corpus").await.map_err(|error| format!("the rollback fails: {error}"))?;
    compare("after the refusal", &stage.start, &stage.ours.rows().await)?;
    stage.no_trace_is_left().await?;
    Ok(Verdict::Refused(code))
}

async fn rows_without_chance<DB: Product>(stage: &Stage<DB>) -> Snapshot {
    without_chance(&stage.ours.rows().await)
}

fn without_chance(rows: &Snapshot) -> Snapshot {
    let mut rows: Snapshot = rows.iter().map(|(table, row)| (table.clone(), masked(row))).collect();
    rows.sort();
    rows
}

fn compare(when: &str, expected: &Snapshot, found: &Snapshot) -> Result<(), String> {
    if expected == found {
        return Ok(());
    }
    let missing = expected.iter().filter(|row| !found.contains(row));
    let missing = missing.map(|(table, row)| format!("\n  {table} lacks {row}"));
    let surplus = found.iter().filter(|row| !expected.contains(row));
    let surplus = surplus.map(|(table, row)| format!("\n  {table} has {row}"));
    Err(format!("the rows {when}:{}", missing.chain(surplus).collect::<String>()))
}
