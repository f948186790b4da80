//! One request of a client and its answer, step by step. What ends a global is in `end`.

use std::sync::Arc;
use std::time::Duration;

use handfast_core::{Holding, LockWait, Rejection, Reply, What};
use handfast_seata_wire::message::{
    BranchRegister, Failure, GlobalBegin, GlobalLockQueried, Message, Registered,
};
use handfast_seata_wire::value::{BranchType, ExceptionCode};

use super::client::Client;
use super::request::{
    self, NO_APPLICATION, Question, Step, Terms, begun_of, failed, machine, parse, refused, step_of,
};
use super::rows::rows;
use super::{Front, SERVER_VERSION, Settings};
use crate::engine::EngineError;
use crate::turned_away::{PortName, Why, note};

/// What answers the requests of one client.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) front: Front,
    pub(super) client: Arc<Client>,
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

impl Patience {
    pub(super) fn terms(self, settings: &Settings) -> Terms {
        let wait = match self {
            Self::Configured => settings.lock_wait,
            Self::None => Duration::ZERO,
        };
        let timeout_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let wait = LockWait { timeout_ms, holding: Holding::DatabaseLocks };
        Terms { wait, rows_max: settings.rows_max }
    }
}

impl Desk {
    /// The answer, if there is one.
    pub(super) async fn answer(&self, request: Message) -> Option<Message> {
        match step_of(request, &self.client, self.terms()) {
            Step::Ask(_, Question::End { xid, decision }) => {
                self.end_within(xid, decision, &self.client.dialect).await
            }
            Step::Ask(what, question) => {
                question.answer(self.ask(what).await, &self.client.dialect)
            }
            Step::Say(answer) => Some(answer),
            Step::Course(request) => self.answer_in_steps(request).await,
        }
    }

    /// As [`Self::answer`], to what takes several questions.
    pub(super) async fn answer_in_steps(&self, request: Message) -> Option<Message> {
        match request {
            Message::GlobalBegin(it) => Some(request::begun(self.begin_saga(it).await)),
            Message::GlobalStatus(it) => Some(Message::GlobalStatusResult(self.status(&it).await)),
            Message::GlobalReport(it) => {
                Some(Message::GlobalReportResult(self.report_saga(&it).await))
            }
            Message::GlobalLockQuery(it) => {
                Some(Message::GlobalLockQueryResult(self.query(it).await))
            }
            // Alone they do not come here.
            Message::RegisterTm(_) => Some(Message::RegisterTmResult(in_a_merged_request())),
            Message::RegisterRm(_) => Some(Message::RegisterRmResult(in_a_merged_request())),
            Message::UnregisterRm(_) => Some(Message::UnregisterRmResult(in_a_merged_request())),
            // One question each: they do not come here.
            Message::GlobalCommit(_)
            | Message::GlobalRollback(_)
            | Message::BranchRegister(_)
            | Message::BranchReport(_)
            // No requests of a client.
            | Message::Ping
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
                let what = format_args!("{:?} has no answer", request.kind());
                note(PortName::Seata, Why::Malformed, None, &what);
                None
            }
        }
    }

    /// A saga has its branch from the beginning: by default its client registers none, and without
    /// one nobody would be asked to take it back, and nothing of it be stored.
    async fn begin_saga(&self, it: GlobalBegin) -> Result<String, Failure> {
        const CODE: ExceptionCode = ExceptionCode::BeginFailed;
        if !self.client.is_registered {
            return Err(failed(&NO_APPLICATION, CODE));
        }
        let answered = self.ask(request::beginning(it, &self.client)).await;
        let (xid, text) = begun_of(answered)?;
        let branch = machine(&self.client, Box::default());
        match self.ask(What::RegisterBranch { xid, branch, wait: self.terms().wait }).await {
            Ok(Reply::Registered { .. }) => Ok(text),
            other => Err(refused(other, CODE)),
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
        let Terms { wait, rows_max } = self.terms();
        let rows = rows(&it.lock_key, rows_max);
        let rows = rows.map_err(|why| failed(&why, ExceptionCode::LockableCheckFailed))?;
        let resource = self.client.name_of(it.branch_type, &it.resource_id);
        let check = |xid| What::CheckLocks {
            xid,
            resource: Arc::clone(&resource),
            rows: rows.clone(),
            wait,
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
            Ok(Reply::Rejected(
                Rejection::RowLocked { .. }
                | Rejection::RowNeedsOperator { .. }
                | Rejection::Deadlock { .. }
                | Rejection::LimitReached { what: Rejection::WAITING_REQUESTS, .. }
                | Rejection::ShareReached { what: Rejection::WAITING_REQUESTS, .. },
            )) => Ok(false),
            other => Err(refused(other, ExceptionCode::LockableCheckFailed)),
        }
    }

    pub(super) async fn ask(&self, what: What) -> Result<Reply, EngineError> {
        self.front.shared.engine.call_of(self.client.asker(), what).await
    }

    fn terms(&self) -> Terms {
        self.patience.terms(&self.front.shared.settings)
    }
}

fn in_a_merged_request() -> Registered {
    Registered::refused(SERVER_VERSION, "a registration comes alone")
}
