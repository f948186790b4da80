//! Coordinators of one cluster, each inside the test's own process, which can be killed.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use handfast_server::config::{Config, StoreKind};
use handfast_server::serve::{RunningServer, Server};
use tokio::runtime::{Builder, Runtime};

/// The lease of the lead: a killed leader is followed soon.
const LEASE_MS: u64 = 2_000;

/// The store that the nodes share.
#[derive(Clone, Debug)]
pub enum ClusterStore {
    /// A database at this URL, which may have unsafe settings.
    Sql(String),
    /// An etcd cluster with this member, and the namespace of the nodes.
    Etcd {
        /// The URL of the member.
        endpoint: String,
        /// The namespace.
        namespace: String,
    },
}

/// Returns the configuration of a node. Its files are in `folder`, its ports are free ones.
///
/// # Panics
/// If the URL is none, or the folder cannot be written.
pub fn cluster_config(store: &ClusterStore, folder: &Path, name: &str) -> Config {
    let free = "127.0.0.1:0".parse().expect("it is an address");
    let mut config = Config {
        advertised_address: Some("tc:7091".to_owned()),
        data_dir: folder.join(name),
        shutdown_limit_ms: 30_000,
        ..Config::default()
    };
    (config.grpc.listen, config.admin.listen, config.seata.listen) = (free, free, free);
    config.seata.enabled = true;
    (config.dispatch.retry_delay_ms_min, config.dispatch.retry_delay_ms_max) = (1, 20);
    config.cluster.node = Some(name.to_owned());
    config.cluster.lease_ms = LEASE_MS;
    match store {
        ClusterStore::Sql(url) => use_database(&mut config, url, folder),
        ClusterStore::Etcd { endpoint, namespace } => {
            config.store = StoreKind::Etcd;
            config.etcd.endpoints = vec![endpoint.clone()];
            config.cluster.namespace.clone_from(namespace);
        }
    }
    config
}

fn use_database(config: &mut Config, url: &str, folder: &Path) {
    let (url, password) = without_password(url);
    let password_file = folder.join("password");
    fs::write(&password_file, format!("{password}\n")).expect("the folder can be written");
    config.store = StoreKind::Sql;
    config.sql.url = Some(url);
    config.sql.password_file = Some(password_file);
    config.sql.allow_unsafe = true;
}

/// Takes the password out of `scheme://user:password@host…`.
fn without_password(url: &str) -> (String, String) {
    let (scheme, rest) = url.split_once("://").expect("a database has a URL");
    let Some((user, host)) = rest.split_once('@') else { return (url.to_owned(), String::new()) };
    let (name, password) = user.split_once(':').unwrap_or((user, ""));
    (format!("{scheme}://{name}@{host}"), password.to_owned())
}

/// A coordinator in a runtime of its own.
#[derive(Debug)]
pub struct ClusterNode {
    running: Option<(Runtime, RunningServer)>,
    grpc: SocketAddr,
    http: reqwest::Client,
}

impl ClusterNode {
    /// Starts a node. It leads if no other node does.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn start(config: Config) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime can be made");
        let started = runtime.spawn(Server::launch(config)).await;
        let server = started.expect("starting does not panic").expect("the node starts");
        let grpc = server.grpc_address;
        let http = reqwest::Client::builder().no_proxy().build().expect("a client can be made");
        Self { running: Some((runtime, server)), grpc, http }
    }

    /// Returns the endpoint for clients.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.grpc)
    }

    /// Returns whether this node leads.
    ///
    /// # Panics
    /// If it does not answer.
    pub async fn leads(&self) -> bool {
        let Some((_, server)) = &self.running else { return false };
        let url = format!("http://{}/readyz?leader", server.admin_address);
        let answer = self.http.get(url).send().await.expect("a running node answers");
        answer.status().is_success()
    }

    /// Ends the node in the middle of its work: its tasks are dropped at the point that each has
    /// reached.
    ///
    /// # Panics
    /// If a task panics while it is dropped.
    pub async fn kill(&mut self) {
        let Some((runtime, server)) = self.running.take() else { return };
        let killed = tokio::task::spawn_blocking(move || {
            // First: what is dropped cannot give up the lead any more.
            runtime.shutdown_background();
            drop(server);
        });
        killed.await.expect("killing does not panic");
    }

    /// Stops the node as planned.
    ///
    /// # Panics
    /// If it cannot be stopped in time.
    pub async fn stop(&mut self) {
        let Some((runtime, server)) = self.running.take() else { return };
        let stopped = runtime.spawn(server.shutdown()).await;
        stopped.expect("stopping does not panic").expect("the node stops");
        tokio::task::spawn_blocking(move || drop(runtime)).await.expect("nothing is left to drop");
    }
}

impl Drop for ClusterNode {
    fn drop(&mut self) {
        if let Some((runtime, server)) = self.running.take() {
            // An async test must not wait for another runtime.
            runtime.shutdown_background();
            drop(server);
        }
    }
}
