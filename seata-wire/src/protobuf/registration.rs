//! Registrations of TMs and RMs.

use prost::Message;

use crate::message::{Register, RegisterResources, Registered};

use super::common::{ResultBase, Typed};

#[derive(Clone, PartialEq, Message)]
struct Identify {
    #[prost(message, optional, tag = "1")]
    typed: Option<Typed>,
    #[prost(string, tag = "2")]
    version: String,
    #[prost(string, tag = "3")]
    application_id: String,
    #[prost(string, tag = "4")]
    transaction_service_group: String,
    #[prost(string, tag = "5")]
    extra_data: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Tm {
    #[prost(message, optional, tag = "1")]
    identify: Option<Identify>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Rm {
    #[prost(message, optional, tag = "1")]
    identify: Option<Identify>,
    #[prost(string, tag = "2")]
    resource_ids: String,
}

#[derive(Clone, PartialEq, Message)]
struct Identified {
    #[prost(message, optional, tag = "1")]
    result: Option<ResultBase>,
    #[prost(string, tag = "2")]
    version: String,
    #[prost(string, tag = "3")]
    extra_data: String,
    #[prost(bool, tag = "4")]
    identified: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Answer {
    #[prost(message, optional, tag = "1")]
    identified: Option<Identified>,
}

impl Identify {
    fn of(it: &Register, code: i16) -> Option<Self> {
        Some(Self {
            typed: Some(Typed::of(code)),
            version: it.version.clone(),
            application_id: it.application_id.clone(),
            transaction_service_group: it.transaction_service_group.clone(),
            extra_data: it.extra_data.clone(),
        })
    }

    fn into_register(it: Option<Self>) -> Register {
        let it = it.unwrap_or_default();
        Register {
            version: it.version,
            application_id: it.application_id,
            transaction_service_group: it.transaction_service_group,
            extra_data: it.extra_data,
        }
    }
}

impl Tm {
    pub(super) fn of(it: &Register, code: i16) -> Self {
        Self { identify: Identify::of(it, code) }
    }
}

impl From<Tm> for Register {
    fn from(it: Tm) -> Self {
        Identify::into_register(it.identify)
    }
}

impl Rm {
    pub(super) fn of(it: &RegisterResources, code: i16) -> Self {
        let resource_ids = it.resource_list.clone();
        Self { identify: Identify::of(&it.client, code), resource_ids }
    }
}

impl From<Rm> for RegisterResources {
    fn from(it: Rm) -> Self {
        Self { client: Identify::into_register(it.identify), resource_list: it.resource_ids }
    }
}

impl Answer {
    pub(super) fn of(it: &Registered, code: i16) -> Self {
        let plain = it.outcome.as_ref().copied().map_err(String::as_str);
        let result = Some(ResultBase::of(plain, code));
        let (version, extra_data) = (it.version.clone(), String::new());
        let identified = it.outcome.is_ok();
        Self { identified: Some(Identified { result, version, extra_data, identified }) }
    }
}

impl From<Answer> for Registered {
    fn from(it: Answer) -> Self {
        let it = it.identified.unwrap_or_default();
        let reason = it.result.unwrap_or_default().into_result().err().unwrap_or_default();
        let outcome = if it.identified { Ok(()) } else { Err(reason) };
        Self { outcome, version: it.version }
    }
}
