//! How clients introduce themselves.
//!
//! Sources: `core/.../protocol/AbstractIdentifyRequest.java`, `AbstractIdentifyResponse.java`.

/// Who a client is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Register {
    /// Its version of Seata.
    pub version: String,
    /// The application.
    pub application_id: String,
    /// The transaction service group: free text here.
    pub transaction_service_group: String,
    /// Lines of `key=value` from a TM of Java, such as its access key and digest; else empty.
    pub extra_data: String,
}

/// An RM and its resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegisterResources {
    /// Who it is.
    pub client: Register,
    /// Their ids with commas between them; see [`resource_ids`](Self::resource_ids).
    pub resource_list: String,
}

impl RegisterResources {
    /// The ids.
    pub fn resource_ids(&self) -> impl Iterator<Item = &str> {
        self.resource_list.split(',').filter(|id| !id.is_empty())
    }
}

/// The answer to a registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    /// A refusal's reason is empty at the client's end in v1, which does not carry it.
    pub outcome: Result<(), String>,
    /// The server's version. Clients up to 2.6.0 show it and use it for nothing, so that in v1 it
    /// is where a refusal can say why.
    pub version: String,
}

impl Registered {
    /// An acceptance.
    #[must_use]
    pub fn accepted(version: &str) -> Self {
        Self { outcome: Ok(()), version: version.to_owned() }
    }

    /// A refusal whose reason is shown by clients of either frame version.
    #[must_use]
    pub fn refused(version: &str, reason: &str) -> Self {
        Self { outcome: Err(reason.to_owned()), version: format!("{version} ({reason})") }
    }
}
