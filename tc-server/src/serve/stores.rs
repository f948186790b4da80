//! Opens the store that the configuration names, as this node of those that share it.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use handfast_etcd::EtcdOptions;
use reqwest::Url;

use super::StartError;
use super::runtime::open_directory;
use crate::config::{Config, ConfigError, Problem, Source, StoreKind};
use crate::store::{
    CoordinatorNode, EtcdStore, EtcdStoreSettings, MemoryStore, RecordSource, SqlSettings,
    SqlStore, Store,
};

/// The addresses that a node listens on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listening {
    pub(super) grpc: SocketAddr,
    pub(super) admin: SocketAddr,
    pub(super) seata: Option<SocketAddr>,
}

/// Returns this node, as clients and other nodes reach it.
pub(super) fn node(config: &Config, listening: Listening) -> CoordinatorNode {
    let host = config.cluster.host.as_deref();
    let reached = |address: SocketAddr| match host {
        Some(host) => format!("{host}:{}", address.port()),
        None => address.to_string(),
    };
    let grpc = reached(listening.grpc);
    CoordinatorNode {
        id: config.cluster.node.clone().unwrap_or_else(|| grpc.clone()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        admin: reached(listening.admin),
        seata: listening.seata.map(reached),
        grpc,
    }
}

/// A store, and the way to its records while it is in use.
#[derive(Debug)]
pub(crate) struct OpenedStore {
    pub(crate) store: Arc<dyn Store>,
    /// Weak, since a store is closed when its last owner is dropped.
    pub(crate) records: Weak<dyn RecordSource>,
}

impl OpenedStore {
    fn of<S: Store + RecordSource>(store: S) -> Self {
        let store = Arc::new(store);
        let records: Weak<S> = Arc::downgrade(&store);
        Self { store, records }
    }
}

/// Opens the store. A shared one need not be reachable yet.
pub(crate) async fn open(
    config: &Config,
    node: CoordinatorNode,
) -> Result<OpenedStore, StartError> {
    Ok(match config.store {
        StoreKind::Memory => OpenedStore::of(MemoryStore::new()),
        StoreKind::Embedded => {
            let segment_bytes = config.journal_segment_bytes;
            OpenedStore::of(open_directory(config.data_dir.clone(), segment_bytes).await?)
        }
        StoreKind::Sql => OpenedStore::of(SqlStore::open(sql_settings(config, node)?).await?),
        StoreKind::Etcd => OpenedStore::of(EtcdStore::open(etcd_settings(config, node)?)?),
    })
}

/// Returns the settings of a store in a SQL database.
pub(crate) fn sql_settings(
    config: &Config,
    node: CoordinatorNode,
) -> Result<SqlSettings, ConfigError> {
    let mut settings = SqlSettings::new(sql_url(config)?, node);
    settings.namespace.clone_from(&config.cluster.namespace);
    settings.lease = Duration::from_millis(config.cluster.lease_ms);
    settings.tail_bytes = config.sql.tail_bytes;
    // In steps that are small beside a small tail.
    settings.compact_bytes = (config.sql.tail_bytes / 16).clamp(1, settings.compact_bytes);
    settings.allow_unsafe = config.sql.allow_unsafe;
    Ok(settings)
}

/// Returns the URL of the database with the password.
fn sql_url(config: &Config) -> Result<String, ConfigError> {
    let url = config.sql.url.clone().unwrap_or_default();
    let Some(file) = &config.sql.password_file else { return Ok(url) };
    let password = read_secret("sql.password_file", file)?;
    let mut url = Url::parse(&url).map_err(|error| problem("sql.url", &error))?;
    let set = url.set_password(Some(&password));
    set.map_err(|()| problem("sql.url", &"the URL takes no password"))?;
    Ok(url.into())
}

fn etcd_settings(config: &Config, node: CoordinatorNode) -> Result<EtcdStoreSettings, ConfigError> {
    let mut etcd = EtcdOptions::new(config.etcd.endpoints.iter());
    if let Some(file) = &config.etcd.authority {
        etcd = etcd.tls_ca(read("etcd.authority", file)?);
    }
    if let (Some(certificate), Some(key)) = (&config.etcd.certificate, &config.etcd.private_key) {
        let certificate = read("etcd.certificate", certificate)?;
        etcd = etcd.tls_identity(certificate, read("etcd.private_key", key)?);
    }
    if let (Some(user), Some(file)) = (&config.etcd.user, &config.etcd.password_file) {
        etcd = etcd.user(user, read_secret("etcd.password_file", file)?);
    }
    let namespace = config.cluster.namespace.clone();
    let lease = Duration::from_millis(config.cluster.lease_ms);
    let checkpoint_bytes = EtcdStoreSettings::CHECKPOINT_BYTES;
    Ok(EtcdStoreSettings { etcd, namespace, node, lease, checkpoint_bytes })
}

/// Reads a file that holds a secret and a line end.
fn read_secret(key: &str, file: &Path) -> Result<String, ConfigError> {
    Ok(read(key, file)?.trim_end_matches(['\r', '\n']).to_owned())
}

fn read(key: &str, file: &Path) -> Result<String, ConfigError> {
    fs::read_to_string(file).map_err(|error| problem(key, &format!("{}: {error}", file.display())))
}

fn problem(key: &str, why: &dyn std::fmt::Display) -> ConfigError {
    let message = format!("`{key}` {why}");
    ConfigError { problems: vec![Problem { source: Source::Whole, message }] }
}
