//! The command line's arguments.

use std::net::SocketAddr;

use clap::{Args, Subcommand, ValueEnum};
use handfast::outbox::{EventId, EventState};

/// The options of a relay.
#[derive(Debug, Args)]
pub struct RelayOptions {
    #[command(flatten)]
    pub(crate) database: DatabaseUrl,
    /// The broker: redis://HOST:PORT[/DATABASE], amqp://USER:PASSWORD@HOST:PORT/%2f (RabbitMQ)
    /// or nats://HOST:PORT (JetStream).
    #[arg(long, env = "HANDFAST_BROKER", hide_env_values = true)]
    pub(crate) broker: String,
    /// How many events are claimed at a time.
    #[arg(long, default_value_t = 200)]
    pub(crate) batch: u32,
    /// How often an event may be refused before it is parked.
    #[arg(long, default_value_t = 10)]
    pub(crate) attempts_max: u32,
    /// How long the keys of a relay that has died wait for another relay, in seconds.
    #[arg(long, default_value_t = 15)]
    pub(crate) lease_seconds: u64,
    /// How long finished events are kept, in days.
    #[arg(long, default_value_t = 7)]
    pub(crate) retention_days: u64,
    /// Reports to the coordinator that HANDFAST_ENDPOINTS names, under this name of the outbox:
    /// operators see it with `handfast events`. HANDFAST_TOKEN_FILE and the others are read as by
    /// services.
    #[arg(long, value_name = "OUTBOX")]
    pub(crate) report_as: Option<String>,
    /// Serves the lag of the relays, for Prometheus, at /metrics of this address.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics: Option<SocketAddr>,
}

/// The commands that look at an outbox or change it.
#[derive(Debug, Subcommand)]
pub enum OutboxCommand {
    /// Lists events, in order.
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
    /// Publishes a parked event again; later events of its key follow it.
    Requeue(OneEvent),
    /// Gives up a parked event; later events of its key continue without it.
    Skip(OneEvent),
    /// Shows the lag of the relays.
    Lag {
        #[command(flatten)]
        database: DatabaseUrl,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

/// One event of an outbox.
#[derive(Debug, Args)]
pub struct OneEvent {
    #[command(flatten)]
    pub(crate) database: DatabaseUrl,
    /// The event's id, as `ls` shows it.
    pub(crate) event: EventId,
}

/// The database of an outbox.
#[derive(Debug, Args)]
pub struct DatabaseUrl {
    /// The database of the outbox: postgres://…, mysql://… or sqlite://….
    #[arg(long = "database", env = "HANDFAST_DATABASE", hide_env_values = true)]
    pub(crate) url: String,
}

/// The state of an event.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum StateFilter {
    /// Its global is undecided.
    Held,
    /// It waits for a relay.
    New,
    /// The broker has it.
    Published,
    /// A consumer has taken it.
    Processed,
    /// It was refused too often, and waits for an operator.
    Parked,
    /// An operator has given it up.
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
