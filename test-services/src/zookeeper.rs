//! How ZooKeeper is started: a single server, as durable as any.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use anyhow::{Context, Result};

use crate::probe::zookeeper_answers;
use crate::programs::Programs;
use crate::server::Seat;

/// The server's own script would start it under an account and in folders of its own; its classes
/// are enough. The logger is one that writes to standard error.
const CLASSES: [&str; 2] = ["zookeeper.jar", "slf4j-simple.jar"];

pub(crate) const PROGRAMS: Programs = Programs {
    name: "ZooKeeper",
    programs: &["java", CLASSES[0], CLASSES[1]],
    folders: &["/usr/share/java"],
};

/// What its clients call a cluster.
pub(crate) fn url(address: SocketAddr) -> String {
    address.to_string()
}

pub(crate) fn answers(port: u16) -> bool {
    zookeeper_answers(port)
}

pub(crate) fn serve(seat: &Seat) -> Result<Command> {
    let settings = seat.home.join("zoo.cfg");
    let text = settings_of(seat);
    fs::write(&settings, text).with_context(|| settings.display().to_string())?;
    let classes = CLASSES.iter().map(|jar| PROGRAMS.require(jar)).collect::<Result<Vec<_>>>()?;
    let mut command = seat.command(&PROGRAMS, "java")?;
    command.args(["-Xmx64m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]);
    command.arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn");
    command.arg("-cp").arg(std::env::join_paths(classes)?);
    command.arg("org.apache.zookeeper.server.ZooKeeperServerMain").arg(settings);
    Ok(command)
}

/// Ticks are short, so that a session that has ended is soon seen to have.
fn settings_of(seat: &Seat) -> String {
    let (data, port) = (seat.home.join("data"), seat.port);
    format!(
        "tickTime=200\nminSessionTimeout=400\nmaxSessionTimeout=60000\nmaxClientCnxns=0\n\
        dataDir={}\nclientPortAddress=127.0.0.1\nclientPort={port}\nadmin.enableServer=false\n\
        4lw.commands.whitelist=srvr\n",
        data.display()
    )
}
