//! How etcd is started: a cluster of one, as durable as any.

use std::net::SocketAddr;
use std::process::Command;

use anyhow::Result;

use crate::probe::etcd_answers;
use crate::process::free_port;
use crate::programs::Programs;
use crate::server::Seat;

pub(crate) const PROGRAMS: Programs = Programs {
    name: "etcd",
    programs: &["etcd"],
    folders: &["/opt/homebrew/opt/etcd/bin", "/usr/local/opt/etcd/bin"],
};

pub(crate) fn url(address: SocketAddr) -> String {
    format!("http://{address}")
}

pub(crate) fn answers(port: u16) -> bool {
    etcd_answers(port)
}

pub(crate) fn serve(seat: &Seat) -> Result<Command> {
    let mut command = seat.command(&PROGRAMS, "etcd")?;
    let clients = format!("http://127.0.0.1:{}", seat.port);
    // Nobody comes there, but it must be somewhere.
    let peers = format!("http://127.0.0.1:{}", free_port()?);
    command.arg("--data-dir").arg(seat.home.join("data"));
    command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
    command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
    command.args(["--initial-cluster", &format!("default={peers}"), "--logger", "zap"]);
    Ok(command)
}
