//! Several coordinators on one store, and the stores that they can share.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::unset_is_empty;
use crate::store::SqlSettings;

/// Several coordinators on one store, of which one leads. Used by the stores that can be shared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterConfig {
    /// The name of this node, which no other node of the store may have. Unset: its host and the
    /// port of the native API.
    #[serde(with = "unset_is_empty")]
    pub node: Option<String>,
    /// The host name or address under which clients and the other nodes reach this node. Unset: the
    /// address that it listens on.
    #[serde(with = "unset_is_empty")]
    pub host: Option<String>,
    /// The name of this cluster among those that share a database. Coordinators of different
    /// namespaces know nothing of each other's transactions.
    pub namespace: String,
    /// Certificates of the authorities that signed the nodes' certificates, PEM: requests that are
    /// passed on to the leader go over TLS if this node has a certificate. Unset: the system's.
    #[serde(with = "unset_is_empty")]
    pub authority: Option<PathBuf>,
    /// How long the lead lasts without being renewed, in milliseconds. Too short: a pause of the
    /// store or of this process costs the lead. Too long: after a crash no node leads for that
    /// long.
    pub lease_ms: u64,
}

/// The store in a SQL database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SqlConfig {
    /// The database, `postgres://user@host:5432/database` or `mysql://user@host:3306/database`,
    /// without the password. It should be a server that replicates synchronously: what the server
    /// forgets in a fail-over, the coordinators have forgotten.
    #[serde(with = "unset_is_empty")]
    pub url: Option<String>,
    /// The file with the password of the user, and nothing else but a line end. Unset: none.
    #[serde(with = "unset_is_empty")]
    pub password_file: Option<PathBuf>,
    /// Bytes of the journal, the newest and compressed, that stay in it as they are. Too few:
    /// finished transactions are put into the table of the records and deleted from it again before
    /// long. Too many: they take up space and memory, and a new leader reads for longer.
    pub tail_bytes: u64,
    /// Accepts a database whose settings could lose acknowledged changes in a crash. For
    /// development.
    pub allow_unsafe: bool,
}

/// The store in an etcd cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EtcdConfig {
    /// The members, such as `https://etcd-1:2379`. The cluster should be the coordinators' own: its
    /// history is compacted for all of its users.
    pub endpoints: Vec<String>,
    /// The user, if the cluster has authentication.
    #[serde(with = "unset_is_empty")]
    pub user: Option<String>,
    /// The file with the password of the user, and nothing else but a line end.
    #[serde(with = "unset_is_empty")]
    pub password_file: Option<PathBuf>,
    /// Certificates of the authorities that signed the members' certificates, PEM.
    #[serde(with = "unset_is_empty")]
    pub authority: Option<PathBuf>,
    /// The certificate that identifies this coordinator to the members, PEM.
    #[serde(with = "unset_is_empty")]
    pub certificate: Option<PathBuf>,
    /// The certificate's private key, PEM.
    #[serde(with = "unset_is_empty")]
    pub private_key: Option<PathBuf>,
}

impl Default for SqlConfig {
    fn default() -> Self {
        Self {
            url: None,
            password_file: None,
            tail_bytes: SqlSettings::TAIL_BYTES,
            allow_unsafe: false,
        }
    }
}

impl Default for ClusterConfig {
    fn default() -> Self {
        let namespace = "default".to_owned();
        Self { node: None, host: None, namespace, authority: None, lease_ms: 1_500 }
    }
}
