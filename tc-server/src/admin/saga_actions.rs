//! Operators' actions on sagas as sagas: start, signal, cancel. Retry, pause, resume and resolve
//! are those on transactions (`actions`).

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use handfast_core::{Command, DecidedBy, Reply};
use handfast_proto::{saga_json, v1 as wire};

use super::actions::{self, cut, detail_of, reason};
use super::caller::Operator;
use super::extract::{self, Body, Path, Reason};
use super::model::{ActionRequest, Problem, SagaReply, SignalRequest, StartSagaRequest};
use super::{AdminState, ApiError, saga_view};
use crate::audit::Action;
use crate::grpc::Decoder;

/// Starts a saga, or finds the one that has its key.
#[utoipa::path(
    post,
    path = "/api/v1/sagas",
    tag = "sagas",
    request_body = StartSagaRequest,
    responses(
        (status = OK, body = SagaReply),
        (status = BAD_REQUEST, body = Problem),
        (status = CONFLICT, body = Problem),
        (status = TOO_MANY_REQUESTS, body = Problem)
    ),
    security(("token" = []))
)]
pub(super) async fn start(
    Operator(caller): Operator,
    State(state): State<AdminState>,
    Body(request): Body<StartSagaRequest>,
) -> Result<Json<SagaReply>, ApiError> {
    let StartSagaRequest { key, application, saga, labels, reason } = request;
    let action = Action {
        detail: detail_of(&reason),
        saga: Some(cut(&key)),
        ..Action::new(&caller.name(), "start")
    };
    let definition = Some(saga_json::definition(&saga.to_string())?);
    // The decoder of the native API reads definitions, so that both refuse the same ones.
    let traceparent = String::new();
    let request = wire::StartSagaRequest { application, key, definition, traceparent, labels };
    let command = Decoder::default().start_saga(request)?;
    execute(state, action, command).await
}

/// Ends a step that waits for a signal. One that comes before its step's turn is kept.
#[utoipa::path(
    post,
    path = "/api/v1/sagas/{xid}/signal",
    tag = "sagas",
    params(("xid" = String, Path, description = "`address:number`, or the number alone")),
    request_body = SignalRequest,
    responses(
        (status = OK, body = SagaReply),
        (status = BAD_REQUEST, body = Problem),
        (status = NOT_FOUND, body = Problem),
        (status = CONFLICT, body = Problem)
    ),
    security(("token" = []))
)]
pub(super) async fn signal(
    Operator(caller): Operator,
    State(state): State<AdminState>,
    Path(xid): Path<String>,
    Body(request): Body<SignalRequest>,
) -> Result<Json<SagaReply>, ApiError> {
    let xid = extract::xid(&xid)?;
    let SignalRequest { signal, payload, reason: given } = request;
    let action = Action {
        xid: Some(xid.to_string()),
        step: Some(cut(&signal)),
        detail: detail_of(&given),
        ..Action::new(&caller.name(), "signal")
    };
    let operator = Some(Arc::from(reason(&caller.name(), &given)));
    let payload = payload.to_string().into_bytes();
    let command = Decoder::default().signal(xid, signal, payload, operator)?;
    execute(state, action, command).await
}

/// Has a saga compensated, if its pivot has not begun.
#[utoipa::path(
    post,
    path = "/api/v1/sagas/{xid}/cancel",
    tag = "sagas",
    params(("xid" = String, Path, description = "`address:number`, or the number alone")),
    request_body = ActionRequest,
    responses(
        (status = OK, body = SagaReply),
        (status = NOT_FOUND, body = Problem),
        (status = CONFLICT, body = Problem)
    ),
    security(("token" = []))
)]
pub(super) async fn cancel(
    Operator(caller): Operator,
    State(state): State<AdminState>,
    Path(xid): Path<String>,
    Reason(request): Reason,
) -> Result<Json<SagaReply>, ApiError> {
    let xid = extract::xid(&xid)?;
    let action = actions::action(&caller.name(), "cancel", xid, &request.reason);
    let reason = reason(&caller.name(), &request.reason).into();
    let command = Command::CancelSaga { xid, by: DecidedBy::Operator, reason };
    execute(state, action, command).await
}

async fn execute(
    state: AdminState,
    action: Action,
    command: Command,
) -> Result<Json<SagaReply>, ApiError> {
    let finished = tokio::spawn(record_and_execute(state, action, command)).await;
    finished.map_err(|error| ApiError::Unforeseen(error.to_string()))?.map(Json)
}

async fn record_and_execute(
    state: AdminState,
    action: Action,
    command: Command,
) -> Result<SagaReply, ApiError> {
    actions::record_asked(&state, &action).await?;
    let done = ask(&state, command).await;
    // The XID of a saga that is started is known only now.
    let action = match &done {
        Ok(reply) => Action { xid: Some(number_of(&reply.xid)), ..action },
        Err(_) => action,
    };
    actions::record_answered(&state, &action, &done).await?;
    done
}

/// Returns the number of an XID, which is how the audit log names transactions.
fn number_of(xid: &str) -> String {
    xid.rsplit(':').next().unwrap_or(xid).to_owned()
}

async fn ask(state: &AdminState, command: Command) -> Result<SagaReply, ApiError> {
    match state.engine().call(command).await? {
        Reply::Saga(saga) => Ok(saga_view::reply(&saga)),
        Reply::Rejected(rejection) => Err(rejection.into()),
        reply @ (Reply::Begun { .. }
        | Reply::Registered { .. }
        | Reply::Reported
        | Reply::LastReported
        | Reply::Unlocked
        | Reply::Ended(_)
        | Reply::Status(_)
        | Reply::Operated(_)
        | Reply::LockGranted { .. }
        | Reply::LockBusy { .. }
        | Reply::LockFound { .. }
        | Reply::LocksRenewed { .. }
        | Reply::LockFreed
        | Reply::LockNotHeld { .. }
        | Reply::LockBroken { .. }) => Err(ApiError::Unforeseen(format!("{reply:?}"))),
    }
}
