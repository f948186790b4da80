//! The programs, settings and commands of a PostgreSQL server.

use std::net::SocketAddr;
use std::process::Command;

use anyhow::Result;

use crate::probe::postgres_answers;
use crate::process::run_step;
use crate::programs::Programs;
use crate::server::ServerHome;

pub(crate) const PROGRAMS: Programs = Programs {
    name: "PostgreSQL",
    programs: &["initdb", "postgres"],
    folders: &[
        "/usr/lib/postgresql/*/bin",
        "/usr/pgsql-*/bin",
        "/usr/libexec/postgresql*",
        "/opt/homebrew/opt/postgresql*/bin",
        "/usr/local/opt/postgresql*/bin",
    ],
};

const USER: &str = "handfast";

/// Small, but as durable as the default. Tests of two-phase commit need prepared transactions,
/// which are off by default.
const SETTINGS: &[&str] = &[
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "max_connections=300",
    "shared_buffers=64MB",
    "max_wal_size=256MB",
    "max_prepared_transactions=64",
];

/// Returns a URL that names the maintenance database.
pub(crate) fn url(address: SocketAddr) -> String {
    format!("postgres://{USER}@{address}/postgres")
}

pub(crate) fn answers(port: u16) -> bool {
    postgres_answers(port, USER)
}

pub(crate) fn initialise(home: &ServerHome) -> Result<()> {
    let mut command = home.command(&PROGRAMS, "initdb")?;
    command.arg("--pgdata").arg(home.path.join("data"));
    command.args(["--username", USER, "--auth=trust", "--encoding=UTF8", "--no-locale"]);
    // The empty cluster alone is not synced: losing it costs nothing.
    command.arg("--no-sync");
    run_step(&mut command, &home.path.with_extension("init.log"))
}

/// Copies a server as its standby, which streams from it at this address.
pub(crate) fn copy(home: &ServerHome, primary: SocketAddr) -> Result<()> {
    let mut command = home.command(&PROGRAMS, "pg_basebackup")?;
    command.arg("--pgdata").arg(home.path.join("data"));
    command.args(["--host", &primary.ip().to_string(), "--port", &primary.port().to_string()]);
    command.args(["--username", USER, "--write-recovery-conf", "--wal-method=stream"]);
    command.args(["--checkpoint=fast", "--no-sync"]);
    run_step(&mut command, &home.path.with_extension("init.log"))
}

pub(crate) fn serve(home: &ServerHome, more: &[String]) -> Result<Command> {
    let mut command = home.command(&PROGRAMS, "postgres")?;
    command.arg("-D").arg(home.path.join("data")).args(["-p", &home.port.to_string()]);
    for setting in SETTINGS.iter().copied().chain(more.iter().map(String::as_str)) {
        command.args(["-c", setting]);
    }
    Ok(command)
}
