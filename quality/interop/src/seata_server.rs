//! Seata Server, as Maven's repository has it: its build, and the command that runs it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::{built, maven_package, sources};

/// The newest release of Seata Server in Maven's repository.
pub const VERSION: &str = "2.0.0";

/// When a file of decisions is synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// The default: some time after the reply.
    Later,
    /// Before the reply: `flush-disk-mode=sync`.
    BeforeReply,
}

impl Flush {
    /// Returns it in words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Later => "not synced",
            Self::BeforeReply => "synced",
        }
    }
}

/// Settings without which the server does not start.
const NEEDED: [&str; 4] = [
    "seata.security.secretKey=abcdefghijklmnopqrstuvwxyzabcdefghijkl",
    "seata.security.tokenValidityInMilliseconds=1800000",
    "console.user.username=seata",
    "console.user.password=seata",
];

/// Fetches the release.
///
/// # Errors
/// If Java or Maven is missing, or Maven fails.
pub fn build() -> Result<()> {
    let version = format!("-Dseata.version={VERSION}");
    maven_package(&sources("seata-server"), &[version], &built_server()?)
}

/// Returns the command that runs it in file mode, with its files in a folder. All settings but this
/// one have their defaults.
///
/// # Errors
/// If this program is not in a target folder.
pub fn command(
    folder: &Path,
    address: SocketAddr,
    console: SocketAddr,
    flush: Flush,
) -> Result<Command> {
    let mut java = Command::new("java");
    java.args(["-Xmx1g", "-Dseata.config.type=file", "-Dseata.registry.type=file"]);
    java.args(NEEDED.iter().map(|setting| format!("-D{setting}")));
    let log_levels = ["root", "io.seata", "com.alipay"];
    java.args(log_levels.map(|name| format!("-Dlogging.level.{name}=warn")));
    java.arg(format!("-Duser.home={}", folder.display()));
    java.arg(format!("-Dseata.store.file.dir={}", folder.join("store").display()));
    if flush == Flush::BeforeReply {
        java.arg("-Dseata.store.file.flush-disk-mode=sync");
    }
    java.args([
        format!("-Dserver.address={}", console.ip()),
        format!("-Dserver.port={}", console.port()),
    ]);
    java.arg("-cp").arg(built_server()?.join("libraries/*"));
    java.args(["io.seata.server.ServerApplication", "-m", "file"]);
    java.args(["-h", &address.ip().to_string(), "-p", &address.port().to_string()]);
    java.current_dir(folder);
    Ok(java)
}

fn built_server() -> Result<PathBuf> {
    built(&format!("seata-server-{VERSION}"))
}
