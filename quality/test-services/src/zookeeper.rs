//! Starts ZooKeeper: a single server, unless settings say otherwise. Every write is synced.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use anyhow::{Context, Result};

use crate::probe::zookeeper_answers;
use crate::process::{free_port, make_folder};
use crate::programs::Programs;
use crate::server::ServerHome;

/// The classes of the server. Its start script is not used: it would choose an account and folders
/// of its own. The logger writes to standard error.
const CLASSES: [&str; 2] = ["zookeeper.jar", "slf4j-simple.jar"];

/// The setting with a member's number, which goes to the file `myid`. ZooKeeper ignores the setting
/// itself.
const NUMBER: &str = "handfast.number=";

pub(crate) const PROGRAMS: Programs = Programs {
    name: "ZooKeeper",
    programs: &["java", CLASSES[0], CLASSES[1]],
    folders: &["/usr/share/java"],
};

/// Returns the connection string for clients.
pub(crate) fn url(address: SocketAddr) -> String {
    address.to_string()
}

pub(crate) fn answers(port: u16) -> bool {
    zookeeper_answers(port)
}

pub(crate) fn serve(home: &ServerHome, settings: &[String]) -> Result<Command> {
    let file = home.path.join("zoo.cfg");
    let text = settings_of(home) + &settings.join("\n");
    fs::write(&file, text).with_context(|| file.display().to_string())?;
    if let Some(number) = settings.iter().find_map(|setting| setting.strip_prefix(NUMBER)) {
        let data = home.path.join("data");
        if !data.exists() {
            make_folder(&data, home.account.as_ref())?;
        }
        fs::write(data.join("myid"), number)?;
    }
    let classes = CLASSES.iter().map(|jar| PROGRAMS.require(jar)).collect::<Result<Vec<_>>>()?;
    let mut command = home.command(&PROGRAMS, "java")?;
    command.args(["-Xmx64m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]);
    command.arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn");
    command.arg("-cp").arg(std::env::join_paths(classes)?);
    // Without other members this class serves alone.
    command.arg("org.apache.zookeeper.server.quorum.QuorumPeerMain").arg(file);
    Ok(command)
}

/// Returns the settings of three members of one cluster.
pub(crate) fn members() -> Result<Vec<Vec<String>>> {
    let mut cluster = Vec::new();
    for number in 1..=3 {
        let (follow, elect) = (free_port()?, free_port()?);
        cluster.push(format!("server.{number}=127.0.0.1:{follow}:{elect}"));
    }
    // The limits are in ticks.
    cluster.extend(["initLimit=50".to_owned(), "syncLimit=25".to_owned()]);
    let settings = |number| {
        let mut settings = cluster.clone();
        settings.push(format!("{NUMBER}{number}"));
        settings
    };
    Ok((1..=3).map(settings).collect())
}

/// Returns the settings that every server has. Ticks are short, so that the end of a session is
/// soon noticed.
fn settings_of(home: &ServerHome) -> String {
    let (data, port) = (home.path.join("data"), home.port);
    format!(
        "tickTime=200\nminSessionTimeout=400\nmaxSessionTimeout=60000\nmaxClientCnxns=0\n\
        dataDir={}\nclientPortAddress=127.0.0.1\nclientPort={port}\nadmin.enableServer=false\n\
        4lw.commands.whitelist=srvr\n",
        data.display()
    )
}
