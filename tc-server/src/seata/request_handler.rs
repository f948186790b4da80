//! Handles requests that take several calls to the engine. Requests that end a global are in `end`.

use std::sync::Arc;
use std::time::Duration;

use handfast_core::{Command, Holding, LockWait, Rejection, Reply};
use handfast_seata_wire::message::{
    BranchRegister, GlobalBegin, GlobalLockQueried, Message, Registered, RequestFailure,
};
use handfast_seata_wire::value::{BranchType, ExceptionCode};

use super::client::Client;
use super::request::{
    self, NO_APPLICATION, ReplyContext, RequestLimits, RequestPlan, begun_of, failed, machine,
    parse, plan_of, refused,
};
use super::rows::rows;
use super::{SERVER_VERSION, SeataFrontend, Settings};
use crate::engine::EngineError;
use crate::turned_away::{PortName, Why, note};

/// Handles the requests of one client.
#[derive(Debug)]
pub(super) struct RequestHandler {
    pub(super) frontend: SeataFrontend,
    pub(super) client: Arc<Client>,
    pub(super) wait_policy: WaitPolicy,
}

/// Whether a request may wait for more than the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitPolicy {
    /// Waits for locks and for phase two, as configured.
    Configured,
    /// Does not wait for anything that depends on another request or on an answer of a client.
    None,
}

impl WaitPolicy {
    pub(super) fn limits(self, settings: &Settings) -> RequestLimits {
        let wait = match self {
            Self::Configured => settings.lock_wait,
            Self::None => Duration::ZERO,
        };
        let timeout_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let wait = LockWait { timeout_ms, holding: Holding::DatabaseLocks };
        RequestLimits { wait, rows_max: settings.rows_max }
    }
}

impl RequestHandler {
    /// Returns the answer, if there is one.
    pub(super) async fn answer(&self, request: Message) -> Option<Message> {
        match plan_of(request, &self.client, self.limits()) {
            RequestPlan::Single(_, ReplyContext::End { xid, decision }) => {
                self.end_with_timeout(xid, decision, &self.client.dialect).await
            }
            RequestPlan::Single(command, context) => {
                context.answer(self.ask(command).await, &self.client.dialect)
            }
            RequestPlan::Answered(answer) => Some(answer),
            RequestPlan::MultiStep(request) => self.answer_multi_step(request).await,
        }
    }

    /// Like [`Self::answer`], for a request that takes several calls to the engine.
    pub(super) async fn answer_multi_step(&self, request: Message) -> Option<Message> {
        match request {
            Message::GlobalBegin(it) => Some(request::begun(self.begin_saga(it).await)),
            Message::GlobalStatus(it) => Some(Message::GlobalStatusResult(self.status(&it).await)),
            Message::GlobalReport(it) => {
                Some(Message::GlobalReportResult(self.report_saga(&it).await))
            }
            Message::GlobalLockQuery(it) => {
                Some(Message::GlobalLockQueryResult(self.query(it).await))
            }
            // Outside a merged request, the connection handles them.
            Message::RegisterTm(_) => Some(Message::RegisterTmResult(in_a_merged_request())),
            Message::RegisterRm(_) => Some(Message::RegisterRmResult(in_a_merged_request())),
            Message::UnregisterRm(_) => Some(Message::UnregisterRmResult(in_a_merged_request())),
            // Each is one call to the engine, so it does not come here.
            Message::GlobalCommit(_)
            | Message::GlobalRollback(_)
            | Message::BranchRegister(_)
            | Message::BranchReport(_)
            // Not requests of a client.
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

    /// Begins a saga and registers its branch. By default the client registers no branch itself.
    /// Without one no process would be called to compensate, and nothing about the saga would be
    /// stored.
    async fn begin_saga(&self, it: GlobalBegin) -> Result<String, RequestFailure> {
        const CODE: ExceptionCode = ExceptionCode::BeginFailed;
        if !self.client.is_registered {
            return Err(failed(&NO_APPLICATION, CODE));
        }
        let answered = self.ask(request::beginning(it, &self.client)).await;
        let (xid, text) = begun_of(answered)?;
        let branch = machine(&self.client, Box::default());
        match self.ask(Command::RegisterBranch { xid, branch, wait: self.limits().wait }).await {
            Ok(Reply::Registered { .. }) => Ok(text),
            // The global has no branch, so that it ends with its client or at its deadline.
            other => Err(refused(other, CODE)),
        }
    }

    async fn query(&self, it: BranchRegister) -> GlobalLockQueried {
        match self.try_query(&it).await {
            Ok(lockable) => GlobalLockQueried { result: Ok(()), lockable },
            Err(failure) => GlobalLockQueried { result: Err(failure), lockable: false },
        }
    }

    async fn try_query(&self, it: &BranchRegister) -> Result<bool, RequestFailure> {
        if it.branch_type != BranchType::At {
            return Ok(true);
        }
        let RequestLimits { wait, rows_max } = self.limits();
        let rows = rows(&it.lock_key, rows_max);
        let rows = rows.map_err(|why| failed(&why, ExceptionCode::LockableCheckFailed))?;
        let resource = self.client.name_of(it.branch_type, &it.resource_id);
        let check = |xid| Command::CheckLocks {
            xid,
            resource: Arc::clone(&resource),
            rows: rows.clone(),
            wait,
        };
        let mut reply = self.ask(check(parse(&it.xid))).await;
        if let Ok(Reply::Rejected(Rejection::UnknownXid(_) | Rejection::AlreadyDecided { .. })) =
            reply
        {
            // The XID need not be of a live global. Then every lock belongs to another global.
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

    pub(super) async fn ask(&self, command: Command) -> Result<Reply, EngineError> {
        self.frontend.shared.engine.call_of(self.client.asker(), command).await
    }

    fn limits(&self) -> RequestLimits {
        self.wait_policy.limits(&self.frontend.shared.settings)
    }
}

fn in_a_merged_request() -> Registered {
    Registered::refused(SERVER_VERSION, "a registration comes alone")
}
