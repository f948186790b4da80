//! The flags that set configuration keys, the last layer over file and environment.

use std::path::PathBuf;

use clap::Args;
use toml::Value;

use crate::config::{Config, ConfigError, Given, Problem, Source};

/// Flags of `serve` and `config`. Each sets the key of the same name; `--set` sets any key.
#[derive(Clone, Debug, Default, Args)]
pub struct ConfigFlags {
    /// The configuration file, TOML.
    #[arg(long, env = "HANDFAST_CONFIG")]
    config: Option<PathBuf>,
    /// The address of the native API.
    #[arg(long, value_name = "ADDRESS")]
    grpc_listen: Option<String>,
    /// The address of REST, health and metrics.
    #[arg(long, value_name = "ADDRESS")]
    admin_listen: Option<String>,
    /// The address in the text form of XIDs.
    #[arg(long, value_name = "HOST:PORT")]
    advertised_address: Option<String>,
    /// The directory of the embedded store and the audit log.
    #[arg(long, value_name = "DIRECTORY")]
    data_dir: Option<String>,
    /// The store that keeps the records: embedded, sql, etcd or memory.
    #[arg(long)]
    store: Option<String>,
    /// The server's certificate chain, PEM.
    #[arg(long, value_name = "FILE")]
    tls_certificate: Option<String>,
    /// The certificate's private key, PEM.
    #[arg(long, value_name = "FILE")]
    tls_private_key: Option<String>,
    /// Certificates of the authorities that sign gRPC clients' certificates, PEM.
    #[arg(long, value_name = "FILE")]
    tls_client_authority: Option<String>,
    /// The file with the tokens' hashes.
    #[arg(long, value_name = "FILE")]
    tokens: Option<String>,
    /// The file that records operators' actions.
    #[arg(long, value_name = "FILE")]
    audit_log: Option<String>,
    /// Allows addresses that other machines reach without TLS or without tokens.
    #[arg(long)]
    insecure_allow_plaintext_and_anonymous_on_non_loopback: bool,
    /// The form of log lines: text or json.
    #[arg(long)]
    log_format: Option<String>,
    /// The events that are logged.
    #[arg(long, value_name = "DIRECTIVES")]
    log_filter: Option<String>,
    /// Any other key, such as `--set limits.globals_max=1000`.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl ConfigFlags {
    /// Returns the effective configuration.
    ///
    /// # Errors
    ///
    /// All its problems.
    pub fn load(
        self,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Config, ConfigError> {
        let file = self.config.clone();
        Config::load(file.as_deref(), environment, self.given()?)
    }

    fn given(self) -> Result<Vec<Given>, ConfigError> {
        let insecure = self.insecure_allow_plaintext_and_anonymous_on_non_loopback;
        let named = [
            ("grpc.listen", "--grpc-listen", self.grpc_listen),
            ("admin.listen", "--admin-listen", self.admin_listen),
            ("advertised_address", "--advertised-address", self.advertised_address),
            ("data_dir", "--data-dir", self.data_dir),
            ("store", "--store", self.store),
            ("tls.certificate", "--tls-certificate", self.tls_certificate),
            ("tls.private_key", "--tls-private-key", self.tls_private_key),
            ("tls.client_authority", "--tls-client-authority", self.tls_client_authority),
            ("security.tokens", "--tokens", self.tokens),
            ("security.audit_log", "--audit-log", self.audit_log),
            (
                "security.insecure_allow_plaintext_and_anonymous_on_non_loopback",
                "--insecure-allow-plaintext-and-anonymous-on-non-loopback",
                insecure.then(|| "true".to_owned()),
            ),
            ("log.format", "--log-format", self.log_format),
            ("log.filter", "--log-filter", self.log_filter),
        ];
        let named = named.into_iter().filter_map(|(key, flag, text)| Some(given(key, flag, text?)));
        let set = self.set.iter().map(|text| read_set(text)).collect::<Result<Vec<_>, _>>();
        let set = set.map_err(|problem| ConfigError { problems: vec![problem] })?;
        Ok(named.chain(set).collect())
    }
}

fn given(key: &str, flag: &str, text: String) -> Given {
    let source = Source::Flag(flag.to_owned());
    Given { key: key.to_owned(), value: Value::String(text), source }
}

fn read_set(text: &str) -> Result<Given, Problem> {
    let source = Source::Flag("--set".to_owned());
    let (key, value) = text
        .split_once('=')
        .ok_or_else(|| Problem { source, message: format!("`{text}` is not `key=value`") })?;
    Ok(given(key.trim(), &format!("--set {}", key.trim()), value.to_owned()))
}
