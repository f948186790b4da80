//! One request of a client and its answer. What ends a global is in `end`.

use std::sync::Arc;
use std::time::Duration;

use handfast_core::{
    BranchId, Holding, LockWait, Mode, NewBranch, PhaseOneOutcome, Rejection, Reply, RowLock, What,
    Xid, XidText,
};
use handfast_seata_wire::message::{
    BranchRegister, BranchRegistered, BranchReport, BranchReported, Failure, GlobalBegin,
    GlobalBegun, GlobalLockQueried, Message, Registered, TxResult,
};
use handfast_seata_wire::value::{BranchStatus, BranchType, ExceptionCode};

use super::client::Client;
use super::resource::{is_database, mode_of, name_of};
use super::rows::{BadLockKey, rows};
use super::{Front, SERVER_VERSION, status};
use crate::engine::EngineError;

/// The one branch that stands for a whole saga: its state machine lives in the client, and is asked
/// as a whole.
pub(super) const SAGA: BranchId = BranchId(1);

/// What the name of a saga begins with.
pub(super) const SAGA_NAME: &str = "$Saga_";

/// Said by a client that opened its local transaction itself.
const OPENED_BY_APPLICATION: &str = r#""autoCommit":false"#;

/// Why a branch that is asked within its application is refused.
const NO_APPLICATION: &str = "the client has not said of which application it is";

/// What answers the requests of one client.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) front: Front,
    pub(super) client: Client,
    pub(super) patience: Patience,
}

/// What a request may wait for, beside its turn at the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// For locks and for phase two, as configured.
    Configured,
    /// For nothing that another request, or an answer of a client, brings about.
    None,
}

impl Desk {
    /// The answer, if there is one.
    pub(super) async fn answer(&self, request: Message) -> Option<Message> {
        match request {
            Message::GlobalBegin(it) => Some(Message::GlobalBeginResult(self.begin(it).await)),
            Message::GlobalCommit(it) => self.commit(&it).await.map(Message::GlobalCommitResult),
            Message::GlobalRollback(it) => {
                self.roll_back(&it).await.map(Message::GlobalRollbackResult)
            }
            Message::GlobalStatus(it) => Some(Message::GlobalStatusResult(self.status(&it).await)),
            Message::GlobalReport(it) => {
                Some(Message::GlobalReportResult(self.report_saga(&it).await))
            }
            Message::BranchRegister(it) => {
                Some(Message::BranchRegisterResult(self.register(it).await))
            }
            Message::BranchReport(it) => {
                Some(Message::BranchReportResult(BranchReported { result: self.report(it).await }))
            }
            Message::GlobalLockQuery(it) => {
                Some(Message::GlobalLockQueryResult(self.query(it).await))
            }
            // Alone they do not come here.
            Message::RegisterTm(_) => Some(Message::RegisterTmResult(in_a_merged_request())),
            Message::RegisterRm(_) => Some(Message::RegisterRmResult(in_a_merged_request())),
            Message::UnregisterRm(_) => Some(Message::UnregisterRmResult(in_a_merged_request())),
            // No requests of a client.
            Message::Ping
            | Message::Pong
            | Message::GlobalBeginResult(_)
            | Message::BranchCommit(_)
            | Message::BranchCommitResult(_)
            | Message::BranchRollback(_)
            | Message::BranchRollbackResult(_)
            | Message::GlobalCommitResult(_)
            | Message::GlobalRollbackResult(_)
            | Message::BranchRegisterResult(_)
            | Message::BranchReportResult(_)
            | Message::GlobalStatusResult(_)
            | Message::GlobalReportResult(_)
            | Message::GlobalLockQueryResult(_)
            | Message::MergedWarp(_)
            | Message::MergeResult(_)
            | Message::RegisterTmResult(_)
            | Message::RegisterRmResult(_)
            | Message::UnregisterRmResult(_)
            | Message::UndoLogDelete(_)
            | Message::BatchResult(_) => {
                tracing::warn!(kind = ?request.kind(), "a Seata client sent what has no answer");
                None
            }
        }
    }

    async fn begin(&self, it: GlobalBegin) -> GlobalBegun {
        let begun = self.try_begin(it).await;
        let (result, xid) = begun.map_or_else(|why| (Err(why), String::new()), |xid| (Ok(()), xid));
        GlobalBegun { result, xid, extra_data: String::new() }
    }

    /// A saga has its branch from the beginning: by default its client registers none, and without
    /// one nobody would be asked to take it back, and nothing of it be stored.
    async fn try_begin(&self, it: GlobalBegin) -> Result<String, Failure> {
        const CODE: ExceptionCode = ExceptionCode::BeginFailed;
        let is_saga = it.name.starts_with(SAGA_NAME);
        if is_saga && !self.client.is_registered {
            return Err(failed(&NO_APPLICATION, CODE));
        }
        let begin = What::Begin {
            application: Arc::clone(&self.client.application),
            name: it.name.into(),
            timeout_ms: u64::try_from(it.timeout_ms).ok().filter(|&timeout_ms| timeout_ms > 0),
        };
        let (xid, text) = match self.ask(begin).await {
            Ok(Reply::Begun { xid, address, .. }) => {
                (xid, XidText { address: &address, xid }.to_string())
            }
            other => return Err(refused(other, CODE)),
        };
        if is_saga {
            let (branch, wait) = (self.machine(Box::default()), self.wait());
            match self.ask(What::RegisterBranch { xid, branch, wait }).await {
                Ok(Reply::Registered { .. }) => {}
                other => return Err(refused(other, CODE)),
            }
        }
        Ok(text)
    }

    /// The branch of a saga: its state machine.
    fn machine(&self, application_data: Box<[u8]>) -> NewBranch {
        let resource = format!("{}#{}", self.client.application, self.client.group).into();
        NewBranch { id: SAGA, resource, mode: Mode::Saga, rows: Vec::new(), application_data }
    }

    async fn register(&self, it: BranchRegister) -> BranchRegistered {
        let registered = self.try_register(&it).await;
        let (result, branch_id) = match registered {
            Ok(branch_id) => (Ok(()), branch_id),
            Err(failure) => (Err(failure), 0),
        };
        BranchRegistered { result, branch_id }
    }

    async fn try_register(&self, it: &BranchRegister) -> Result<i64, Failure> {
        let xid = parse(&it.xid).ok_or_else(|| unknown_xid(&it.xid))?;
        if let Some(why) = self.why_unaskable(it) {
            return Err(failed(&why, ExceptionCode::BranchRegisterFailed));
        }
        let branch_id = new_branch_id();
        let is_saga = it.branch_type == BranchType::Saga;
        let branch = match is_saga {
            true => self.machine(it.application_data.as_bytes().into()),
            false => self.branch(BranchId(branch_id.cast_unsigned()), it)?,
        };
        match self.ask(What::RegisterBranch { xid, branch, wait: self.wait() }).await {
            Ok(Reply::Registered { .. }) => Ok(branch_id),
            // A saga goes on after its decision, and in other services than the one that began it:
            // what it does there is a part of the same branch.
            Ok(Reply::Rejected(
                Rejection::AlreadyDecided { .. } | Rejection::BranchMismatch { .. },
            )) if is_saga => Ok(branch_id),
            Ok(Reply::Rejected(why)) => {
                let holds_rows = it.application_data.contains(OPENED_BY_APPLICATION);
                Err(failed(&why, status::code_of(&why, holds_rows)))
            }
            other => Err(refused(other, ExceptionCode::BranchRegisterFailed)),
        }
    }

    /// Why nobody could ever be asked to end the branch.
    fn why_unaskable(&self, it: &BranchRegister) -> Option<&'static str> {
        match it.branch_type {
            BranchType::Tcc | BranchType::Saga | BranchType::SagaAnnotation
                if !self.client.is_registered =>
            {
                Some(NO_APPLICATION)
            }
            BranchType::Tcc | BranchType::SagaAnnotation if is_database(&it.resource_id) => {
                Some("it names a database, which is no action")
            }
            BranchType::Saga => None,
            BranchType::At | BranchType::Xa | BranchType::Tcc | BranchType::SagaAnnotation => {
                it.resource_id.is_empty().then_some("it names no resource")
            }
        }
    }

    fn branch(&self, id: BranchId, it: &BranchRegister) -> Result<NewBranch, Failure> {
        let locked = if it.branch_type == BranchType::At { it.lock_key.as_str() } else { "" };
        Ok(NewBranch {
            id,
            resource: name_of(it.branch_type, &self.client.application, &it.resource_id),
            mode: mode_of(it.branch_type),
            rows: self.rows(locked).map_err(|why| failed(&why, status::code_of_key(&why)))?,
            application_data: it.application_data.as_bytes().into(),
        })
    }

    async fn report(&self, it: BranchReport) -> TxResult {
        let xid = parse(&it.xid).ok_or_else(|| unknown_xid(&it.xid))?;
        // The steps of a saga are one branch, which ends with its state machine.
        if it.branch_type == BranchType::Saga {
            return Ok(());
        }
        let branch = BranchId(it.branch_id.cast_unsigned());
        let outcome = phase_one_outcome(it.status);
        let application_data = it.application_data.as_bytes().into();
        match self.ask(What::ReportBranch { xid, branch, outcome, application_data }).await {
            Ok(Reply::Reported) => Ok(()),
            Ok(Reply::Rejected(why)) => Err(failed(&why, status::code_of(&why, false))),
            other => Err(refused(other, ExceptionCode::BranchReportFailed)),
        }
    }

    async fn query(&self, it: BranchRegister) -> GlobalLockQueried {
        match self.try_query(&it).await {
            Ok(lockable) => GlobalLockQueried { result: Ok(()), lockable },
            Err(failure) => GlobalLockQueried { result: Err(failure), lockable: false },
        }
    }

    async fn try_query(&self, it: &BranchRegister) -> Result<bool, Failure> {
        if it.branch_type != BranchType::At {
            return Ok(true);
        }
        let rows = self.rows(&it.lock_key);
        let rows = rows.map_err(|why| failed(&why, ExceptionCode::LockableCheckFailed))?;
        let resource = name_of(it.branch_type, &self.client.application, &it.resource_id);
        let check = |xid| What::CheckLocks {
            xid,
            resource: Arc::clone(&resource),
            rows: rows.clone(),
            wait: self.wait(),
        };
        let mut reply = self.ask(check(parse(&it.xid))).await;
        if let Ok(Reply::Rejected(Rejection::UnknownXid(_) | Rejection::AlreadyDecided { .. })) =
            reply
        {
            // Whoever asks need not be a live global: then every lock is somebody else's.
            reply = self.ask(check(None)).await;
        }
        match reply {
            Ok(Reply::Unlocked) => Ok(true),
            Ok(Reply::Rejected(Rejection::RowLocked { .. } | Rejection::Deadlock { .. })) => {
                Ok(false)
            }
            other => Err(refused(other, ExceptionCode::LockableCheckFailed)),
        }
    }

    pub(super) async fn ask(&self, what: What) -> Result<Reply, EngineError> {
        self.front.shared.engine.call(what).await
    }

    /// The client's local transaction is open while it waits.
    fn wait(&self) -> LockWait {
        let wait = match self.patience {
            Patience::Configured => self.front.shared.settings.lock_wait,
            Patience::None => Duration::ZERO,
        };
        let timeout_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        LockWait { timeout_ms, holding: Holding::DatabaseLocks }
    }

    fn rows(&self, lock_key: &str) -> Result<Vec<RowLock>, BadLockKey> {
        rows(lock_key, self.front.shared.settings.rows_max)
    }
}

fn in_a_merged_request() -> Registered {
    Registered::refused(SERVER_VERSION, "a registration comes alone")
}

/// How phase one ended, if the status speaks of that.
fn phase_one_outcome(status: BranchStatus) -> Option<PhaseOneOutcome> {
    match status {
        BranchStatus::PhaseOneDone => Some(PhaseOneOutcome::Done),
        // A branch that only read has nothing to commit or to roll back.
        BranchStatus::PhaseOneFailed | BranchStatus::PhaseOneRdonly => {
            Some(PhaseOneOutcome::Failed)
        }
        BranchStatus::PhaseOneTimeout => Some(PhaseOneOutcome::Unknown),
        BranchStatus::Unknown
        | BranchStatus::Registered
        | BranchStatus::PhaseTwoCommitted
        | BranchStatus::PhaseTwoCommitFailedRetryable
        | BranchStatus::PhaseTwoCommitFailedUnretryable
        | BranchStatus::PhaseTwoRollbacked
        | BranchStatus::PhaseTwoRollbackFailedRetryable
        | BranchStatus::PhaseTwoRollbackFailedUnretryable
        | BranchStatus::PhaseTwoCommitFailedXaerNotaRetryable
        | BranchStatus::PhaseTwoRollbackFailedXaerNotaRetryable
        | BranchStatus::StopRetry => None,
    }
}

pub(super) fn parse(xid: &str) -> Option<Xid> {
    XidText::parse(xid).ok().map(|text| text.xid)
}

/// Positive, since it is a number with a sign in Java, and never that of a saga.
fn new_branch_id() -> i64 {
    (rand::random::<i64>() & i64::MAX) | (1 << 61)
}

pub(super) fn failed(why: &dyn std::fmt::Display, code: ExceptionCode) -> Failure {
    Failure { message: format!("TransactionException[{why}]"), code }
}

fn unknown_xid(xid: &str) -> Failure {
    let cut: String = xid.chars().take(100).collect();
    failed(
        &format!("{cut:?} is no xid of this coordinator"),
        ExceptionCode::GlobalTransactionNotExist,
    )
}

/// Why something was not done, where no better code is known.
fn refused(reply: Result<Reply, EngineError>, code: ExceptionCode) -> Failure {
    match reply {
        Ok(Reply::Rejected(why)) => failed(&why, code),
        Ok(other) => failed(&format!("unexpected reply {other:?}"), code),
        Err(why) => failed(&why, code),
    }
}
