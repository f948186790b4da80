//! The TC's requests to an RM, and the answers.

use prost::Message;

use crate::error::WireError;
use crate::message::{BranchEnd, BranchEnded, UndoLogDelete};

use super::common::{
    Request, Response, branch_status, branch_status_number, branch_type, branch_type_number,
};

#[derive(Clone, PartialEq, Message)]
struct EndBase {
    #[prost(message, optional, tag = "1")]
    base: Option<Request>,
    #[prost(string, tag = "2")]
    xid: String,
    #[prost(int64, tag = "3")]
    branch_id: i64,
    #[prost(int32, tag = "4")]
    branch_type: i32,
    #[prost(string, tag = "5")]
    resource_id: String,
    #[prost(string, tag = "6")]
    application_data: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct End {
    #[prost(message, optional, tag = "1")]
    end: Option<EndBase>,
}

#[derive(Clone, PartialEq, Message)]
struct EndedBase {
    #[prost(message, optional, tag = "1")]
    base: Option<Response>,
    #[prost(string, tag = "2")]
    xid: String,
    #[prost(int64, tag = "3")]
    branch_id: i64,
    #[prost(int32, tag = "4")]
    status: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Ended {
    #[prost(message, optional, tag = "1")]
    end: Option<EndedBase>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct UndoDelete {
    #[prost(message, optional, tag = "1")]
    base: Option<Request>,
    #[prost(string, tag = "2")]
    resource_id: String,
    #[prost(int32, tag = "3")]
    save_days: i32,
    #[prost(int32, tag = "4")]
    branch_type: i32,
}

impl End {
    pub(super) fn of(it: &BranchEnd, code: i16) -> Result<Self, WireError> {
        Ok(Self {
            end: Some(EndBase {
                base: Request::of(code),
                xid: it.xid.clone(),
                branch_id: it.branch_id,
                branch_type: branch_type_number(it.branch_type)?,
                resource_id: it.resource_id.clone(),
                application_data: it.application_data.clone(),
            }),
        })
    }
}

impl TryFrom<End> for BranchEnd {
    type Error = WireError;

    fn try_from(it: End) -> Result<Self, WireError> {
        let end = it.end.unwrap_or_default();
        Ok(Self {
            xid: end.xid,
            branch_id: end.branch_id,
            branch_type: branch_type(end.branch_type)?,
            resource_id: end.resource_id,
            application_data: end.application_data,
        })
    }
}

impl Ended {
    pub(super) fn of(it: &BranchEnded, code: i16) -> Self {
        Self {
            end: Some(EndedBase {
                base: Response::of(&it.result, code),
                xid: it.xid.clone(),
                branch_id: it.branch_id,
                status: branch_status_number(it.status),
            }),
        }
    }
}

impl TryFrom<Ended> for BranchEnded {
    type Error = WireError;

    fn try_from(it: Ended) -> Result<Self, WireError> {
        let end = it.end.unwrap_or_default();
        Ok(Self {
            result: Response::into_result(end.base),
            xid: end.xid,
            branch_id: end.branch_id,
            status: branch_status(end.status)?,
        })
    }
}

impl UndoDelete {
    pub(super) fn of(it: &UndoLogDelete, code: i16) -> Result<Self, WireError> {
        Ok(Self {
            base: Request::of(code),
            resource_id: it.resource_id.clone(),
            save_days: i32::from(it.save_days),
            branch_type: branch_type_number(it.branch_type)?,
        })
    }
}

impl TryFrom<UndoDelete> for UndoLogDelete {
    type Error = WireError;

    fn try_from(it: UndoDelete) -> Result<Self, WireError> {
        let save_days = i16::try_from(it.save_days).map_err(|_| WireError::BadValue {
            field: "saveDays",
            value: i64::from(it.save_days),
        })?;
        let branch_type = branch_type(it.branch_type)?;
        Ok(Self { branch_type, resource_id: it.resource_id, save_days })
    }
}
