//! The stage: a coordinator with tokens, two databases, and a service that works on them.

use std::env;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use handfast_test_services::{
    CoordinatorProcess, DatabaseServer, ServerDirectory, ServerKind, free_address,
    without_configuration,
};
use serde_json::Value;
use tempfile::TempDir;

use crate::browser::DONE;
use crate::shop::Shop;

/// Calls of phase two are retried soon.
const SETTINGS: [&str; 2] = ["dispatch.retry_delay_ms_min=50", "dispatch.retry_delay_ms_max=500"];
/// Servers of the caller's, used in place of private ones.
const OWN_SERVERS: [(ServerKind, &str); 2] = [
    (ServerKind::Postgres, "HANDFAST_TEST_POSTGRES"),
    (ServerKind::MariaDb, "HANDFAST_TEST_MYSQL"),
];

/// A token for each role.
#[derive(Clone, Debug)]
pub(crate) struct StageTokens {
    client: String,
    pub(crate) viewer: String,
    pub(crate) operator: String,
}

/// The stage.
pub(crate) struct Stage {
    // Dropped in this order: the service, the coordinator, then what they use.
    shop: Shop,
    coordinator: Option<CoordinatorProcess>,
    grpc: SocketAddr,
    admin: SocketAddr,
    tokens: StageTokens,
    _servers: Vec<DatabaseServer>,
    folder: TempDir,
}

impl Stage {
    /// Sets it up.
    pub(crate) async fn set_up() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("handfast-console-").tempdir()?;
        let tokens = draw_tokens(&folder.path().join("tokens"))?;
        let grpc = free_address(Ipv4Addr::LOCALHOST.into())?;
        let admin = free_address(Ipv4Addr::LOCALHOST.into())?;
        let coordinator = start_coordinator(folder.path(), [grpc, admin])?;
        let (mut servers, mut urls) = (Vec::new(), Vec::new());
        for (kind, variable) in OWN_SERVERS {
            if let Ok(url) = env::var(variable) {
                urls.push(url);
                continue;
            }
            let server = DatabaseServer::start(kind, &ServerDirectory::new()?, &|| Ok(()))?;
            urls.push(server.url());
            servers.push(server);
        }
        let [postgres, mysql] = &urls[..] else { bail!("a stage has two databases") };
        let shop = Shop::open(&format!("http://{grpc}"), &tokens.client, postgres, mysql).await?;
        let coordinator = Some(coordinator);
        Ok(Self { shop, coordinator, grpc, admin, tokens, _servers: servers, folder })
    }

    /// Returns the address of the console.
    pub(crate) fn console(&self) -> String {
        format!("http://{}", self.admin)
    }

    /// Returns the tokens for it.
    pub(crate) fn tokens(&self) -> &StageTokens {
        &self.tokens
    }

    /// Does what the script asks for, and returns what it needs to know.
    pub(crate) async fn act(&mut self, deed: &str) -> Result<Value> {
        match deed {
            "kill" => {
                self.coordinator.take().context("the coordinator is down")?.kill()?;
                Ok(DONE)
            }
            "start" => {
                let addresses = [self.grpc, self.admin];
                self.coordinator = Some(start_coordinator(self.folder.path(), addresses)?);
                Ok(DONE)
            }
            deed => self.shop.act(deed).await,
        }
    }

    /// Keeps the logs and returns their folder.
    pub(crate) fn keep_logs(self) -> PathBuf {
        let Self { folder, .. } = self;
        folder.keep()
    }
}

fn start_coordinator(folder: &Path, addresses: [SocketAddr; 2]) -> Result<CoordinatorProcess> {
    let mut command = Command::new(handfast()?);
    without_configuration(&mut command);
    command.args(["serve", "--data-dir"]).arg(folder.join("coordinator"));
    command.arg("--tokens").arg(folder.join("tokens"));
    for setting in SETTINGS {
        command.args(["--set", setting]);
    }
    let log = folder.join("coordinator.log");
    let mut process = CoordinatorProcess::start(command, addresses, Some(&log))?;
    process.wait_until_ready()?;
    Ok(process)
}

/// Draws a token for each role, as an operator does, and writes the coordinator's file.
fn draw_tokens(file: &Path) -> Result<StageTokens> {
    let mut lines = String::new();
    let mut draw = |name: &str, role: &str| {
        let output = Command::new(handfast()?)
            .args(["token", "new", "--name", name, "--role", role])
            .output()?;
        let text = String::from_utf8(output.stdout)?;
        ensure!(output.status.success(), "handfast token new: {text}");
        let token = text.lines().find(|line| line.starts_with("hft_"));
        let line = text.lines().find(|line| line.starts_with(&format!("{name} ")));
        lines.push_str(line.context("the line for the file")?);
        lines.push('\n');
        Ok::<_, anyhow::Error>(token.context("the token")?.to_owned())
    };
    let tokens = StageTokens {
        client: draw("shop", "client")?,
        viewer: draw("wall-screen", "viewer")?,
        operator: draw("alice", "operator")?,
    };
    fs::write(file, lines)?;
    Ok(tokens)
}

/// Returns the program `handfast` that is built beside this one.
fn handfast() -> Result<PathBuf> {
    Ok(env::current_exe()?.with_file_name("handfast"))
}
