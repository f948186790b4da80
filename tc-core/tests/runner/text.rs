//! Describes in words what leaves the coordinator.

use std::fmt::Write as _;

use handfast_core::{
    Alert, AlertKind, BranchRecord, BranchState, Change, Counts, Decision, DirtyRow, Event,
    FencingToken, GlobalRecord, GlobalSummary, GlobalView, Label, LockMode, LockView, PhaseTwoCall,
    Record, RecordKey, Rejection, Reply, Resolution, RowLock, VoteCall, VoteRequest,
    display_row_key,
};

pub(crate) fn reply(reply: &Reply) -> String {
    match reply {
        Reply::Begun { timeout_ms, loan: Some(loan), .. } => {
            format!("begun, timeout {timeout_ms}, lent {}", loan.count)
        }
        Reply::Begun { timeout_ms, found: None, .. } => format!("begun, timeout {timeout_ms}"),
        Reply::Begun { timeout_ms, found: Some(status), .. } => {
            format!("begun, timeout {timeout_ms}: found, {status}")
        }
        Reply::Registered { token, decides, may_be_lost } => {
            let decides = match (decides, may_be_lost) {
                (_, true) => ", decides, may be lost",
                (true, false) => ", decides",
                (false, false) => "",
            };
            format!("registered, token {}{decides}", self::token(*token))
        }
        Reply::Reported | Reply::LastReported => "reported".to_owned(),
        Reply::Unlocked => "unlocked".to_owned(),
        Reply::Ended(status) | Reply::Status(status) => format!("is {status}"),
        Reply::Operated(_) => "operated".to_owned(),
        Reply::Saga(saga) => format!("is {}", super::saga::heading(saga)),
        Reply::LockGranted { fence, waited_ms: 0 } => format!("holds, fence {}", token(*fence)),
        Reply::LockGranted { fence, waited_ms } => {
            format!("holds, fence {}, waited {waited_ms}", token(*fence))
        }
        Reply::LockBusy { holder } | Reply::LockFound { holder } => {
            format!("is not granted, {}", super::lease::held(holder))
        }
        Reply::LocksRenewed { held } => format!("renewed {held:?}"),
        Reply::LockFreed => "freed".to_owned(),
        Reply::LockNotHeld { current } => format!("held nothing, {}", super::lease::held(current)),
        Reply::LockBroken { leases } => format!("broke {leases}"),
        Reply::Rejected(rejection) => {
            let code = rejection.code().trim_start_matches("HF-TC-");
            let rolls_back =
                matches!(rejection, Rejection::RowLocked { holder_rolling_back: true, .. });
            let rolling_back = if rolls_back { ", which is rolling back" } else { "" };
            format!("rejected {code}: {rejection}{rolling_back}")
        }
    }
}

pub(crate) fn call(call: &PhaseTwoCall) -> String {
    let mut text =
        format!("{} of {}/{} on {}", decision(call.decision), call.xid, call.branch, call.resource);
    if call.attempts > 0 {
        text += &format!(", {} failed before", call.attempts);
    }
    if let Some(resolution) = call.resolution {
        text += &format!(", {}", self::resolution(resolution));
    }
    if let Some(step) = &call.step {
        text += &super::saga::call(step);
    }
    if !call.application_data.is_empty() {
        text += &format!(", data {}", String::from_utf8_lossy(&call.application_data));
    }
    if let Some(process) = &call.registered_by {
        text += &format!(", registered by {process}");
    }
    text
}

pub(crate) fn vote_call(call: &VoteCall) -> String {
    let question = match call.question {
        VoteRequest::CanCommit => "can commit?",
        VoteRequest::Prepare => "prepare",
        VoteRequest::Settle => "committed?",
    };
    let mut text = format!("{}/{} on {}: {question}", call.xid, call.branch, call.resource);
    if !call.application_data.is_empty() {
        text += &format!(", data {}", String::from_utf8_lossy(&call.application_data));
    }
    if let Some(process) = &call.registered_by {
        text += &format!(", registered by {process}");
    }
    text
}

pub(crate) fn change(change: &Change) -> String {
    match change {
        Change::Put(Record::Global(global)) => {
            format!("put {}: {}\n", global.xid, global.status())
        }
        Change::Put(Record::Branch(branch)) => {
            format!("put {}/{}: {}\n", branch.xid, branch.id, state(branch))
        }
        Change::Put(Record::Saga(saga)) => {
            format!("put {}: {}\n", saga.xid, super::saga::states(saga))
        }
        Change::Put(Record::Lease(lease)) => {
            format!("put lease {}: {}\n", lease.id.0 & 0xff, super::lease::lease(lease))
        }
        Change::Put(Record::Closure(closure)) => format!("put {closure}\n"),
        Change::Delete(RecordKey::Closure) => "delete closure\n".to_owned(),
        Change::Delete(RecordKey::Lease(id)) => format!("delete lease {}\n", id.0 & 0xff),
        Change::Delete(RecordKey::Global(xid) | RecordKey::Saga(xid)) => format!("delete {xid}\n"),
        Change::Delete(RecordKey::Branch(xid, branch)) => format!("delete {xid}/{branch}\n"),
    }
}

pub(crate) fn global(view: &GlobalView) -> String {
    let mut text = format!("{}\n", heading(&view.record, &view.status.to_string()));
    for event in view.record.events.iter() {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  at {}: {}", event.at.0, event.what);
    }
    for branch in &view.branches {
        let _ = writeln!(text, "  branch {} on {}: {}", branch.id, branch.resource, state(branch));
        branch.events.iter().for_each(|event| text.push_str(&course(event)));
    }
    for branch in view.record.finished_branches.iter() {
        let (id, resource, at) = (branch.id, &branch.resource, branch.finished_at.0);
        let attempts = branch.attempts;
        let _ = writeln!(text, "  branch {id} on {resource}: finished at {at}, {attempts} failed");
        branch.events.iter().for_each(|event| text.push_str(&course(event)));
    }
    text
}

/// An entry of a branch's course. Failed attempts are shown where they are all that is kept.
fn course(event: &Event) -> String {
    format!("    at {}: {:?}: {}\n", event.at.0, event.kind, event.what)
}

pub(crate) fn summary(global: &GlobalSummary) -> String {
    let heading = heading(&global.record, &global.status.to_string());
    format!("{heading}, {} branches\n", global.branches)
}

pub(crate) fn label(label: &Label) -> String {
    format!(" {}/{}", label.name, label.value)
}

fn heading(record: &GlobalRecord, status: &str) -> String {
    let paused = if record.paused { ", paused" } else { "" };
    let rollback_only = if record.rollback_only { ", rollback only" } else { "" };
    let finished = record.finished_at().map_or(String::new(), |at| format!(" at {}", at.0));
    let GlobalRecord { xid, application, name, begun_at, .. } = record;
    let begun_at = begun_at.0;
    let labels: String = record.labels.iter().map(label).collect();
    format!(
        "{xid} {application}/{name}{labels} begun at {begun_at}: \
         {status}{finished}{paused}{rollback_only}"
    )
}

fn state(branch: &BranchRecord) -> String {
    let state = match &branch.state {
        BranchState::Registered => "registered".to_owned(),
        BranchState::Deciding => "deciding".to_owned(),
        BranchState::PhaseOneDone => "phase one done".to_owned(),
        BranchState::Refused(error, rows) => {
            let rows: Vec<_> = rows.listed.iter().map(dirty_row).collect();
            format!("refused ({error}: {})", rows.join("; "))
        }
        BranchState::Resolved(resolution) => format!("resolved: {}", self::resolution(*resolution)),
        BranchState::Finished(at) => format!("finished at {}", at.0),
    };
    let rows: Vec<_> = branch.rows.iter().map(row).collect();
    let holds = if rows.is_empty() { String::new() } else { format!(", holds {}", rows.join(" ")) };
    let failure = branch.last_failure.as_ref().map_or(String::new(), |(at, error)| {
        format!(", failed {} times, last at {}: {error}", branch.attempts, at.0)
    });
    format!("{state}{holds}{failure}")
}

fn row(row: &RowLock) -> String {
    format!("{}/{}{}", row.table, display_row_key(&row.key), mode(row.mode))
}

fn dirty_row(row: &DirtyRow) -> String {
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "null".to_owned());
    let columns = row.columns.iter().map(|column| {
        let (before, after) = (text(&column.before), text(&column.after));
        format!(" {} {before} to {after}, is {}", column.name, text(&column.current))
    });
    format!("{}/{}{}", row.table, row.key, columns.collect::<String>())
}

pub(crate) fn lock(lock: &LockView) -> String {
    let row = format!("{}/{}/{}", lock.resource, lock.table, display_row_key(&lock.key));
    let holders = lock.holders.iter().map(|holder| {
        let (at, granted) = (holder.since.0, token(holder.token));
        format!("\n  {}{} since {at}, token {granted}", holder.xid, mode(holder.mode))
    });
    let queue = lock.queue.iter().map(|waiter| {
        let who = waiter.xid.map_or("no global".to_owned(), |xid| xid.to_string());
        let waits = if waiter.takes { "waits" } else { "checks" };
        let (since, until) = (waiter.since.0, waiter.deadline.0);
        format!("\n  {who}{} {waits} since {since} until {until}", mode(waiter.mode))
    });
    format!("{row}{}{}\n", holders.collect::<String>(), queue.collect::<String>())
}

pub(crate) fn counts(counts: Counts) -> String {
    let Counts { active, committing, rolling_back, needs_operator, .. } = counts;
    let Counts { remembered, locks, waiters, pending_branches, .. } = counts;
    format!(
        "active {active}, committing {committing}, rolling back {rolling_back}, \
         needs operator {needs_operator}, remembered {remembered}\n\
         locks {locks}, waiters {waiters}, pending branches {pending_branches}\n"
    )
}

/// Epoch and counter.
pub(crate) fn token(token: FencingToken) -> String {
    format!("{}.{}", token.0 >> 40, token.0 & ((1 << 40) - 1))
}

pub(crate) fn mode(mode: LockMode) -> String {
    match mode {
        LockMode::Shared => " (shared)".to_owned(),
        LockMode::Delta(tag) => format!(" (delta {})", tag.number()),
        LockMode::Exclusive => String::new(),
    }
}

fn decision(decision: Decision) -> &'static str {
    match decision {
        Decision::Commit => "commit",
        Decision::RollBack => "rollback",
    }
}

fn resolution(resolution: Resolution) -> &'static str {
    match resolution {
        Resolution::RestoreClean => "restore clean",
        Resolution::AcceptCurrent => "accept current",
        Resolution::ForceBefore => "force before",
    }
}

pub(crate) fn alert(alert: &Alert) -> String {
    let Alert { kind, xid, branch, resource, error, occasion, step, .. } = alert;
    let what = match kind {
        AlertKind::NeedsOperator => "needs an operator",
        AlertKind::StepGivenUp => "is given up",
    };
    let step = step.as_ref().map_or_else(String::new, |step| format!(" ({step})"));
    format!("{xid}/{branch}{step} on {resource} {what}: {error} [{occasion}]")
}
