//! The configuration and its defaults.
//!
//! There is one struct per component, and every field documents what goes wrong at either extreme.
//! Module `layers` reads the file, the environment and the flags, and `validate` checks the result.
//! The configuration names files with secrets and never contains a secret itself, so that it can be
//! printed.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use handfast_core::Limits;
use serde::{Deserialize, Serialize};

use crate::clock::millis;
use crate::store::SEGMENT_BYTES;
use crate::{dispatch, engine, grpc, over_http};

mod cluster;
mod layers;
mod seata;
mod telemetry;
mod validate;
mod webhook;

pub use cluster::{ClusterConfig, EtcdConfig, SqlConfig};
pub use layers::{ConfigError, ENVIRONMENT_PREFIX, Given, Problem, Source, environment_name, keys};
pub use seata::SeataConfig;
pub use telemetry::TelemetryConfig;
pub use webhook::WebhookConfig;

/// The whole configuration of a coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The address in the text form of XIDs, `host:port`. Unset: the address that gRPC listens on.
    /// It need not be reachable. Nodes of one cluster have the same. Two coordinators with stores
    /// of their own whose clients share a database must have different addresses, or the names of
    /// their undo logs collide.
    #[serde(with = "unset_is_empty")]
    pub advertised_address: Option<String>,
    /// The directory of the embedded store and the audit log. On a volatile file system a restart
    /// forgets undecided and unfinished globals.
    pub data_dir: PathBuf,
    /// The store that keeps the records.
    pub store: StoreKind,
    /// The size of each of the two files of the embedded store's journal, in bytes. Too small:
    /// finished globals are carried over from it before they are forgotten (`limits.history_max`),
    /// which keeps the store busy. Too large: they take disk space, and a start takes longer.
    pub journal_segment_bytes: u64,
    /// How long a shutdown waits for requests in progress and for clients to disconnect, in
    /// milliseconds. Too short: clients see broken streams and repeat requests after the restart.
    /// Too long: a dead client delays the restart.
    pub shutdown_limit_ms: u64,
    /// The native API.
    pub grpc: GrpcConfig,
    /// REST, health and metrics.
    pub admin: AdminConfig,
    /// The port for clients of Apache Seata.
    pub seata: SeataConfig,
    /// The engine, the loop that decides.
    pub engine: EngineConfig,
    /// Several coordinators on one store.
    pub cluster: ClusterConfig,
    /// The store in a SQL database.
    pub sql: SqlConfig,
    /// The store in an etcd cluster.
    pub etcd: EtcdConfig,
    /// The limits for clients.
    pub limits: Limits,
    /// Pauses and limits of phase two.
    pub dispatch: DispatchConfig,
    /// Participants that are called over HTTP.
    pub http: HttpConfig,
    /// Where alerts are sent.
    pub webhook: WebhookConfig,
    /// Where spans are sent.
    pub telemetry: TelemetryConfig,
    /// Encryption.
    pub tls: TlsConfig,
    /// Tokens and the audit log.
    pub security: SecurityConfig,
    /// The log's content and format.
    pub log: LogConfig,
}

/// The kinds of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StoreKind {
    /// In memory, for tests and benchmarks: nothing survives the process.
    Memory,
    /// A key-value engine in the data directory; each batch is synced before it is acknowledged.
    Embedded,
    /// In a PostgreSQL, MySQL or MariaDB database that several coordinators share.
    Sql,
    /// In an etcd cluster that several coordinators share.
    Etcd,
}

impl StoreKind {
    /// Returns whether several coordinators can share it.
    #[must_use]
    pub fn is_shared(self) -> bool {
        match self {
            Self::Sql | Self::Etcd => true,
            Self::Memory | Self::Embedded => false,
        }
    }

    /// Returns its name in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Embedded => "embedded",
            Self::Sql => "sql",
            Self::Etcd => "etcd",
        }
    }
}

/// The native API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrpcConfig {
    /// The address to listen on. Port 0 takes a free port.
    pub listen: SocketAddr,
    /// The largest message that is read. Too small: registrations of branches with many rows are
    /// refused. Too large: a few faulty clients fill the memory.
    pub message_bytes_max: usize,
    /// Replies and phase-two calls queued for one connection. Too small: a client that is slow for
    /// a moment is disconnected. Too large: a client that has stopped reading fills the memory.
    pub queue_messages_max: usize,
    /// Connections at a time; a further one is closed at once. Too few: processes cannot connect.
    /// Too many: the number of file descriptors limits them instead.
    pub connections_max: usize,
    /// How long a client may take for the TLS handshake, and again for the HTTP/2 preface, in
    /// milliseconds; then it is disconnected. Too short: clients over a slow network cannot
    /// connect. Too long: silent clients occupy connections.
    pub silence_timeout_ms: u64,
}

/// REST, health and metrics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdminConfig {
    /// The address to listen on. Port 0 takes a free port.
    pub listen: SocketAddr,
    /// How long a request may take, in milliseconds. Too short: actions are answered as unknown
    /// although they happen. Too long: clients of a stuck store hang.
    pub request_timeout_ms: u64,
    /// The largest body that is read. Too small: actions on many transactions are refused. Too
    /// large: a few faulty clients fill the memory.
    pub body_bytes_max: usize,
    /// The most items on one page of a list. Too small: scripts need many requests. Too large: one
    /// request delays the engine while it is answered.
    pub page_items_max: usize,
    /// Lists and views of one transaction or lock that run at a time; a further one is refused. Too
    /// few: operators and dashboards must try again. Too many: their answers, up to a megabyte
    /// each, fill the memory.
    pub views_max: usize,
    /// Live views that are open at a time; a further one is refused, and a page of the console then
    /// asks every few seconds. Too few: consoles are less lively. Too many: each asks once a
    /// second, and takes a connection.
    pub live_max: usize,
    /// Records that one request for a page examines. Then it is answered with the items found,
    /// perhaps none, and a cursor. Too few: scripts need many requests for rare items. Too many:
    /// such requests delay others.
    pub scan_records_max: usize,
    /// Connections at a time; a further one is closed at once. Too few: one script can occupy them
    /// all. Too many: the number of file descriptors limits them instead.
    pub connections_max: usize,
    /// How long a client may be silent before the header of a request is complete, and how long it
    /// may read nothing of an answer, in milliseconds; then it is disconnected. Too short: pooled
    /// connections break between requests. Too long: silent clients occupy connections.
    pub silence_timeout_ms: u64,
}

/// Pauses and limits of phase two.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DispatchConfig {
    /// The first pause after a failed attempt, in milliseconds; it doubles with each further one.
    /// Too short: a database that is down is hammered. Too long: a hiccup keeps rows locked.
    pub retry_delay_ms_min: u64,
    /// The longest pause between attempts, in milliseconds. Too short: as above. Too long: rows
    /// stay locked long after the database is back.
    pub retry_delay_ms_max: u64,
    /// How long a call waits for its answer before another process is asked, in milliseconds. Too
    /// short: slow rollbacks are done twice, harmlessly. Too long: a stuck process delays them.
    pub answer_timeout_ms: u64,
    /// The most branches in one call. Too small: one message per branch. Too large: one late
    /// answer.
    pub batch_branches_max: usize,
    /// The most application data in one call, in bytes. Too small: as above. Too large: calls over
    /// the message limit of clients.
    pub batch_bytes_max: usize,
    /// The most branches that one process may owe an answer for. Too small: idle processes. Too
    /// large: a stuck process takes more with it.
    pub in_flight_max: usize,
}

/// Participants that are called over HTTP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpConfig {
    /// How long one call may take, in milliseconds, from its connection to the end of its answer.
    /// Too short: slow operations are called again while they run. Too long: a dead participant is
    /// retried rarely.
    pub timeout_ms: u64,
    /// The longest answer that is read, in bytes. Too small: outputs of saga steps are lost. Too
    /// large: a faulty participant fills the memory.
    pub response_bytes_max: usize,
    /// Calls to one participant at a time. Too few: they wait for each other. Too many: the
    /// participant is overrun after an outage.
    pub calls_max: usize,
    /// The participants that may be called: the beginning of their URLs, and the file with the
    /// secret that signs the calls. No other URL is ever called.
    pub participants: Vec<HttpParticipant>,
}

/// One participant that is called over HTTP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpParticipant {
    /// The beginning of its URLs, up to a slash. A short prefix covers URLs that were not meant to
    /// be called.
    pub prefix: String,
    /// A file with at least 32 bytes. Participants that share one can call each other in the
    /// coordinator's name.
    pub secret_file: PathBuf,
}

/// The engine, the loop that decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineConfig {
    /// Requests that may wait for the engine. Too small: clients get `HF-TC-BUSY` in bursts that
    /// the engine would have managed. Too large: latency grows unnoticed.
    pub queue_max: usize,
    /// Requests decided into one batch. Too small: more syncs than needed. Too large: the first
    /// requests of a batch wait for the last.
    pub batch_max: usize,
}

/// Encryption. Certificate and key are set together. Without them both ports speak plain text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsConfig {
    /// The server's certificate chain, PEM.
    #[serde(with = "unset_is_empty")]
    pub certificate: Option<PathBuf>,
    /// The certificate's private key, PEM.
    #[serde(with = "unset_is_empty")]
    pub private_key: Option<PathBuf>,
    /// Certificates of the authorities that sign client certificates, PEM. If set, a gRPC client
    /// without a certificate signed by one of them is refused in the handshake.
    #[serde(with = "unset_is_empty")]
    pub client_authority: Option<PathBuf>,
}

/// Tokens and the audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecurityConfig {
    /// The file with the tokens' hashes, one line each as `handfast token new` prints it. Unset:
    /// every client that reaches a port may do everything on it.
    #[serde(with = "unset_is_empty")]
    pub tokens: Option<PathBuf>,
    /// The file that records operators' actions. Unset: `audit.jsonl` in the data directory with
    /// the embedded store and a shared one, the log with the memory store.
    #[serde(with = "unset_is_empty")]
    pub audit_log: Option<PathBuf>,
    /// Allows addresses that other machines reach without TLS or without tokens. Every client that
    /// reaches them can then end transactions and read the content of dirty rows.
    pub insecure_allow_plaintext_and_anonymous_on_non_loopback: bool,
}

/// The log's content and format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogConfig {
    /// One line of text or one JSON object per event, on standard error.
    pub format: LogFormat,
    /// The events that are logged: a level, or `tracing` directives such as
    /// `info,handfast_server=debug`. At `trace` the log costs more than the work. At `off` a
    /// transaction that needs an operator goes unnoticed.
    pub filter: String,
}

/// The form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Lines of text, for reading.
    Text,
    /// JSON objects, for log collectors.
    Json,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            advertised_address: None,
            data_dir: PathBuf::from("handfast-data"),
            store: StoreKind::Embedded,
            journal_segment_bytes: SEGMENT_BYTES,
            shutdown_limit_ms: 10_000,
            grpc: GrpcConfig::default(),
            admin: AdminConfig::default(),
            seata: SeataConfig::default(),
            engine: EngineConfig::default(),
            cluster: ClusterConfig::default(),
            sql: SqlConfig::default(),
            etcd: EtcdConfig::default(),
            limits: Limits::default(),
            dispatch: DispatchConfig::default(),
            http: HttpConfig::default(),
            webhook: WebhookConfig::default(),
            telemetry: TelemetryConfig::default(),
            tls: TlsConfig::default(),
            security: SecurityConfig::default(),
            log: LogConfig::default(),
        }
    }
}

impl Default for GrpcConfig {
    fn default() -> Self {
        let grpc::Bounds { message_bytes_max, queue_messages_max, .. } = grpc::Bounds::default();
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7091)),
            message_bytes_max,
            queue_messages_max,
            connections_max: 8_192,
            silence_timeout_ms: 10_000,
        }
    }
}

impl Default for AdminConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7092)),
            request_timeout_ms: 10_000,
            body_bytes_max: 128 * 1024,
            page_items_max: 1_000,
            views_max: 8,
            live_max: 32,
            scan_records_max: 65_536,
            connections_max: 256,
            silence_timeout_ms: 60_000,
        }
    }
}

impl Default for DispatchConfig {
    fn default() -> Self {
        Self::from(dispatch::Settings::default())
    }
}

impl From<dispatch::Settings> for DispatchConfig {
    fn from(settings: dispatch::Settings) -> Self {
        Self {
            retry_delay_ms_min: settings.retry_delay_ms_min,
            retry_delay_ms_max: settings.retry_delay_ms_max,
            answer_timeout_ms: settings.answer_timeout_ms,
            batch_branches_max: settings.batch_branches_max,
            batch_bytes_max: settings.batch_bytes_max,
            in_flight_max: settings.in_flight_max,
        }
    }
}

impl From<&DispatchConfig> for dispatch::Settings {
    fn from(config: &DispatchConfig) -> Self {
        Self {
            retry_delay_ms_min: config.retry_delay_ms_min,
            retry_delay_ms_max: config.retry_delay_ms_max,
            answer_timeout_ms: config.answer_timeout_ms,
            batch_branches_max: config.batch_branches_max,
            batch_bytes_max: config.batch_bytes_max,
            in_flight_max: config.in_flight_max,
        }
    }
}

impl Default for HttpConfig {
    fn default() -> Self {
        let over_http::Settings { timeout, response_bytes_max, calls_max, .. } =
            over_http::Settings::default();
        let timeout_ms = millis(timeout);
        Self { timeout_ms, response_bytes_max, calls_max, participants: Vec::new() }
    }
}

impl Default for EngineConfig {
    fn default() -> Self {
        let engine::Settings { queue_max, batch_max, .. } = engine::Settings::new("");
        Self { queue_max, batch_max }
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { format: LogFormat::Text, filter: "info,fjall=warn,lsm_tree=warn".to_owned() }
    }
}

impl Config {
    /// Returns a configuration for tests: nothing on disk, free ports, and limits so small that
    /// they are reached.
    #[must_use]
    pub fn tiny() -> Self {
        let free_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self {
            store: StoreKind::Memory,
            journal_segment_bytes: 16 << 10,
            shutdown_limit_ms: 2_000,
            grpc: GrpcConfig { listen: free_port, ..GrpcConfig::default() },
            admin: AdminConfig {
                listen: free_port,
                page_items_max: 3,
                scan_records_max: 64,
                ..AdminConfig::default()
            },
            seata: SeataConfig { listen: free_port, ..SeataConfig::default() },
            limits: Limits::tiny(),
            dispatch: DispatchConfig {
                retry_delay_ms_min: 1,
                retry_delay_ms_max: 20,
                batch_branches_max: 2,
                in_flight_max: 4,
                ..DispatchConfig::default()
            },
            ..Self::default()
        }
    }

    /// Returns the TOML text that would produce this configuration.
    ///
    /// # Panics
    ///
    /// Never: every field has a TOML form.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("every field of the configuration has a TOML form")
    }
}

/// Writes an unset value as the empty string, so that the printed configuration names every key.
mod unset_is_empty {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<T: AsRef<std::ffi::OsStr>, S: Serializer>(
        value: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let text = value.as_ref().map(|value| value.as_ref().to_string_lossy());
        serializer.serialize_str(&text.unwrap_or_default())
    }

    pub(super) fn deserialize<'de, T: From<String>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<T>, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(Some(text).filter(|text| !text.is_empty()).map(T::from))
    }
}
