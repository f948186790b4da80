//! Globals: begin, commit, roll back, status, report.

use prost::Message;

use crate::error::WireError;
use crate::message::{GlobalBegin, GlobalBegun, GlobalEnd, GlobalReport, GlobalStatusAnswer};

use super::common::{Request, Response, global_status, global_status_number};

#[derive(Clone, PartialEq, Message)]
pub(super) struct Begin {
    #[prost(message, optional, tag = "1")]
    base: Option<Request>,
    #[prost(int32, tag = "2")]
    timeout: i32,
    #[prost(string, tag = "3")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Begun {
    #[prost(message, optional, tag = "1")]
    base: Option<Response>,
    #[prost(string, tag = "2")]
    xid: String,
    #[prost(string, tag = "3")]
    extra_data: String,
}

#[derive(Clone, PartialEq, Message)]
struct EndBase {
    #[prost(message, optional, tag = "1")]
    base: Option<Request>,
    #[prost(string, tag = "2")]
    xid: String,
    #[prost(string, tag = "3")]
    extra_data: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct End {
    #[prost(message, optional, tag = "1")]
    end: Option<EndBase>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Report {
    #[prost(message, optional, tag = "1")]
    end: Option<EndBase>,
    #[prost(int32, tag = "2")]
    status: i32,
}

#[derive(Clone, PartialEq, Message)]
struct StatusAnswerBase {
    #[prost(message, optional, tag = "1")]
    base: Option<Response>,
    #[prost(int32, tag = "2")]
    status: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StatusAnswer {
    #[prost(message, optional, tag = "1")]
    end: Option<StatusAnswerBase>,
}

impl Begin {
    pub(super) fn of(it: &GlobalBegin, code: i16) -> Self {
        Self { base: Request::of(code), timeout: it.timeout_ms, name: it.name.clone() }
    }
}

impl From<Begin> for GlobalBegin {
    fn from(it: Begin) -> Self {
        Self { timeout_ms: it.timeout, name: it.name }
    }
}

impl Begun {
    pub(super) fn of(it: &GlobalBegun, code: i16) -> Self {
        let (xid, extra_data) = (it.xid.clone(), it.extra_data.clone());
        Self { base: Response::of(&it.result, code), xid, extra_data }
    }
}

impl From<Begun> for GlobalBegun {
    fn from(it: Begun) -> Self {
        let result = Response::into_result(it.base);
        Self { result, xid: it.xid, extra_data: it.extra_data }
    }
}

impl EndBase {
    fn of(xid: &str, extra_data: &str, code: i16) -> Option<Self> {
        let (xid, extra_data) = (xid.to_owned(), extra_data.to_owned());
        Some(Self { base: Request::of(code), xid, extra_data })
    }
}

impl End {
    pub(super) fn of(it: &GlobalEnd, code: i16) -> Self {
        Self { end: EndBase::of(&it.xid, &it.extra_data, code) }
    }
}

impl From<End> for GlobalEnd {
    fn from(it: End) -> Self {
        let end = it.end.unwrap_or_default();
        Self { xid: end.xid, extra_data: end.extra_data }
    }
}

impl Report {
    /// Writes a missing status as unknown, as Java does: there is no form for "none".
    pub(super) fn of(it: &GlobalReport, code: i16) -> Self {
        let status = it.status.map_or(0, global_status_number);
        Self { end: EndBase::of(&it.xid, &it.extra_data, code), status }
    }
}

impl TryFrom<Report> for GlobalReport {
    type Error = WireError;

    fn try_from(it: Report) -> Result<Self, WireError> {
        let end = it.end.unwrap_or_default();
        let status = Some(global_status(it.status)?);
        Ok(Self { xid: end.xid, extra_data: end.extra_data, status })
    }
}

impl StatusAnswer {
    pub(super) fn of(it: &GlobalStatusAnswer, code: i16) -> Self {
        let status = global_status_number(it.status);
        Self { end: Some(StatusAnswerBase { base: Response::of(&it.result, code), status }) }
    }
}

impl TryFrom<StatusAnswer> for GlobalStatusAnswer {
    type Error = WireError;

    fn try_from(it: StatusAnswer) -> Result<Self, WireError> {
        let end = it.end.unwrap_or_default();
        let status = global_status(end.status)?;
        Ok(Self { result: Response::into_result(end.base), status })
    }
}
