//! The programs, settings and commands of a MariaDB server.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use anyhow::Result;

use crate::probe::mysql_answers;
use crate::process::run_step;
use crate::programs::Programs;
use crate::server::ServerHome;

pub(crate) const PROGRAMS: Programs = Programs {
    name: "MariaDB",
    programs: &["mariadbd", "mariadb-install-db"],
    folders: &[
        "/usr/sbin",
        "/usr/libexec",
        "/usr/local/sbin",
        "/opt/homebrew/opt/mariadb/bin",
        "/usr/local/opt/mariadb/bin",
    ],
};

/// The user that tests connect as; the server's first statements create it.
const USER: &str = "handfast";
const FIRST_STATEMENTS: &str = "\
CREATE USER IF NOT EXISTS 'handfast'@'%' IDENTIFIED BY 'handfast';
GRANT ALL PRIVILEGES ON *.* TO 'handfast'@'%' WITH GRANT OPTION;
";

/// Durable: the log is synced at every commit. Its size and that of the buffer pool are MariaDB's
/// defaults, so that figures are those of a server as it is installed.
const SETTINGS: &[&str] = &[
    "--bind-address=127.0.0.1",
    "--skip-name-resolve",
    "--max-connections=300",
    "--innodb-flush-log-at-trx-commit=1",
    "--performance-schema=OFF",
    "--character-set-server=utf8mb4",
];

/// Returns a URL that names no database.
pub(crate) fn url(address: SocketAddr) -> String {
    format!("mysql://{USER}:{USER}@{address}")
}

pub(crate) fn answers(port: u16) -> bool {
    mysql_answers(port)
}

pub(crate) fn initialise(home: &ServerHome) -> Result<()> {
    fs::write(home.path.join("first.sql"), FIRST_STATEMENTS)?;
    let mut command = home.command(&PROGRAMS, "mariadb-install-db")?;
    // It must be the first argument, or the program does not know it.
    command.arg("--no-defaults");
    command.arg(format!("--datadir={}", home.path.join("data").display()));
    command.args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
    // In a shared temporary directory each server removes the temporary tables of the others.
    command.arg(format!("--tmpdir={}", home.path.display()));
    run_step(&mut command, &home.path.with_extension("init.log"))
}

pub(crate) fn serve(home: &ServerHome, more: &[String]) -> Result<Command> {
    let mut command = home.command(&PROGRAMS, "mariadbd")?;
    command.arg("--no-defaults").arg(format!("--port={}", home.port));
    for (option, file) in [
        ("datadir", "data"),
        ("init-file", "first.sql"),
        ("socket", "socket"),
        ("pid-file", "pid"),
        ("tmpdir", ""),
    ] {
        command.arg(format!("--{option}={}", home.path.join(file).display()));
    }
    command.args(SETTINGS).args(more.iter().map(|setting| format!("--{setting}")));
    Ok(command)
}
