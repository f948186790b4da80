//! Acting on transactions: recorded, carried out, recorded again, answered.
//!
//! An action runs on a task of its own, so that a caller who hangs up, or a request that takes too
//! long, leaves no action without its outcome in the audit log.

use axum::Json;
use axum::extract::State;
use handfast_core::{
    Coordinator, DecidedBy, Decision, OperatorAction, Reply, ReplyWhen, Rounds, What, Xid, XidText,
};

use super::caller::Operator;
use super::model::{ActionReply, ActionRequest, Problem, ResolveRequest};
use super::read::{self, Body, Path, Reason};
use super::{AdminState, ApiError, view};
use crate::audit::{Action, Stage};
use crate::engine::EngineError;

/// Reasons are kept up to this length.
const REASON_BYTES_MAX: usize = 1_024;

/// What one request comes to.
struct Order {
    action: Action,
    what: What,
    xid: Xid,
}

/// What an operator wants of a whole transaction.
enum Wanted {
    Decision(Decision),
    Action(OperatorAction),
}

/// The routes of the actions on a whole transaction differ in nothing but name and meaning.
macro_rules! action {
    ($(#[$meaning:meta])* $name:ident at $path:literal is $wanted:expr) => {
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
            let order = order(&operator, stringify!($name), &xid, $wanted, &request)?;
            carry_out(state, order).await
        }
    };
}

action! {
    /// Decides an undecided transaction: everything happens.
    commit at "/api/v1/transactions/{xid}/commit" is Wanted::Decision(Decision::Commit)
}

action! {
    /// Decides an undecided transaction: nothing happens.
    rollback at "/api/v1/transactions/{xid}/rollback" is Wanted::Decision(Decision::RollBack)
}

action! {
    /// Tries phase two of every unfinished branch at once.
    retry at "/api/v1/transactions/{xid}/retry" is Wanted::Action(OperatorAction::Retry)
}

action! {
    /// Stops trying phase two until resumed.
    pause at "/api/v1/transactions/{xid}/pause" is Wanted::Action(OperatorAction::Pause)
}

action! {
    /// Tries phase two again after a pause.
    resume at "/api/v1/transactions/{xid}/resume" is Wanted::Action(OperatorAction::Resume)
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
    let (branch, resolution) = (read::branch(&branch)?, view::resolution(request.resolution));
    let wanted = Wanted::Action(OperatorAction::Resolve { branch, resolution });
    let mut order = order(&operator, "resolve", &xid, wanted, &ActionRequest::default())?;
    order.action.branch = Some(branch.to_string());
    order.action.detail = Some(view::word(resolution).to_owned());
    carry_out(state, order).await
}

fn order(
    Operator(caller): &Operator,
    name: &'static str,
    xid: &str,
    wanted: Wanted,
    request: &ActionRequest,
) -> Result<Order, ApiError> {
    let xid = read::xid(xid)?;
    let operator = caller.name();
    let action = action(&operator, name, xid, &request.reason);
    let what = match wanted {
        Wanted::Action(action) => What::Operate { xid, action, operator },
        Wanted::Decision(decision) => What::End {
            xid,
            decision,
            rounds: Rounds::PrepareOnly,
            by: DecidedBy::Operator,
            reason: reason(&operator, &request.reason).into(),
            reply_when: ReplyWhen::Decided,
        },
    };
    Ok(Order { action, what, xid })
}

/// Who decided, and why if told.
fn reason(operator: &str, given: &str) -> String {
    if given.is_empty() { operator.to_owned() } else { cut(&format!("{operator}: {given}")) }
}

fn action(operator: &str, name: &'static str, xid: Xid, reason: &str) -> Action {
    Action {
        xid: Some(xid.to_string()),
        detail: Some(cut(reason)).filter(|reason| !reason.is_empty()),
        ..Action::new(operator, name)
    }
}

pub(super) fn cut(reason: &str) -> String {
    reason[..reason.floor_char_boundary(REASON_BYTES_MAX)].to_owned()
}

async fn carry_out(state: AdminState, order: Order) -> Result<Json<ActionReply>, ApiError> {
    let finished = tokio::spawn(record_and_do(state, order)).await;
    finished.map_err(|error| ApiError::Unforeseen(error.to_string()))?.map(Json)
}

async fn record_and_do(state: AdminState, order: Order) -> Result<ActionReply, ApiError> {
    let Order { action, what, xid } = order;
    record_asked(&state, &action).await?;
    let done = ask(&state, what, xid).await;
    record_answered(&state, &action, &done).await?;
    done
}

/// What cannot be recorded is not carried out.
pub(super) async fn record_asked(state: &AdminState, action: &Action) -> Result<(), ApiError> {
    let asked = state.audit().record(action, Stage::Asked).await;
    asked.map_err(|error| ApiError::NotRecorded(error.to_string()))
}

pub(super) async fn record_answered<T>(
    state: &AdminState,
    action: &Action,
    done: &Result<T, ApiError>,
) -> Result<(), ApiError> {
    let outcome = done.as_ref().map_or_else(ApiError::code, |_| "done");
    let answered = state.audit().record(action, Stage::Answered(outcome)).await;
    answered.map_err(|error| ApiError::OutcomeNotRecorded {
        outcome: outcome.to_owned(),
        error: error.to_string(),
    })
}

/// Carries it out. From the engine's reply on it is carried out, whatever becomes of the
/// coordinator and of the transaction: nothing that can fail is asked after it.
async fn ask(state: &AdminState, what: What, xid: Xid) -> Result<ActionReply, ApiError> {
    let name = name(state, xid).await?;
    match state.engine().call(what).await? {
        Reply::Ended(status) | Reply::Operated(status) => {
            Ok(ActionReply { xid: name, status: view::status(status) })
        }
        Reply::Rejected(rejection) => Err(rejection.into()),
        reply @ (Reply::Begun { .. }
        | Reply::Registered { .. }
        | Reply::Reported
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

/// The transaction's XID as text, with the address under which it was begun.
async fn name(state: &AdminState, xid: Xid) -> Result<String, EngineError> {
    let look = move |coordinator: &Coordinator| coordinator.address(xid);
    let address = state.engine().view(look).await?;
    let address = address.as_deref().unwrap_or(&state.about().advertised_address);
    Ok(XidText { address, xid }.to_string())
}
