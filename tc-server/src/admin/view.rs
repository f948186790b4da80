//! Translates the core's values to the API's messages and back. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use handfast_core::{
    BranchState, BranchView, DirtyColumn, DirtyRow, FinishedBranch, GlobalPart, GlobalRecord,
    GlobalState, GlobalStatus, GlobalSummary, Labels, LockMode, LockView, LockWaiter, Mode,
    RefusedRows, Resolution, RollbackReason, RowChange, RowLock, RowStanding, StatusKind,
    Timestamp, XidText, display_row_key,
};

use super::model;
use super::timeline::timeline;
use crate::time_format::rfc3339;

pub(super) fn detail(
    part: &GlobalPart,
    is_first: bool,
    now: Timestamp,
) -> model::TransactionDetail {
    let finished = part.record.finished_branches.iter().map(finished_branch);
    model::TransactionDetail {
        transaction: transaction(&part.record, part.status, part.branch_count, now),
        branches: part.branches.iter().map(branch).chain(finished).collect(),
        timeline: timeline(part, is_first),
        waits: Vec::new(),
        to_come: Vec::new(),
        next: part.next.map(|sequence| sequence.to_string()),
    }
}

pub(super) fn summary(global: &GlobalSummary, now: Timestamp) -> model::Transaction {
    transaction(&global.record, global.status, global.branches, now)
}

fn transaction(
    record: &GlobalRecord,
    global_status: GlobalStatus,
    branch_count: usize,
    now: Timestamp,
) -> model::Transaction {
    let (status, rollback_reason) = status_and_reason(global_status);
    model::Transaction {
        xid: XidText { address: &record.address, xid: record.xid }.to_string(),
        application: record.application.to_string(),
        name: record.name.to_string(),
        status,
        rollback_reason,
        paused: record.paused,
        rollback_only: record.rollback_only,
        begun_at: rfc3339(record.begun_at),
        age_ms: age(record.begun_at, now),
        deadline: rfc3339(record.deadline),
        finished_at: finished_at(record.state).map(rfc3339),
        branch_count,
        labels: labels(&record.labels),
    }
}

pub(super) fn labels(labels: &Labels) -> BTreeMap<String, String> {
    labels.iter().map(|label| (label.name.to_string(), label.value.to_string())).collect()
}

pub(super) fn status(status: GlobalStatus) -> model::Status {
    status_and_reason(status).0
}

fn status_and_reason(status: GlobalStatus) -> (model::Status, Option<model::RollbackReason>) {
    match status {
        GlobalStatus::Active => (model::Status::Active, None),
        GlobalStatus::Committing => (model::Status::Committing, None),
        GlobalStatus::Committed => (model::Status::Committed, None),
        GlobalStatus::RollingBack(why) => (model::Status::RollingBack, Some(reason(why))),
        GlobalStatus::RolledBack(why) => (model::Status::RolledBack, Some(reason(why))),
        GlobalStatus::NeedsOperator(why) => (model::Status::NeedsOperator, Some(reason(why))),
        GlobalStatus::Unknown => {
            unreachable!("a global that is shown or has been acted on is known")
        }
    }
}

fn reason(reason: RollbackReason) -> model::RollbackReason {
    match reason {
        RollbackReason::Requested => model::RollbackReason::Requested,
        RollbackReason::Timeout => model::RollbackReason::Timeout,
        RollbackReason::BranchUnknown => model::RollbackReason::BranchUnknown,
        RollbackReason::Operator => model::RollbackReason::Operator,
        RollbackReason::Refused => model::RollbackReason::Refused,
    }
}

pub(super) fn status_kind(status: model::Status) -> StatusKind {
    match status {
        model::Status::Active => StatusKind::Active,
        model::Status::Committing => StatusKind::Committing,
        model::Status::Committed => StatusKind::Committed,
        model::Status::RollingBack => StatusKind::RollingBack,
        model::Status::RolledBack => StatusKind::RolledBack,
        model::Status::NeedsOperator => StatusKind::NeedsOperator,
    }
}

fn finished_at(state: GlobalState) -> Option<Timestamp> {
    match state {
        GlobalState::Committed(at) | GlobalState::RolledBack(_, at) => Some(at),
        GlobalState::Active | GlobalState::Committing | GlobalState::RollingBack(_) => None,
    }
}

fn branch(shown: &BranchView) -> model::Branch {
    let BranchView { record, holding } = shown;
    let (state, finished_at, refusal, resolution) = match &record.state {
        BranchState::Registered => (model::BranchState::Registered, None, None, None),
        BranchState::Deciding => (model::BranchState::Deciding, None, None, None),
        BranchState::PhaseOneDone => (model::BranchState::PhaseOneDone, None, None, None),
        BranchState::Refused(error, rows) => {
            (model::BranchState::Refused, None, Some(refusal(error, rows)), None)
        }
        BranchState::Resolved(how) => {
            (model::BranchState::Resolved, None, None, Some(shown_resolution(*how)))
        }
        BranchState::Finished(at) => (model::BranchState::Finished, Some(*at), None, None),
    };
    let failure = |(at, error): &(Timestamp, Arc<str>)| model::Failure {
        at: rfc3339(*at),
        error: error.to_string(),
    };
    model::Branch {
        id: record.id.to_string(),
        resource: record.resource.to_string(),
        mode: mode(record.mode),
        state,
        rows: record.rows.iter().map(row).collect(),
        row_count: *holding,
        registered_at: rfc3339(record.registered_at),
        phase_one_at: record.phase_one_at.map(rfc3339),
        finished_at: finished_at.map(rfc3339),
        attempts: record.attempts,
        last_failure: record.last_failure.as_ref().map(failure),
        refusal,
        resolution,
    }
}

fn finished_branch(branch: &FinishedBranch) -> model::Branch {
    model::Branch {
        id: branch.id.to_string(),
        resource: branch.resource.to_string(),
        mode: mode(branch.mode),
        state: model::BranchState::Finished,
        rows: Vec::new(),
        row_count: 0,
        registered_at: rfc3339(branch.registered_at),
        phase_one_at: branch.phase_one_at.map(rfc3339),
        finished_at: Some(rfc3339(branch.finished_at)),
        attempts: branch.attempts,
        last_failure: None,
        refusal: None,
        resolution: None,
    }
}

fn refusal(error: &str, rows: &RefusedRows) -> model::Refusal {
    let column = |column: &DirtyColumn| model::DirtyColumn {
        name: column.name.clone(),
        before: column.before.clone(),
        after: column.after.clone(),
        current: column.current.clone(),
    };
    let row = |row: &DirtyRow| model::DirtyRow {
        table: row.table.clone(),
        key: row.key.clone(),
        columns: row.columns.iter().map(column).collect(),
        standing: standing(row.standing),
        on_restore_clean: row.on_restore_clean.map(row_change),
        on_accept_current: model::RowChange::Left,
        on_force_before: row.on_force_before.map(row_change),
    };
    // Records of earlier versions list only dirty rows, and have no count.
    let dirty = rows.listed.iter().filter(|row| row.standing == RowStanding::Dirty).count();
    model::Refusal {
        error: error.to_owned(),
        rows: rows.listed.iter().map(row).collect(),
        rows_total: rows.total.max(rows.listed.len() as u64),
        rows_dirty: rows.dirty.max(dirty as u64),
        events: rows.held_events.map(held_events),
    }
}

/// `docs/decisions/0019-held-events-go-with-the-rows.md`.
fn held_events(held: u64) -> model::HeldEvents {
    model::HeldEvents {
        held,
        on_restore_clean: model::EventFate::Dropped,
        on_accept_current: model::EventFate::Released,
        on_force_before: model::EventFate::Dropped,
    }
}

fn standing(standing: RowStanding) -> model::RowStanding {
    match standing {
        RowStanding::Dirty => model::RowStanding::Dirty,
        RowStanding::Clean => model::RowStanding::Clean,
        RowStanding::Restored => model::RowStanding::Restored,
    }
}

fn row_change(change: RowChange) -> model::RowChange {
    match change {
        RowChange::Left => model::RowChange::Left,
        RowChange::WrittenBack => model::RowChange::WrittenBack,
        RowChange::Removed => model::RowChange::Removed,
        RowChange::Inserted => model::RowChange::Inserted,
    }
}

pub(super) fn mode(mode: Mode) -> model::Mode {
    match mode {
        Mode::At => model::Mode::At,
        Mode::Tcc => model::Mode::Tcc,
        Mode::Xa => model::Mode::Xa,
        Mode::Saga => model::Mode::Saga,
        Mode::TwoPhase => model::Mode::TwoPhase,
    }
}

fn row(lock: &RowLock) -> model::Row {
    model::Row {
        table: lock.table.to_string(),
        key: display_row_key(&lock.key),
        canonical_key: String::from_utf8_lossy(&lock.key).into_owned(),
        mode: lock_mode(lock.mode),
    }
}

pub(super) fn lock_mode(mode: LockMode) -> model::LockMode {
    match mode {
        LockMode::Shared => model::LockMode::Shared,
        LockMode::Delta(_) => model::LockMode::Delta,
        LockMode::Exclusive => model::LockMode::Exclusive,
    }
}

pub(super) fn resolution(resolution: model::Resolution) -> Resolution {
    match resolution {
        model::Resolution::RestoreClean => Resolution::RestoreClean,
        model::Resolution::AcceptCurrent => Resolution::AcceptCurrent,
        model::Resolution::ForceBefore => Resolution::ForceBefore,
    }
}

/// Returns the API's name of a resolution.
pub(super) fn word(resolution: Resolution) -> &'static str {
    match resolution {
        Resolution::RestoreClean => "restore_clean",
        Resolution::AcceptCurrent => "accept_current",
        Resolution::ForceBefore => "force_before",
    }
}

fn shown_resolution(resolution: Resolution) -> model::Resolution {
    match resolution {
        Resolution::RestoreClean => model::Resolution::RestoreClean,
        Resolution::AcceptCurrent => model::Resolution::AcceptCurrent,
        Resolution::ForceBefore => model::Resolution::ForceBefore,
    }
}

pub(super) fn lock(lock: &LockView, now: Timestamp) -> model::Lock {
    let holders = lock.holders.iter().map(|holder| model::LockHolder {
        xid: XidText { address: &holder.address, xid: holder.xid }.to_string(),
        mode: lock_mode(holder.mode),
        since: rfc3339(holder.since),
        age_ms: age(holder.since, now),
    });
    let queue = lock.queue.iter().map(|waiter| lock_waiter(waiter, now));
    model::Lock {
        resource: lock.resource.to_string(),
        table: lock.table.to_string(),
        key: display_row_key(&lock.key),
        canonical_key: String::from_utf8_lossy(&lock.key).into_owned(),
        holders: holders.collect(),
        holding: lock.holding,
        queue: queue.collect(),
        waiting: lock.waiting,
    }
}

pub(super) fn lock_waiter(waiter: &LockWaiter, now: Timestamp) -> model::LockWaiter {
    model::LockWaiter {
        xid: waiter_xid(waiter),
        mode: lock_mode(waiter.mode),
        takes: waiter.takes,
        since: rfc3339(waiter.since),
        age_ms: age(waiter.since, now),
        deadline: rfc3339(waiter.deadline),
    }
}

/// Returns the waiter's XID as text. A check may name a global that has gone; then only its number
/// is known.
fn waiter_xid(waiter: &LockWaiter) -> Option<String> {
    let xid = waiter.xid?;
    let address = waiter.address.as_deref();
    Some(address.map_or_else(|| xid.to_string(), |address| XidText { address, xid }.to_string()))
}

pub(super) fn age(since: Timestamp, now: Timestamp) -> u64 {
    now.0.saturating_sub(since.0)
}
