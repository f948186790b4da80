//! Places for records: a directory, a database or a namespace of etcd, each with a configuration
//! file.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use handfast_core::Record;
use handfast_server::config::{Config, StoreKind};
use handfast_server::maintenance::{StoredRecords, read_records};
use handfast_server::serve::{RunningServer, Server};
use handfast_server::store::codec;
use handfast_test_services::cluster_config;

use crate::shared::Shared;

/// A place for records.
pub(crate) struct StoreLocation {
    pub(crate) config: Config,
    file: PathBuf,
}

impl StoreLocation {
    /// A data directory that does not exist yet.
    pub(crate) fn directory(folder: &Path, name: &str) -> Self {
        let mut config = Config::tiny();
        config.limits = handfast_core::Limits::default();
        config.shutdown_limit_ms = 30_000;
        (config.store, config.data_dir) = (StoreKind::Embedded, folder.join(name));
        config.advertised_address = Some("tc:7091".to_owned());
        Self::of(config, folder, name)
    }

    /// A fresh database or namespace.
    pub(crate) async fn shared<S: Shared>(folder: &Path, name: &str) -> Self {
        // A folder of its own, for the password.
        let folder = folder.join(name);
        std::fs::create_dir(&folder).unwrap();
        Self::of(cluster_config(&S::create().await, &folder, name), &folder, name)
    }

    fn of(config: Config, folder: &Path, name: &str) -> Self {
        let file = folder.join(format!("{name}.toml"));
        std::fs::write(&file, config.to_toml()).unwrap();
        Self { config, file }
    }

    /// Returns the configuration file.
    pub(crate) fn file(&self) -> &str {
        self.file.to_str().unwrap()
    }

    /// Starts a coordinator, and waits until it leads.
    pub(crate) async fn start(&self) -> RunningServer {
        Server::start(self.config.clone()).await.unwrap()
    }

    /// Starts a coordinator, which is refused. Returns the code.
    pub(crate) async fn refused_start(&self) -> &'static str {
        match Server::start(self.config.clone()).await {
            Ok(_) => panic!("it starts"),
            Err(error) => error.code(),
        }
    }

    /// Returns what is stored.
    pub(crate) async fn stored(&self) -> StoredRecords {
        read_records(&self.config).await.unwrap()
    }

    /// Returns keys and bytes of all records, in order.
    pub(crate) async fn bytes(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let bytes = |it: &Record| (codec::encode_key(it.key()), codec::encode(it));
        self.stored().await.records.iter().map(bytes).collect()
    }
}

/// Runs `handfast` with these arguments and an empty environment.
pub(crate) async fn handfast(arguments: &[&str]) -> Output {
    run(command(arguments)).await
}

/// Returns the command `handfast` with these arguments.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_handfast-server"));
    command.args(arguments).env_clear().stdin(Stdio::null());
    command
}

/// Runs a command beside the tasks of the test.
pub(crate) async fn run(mut command: Command) -> Output {
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// Runs `handfast`, which succeeds. Returns what it prints.
pub(crate) async fn done(arguments: &[&str]) -> String {
    let output = handfast(arguments).await;
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {said}{errors}");
    said
}

/// Runs `handfast`, which refuses with this exit code and error code. Returns the message.
pub(crate) async fn refused(arguments: &[&str], exit: i32, code: &str) -> String {
    let output = handfast(arguments).await;
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(exit), "{arguments:?}: {errors}");
    assert!(errors.contains(&format!("error[{code}]: ")), "{arguments:?}: {errors}");
    errors
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
