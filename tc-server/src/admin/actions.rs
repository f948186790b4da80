//! Operators' actions on transactions. Each is recorded, executed, recorded again, and answered.
//!
//! An action runs on a task of its own, so that its outcome is in the audit log even if the client
//! disconnects or the request takes too long.

use axum::Json;
use axum::extract::State;
use handfast_core::{
    Command, Coordinator, DecidedBy, Decision, OperatorAction, Reply, ReplyWhen, VotingRounds, Xid,
    XidText,
};

use super::caller::Operator;
use super::extract::{self, Body, Path, Reason};
use super::model::{self, ActionReply, ActionRequest, Problem, ResolveRequest};
use super::{AdminState, ApiError, view};
use crate::audit::{Action, ActionStage};
use crate::engine::EngineError;

/// The longest reason that is kept.
const REASON_BYTES_MAX: usize = 1_024;

/// An action, and the request to the engine that executes it.
struct OperatorRequest {
    action: Action,
    command: Command,
    xid: Xid,
}

/// An operation on a whole transaction.
enum Operation {
    Decision(Decision),
    Action(OperatorAction),
}

/// Defines the route of an action on a whole transaction. The routes differ only in name and
/// operation.
macro_rules! action {
    ($(#[$meaning:meta])* $name:ident at $path:literal is $operation:expr) => {
        $(#[$meaning])*
        #[utoipa::path(
            post,
            path = $path,
            tag = "actions",
            params(("xid" = String, Path, description = "`address:number`, or the number alone")),
            request_body = ActionRequest,
            responses(
                (status = OK, body = ActionReply),
                (status = NOT_FOUND, body = Problem),
                (status = CONFLICT, body = Problem)
            ),
            security(("token" = []))
        )]
        pub(super) async fn $name(
            operator: Operator,
            State(state): State<AdminState>,
            Path(xid): Path<String>,
            Reason(request): Reason,
        ) -> Result<Json<ActionReply>, ApiError> {
            let name = stringify!($name);
            let request = operator_request(&operator, name, &xid, $operation, &request)?;
            execute(state, request).await
        }
    };
}

action! {
    /// Commits an undecided transaction.
    commit at "/api/v1/transactions/{xid}/commit" is Operation::Decision(Decision::Commit)
}

action! {
    /// Rolls back an undecided transaction.
    rollback at "/api/v1/transactions/{xid}/rollback" is Operation::Decision(Decision::RollBack)
}

action! {
    /// Retries phase two of every unfinished branch at once.
    retry at "/api/v1/transactions/{xid}/retry" is Operation::Action(OperatorAction::Retry)
}

action! {
    /// Stops attempts of phase two until the transaction is resumed.
    pause at "/api/v1/transactions/{xid}/pause" is Operation::Action(OperatorAction::Pause)
}

action! {
    /// Resumes attempts of phase two after a pause.
    resume at "/api/v1/transactions/{xid}/resume" is Operation::Action(OperatorAction::Resume)
}

/// Ends a branch whose rollback met a dirty write.
#[utoipa::path(
    post,
    path = "/api/v1/transactions/{xid}/branches/{branch}/resolve",
    tag = "actions",
    params(
        ("xid" = String, Path, description = "`address:number`, or the number alone"),
        ("branch" = String, Path, description = "the branch's id")
    ),
    request_body = ResolveRequest,
    responses(
        (status = OK, body = ActionReply),
        (status = NOT_FOUND, body = Problem),
        (status = CONFLICT, body = Problem)
    ),
    security(("token" = []))
)]
pub(super) async fn resolve(
    operator: Operator,
    State(state): State<AdminState>,
    Path((xid, branch)): Path<(String, String)>,
    Body(request): Body<ResolveRequest>,
) -> Result<Json<ActionReply>, ApiError> {
    let (branch, resolution) = (extract::branch(&branch)?, view::resolution(request.resolution));
    let operation = Operation::Action(OperatorAction::Resolve { branch, resolution });
    let detail = resolution_detail(view::word(resolution), &request.reason);
    let mut request =
        operator_request(&operator, "resolve", &xid, operation, &ActionRequest::default())?;
    request.action.branch = Some(branch.to_string());
    request.action.detail = Some(detail);
    execute(state, request).await
}

fn operator_request(
    Operator(caller): &Operator,
    name: &'static str,
    xid: &str,
    operation: Operation,
    request: &ActionRequest,
) -> Result<OperatorRequest, ApiError> {
    let xid = extract::xid(xid)?;
    let operator = caller.name();
    let action = action(&operator, name, xid, &request.reason);
    let command = match operation {
        Operation::Action(action) => Command::Operate { xid, action, operator },
        Operation::Decision(decision) => Command::End {
            xid,
            decision,
            rounds: VotingRounds::PrepareOnly,
            by: DecidedBy::Operator,
            reason: reason(&operator, &request.reason).into(),
            reply_when: ReplyWhen::Decided,
        },
    };
    Ok(OperatorRequest { action, command, xid })
}

/// Returns the operator's name, with the reason if one is given.
pub(super) fn reason(operator: &str, given: &str) -> String {
    if given.is_empty() { operator.to_owned() } else { cut(&format!("{operator}: {given}")) }
}

pub(super) fn action(operator: &str, name: &'static str, xid: Xid, reason: &str) -> Action {
    Action { xid: Some(xid.to_string()), detail: detail_of(reason), ..Action::new(operator, name) }
}

/// Returns a resolution with its reason, as the audit log keeps them.
pub(super) fn resolution_detail(word: &str, reason: &str) -> String {
    if reason.is_empty() { word.to_owned() } else { cut(&format!("{word}: {reason}")) }
}

/// Returns the reason as the audit log keeps it, if one is given.
pub(super) fn detail_of(reason: &str) -> Option<String> {
    Some(cut(reason)).filter(|reason| !reason.is_empty())
}

pub(super) fn cut(reason: &str) -> String {
    reason[..reason.floor_char_boundary(REASON_BYTES_MAX)].to_owned()
}

async fn execute(
    state: AdminState,
    request: OperatorRequest,
) -> Result<Json<ActionReply>, ApiError> {
    let finished = tokio::spawn(record_and_execute(state, request)).await;
    finished.map_err(|error| ApiError::Unforeseen(error.to_string()))?.map(Json)
}

async fn record_and_execute(
    state: AdminState,
    request: OperatorRequest,
) -> Result<ActionReply, ApiError> {
    let OperatorRequest { action, command: what, xid } = request;
    record_asked(&state, &action).await?;
    let done = ask(&state, what, xid).await;
    record_answered(&state, &action, &done).await?;
    done
}

/// Records that an action is about to be executed. If that fails, the action must not be executed.
pub(super) async fn record_asked(state: &AdminState, action: &Action) -> Result<(), ApiError> {
    let asked = state.audit().record(&located(state, action), ActionStage::Asked).await;
    asked.map_err(|error| ApiError::NotRecorded(error.to_string()))
}

pub(super) async fn record_answered<T>(
    state: &AdminState,
    action: &Action,
    done: &Result<T, ApiError>,
) -> Result<(), ApiError> {
    let outcome = done.as_ref().map_or_else(ApiError::code, |_| "done");
    let stage = ActionStage::Answered(outcome);
    let answered = state.audit().record(&located(state, action), stage).await;
    answered.map_err(|error| ApiError::OutcomeNotRecorded {
        outcome: outcome.to_owned(),
        error: error.to_string(),
    })
}

/// Adds where an action is executed, if there are several nodes.
pub(super) fn located(state: &AdminState, action: &Action) -> Action {
    let mut action = action.clone();
    if state.peers().is_some() {
        action.node = Some(state.about().node.id.clone());
        // A transfer is answered after the lead is gone, and keeps the epoch in which it was asked.
        let epoch = state.readiness().leadership().borrow().epoch().map(|epoch| epoch.0);
        action.epoch = action.epoch.or(epoch);
    }
    action
}

/// Executes an action. It is done once the engine replies, so nothing that can fail follows the
/// reply.
async fn ask(state: &AdminState, command: Command, xid: Xid) -> Result<ActionReply, ApiError> {
    let name = name(state, xid).await?;
    let status = status(state.engine().call(command).await?)?;
    Ok(ActionReply { xid: name, status })
}

/// Returns the status of a transaction after an action.
pub(super) fn status(reply: Reply) -> Result<model::Status, ApiError> {
    match reply {
        Reply::Ended(status) | Reply::Operated(status) => Ok(view::status(status)),
        Reply::Rejected(rejection) => Err(rejection.into()),
        reply @ (Reply::Begun { .. }
        | Reply::Registered { .. }
        | Reply::Reported
        | Reply::LastReported
        | Reply::Status(_)
        | Reply::Saga(_)
        | Reply::LockGranted { .. }
        | Reply::LockBusy { .. }
        | Reply::LockFound { .. }
        | Reply::LocksRenewed { .. }
        | Reply::LockFreed
        | Reply::LockNotHeld { .. }
        | Reply::LockBroken { .. }
        | Reply::Unlocked) => Err(ApiError::Unforeseen(format!("{reply:?}"))),
    }
}

/// Returns the transaction's XID as text, with the address under which it was begun.
async fn name(state: &AdminState, xid: Xid) -> Result<String, EngineError> {
    let look = move |coordinator: &Coordinator| coordinator.address(xid);
    let address = state.engine().view(look).await?;
    let address = address.as_deref().unwrap_or(&state.about().advertised_address);
    Ok(XidText { address, xid }.to_string())
}
