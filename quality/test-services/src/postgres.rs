//! How PostgreSQL is started.

use std::net::SocketAddr;
use std::process::Command;

use anyhow::Result;

use crate::probe::postgres_answers;
use crate::process::run_step;
use crate::programs::Programs;
use crate::server::Seat;

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

/// Small, but as durable as the default. Prepared transactions are off by default and tests of the
/// two-phase protocol need them.
const SETTINGS: &[&str] = &[
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "max_connections=300",
    "shared_buffers=64MB",
    "max_wal_size=256MB",
    "max_prepared_transactions=64",
];

/// Names the maintenance database.
pub(crate) fn url(address: SocketAddr) -> String {
    format!("postgres://{USER}@{address}/postgres")
}

pub(crate) fn answers(port: u16) -> bool {
    postgres_answers(port, USER)
}

pub(crate) fn initialise(seat: &Seat) -> Result<()> {
    let mut command = seat.command(&PROGRAMS, "initdb")?;
    command.arg("--pgdata").arg(seat.home.join("data"));
    command.args(["--username", USER, "--auth=trust", "--encoding=UTF8", "--no-locale"]);
    // Only the empty cluster is not synced: losing it costs nothing.
    command.arg("--no-sync");
    run_step(&mut command, &seat.home.with_extension("init.log"))
}

pub(crate) fn serve(seat: &Seat, more: &[String]) -> Result<Command> {
    let mut command = seat.command(&PROGRAMS, "postgres")?;
    command.arg("-D").arg(seat.home.join("data")).args(["-p", &seat.port.to_string()]);
    for setting in SETTINGS.iter().copied().chain(more.iter().map(String::as_str)) {
        command.args(["-c", setting]);
    }
    Ok(command)
}
