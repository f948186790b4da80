//! `handfast events`: what relays of outboxes report to a coordinator, and what they are asked.

use std::io::Write;

use clap::Subcommand;

use super::remote::{block_on, collect_pages, get, segment, show};
use super::render::{render_event_action, render_events};
use super::{CliFailure, Client, ListRange, Remote};
use crate::admin::model::{ActionRequest, EventPage, EventQuery, EventReply};

/// The commands about events of outboxes.
#[derive(Debug, Subcommand)]
pub enum EventCommand {
    /// Lists the relays of outboxes with what they see, and parked events with the reason.
    Ls {
        /// Only those of outboxes of this name.
        #[arg(long)]
        outbox: Option<String>,
        /// Only events of this topic.
        #[arg(long)]
        topic: Option<String>,
        /// Only events of this key.
        #[arg(long)]
        key: Option<String>,
        #[command(flatten)]
        page: ListRange,
        #[command(flatten)]
        remote: Remote,
    },
    /// Has a parked event published after all; later events of its key follow it.
    Requeue(EventAction),
    /// Gives up a parked event; later events of its key continue without it.
    Skip(EventAction),
}

/// A parked event, and why something is done to it.
#[derive(Debug, clap::Args)]
pub struct EventAction {
    /// The event's id, as `ls` shows it.
    event: String,
    /// The reason, for the audit log.
    #[arg(long, default_value = "")]
    reason: String,
    #[command(flatten)]
    remote: Remote,
}

/// Runs one of the commands.
pub(super) fn run(command: EventCommand, output: &mut dyn Write) -> Result<(), CliFailure> {
    match command {
        EventCommand::Ls { outbox, topic, key, page, remote } => {
            let mut query = EventQuery { outbox, topic, key, ..EventQuery::default() };
            let mut relays = Vec::new();
            let (items, next) = collect_pages(page, |cursor, limit| {
                (query.cursor, query.limit) = (cursor, Some(limit));
                let page: EventPage = get(&remote, "/events", &query)?;
                relays = page.relays;
                Ok((page.items, page.next))
            })?;
            show(&remote, output, &EventPage { relays, items, next }, render_events)
        }
        EventCommand::Requeue(action) => act(action, "requeue", output),
        EventCommand::Skip(action) => act(action, "skip", output),
    }
}

fn act(action: EventAction, verb: &str, output: &mut dyn Write) -> Result<(), CliFailure> {
    let EventAction { event, reason, remote } = action;
    let path = format!("/events/{}/{verb}", segment(&event, "an event is its id")?);
    let client = Client::new(&remote)?;
    let reply: EventReply = block_on(client.post(&path, &ActionRequest { reason }))??;
    show(&remote, output, &reply, render_event_action)
}
