//! Errors of the admin API: a status, a stable code and a message for display.

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::response::{IntoResponse, Response};
use handfast_core::Rejection;
use handfast_proto::saga_json::{self, SagaJsonError};
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};

use super::model::Problem;
use crate::engine::EngineError;
use crate::grpc::BadRequest;
use crate::security::AccessError;
use crate::store::StoreError;
use crate::turned_away::{PortName, Why, note};

/// The description of an XID's form.
pub const XID_FORM: &str = "an xid is `address:number`, or the number alone";

/// Why a request fails.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The caller is not permitted.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// A web page of another site makes a browser act.
    #[error("a web page of another site asks for this")]
    ForeignPage,
    /// A web page that passes for one of this machine makes a browser send a request.
    #[error(
        "`{0}` is no name of this coordinator: ask under a loopback address or localhost, or set \
         `security.tokens`"
    )]
    ForeignHost(String),
    /// The coordinator refuses the request.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The coordinator does not answer.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The store cannot be read.
    #[error("the store cannot be read: {0}")]
    Store(#[from] StoreError),
    /// The leader does not answer the request that was passed on to it.
    #[error("the leader at {leader} does not answer: an action may still be carried out")]
    LeaderUnreachable {
        /// The leader's address.
        leader: String,
    },
    /// No other node takes the lead.
    #[error(
        "no other node took the lead, so this one leads: start another one on the same store, as \
         `handfast cluster status` shows them, and ask again"
    )]
    NoOtherNode,
    /// The request cannot be read.
    #[error("{0}")]
    BadRequest(String),
    /// The request says more than it may, or something impossible.
    #[error(transparent)]
    Unusable(#[from] BadRequest),
    /// The definition of a saga cannot be read.
    #[error("the saga: {0}")]
    SagaForm(#[from] SagaJsonError),
    /// The body is larger than allowed.
    #[error("the body is larger than `admin.body_bytes_max`")]
    BodyTooLarge,
    /// The URL is longer than allowed.
    #[error("the url is longer than 8,192 bytes")]
    UrlTooLong,
    /// No dry run has named what is to be changed.
    #[error(
        "no dry run of this action has named these targets: send it with `\"dry_run\": true`, and \
         then the targets that would change with its `confirmation`"
    )]
    NotConfirmed,
    /// No global holds or waits for the row.
    #[error("row {table}/{key} of {resource} is not locked")]
    NotLocked {
        /// The resource.
        resource: String,
        /// The table.
        table: String,
        /// The key in the request.
        key: String,
    },
    /// No relay reports the event as parked.
    #[error(
        "no relay reports event {event} as parked: it may be requeued or skipped already, or not \
         be among the newest 100 of its relay, which `handfast outbox ls --state parked` lists"
    )]
    UnknownEvent {
        /// The event.
        event: String,
    },
    /// The relay that reported an event does not answer.
    #[error(
        "the relay of outbox {outbox} does not answer: it may yet carry the action out. Look \
         again, or use `handfast outbox` at the database"
    )]
    RelaySilent {
        /// The outbox.
        outbox: String,
    },
    /// Too many actions wait for a relay.
    #[error("100 actions wait for the relay of outbox {outbox}: try again shortly")]
    RelayBusy {
        /// The outbox.
        outbox: String,
    },
    /// The relay could not carry the action out.
    #[error("the relay could not do it: {message} ({code})")]
    RelayRefused {
        /// The code of its error.
        code: String,
        /// The text of its error.
        message: String,
    },
    /// The limit of concurrent views is reached.
    #[error("`admin.views_max` views are under way: try again shortly")]
    TooManyViews,
    /// The limit of concurrent live views is reached.
    #[error("`admin.live_max` live views are open: close a console, or ask without `live`")]
    TooManyLiveViews,
    /// The path does not exist.
    #[error("there is no such path: see /api/v1/openapi.json")]
    NoRoute,
    /// The path exists, for another method.
    #[error("this path does not take this method: see /api/v1/openapi.json")]
    NoMethod,
    /// The request took longer than allowed.
    #[error("no answer within `admin.request_timeout_ms`: an action may still be carried out")]
    Timeout,
    /// The action was not executed, because it could not be recorded.
    #[error("the audit log cannot be written, so the action is not carried out: {0}")]
    NotRecorded(String),
    /// The action was executed, and its outcome could not be recorded.
    #[error("the action was carried out ({outcome}), but the audit log cannot be written: {error}")]
    OutcomeNotRecorded {
        /// The outcome of the action.
        outcome: String,
        /// Why it could not be recorded.
        error: String,
    },
    /// An internal error of the server.
    #[error("unforeseen: {0}")]
    Unforeseen(String),
}

impl ApiError {
    /// Returns the stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Access(error) => error.code(),
            Self::ForeignPage => "HF-ADM-FOREIGN-PAGE",
            Self::ForeignHost(_) => "HF-ADM-FOREIGN-HOST",
            Self::Rejected(rejection) => rejection.code(),
            Self::Engine(error) => error.code(),
            Self::Store(error) => error.code(),
            Self::LeaderUnreachable { .. } => "HF-ADM-LEADER-UNREACHABLE",
            Self::NoOtherNode => "HF-ADM-NO-OTHER-NODE",
            Self::BadRequest(_) => "HF-ADM-BAD-REQUEST",
            Self::Unusable(error) => error.code(),
            Self::SagaForm(_) => saga_json::CODE,
            Self::BodyTooLarge => "HF-ADM-BODY-TOO-LARGE",
            Self::UrlTooLong => "HF-ADM-URL-TOO-LONG",
            Self::NotConfirmed => "HF-ADM-NOT-CONFIRMED",
            Self::NotLocked { .. } => "HF-ADM-NOT-LOCKED",
            Self::UnknownEvent { .. } => "HF-ADM-UNKNOWN-EVENT",
            Self::RelaySilent { .. } => "HF-ADM-RELAY-SILENT",
            Self::RelayBusy { .. } => "HF-ADM-RELAY-BUSY",
            Self::RelayRefused { .. } => "HF-ADM-RELAY-REFUSED",
            Self::TooManyViews => "HF-ADM-TOO-MANY-VIEWS",
            Self::TooManyLiveViews => "HF-ADM-TOO-MANY-LIVE-VIEWS",
            Self::NoRoute => "HF-ADM-NO-ROUTE",
            Self::NoMethod => "HF-ADM-NO-METHOD",
            Self::Timeout => "HF-ADM-TIMEOUT",
            Self::NotRecorded(_) => "HF-ADM-NOT-RECORDED",
            Self::OutcomeNotRecorded { .. } => "HF-ADM-OUTCOME-NOT-RECORDED",
            Self::Unforeseen(_) => "HF-ADM-UNFORESEEN",
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::Access(AccessError::Unauthenticated) => StatusCode::UNAUTHORIZED,
            Self::Access(AccessError::Forbidden { .. })
            | Self::ForeignPage
            | Self::ForeignHost(_) => StatusCode::FORBIDDEN,
            Self::Rejected(rejection) => rejection_status(rejection),
            Self::Engine(_) | Self::Store(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::LeaderUnreachable { .. } => StatusCode::BAD_GATEWAY,
            Self::NoOtherNode | Self::NotConfirmed => StatusCode::CONFLICT,
            Self::BadRequest(_) | Self::Unusable(_) | Self::SagaForm(_) => StatusCode::BAD_REQUEST,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UrlTooLong => StatusCode::URI_TOO_LONG,
            Self::TooManyViews | Self::TooManyLiveViews | Self::RelayBusy { .. } => {
                StatusCode::TOO_MANY_REQUESTS
            }
            Self::NotLocked { .. } | Self::UnknownEvent { .. } | Self::NoRoute => {
                StatusCode::NOT_FOUND
            }
            Self::RelayRefused { .. } => StatusCode::CONFLICT,
            Self::RelaySilent { .. } => StatusCode::GATEWAY_TIMEOUT,
            Self::NoMethod => StatusCode::METHOD_NOT_ALLOWED,
            Self::Timeout => StatusCode::GATEWAY_TIMEOUT,
            Self::NotRecorded(_) | Self::OutcomeNotRecorded { .. } | Self::Unforeseen(_) => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        }
    }
}

fn rejection_status(rejection: &Rejection) -> StatusCode {
    match rejection {
        Rejection::UnknownXid(_)
        | Rejection::UnknownBranch { .. }
        | Rejection::LockNotHeld { .. } => StatusCode::NOT_FOUND,
        Rejection::LimitReached { .. } | Rejection::ShareReached { .. } => {
            StatusCode::TOO_MANY_REQUESTS
        }
        Rejection::AlreadyDecided { .. }
        | Rejection::Voting(_)
        | Rejection::XidNotLent(_)
        | Rejection::RowLocked { .. }
        | Rejection::RowNeedsOperator { .. }
        | Rejection::Deadlock { .. }
        | Rejection::BranchMismatch { .. }
        | Rejection::NotApplicable { .. }
        | Rejection::SagaMismatch { .. }
        | Rejection::UnknownSignal { .. }
        | Rejection::LockParts { .. }
        | Rejection::LockTokenTaken { .. }
        | Rejection::LockRollingBack { .. }
        | Rejection::PastPivot { .. } => StatusCode::CONFLICT,
        Rejection::SagaInvalid { .. } => StatusCode::BAD_REQUEST,
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = self.status();
        if status.is_server_error() {
            note(PortName::Admin, Why::Failed, None, &format_args!("{}: {self}", self.code()));
        }
        let problem = Problem { code: self.code().to_owned(), message: self.to_string() };
        let mut response = (status, Json(problem)).into_response();
        let problem = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(CONTENT_TYPE, problem);
        if matches!(self, Self::TooManyViews | Self::TooManyLiveViews) {
            note(PortName::Admin, Why::Busy, None, &self);
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if status == StatusCode::UNAUTHORIZED {
            let bearer = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(WWW_AUTHENTICATE, bearer);
        }
        response
    }
}

impl From<JsonRejection> for ApiError {
    fn from(rejection: JsonRejection) -> Self {
        if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
            return Self::BodyTooLarge;
        }
        Self::BadRequest(rejection.body_text())
    }
}

impl From<QueryRejection> for ApiError {
    fn from(rejection: QueryRejection) -> Self {
        Self::BadRequest(rejection.body_text())
    }
}

impl From<PathRejection> for ApiError {
    fn from(rejection: PathRejection) -> Self {
        Self::BadRequest(rejection.body_text())
    }
}

pub(super) async fn no_route() -> ApiError {
    ApiError::NoRoute
}

pub(super) async fn no_method() -> ApiError {
    ApiError::NoMethod
}
