//! The programs and commands of a NATS server with JetStream.

use std::net::SocketAddr;
use std::process::Command;

use anyhow::Result;

use crate::probe::nats_answers;
use crate::programs::Programs;
use crate::server::ServerHome;

pub(crate) const PROGRAMS: Programs = Programs {
    name: "NATS",
    programs: &["nats-server"],
    folders: &["/usr/sbin", "/opt/homebrew/opt/nats-server/bin"],
};

pub(crate) fn url(address: SocketAddr) -> String {
    format!("nats://{address}")
}

pub(crate) fn answers(port: u16) -> bool {
    nats_answers(port)
}

pub(crate) fn serve(home: &ServerHome) -> Result<Command> {
    let mut command = home.command(&PROGRAMS, "nats-server")?;
    command.args(["--addr", "127.0.0.1", "--port", &home.port.to_string(), "--jetstream"]);
    command.arg("--store_dir").arg(&home.path);
    Ok(command)
}
