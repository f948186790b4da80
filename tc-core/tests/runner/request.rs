//! The commands that are requests.
//!
//! ```text
//! begin x1 [timeout=MS] [application=A] [name=N] [lent=x0.1] [wants=N]
//! register x1/1 RESOURCE [ROW...] [mode=tcc|two-phase] [wait=MS] [holding=database] [as=NAME]
//!     [data=TEXT] [last=yes]
//! report x1/1 done|failed|unknown|running [data=TEXT]
//! check x1|outside RESOURCE ROW... [wait=MS] [holding=database] [as=NAME]
//! tried x1/1 ATTEMPT ERROR
//! waits x1 RESOURCE
//! commit|rollback x1 [rounds=2] [when=finished|effective] [by=operator] [reason=TEXT] [as=NAME]
//! vote x1/1 can-commit|prepare|settle yes|no|retry
//! finish x1/1 done|retry|refuse [decision=commit|rollback] [gives=TEXT]
//! forget NAME
//! pause|resume|retry x1 [by=NAME]
//! resolve x1/1 accept|force [by=NAME]
//! status x1
//! saga s1 STEP... [key=K] [labels=L,L] [timeout=MS] [as=NAME]
//! await|look s1 [as=NAME]
//! signal s1 STEP [data=TEXT]
//! cancel s1 [by=operator] [reason=TEXT]
//! ```
//!
//! A saga's STEP is described in `saga`. A ROW is `table/key`, `table/key/shared` or
//! `table/key/delta-TAG`. Requests are called by their global or branch, or as `as` says.

use std::sync::Arc;

use goldenscript::{ArgumentConsumer, Command as ScriptLine};
use handfast_core::{
    BranchId, Command, Coordinator, DecidedBy, Decision, DeltaTag, DirtyColumn, DirtyRow, Holding,
    Label, Labels, LentXid, Limits, LoanTerms, LockMode, LockWait, Mode, NewBranch, OperatorAction,
    PhaseOneOutcome, PhaseTwoOutcome, RefusedRows, ReplyWhen, Resolution, RowChange, RowLock,
    RowStanding, StatusKind, VoteRequest, VotingRounds, Xid,
};

use super::{Fallible, Names};

/// The name of the request and what is asked; `None` if the command is no request.
pub(crate) fn parse(
    names: &Names,
    coordinator: &Coordinator,
    command: &ScriptLine,
) -> Fallible<Option<(String, Command)>> {
    let mut arguments = command.consume_args();
    let of_all = match command.name.as_str() {
        "begin" | "register" | "report" | "check" | "tried" | "waits" | "commit" | "rollback"
        | "finish" | "forget" | "vote" | "pause" | "resume" | "retry" | "resolve" | "status"
        | "saga" | "await" | "look" | "signal" | "cancel" => arguments.next_pos(),
        _ => return Ok(None),
    };
    let subject = of_all.ok_or("which global, branch or request?")?;
    let name = arguments.take_key("as").unwrap_or(subject).to_owned();
    let (global, branch) = match subject.split_once('/') {
        Some((global, branch)) => (names.xid(global), BranchId(branch.parse()?)),
        None => (names.xid(subject), BranchId(0)),
    };
    let arguments = &mut arguments;
    let command = match command.name.as_str() {
        "begin" => begin(names, arguments)?,
        "register" => register(global, branch, arguments)?,
        "report" => report(global, branch, arguments)?,
        "check" => check((subject != "outside").then_some(global), arguments)?,
        "tried" => {
            let attempt = arguments.next_pos().ok_or("which attempt?")?.parse()?;
            let error = arguments.next_pos().ok_or("which error?")?.into();
            Command::NoteFailedTry { xid: global, branch, attempt, error }
        }
        "waits" => {
            let resource = arguments.next_pos().ok_or("in which resource?")?.into();
            Command::ReportDatabaseWait { xid: global, resource }
        }
        "commit" => end(global, Decision::Commit, arguments)?,
        "rollback" => end(global, Decision::RollBack, arguments)?,
        "finish" => finish(coordinator, global, branch, arguments)?,
        "vote" => vote(global, branch, arguments)?,
        "forget" => Command::Forget { waiting: names.request(subject).ok_or("no such request")? },
        "status" => Command::GetStatus { xid: global },
        "saga" => super::saga::start(subject, arguments)?,
        "await" => Command::GetSaga { xid: global, reply_when: ReplyWhen::Finished },
        "look" => Command::GetSaga { xid: global, reply_when: ReplyWhen::Decided },
        "signal" => super::saga::signal(global, arguments)?,
        "cancel" => super::saga::cancel(global, arguments)?,
        action => operate(global, branch, action, arguments)?,
    };
    arguments.reject_next()?;
    Ok(Some((name, command)))
}

fn begin(names: &Names, arguments: &mut ArgumentConsumer<'_>) -> Fallible<Command> {
    let lent = arguments.take_key("lent").map(|name| names.xid(name));
    let xid = lent.map(|xid| LentXid { xid, address: "tc".into() });
    let wants = arguments.take_key("wants").map_or(Ok(0), str::parse)?;
    Ok(Command::Begin {
        application: arguments.take_key("application").unwrap_or("shop").into(),
        name: arguments.take_key("name").unwrap_or("place-order").into(),
        timeout_ms: arguments.take_key("timeout").map(str::parse).transpose()?,
        labels: labels(arguments.take_key("labels").unwrap_or_default())?,
        key: arguments.take_key("key").map(Into::into),
        loan: LoanTerms { xid, wants },
    })
}

pub(crate) fn labels(text: &str) -> Fallible<Labels> {
    text.split(',').filter(|label| !label.is_empty()).map(label).collect()
}

/// `name/value`.
pub(crate) fn label(text: &str) -> Fallible<Label> {
    let (name, value) = text.split_once('/').ok_or("a label is `name/value`")?;
    Ok(Label::new(name, value))
}

fn register(xid: Xid, id: BranchId, arguments: &mut ArgumentConsumer<'_>) -> Fallible<Command> {
    let mode = match arguments.take_key("mode").unwrap_or("at") {
        "at" => Mode::At,
        "tcc" => Mode::Tcc,
        "xa" => Mode::Xa,
        "saga" => Mode::Saga,
        "two-phase" => Mode::TwoPhase,
        other => return Err(format!("no such mode: {other}").into()),
    };
    let application_data = arguments.take_key("data").unwrap_or("").as_bytes().into();
    let wait = wait(arguments)?;
    let resource = arguments.next_pos().ok_or("on which resource?")?.into();
    let registered_by = arguments.take_key("by").map(Into::into);
    let is_last = arguments.take_key("last").is_some();
    let rows = rows(arguments)?;
    let branch = NewBranch { id, resource, mode, rows, application_data, registered_by };
    Ok(if is_last {
        let may_be_lost = arguments.take_key("locked").is_some();
        Command::RegisterLastBranch { xid, branch, wait, may_be_lost }
    } else {
        Command::RegisterBranch { xid, branch, wait }
    })
}

fn report(xid: Xid, branch: BranchId, arguments: &mut ArgumentConsumer<'_>) -> Fallible<Command> {
    let outcome = match arguments.next_pos().ok_or("how did it end?")? {
        "done" => Some(PhaseOneOutcome::Done),
        "failed" => Some(PhaseOneOutcome::Failed),
        "unknown" => Some(PhaseOneOutcome::Unknown),
        "running" => None,
        other => return Err(format!("no such outcome: {other}").into()),
    };
    let application_data = arguments.take_key("data").unwrap_or("").as_bytes().into();
    Ok(Command::ReportBranch { xid, branch, outcome, application_data })
}

fn check(xid: Option<Xid>, arguments: &mut ArgumentConsumer<'_>) -> Fallible<Command> {
    let wait = wait(arguments)?;
    let resource = arguments.next_pos().ok_or("on which resource?")?.into();
    Ok(Command::CheckLocks { xid, resource, rows: rows(arguments)?, wait })
}

fn end(xid: Xid, decision: Decision, arguments: &mut ArgumentConsumer<'_>) -> Fallible<Command> {
    let by = match arguments.take_key("by") {
        None => DecidedBy::Client,
        Some("operator") => DecidedBy::Operator,
        Some(other) => return Err(format!("{other} does not decide").into()),
    };
    let reply_when = match arguments.take_key("when") {
        None => ReplyWhen::Decided,
        Some("finished") => ReplyWhen::Finished,
        Some("effective") => ReplyWhen::Effective,
        Some(other) => return Err(format!("when is {other}?").into()),
    };
    let reason = arguments.take_key("reason").unwrap_or("").into();
    let rounds = match arguments.take_key("rounds") {
        None => VotingRounds::PrepareOnly,
        Some("2") => VotingRounds::CanCommitFirst,
        Some(other) => return Err(format!("{other} rounds?").into()),
    };
    Ok(Command::End { xid, decision, rounds, by, reason, reply_when })
}

fn vote(xid: Xid, branch: BranchId, arguments: &mut ArgumentConsumer<'_>) -> Fallible<Command> {
    let question = match arguments.next_pos().ok_or("to which question?")? {
        "can-commit" => VoteRequest::CanCommit,
        "prepare" => VoteRequest::Prepare,
        "settle" => VoteRequest::Settle,
        other => return Err(format!("no such question: {other}").into()),
    };
    let outcome = match arguments.next_pos().ok_or("what is the answer?")? {
        "yes" => PhaseTwoOutcome::Done,
        "no" => PhaseTwoOutcome::Refused { error: "out of stock".into(), rows: Arc::default() },
        "retry" => PhaseTwoOutcome::Retryable { error: "disk is away".into() },
        other => return Err(format!("no such answer: {other}").into()),
    };
    Ok(Command::Vote { xid, branch, question, outcome })
}

/// The decision is the global's own unless the command names one.
fn finish(
    coordinator: &Coordinator,
    xid: Xid,
    branch: BranchId,
    arguments: &mut ArgumentConsumer<'_>,
) -> Fallible<Command> {
    let decision = match arguments.take_key("decision") {
        Some("commit") => Decision::Commit,
        Some("rollback") => Decision::RollBack,
        Some(other) => return Err(format!("no such decision: {other}").into()),
        None => match coordinator.status(xid).kind() {
            StatusKind::RollingBack | StatusKind::NeedsOperator => Decision::RollBack,
            StatusKind::Unknown
            | StatusKind::Active
            | StatusKind::Committing
            | StatusKind::Committed
            | StatusKind::RolledBack => Decision::Commit,
        },
    };
    let gives = arguments.take_key("gives");
    let outcome = match arguments.next_pos().ok_or("how did it end?")? {
        "done" => gives.map_or(PhaseTwoOutcome::Done, |text| PhaseTwoOutcome::Output {
            output: text.as_bytes().into(),
        }),
        "retry" => PhaseTwoOutcome::Retryable { error: Arc::from("database is away") },
        "refuse" => {
            PhaseTwoOutcome::Refused { error: Arc::from("dirty write"), rows: refused_rows() }
        }
        other => return Err(format!("no such outcome: {other}").into()),
    };
    Ok(Command::FinishPhaseTwo { xid, branch, decision, outcome })
}

fn operate(
    xid: Xid,
    branch: BranchId,
    action: &str,
    arguments: &mut ArgumentConsumer<'_>,
) -> Fallible<Command> {
    let operator = arguments.take_key("by").unwrap_or("alice").into();
    let action = match action {
        "pause" => OperatorAction::Pause,
        "resume" => OperatorAction::Resume,
        "retry" => OperatorAction::Retry,
        _ => {
            let resolution = match arguments.next_pos().ok_or("how is it resolved?")? {
                "clean" => Resolution::RestoreClean,
                "accept" => Resolution::AcceptCurrent,
                "force" => Resolution::ForceBefore,
                other => return Err(format!("no such resolution: {other}").into()),
            };
            OperatorAction::Resolve { branch, resolution }
        }
    };
    Ok(Command::Operate { xid, action, operator })
}

// ---- parts ----

fn wait(arguments: &mut ArgumentConsumer<'_>) -> Fallible<LockWait> {
    let timeout_ms = arguments.take_key("wait").map_or(Ok(0), str::parse)?;
    let holding = match arguments.take_key("holding").unwrap_or("nothing") {
        "nothing" => Holding::Nothing,
        "database" => Holding::DatabaseLocks,
        other => return Err(format!("{other} cannot be held").into()),
    };
    Ok(LockWait { timeout_ms, holding })
}

fn rows(arguments: &mut ArgumentConsumer<'_>) -> Fallible<Vec<RowLock>> {
    std::iter::from_fn(|| arguments.next_pos()).map(row).collect()
}

fn row(text: &str) -> Fallible<RowLock> {
    let mut parts = text.split('/');
    let (table, key) = (parts.next().unwrap_or(""), parts.next().ok_or("a row is table/key")?);
    let mode = match parts.next() {
        None => LockMode::Exclusive,
        Some("shared") => LockMode::Shared,
        Some(delta) if delta.starts_with("delta-") => {
            LockMode::Delta(DeltaTag::new(delta["delta-".len()..].parse()?))
        }
        Some(other) => return Err(format!("no such lock mode: {other}").into()),
    };
    Ok(RowLock { table: table.into(), key: canonical(key), mode })
}

/// `a@b` is the key of two columns.
pub(crate) fn canonical(key: &str) -> Box<[u8]> {
    let parts = key.split('@').map(|part| format!("{}:{part}", part.len()));
    parts.collect::<String>().into_bytes().into()
}

fn refused_rows() -> Arc<RefusedRows> {
    let column = DirtyColumn {
        name: "units".to_owned(),
        before: Some("10".to_owned()),
        after: Some("9".to_owned()),
        current: Some("7".to_owned()),
    };
    let (table, key) = ("item".to_owned(), "7".to_owned());
    let dirty = DirtyRow {
        table,
        key,
        columns: vec![column],
        standing: RowStanding::Dirty,
        on_restore_clean: Some(RowChange::Left),
        on_force_before: Some(RowChange::WrittenBack),
    };
    Arc::new(RefusedRows { listed: vec![dirty], total: 1, dirty: 1, held_events: None })
}

pub(crate) fn status_kind(name: &str) -> Fallible<StatusKind> {
    Ok(match name {
        "active" => StatusKind::Active,
        "committing" => StatusKind::Committing,
        "committed" => StatusKind::Committed,
        "rolling-back" => StatusKind::RollingBack,
        "rolled-back" => StatusKind::RolledBack,
        "needs-operator" => StatusKind::NeedsOperator,
        other => return Err(format!("no such status: {other}").into()),
    })
}

pub(crate) fn set_limit(limits: &mut Limits, name: &str, value: u64) -> Fallible<()> {
    let size = usize::try_from(value)?;
    match name {
        "timeout_ms_default" => limits.timeout_ms_default = value,
        "timeout_ms_max" => limits.timeout_ms_max = value,
        "globals_max" => limits.globals_max = size,
        "branches_per_global_max" => limits.branches_per_global_max = size,
        "rows_per_request_max" => limits.rows_per_request_max = size,
        "rows_per_branch_max" => limits.rows_per_branch_max = size,
        "locks_max" => limits.locks_max = size,
        "waiters_max" => limits.waiters_max = size,
        "wait_ms_max" => limits.wait_ms_max = value,
        "retention_ms" => limits.retention_ms = value,
        "history_max" => limits.history_max = size,
        "events_per_global_max" => limits.events_per_global_max = size,
        "sagas_max" => limits.sagas_max = size,
        "saga_steps_max" => limits.saga_steps_max = size,
        "saga_depth_max" => limits.saga_depth_max = size,
        "saga_bytes_max" => limits.saga_bytes_max = size,
        "leases_max" => limits.leases_max = size,
        "lease_ms_max" => limits.lease_ms_max = value,
        "step_attempts_told" => limits.step_attempts_told = u32::try_from(value)?,
        "expiries_per_tick_max" => limits.expiries_per_tick_max = size,
        other => return Err(format!("no such limit: {other}").into()),
    }
    Ok(())
}
