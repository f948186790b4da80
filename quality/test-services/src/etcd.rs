//! Starts etcd: a cluster of one, unless settings say otherwise. Every write is synced.

use std::net::SocketAddr;
use std::process::Command;

use anyhow::Result;

use crate::probe::{etcd_answers, takes_connections};
use crate::process::free_port;
use crate::programs::Programs;
use crate::server::ServerHome;

pub(crate) const PROGRAMS: Programs = Programs {
    name: "etcd",
    programs: &["etcd"],
    folders: &["/opt/homebrew/opt/etcd/bin", "/usr/local/opt/etcd/bin"],
};

pub(crate) fn url(address: SocketAddr) -> String {
    format!("http://{address}")
}

/// Returns whether it is healthy. Behind certificates, which the probe does not have, it returns
/// whether it accepts connections.
pub(crate) fn answers(port: u16, settings: &[String]) -> bool {
    if has_certificate(settings) { takes_connections(port) } else { etcd_answers(port) }
}

pub(crate) fn serve(home: &ServerHome, settings: &[String]) -> Result<Command> {
    let mut command = home.command(&PROGRAMS, "etcd")?;
    let scheme = if has_certificate(settings) { "https" } else { "http" };
    let clients = format!("{scheme}://127.0.0.1:{}", home.port);
    // No peer connects, but etcd requires an address for peers.
    let peers = format!("http://127.0.0.1:{}", free_port()?);
    command.arg("--data-dir").arg(home.path.join("data"));
    command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
    command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
    command.args(["--initial-cluster", &format!("default={peers}"), "--logger", "zap"]);
    command.args(settings.iter().map(|setting| format!("--{setting}")));
    Ok(command)
}

/// Returns the settings of three members of one cluster.
pub(crate) fn members() -> Result<Vec<Vec<String>>> {
    let mut peers = Vec::new();
    for name in ["one", "two", "three"] {
        peers.push((name, format!("http://127.0.0.1:{}", free_port()?)));
    }
    let cluster: Vec<String> = peers.iter().map(|(name, url)| format!("{name}={url}")).collect();
    let cluster = cluster.join(",");
    let settings = |(name, url): &(&str, String)| {
        vec![
            format!("name={name}"),
            format!("listen-peer-urls={url}"),
            format!("initial-advertise-peer-urls={url}"),
            format!("initial-cluster={cluster}"),
        ]
    };
    Ok(peers.iter().map(settings).collect())
}

fn has_certificate(settings: &[String]) -> bool {
    settings.iter().any(|setting| setting.starts_with("cert-file="))
}
