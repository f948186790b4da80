//! The programs, settings and commands of a Redis server.

use std::net::SocketAddr;
use std::process::Command;

use anyhow::Result;

use crate::probe::redis_answers;
use crate::programs::Programs;
use crate::server::ServerHome;

pub(crate) const PROGRAMS: Programs = Programs {
    name: "Redis",
    programs: &["redis-server"],
    folders: &["/opt/homebrew/opt/redis/bin", "/usr/local/opt/redis/bin"],
};

/// Small, but durable: every write is synced before it is answered.
const SETTINGS: &[&str] = &[
    "--bind",
    "127.0.0.1",
    "--appendonly",
    "yes",
    "--appendfsync",
    "always",
    "--save",
    "",
    "--maxmemory",
    "64mb",
    "--maxmemory-policy",
    "noeviction",
];

/// Returns a URL that names no database, which means number 0.
pub(crate) fn url(address: SocketAddr) -> String {
    format!("redis://{address}")
}

pub(crate) fn answers(port: u16) -> bool {
    redis_answers(port)
}

pub(crate) fn serve(home: &ServerHome, settings: &[String]) -> Result<Command> {
    let mut command = home.command(&PROGRAMS, "redis-server")?;
    command.args(["--port", &home.port.to_string()]);
    command.arg("--dir").arg(&home.path);
    command.args(SETTINGS);
    for (name, value) in settings.iter().filter_map(|setting| setting.split_once('=')) {
        command.arg(format!("--{name}")).arg(value);
    }
    Ok(command)
}
