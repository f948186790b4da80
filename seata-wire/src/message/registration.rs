//! Registrations of clients.
//!
//! Sources: `core/.../protocol/AbstractIdentifyRequest.java`, `AbstractIdentifyResponse.java`.

/// The identity of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Register {
    /// Its version of Seata.
    pub version: String,
    /// The application.
    pub application_id: String,
    /// The transaction service group: free text here.
    pub transaction_service_group: String,
    /// Lines of `key=value` from a Java TM, such as its access key and digest; otherwise empty.
    pub extra_data: String,
}

/// An RM and its resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegisterResources {
    /// Its identity.
    pub client: Register,
    /// Their ids with commas between them; see [`resource_ids`](Self::resource_ids).
    pub resource_list: String,
}

impl RegisterResources {
    /// Returns the ids.
    pub fn resource_ids(&self) -> impl Iterator<Item = &str> {
        self.resource_list.split(',').filter(|id| !id.is_empty())
    }
}

/// The answer to a registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    /// The reason of a refusal. Version 1 does not carry it, so it is empty at the client then.
    pub outcome: Result<(), String>,
    /// The server's version. Clients up to 2.6.0 only show it, so in version 1 it carries the
    /// reason of a refusal.
    pub version: String,
}

impl Registered {
    /// Returns an acceptance.
    #[must_use]
    pub fn accepted(version: &str) -> Self {
        Self { outcome: Ok(()), version: version.to_owned() }
    }

    /// Returns a refusal whose reason is shown by clients of either frame version.
    #[must_use]
    pub fn refused(version: &str, reason: &str) -> Self {
        Self { outcome: Err(reason.to_owned()), version: format!("{version} ({reason})") }
    }
}
