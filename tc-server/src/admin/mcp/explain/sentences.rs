//! The sentences of an explanation. Pure: they depend on the answers of the API alone.
//!
//! Names, labels and errors were written by applications and databases. They are quoted, on one
//! line and cut, so that they cannot pass for sentences of the coordinator.

use crate::admin::model::{
    Branch, BranchState, EventKind, LockWait, Resource, Resources, RowStanding, Status,
    TransactionDetail, WaitTarget,
};
use crate::time_format::duration;

/// The longest text of an application or a database that is quoted, in characters.
const QUOTED_MAX: usize = 300;
/// The most branches, and the most dirty columns of one of them, that are told.
const LISTED_MAX: usize = 5;

/// Returns why a transaction is as it is, and what can be done. `blockers` are those that it waits
/// for.
pub(super) fn explained(
    detail: &TransactionDetail,
    blockers: &[TransactionDetail],
    resources: &Resources,
) -> String {
    let mut lines = vec![standing(detail)];
    lines.extend(decision(detail));
    lines.extend(paused(detail));
    lines.extend(waits(&detail.waits, blockers));
    lines.extend(past_waits(detail));
    lines.extend(branches(detail, resources));
    lines.extend(to_come(detail));
    lines.push(format!("What can be done: {}", advice(detail, resources)));
    lines.join("\n")
}

fn standing(detail: &TransactionDetail) -> String {
    let transaction = &detail.transaction;
    let (name, status) = (called(detail), transaction.status);
    let begun =
        format!("It began {} ago, at {}", duration(transaction.age_ms), transaction.begun_at);
    let sentence = match status {
        Status::Active => format!(
            "is undecided: its application has neither committed it nor rolled it back. {begun}, \
             and is rolled back at {} if it is still undecided then.",
            transaction.deadline
        ),
        Status::Committing => {
            format!("is decided to commit, and not all of its branches have done so. {begun}.")
        }
        Status::RollingBack => {
            format!("is being rolled back, and not all of its branches are. {begun}.")
        }
        Status::NeedsOperator => format!(
            "is stuck until a person decides: a branch refuses to roll back. {begun}. Its rows stay \
             locked."
        ),
        Status::Committed | Status::RolledBack => format!(
            "is not stuck: it was {} at {}. {begun}.",
            if status == Status::Committed { "committed" } else { "rolled back" },
            transaction.finished_at.as_deref().unwrap_or("an unknown time"),
        ),
    };
    format!("Transaction {name} {sentence}")
}

/// Returns how a transaction is called: its XID, name, application and labels.
fn called(detail: &TransactionDetail) -> String {
    let transaction = &detail.transaction;
    let labels = transaction.labels.iter();
    let labels: String = labels.map(|(name, value)| format!(", {name}={value}")).collect();
    let about = format!("{} of {}{labels}", transaction.name, transaction.application);
    format!("{} ({})", transaction.xid, quoted(&about))
}

fn decision(detail: &TransactionDetail) -> Option<String> {
    let decided = detail.timeline.iter().find(|it| it.kind == EventKind::Decided)?;
    Some(format!("At {}: {}.", decided.at, quoted(&decided.what)))
}

fn paused(detail: &TransactionDetail) -> Option<String> {
    let has_ended = matches!(detail.transaction.status, Status::Committed | Status::RolledBack);
    let is_paused = detail.transaction.paused && !has_ended;
    is_paused.then(|| {
        "An operator has paused it: phase two is not tried until it is resumed.".to_owned()
    })
}

fn waits<'a>(
    waits: &'a [LockWait],
    blockers: &'a [TransactionDetail],
) -> impl Iterator<Item = String> + 'a {
    waits.iter().take(LISTED_MAX).map(|wait| {
        let age = duration(wait.age_ms);
        let target = target(&wait.target);
        let behind = wait.behind.iter().map(|xid| {
            let blocker = blockers.iter().find(|it| it.transaction.xid == *xid);
            blocker.map_or_else(|| xid.clone(), blocking)
        });
        let behind: Vec<String> = behind.take(LISTED_MAX).collect();
        format!(
            "It has waited for {age} for {target}, behind {}. The wait ends with a refusal at {}.",
            behind.join(" and "),
            wait.deadline
        )
    })
}

fn target(target: &WaitTarget) -> String {
    let part = |part: &Option<String>| part.as_deref().map(quoted).unwrap_or_default();
    match &target.lock {
        Some(lock) => format!("the named lock {}", quoted(lock)),
        None => {
            let (table, key) = (part(&target.table), part(&target.key));
            format!("row {table} {key} of {}", part(&target.resource))
        }
    }
}

/// Returns a transaction that is in the way, and what it does itself.
fn blocking(blocker: &TransactionDetail) -> String {
    let age = duration(blocker.transaction.age_ms);
    let does = match blocker.transaction.status {
        Status::NeedsOperator => "needs a person itself".to_owned(),
        _ if !blocker.waits.is_empty() => {
            let wait = blocker.waits.first().map(|wait| target(&wait.target));
            format!("waits itself for {}", wait.unwrap_or_default())
        }
        Status::Active => format!("has been undecided since it began {age} ago"),
        Status::Committing | Status::RollingBack => {
            "is decided, and its phase two is not done".to_owned()
        }
        Status::Committed | Status::RolledBack => "has just ended".to_owned(),
    };
    format!("{}, which {does}", called(blocker))
}

/// Returns how long the transaction has waited for rows before.
fn past_waits(detail: &TransactionDetail) -> Option<String> {
    let waits: Vec<u64> = detail
        .timeline
        .iter()
        .filter(|it| it.kind == EventKind::LockWait)
        .filter_map(|it| it.ms)
        .collect();
    let (count, ms) = (waits.len(), waits.iter().sum());
    let times = if count == 1 { "once".to_owned() } else { format!("{count} times") };
    (count > 0).then(|| format!("It waited for rows {times} before, {} in all.", duration(ms)))
}

fn branches(detail: &TransactionDetail, resources: &Resources) -> Vec<String> {
    let total = detail.transaction.branch_count;
    if total == 0 {
        return vec!["It has no branch: no database has done anything for it yet.".to_owned()];
    }
    let is_open = |branch: &&Branch| branch.state != BranchState::Finished;
    let open: Vec<&Branch> = detail.branches.iter().filter(is_open).collect();
    let mut told = Vec::new();
    for branch in open.iter().take(LISTED_MAX) {
        told.extend(refusal(branch));
        told.extend(failure(branch));
        told.extend(missing_process(detail, branch, resources));
    }
    if open.len() > LISTED_MAX {
        told.push(format!("It has {} more open branches.", open.len() - LISTED_MAX));
    }
    told.push(match (open.len(), total) {
        (0, 1) => "Its branch is done.".to_owned(),
        (_, 1) => "Its branch is not done.".to_owned(),
        (open, total) => format!("{open} of its {total} branches are not done."),
    });
    if detail.next.is_some() {
        told.push(format!("Only the first {} were looked at.", detail.branches.len()));
    }
    told
}

fn refusal(branch: &Branch) -> Option<String> {
    let refusal = branch.refusal.as_ref()?;
    let dirty = refusal.rows.iter().filter(|row| row.standing == RowStanding::Dirty);
    let columns = dirty.flat_map(|row| {
        row.columns.iter().map(move |column| {
            let value = |value: &Option<String>| value.as_deref().map_or("NULL".to_owned(), quoted);
            format!(
                "{} {}: column {} was {} before, {} after it, and is {} now",
                quoted(&row.table),
                quoted(&row.key),
                quoted(&column.name),
                value(&column.before),
                value(&column.after),
                value(&column.current)
            )
        })
    });
    let columns: Vec<String> = columns.take(LISTED_MAX).collect();
    let rows = if columns.is_empty() { String::new() } else { format!(" {}.", columns.join("; ")) };
    Some(format!(
        "Branch {} on {} refuses to roll back: {}. Others have written {} of its {} rows since.{rows}",
        branch.id,
        quoted(&branch.resource),
        quoted(&refusal.error),
        refusal.rows_dirty,
        refusal.rows_total
    ))
}

fn failure(branch: &Branch) -> Option<String> {
    let failure = branch.last_failure.as_ref().filter(|_| branch.refusal.is_none())?;
    Some(format!(
        "Phase two of branch {} on {} has failed {} times, last at {}: {}.",
        branch.id,
        quoted(&branch.resource),
        branch.attempts,
        failure.at,
        quoted(&failure.error)
    ))
}

/// A process is missing only where phase two waits for one.
fn missing_process(
    detail: &TransactionDetail,
    branch: &Branch,
    resources: &Resources,
) -> Option<String> {
    let is_decided = matches!(detail.transaction.status, Status::Committing | Status::RollingBack);
    is_decided.then_some(())?;
    let serves = |it: &&Resource| it.id == branch.resource && it.processes > 0;
    let is_served = resources.items.iter().any(|resource| serves(&resource));
    let is_listed = resources.items.len() == resources.count || is_served;
    (!is_served && is_listed).then(|| {
        format!(
            "No connected process serves {}: phase two of branch {} waits for one.",
            quoted(&branch.resource),
            branch.id
        )
    })
}

fn to_come(detail: &TransactionDetail) -> impl Iterator<Item = String> + '_ {
    detail.to_come.iter().take(LISTED_MAX).map(|timer| match &timer.at {
        Some(at) => format!("Still to come, at {at}: {}.", quoted(&timer.what)),
        None => format!("Still to come: {}.", quoted(&timer.what)),
    })
}

fn advice(detail: &TransactionDetail, resources: &Resources) -> String {
    let transaction = &detail.transaction;
    let xid = &transaction.xid;
    let resume = format!("resume it (`handfast tx resume {xid}`).");
    match transaction.status {
        Status::Committed | Status::RolledBack => "nothing has to be done.".to_owned(),
        Status::NeedsOperator => format!(
            "look at the rows (`handfast tx show {xid}`) and resolve each refused branch: \
             restore_clean puts clean rows back and leaves dirty ones, accept_current leaves every \
             row as it is, force_before writes the before image over every row. If the rows were \
             put right by hand, retry."
        ),
        Status::Committing | Status::RollingBack if transaction.paused => resume,
        Status::Committing | Status::RollingBack => {
            let open = detail.branches.iter().filter(|it| it.state != BranchState::Finished);
            let missing = open.filter_map(|it| missing_process(detail, it, resources)).count();
            if missing > 0 {
                "start a process that serves the resource; phase two goes on by itself then."
                    .to_owned()
            } else {
                format!(
                    "put right what the errors say; it is tried again by itself, or at once with \
                     `handfast tx retry {xid}`."
                )
            }
        }
        Status::Active if !detail.waits.is_empty() => {
            format!("end what is in the way, or roll this one back (`handfast tx rollback {xid}`).")
        }
        Status::Active => format!(
            "ask its application, which alone knows whether it still works on it; or roll it back \
             (`handfast tx rollback {xid}`), or wait for its deadline."
        ),
    }
}

/// Returns a text of an application or a database on one line, cut.
fn quoted(text: &str) -> String {
    let mut line = String::new();
    for c in text.chars().take(QUOTED_MAX) {
        if c.is_control() { line.extend(c.escape_default()) } else { line.push(c) }
    }
    if text.chars().nth(QUOTED_MAX).is_some() {
        line.push('…');
    }
    line
}
