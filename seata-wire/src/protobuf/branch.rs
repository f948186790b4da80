//! Branches in phase one: register, report, lock query.

use prost::Message;

use crate::error::WireError;
use crate::message::{
    BranchRegister, BranchRegistered, BranchReport, BranchReported, GlobalLockQueried,
};

use super::common::{
    Request, Response, branch_status, branch_status_number, branch_type, branch_type_number,
};

#[derive(Clone, PartialEq, Message)]
pub(super) struct Register {
    #[prost(message, optional, tag = "1")]
    base: Option<Request>,
    #[prost(string, tag = "2")]
    xid: String,
    #[prost(int32, tag = "3")]
    branch_type: i32,
    #[prost(string, tag = "4")]
    resource_id: String,
    #[prost(string, tag = "5")]
    lock_key: String,
    #[prost(string, tag = "6")]
    application_data: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Registered {
    #[prost(message, optional, tag = "1")]
    base: Option<Response>,
    #[prost(int64, tag = "2")]
    branch_id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Report {
    #[prost(message, optional, tag = "1")]
    base: Option<Request>,
    #[prost(string, tag = "2")]
    xid: String,
    #[prost(int64, tag = "3")]
    branch_id: i64,
    #[prost(string, tag = "4")]
    resource_id: String,
    #[prost(int32, tag = "5")]
    status: i32,
    #[prost(string, tag = "6")]
    application_data: String,
    #[prost(int32, tag = "7")]
    branch_type: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Reported {
    #[prost(message, optional, tag = "1")]
    base: Option<Response>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Query {
    #[prost(message, optional, tag = "1")]
    register: Option<Register>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Queried {
    #[prost(message, optional, tag = "1")]
    base: Option<Response>,
    #[prost(bool, tag = "2")]
    lockable: bool,
}

impl Register {
    pub(super) fn of(it: &BranchRegister, code: i16) -> Result<Self, WireError> {
        Ok(Self {
            base: Request::of(code),
            xid: it.xid.clone(),
            branch_type: branch_type_number(it.branch_type)?,
            resource_id: it.resource_id.clone(),
            lock_key: it.lock_key.clone(),
            application_data: it.application_data.clone(),
        })
    }
}

impl TryFrom<Register> for BranchRegister {
    type Error = WireError;

    fn try_from(it: Register) -> Result<Self, WireError> {
        Ok(Self {
            xid: it.xid,
            branch_type: branch_type(it.branch_type)?,
            resource_id: it.resource_id,
            lock_key: it.lock_key,
            application_data: it.application_data,
        })
    }
}

impl Registered {
    pub(super) fn of(it: &BranchRegistered, code: i16) -> Self {
        Self { base: Response::of(&it.result, code), branch_id: it.branch_id }
    }
}

impl From<Registered> for BranchRegistered {
    fn from(it: Registered) -> Self {
        Self { result: Response::into_result(it.base), branch_id: it.branch_id }
    }
}

impl Report {
    pub(super) fn of(it: &BranchReport, code: i16) -> Result<Self, WireError> {
        Ok(Self {
            base: Request::of(code),
            xid: it.xid.clone(),
            branch_id: it.branch_id,
            resource_id: it.resource_id.clone(),
            status: branch_status_number(it.status),
            application_data: it.application_data.clone(),
            branch_type: branch_type_number(it.branch_type)?,
        })
    }
}

impl TryFrom<Report> for BranchReport {
    type Error = WireError;

    fn try_from(it: Report) -> Result<Self, WireError> {
        Ok(Self {
            xid: it.xid,
            branch_id: it.branch_id,
            status: branch_status(it.status)?,
            resource_id: it.resource_id,
            application_data: it.application_data,
            branch_type: branch_type(it.branch_type)?,
        })
    }
}

impl Reported {
    pub(super) fn of(it: &BranchReported, code: i16) -> Self {
        Self { base: Response::of(&it.result, code) }
    }
}

impl From<Reported> for BranchReported {
    fn from(it: Reported) -> Self {
        Self { result: Response::into_result(it.base) }
    }
}

impl Query {
    pub(super) fn of(it: &BranchRegister, code: i16) -> Result<Self, WireError> {
        Ok(Self { register: Some(Register::of(it, code)?) })
    }
}

impl TryFrom<Query> for BranchRegister {
    type Error = WireError;

    fn try_from(it: Query) -> Result<Self, WireError> {
        it.register.unwrap_or_default().try_into()
    }
}

impl Queried {
    pub(super) fn of(it: &GlobalLockQueried, code: i16) -> Self {
        Self { base: Response::of(&it.result, code), lockable: it.lockable }
    }
}

impl From<Queried> for GlobalLockQueried {
    fn from(it: Queried) -> Self {
        Self { result: Response::into_result(it.base), lockable: it.lockable }
    }
}
