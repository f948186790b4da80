//! The command line's arguments.

use std::net::SocketAddr;

use clap::{Args, Parser, Subcommand, ValueEnum};
use handfast::outbox::{EventId, EventState};

/// Sends events from an outbox to a broker, and operates the outbox.
#[derive(Debug, Parser)]
#[command(name = "handfast-relay", version)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Relay events until Ctrl-C or SIGTERM. Several relays may run concurrently.
    Run {
        #[command(flatten)]
        database: DatabaseUrl,
        /// The broker: redis://HOST:PORT[/DATABASE], amqp://USER:PASSWORD@HOST:PORT/%2f (RabbitMQ)
        /// or nats://HOST:PORT (JetStream).
        #[arg(long, env = "HANDFAST_BROKER")]
        broker: String,
        /// How many events are claimed at a time.
        #[arg(long, default_value_t = 200)]
        batch: u32,
        /// How often an event may be refused before it is parked.
        #[arg(long, default_value_t = 10)]
        attempts_max: u32,
        /// How long the keys of a relay that has died wait for another relay, in seconds.
        #[arg(long, default_value_t = 15)]
        lease_seconds: u64,
        /// How long finished events are kept, in days.
        #[arg(long, default_value_t = 7)]
        retention_days: u64,
        /// Serves the lag of the relays, for Prometheus, at /metrics of this address.
        #[arg(long, value_name = "ADDRESS")]
        metrics: Option<SocketAddr>,
    },
    /// List events, in order.
    Ls {
        #[command(flatten)]
        database: DatabaseUrl,
        /// Only those in this state.
        #[arg(long)]
        state: Option<StateFilter>,
        /// The most events to list.
        #[arg(long, default_value_t = 50)]
        limit: u32,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Publish a parked event again; later events of its key follow it.
    Requeue(OneEvent),
    /// Give up a parked event; later events of its key continue without it.
    Skip(OneEvent),
    /// Show the lag of the relays.
    Lag {
        #[command(flatten)]
        database: DatabaseUrl,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct OneEvent {
    #[command(flatten)]
    pub(crate) database: DatabaseUrl,
    /// The event's id, as `ls` shows it.
    pub(crate) event: EventId,
}

#[derive(Debug, Args)]
pub(crate) struct DatabaseUrl {
    /// The database of the outbox: postgres://…, mysql://… or sqlite://….
    #[arg(long = "database", env = "HANDFAST_DATABASE")]
    pub(crate) url: String,
}

/// The state of an event.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum StateFilter {
    Held,
    New,
    Published,
    Processed,
    Parked,
    Skipped,
}

impl From<StateFilter> for EventState {
    fn from(state: StateFilter) -> Self {
        match state {
            StateFilter::Held => Self::Held,
            StateFilter::New => Self::New,
            StateFilter::Published => Self::Published,
            StateFilter::Processed => Self::Processed,
            StateFilter::Parked => Self::Parked,
            StateFilter::Skipped => Self::Skipped,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Arguments::command().debug_assert();
    }
}
