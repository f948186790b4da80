//! The sender of a request, and whose share of a limit is used up.

use std::fmt;
use std::sync::Arc;

/// A client's process, or its connection if nothing more is known of it. 0 stands for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// The sender of a request. Without a client, or without an application, it is not limited to the
/// share of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asker {
    /// The client's process, or its connection.
    pub client: ClientId,
    /// The application.
    pub application: Arc<str>,
}

/// The owner of a share that is used up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShareOf {
    /// The connection over which the request came.
    Connection,
    /// An application.
    Application(Arc<str>),
}

impl ShareOf {
    /// Returns the setting for the size of the share.
    #[must_use]
    pub fn setting(&self) -> &'static str {
        match self {
            Self::Connection => "limits.share_per_connection",
            Self::Application(_) => "limits.share_per_application",
        }
    }
}

impl fmt::Display for ShareOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connection => f.write_str("this connection"),
            Self::Application(name) => write!(f, "application {name}"),
        }
    }
}
