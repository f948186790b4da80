//! A private PostgreSQL server.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use nix::unistd::User;
use tempfile::TempDir;

use crate::install::{Installer, Needed, find_program};
use crate::interrupt::Interrupts;

use super::guard::Guard;
use super::probe::postgres_answers;
use super::server::{Server, account, command_as, free_port, make_folder, run_step};

/// What must be installed.
pub(crate) const NEEDED: Needed = Needed {
    name: "PostgreSQL",
    programs: &["initdb", "postgres"],
    folders: &[
        "/usr/lib/postgresql/*/bin",
        "/usr/pgsql-*/bin",
        "/usr/libexec/postgresql*",
        "/opt/homebrew/opt/postgresql*/bin",
        "/usr/local/opt/postgresql*/bin",
    ],
    packages,
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

fn packages(installer: Installer) -> &'static [&'static str] {
    match installer {
        Installer::Apt => &["postgresql"],
        Installer::Dnf => &["postgresql-server"],
        Installer::Apk => &["postgresql"],
        Installer::Brew => &["postgresql@17"],
    }
}

/// Starts a server and returns its URL, which names its maintenance database.
pub(crate) fn start(
    interrupts: &Interrupts,
    folder: &TempDir,
    guard: &mut Guard,
) -> Result<(Server, String)> {
    let account = account("postgres")?;
    let home = folder.path().join("postgres");
    make_folder(&home, account.as_ref())?;
    initialise(&home, account.as_ref())?;
    let port = free_port()?;
    let mut command = serve(&home, account.as_ref(), port)?;
    // SIGINT is PostgreSQL's fast shutdown; SIGTERM would wait for its clients.
    let log = folder.path().join("postgres.log");
    let mut server = Server::start(NEEDED.name, &mut command, &log, Signal::SIGINT)?;
    guard.add(server.id())?;
    server.wait_ready(interrupts, || postgres_answers(port, USER))?;
    Ok((server, format!("postgres://{USER}@127.0.0.1:{port}/postgres")))
}

fn initialise(home: &Path, account: Option<&User>) -> Result<()> {
    let mut command = command_as(&program("initdb")?, account, home);
    command.arg("--pgdata").arg(home.join("data"));
    command.args(["--username", USER, "--auth=trust", "--encoding=UTF8", "--no-locale"]);
    // Only the empty cluster is not synced: losing it costs nothing.
    command.arg("--no-sync");
    run_step(&mut command, &home.with_extension("init.log"))
}

fn serve(home: &Path, account: Option<&User>, port: u16) -> Result<Command> {
    let mut command = command_as(&program("postgres")?, account, home);
    command.arg("-D").arg(home.join("data")).args(["-p", &port.to_string()]);
    for setting in SETTINGS {
        command.args(["-c", setting]);
    }
    Ok(command)
}

fn program(name: &str) -> Result<PathBuf> {
    find_program(&NEEDED, name).with_context(|| format!("{name} of PostgreSQL is not installed"))
}
