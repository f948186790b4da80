//! The programs and commands of RabbitMQ: the server, and Erlang's name server, both private.

use std::net::SocketAddr;
use std::process::Command;

use anyhow::Result;

use crate::probe::rabbitmq_answers;
use crate::process::free_port;
use crate::programs::Programs;
use crate::server::ServerHome;

pub(crate) const PROGRAMS: Programs = Programs {
    name: "RabbitMQ",
    programs: &["rabbitmq-server", "erl", "epmd"],
    // The distribution's wrapper in `PATH` accepts two accounts alone.
    folders: &["/usr/lib/rabbitmq/bin", "/opt/homebrew/opt/rabbitmq/sbin"],
};

/// Returns a URL of the virtual host `/`, with the account that a new server has.
pub(crate) fn url(address: SocketAddr) -> String {
    format!("amqp://guest:guest@{address}/%2f")
}

pub(crate) fn answers(port: u16) -> bool {
    rabbitmq_answers(port)
}

/// Returns the command of Erlang's name server. One that the server starts would outlive it.
pub(crate) fn name_server(home: &ServerHome, port: u16) -> Result<Command> {
    let mut command = home.command(&PROGRAMS, "epmd")?;
    command.args(["-port", &port.to_string(), "-address", "127.0.0.1"]);
    Ok(command)
}

pub(crate) fn serve(home: &ServerHome, name_server: u16) -> Result<Command> {
    let mut command = home.command(&PROGRAMS, "rabbitmq-server")?;
    command
        .env("HOME", &home.path)
        .env("ERL_EPMD_PORT", name_server.to_string())
        .env("RABBITMQ_NODENAME", format!("handfast-{}@localhost", home.port))
        .env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1")
        .env("RABBITMQ_NODE_PORT", home.port.to_string())
        .env("RABBITMQ_DIST_PORT", free_port()?.to_string())
        .env("RABBITMQ_CONF_ENV_FILE", home.path.join("environment"))
        .env("RABBITMQ_CONFIG_FILE", home.path.join("rabbitmq"))
        .env("RABBITMQ_ENABLED_PLUGINS_FILE", home.path.join("plugins"))
        .env("RABBITMQ_MNESIA_BASE", home.path.join("data"))
        .env("RABBITMQ_LOG_BASE", home.path.join("log"))
        // The script that starts the server is replaced by it, so that the server gets its signals.
        .env("RABBITMQ_ALLOW_INPUT", "1")
        .env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "-noinput");
    Ok(command)
}
