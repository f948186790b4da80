//! How RabbitMQ is started: the server, and the name server of its Erlang, both private.

use std::net::SocketAddr;
use std::process::Command;

use anyhow::Result;

use crate::probe::rabbitmq_answers;
use crate::process::free_port;
use crate::programs::Programs;
use crate::server::Seat;

pub(crate) const PROGRAMS: Programs = Programs {
    name: "RabbitMQ",
    programs: &["rabbitmq-server", "erl", "epmd"],
    // The distribution's own in the path refuses every account but two.
    folders: &["/usr/lib/rabbitmq/bin", "/opt/homebrew/opt/rabbitmq/sbin"],
};

/// The virtual host `/`, as the account that a new server has.
pub(crate) fn url(address: SocketAddr) -> String {
    format!("amqp://guest:guest@{address}/%2f")
}

pub(crate) fn answers(port: u16) -> bool {
    rabbitmq_answers(port)
}

/// Erlang's name server. Started by the server itself it would outlive it.
pub(crate) fn name_server(seat: &Seat, port: u16) -> Result<Command> {
    let mut command = seat.command(&PROGRAMS, "epmd")?;
    command.args(["-port", &port.to_string(), "-address", "127.0.0.1"]);
    Ok(command)
}

pub(crate) fn serve(seat: &Seat, name_server: u16) -> Result<Command> {
    let mut command = seat.command(&PROGRAMS, "rabbitmq-server")?;
    command
        .env("HOME", &seat.home)
        .env("ERL_EPMD_PORT", name_server.to_string())
        .env("RABBITMQ_NODENAME", format!("handfast-{}@localhost", seat.port))
        .env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1")
        .env("RABBITMQ_NODE_PORT", seat.port.to_string())
        .env("RABBITMQ_DIST_PORT", free_port()?.to_string())
        .env("RABBITMQ_CONF_ENV_FILE", seat.home.join("environment"))
        .env("RABBITMQ_CONFIG_FILE", seat.home.join("rabbitmq"))
        .env("RABBITMQ_ENABLED_PLUGINS_FILE", seat.home.join("plugins"))
        .env("RABBITMQ_MNESIA_BASE", seat.home.join("data"))
        .env("RABBITMQ_LOG_BASE", seat.home.join("log"))
        // The server takes the place of the script that starts it, and so gets its signals.
        .env("RABBITMQ_ALLOW_INPUT", "1")
        .env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "-noinput");
    Ok(command)
}
