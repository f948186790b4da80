//! A private MariaDB server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use nix::unistd::User;
use tempfile::TempDir;

use crate::install::{Installer, Needed, find_program};
use crate::interrupt::Interrupts;

use super::guard::Guard;
use super::probe::mysql_answers;
use super::server::{Server, account, command_as, free_port, make_folder, run_step};

/// What must be installed.
pub(crate) const NEEDED: Needed = Needed {
    name: "MariaDB",
    programs: &["mariadbd", "mariadb-install-db"],
    folders: &[
        "/usr/sbin",
        "/usr/libexec",
        "/usr/local/sbin",
        "/opt/homebrew/opt/mariadb/bin",
        "/usr/local/opt/mariadb/bin",
    ],
    packages,
};

/// The user that tests connect as; made by the server's first statements.
const USER: &str = "handfast";
const FIRST_STATEMENTS: &str = "\
CREATE USER IF NOT EXISTS 'handfast'@'%' IDENTIFIED BY 'handfast';
GRANT ALL PRIVILEGES ON *.* TO 'handfast'@'%' WITH GRANT OPTION;
";

/// Small, but durable: the log is synced at every commit.
const SETTINGS: &[&str] = &[
    "--bind-address=127.0.0.1",
    "--skip-name-resolve",
    "--max-connections=300",
    "--innodb-buffer-pool-size=64M",
    "--innodb-log-file-size=64M",
    "--innodb-flush-log-at-trx-commit=1",
    "--performance-schema=OFF",
    "--character-set-server=utf8mb4",
];

fn packages(installer: Installer) -> &'static [&'static str] {
    match installer {
        // Without the service of its own that `mariadb-server` would start.
        Installer::Apt => &["mariadb-server-core", "mariadb-client-core"],
        Installer::Dnf => &["mariadb-server"],
        Installer::Apk => &["mariadb"],
        Installer::Brew => &["mariadb"],
    }
}

/// Starts a server and returns its URL, which names no database.
pub(crate) fn start(
    interrupts: &Interrupts,
    folder: &TempDir,
    guard: &mut Guard,
) -> Result<(Server, String)> {
    let account = account("mysql")?;
    let home = folder.path().join("mariadb");
    make_folder(&home, account.as_ref())?;
    initialise(&home, account.as_ref())?;
    let port = free_port()?;
    let mut command = serve(&home, account.as_ref(), port)?;
    let log = folder.path().join("mariadb.log");
    let mut server = Server::start(NEEDED.name, &mut command, &log, Signal::SIGTERM)?;
    guard.add(server.id())?;
    server.wait_ready(interrupts, || mysql_answers(port))?;
    Ok((server, format!("mysql://{USER}:{USER}@127.0.0.1:{port}")))
}

fn initialise(home: &Path, account: Option<&User>) -> Result<()> {
    fs::write(home.join("first.sql"), FIRST_STATEMENTS)?;
    let mut command = command_as(&program("mariadb-install-db")?, account, home);
    // First, or it is taken for no option at all.
    command.arg("--no-defaults");
    command.arg(format!("--datadir={}", home.join("data").display()));
    command.args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
    run_step(&mut command, &home.with_extension("init.log"))
}

fn serve(home: &Path, account: Option<&User>, port: u16) -> Result<Command> {
    let mut command = command_as(&program("mariadbd")?, account, home);
    command.arg("--no-defaults").arg(format!("--port={port}"));
    for (option, file) in [
        ("datadir", "data"),
        ("init-file", "first.sql"),
        ("socket", "socket"),
        ("pid-file", "pid"),
        ("tmpdir", ""),
    ] {
        command.arg(format!("--{option}={}", home.join(file).display()));
    }
    command.args(SETTINGS);
    Ok(command)
}

fn program(name: &str) -> Result<PathBuf> {
    find_program(&NEEDED, name).with_context(|| format!("{name} of MariaDB is not installed"))
}
