//! Events of outboxes as text.

use super::{Sheet, Style, flowing, more, printable, whole};
use crate::admin::model::{EventOutcome, EventPage, EventReply, OutboxRelay, ParkedEvent};
use crate::time_format;

/// Renders one line per relay and, below, one per parked event.
#[must_use]
pub(crate) fn render_events(page: &EventPage, style: Style) -> String {
    if page.relays.is_empty() {
        return "no relays report: see `handfast relay --report-as`".to_owned();
    }
    let mut shown = relays(&page.relays, style);
    if page.items.is_empty() {
        shown.push_str("\nno parked events");
    } else {
        shown.push('\n');
        shown.push_str(&parked(&page.items, style));
    }
    format!("{}{}", shown.trim_end(), more(page.next.as_deref()))
}

fn relays(relays: &[OutboxRelay], style: Style) -> String {
    let columns = [
        whole("OUTBOX"),
        flowing("APPLICATION").left_out(4),
        flowing("RELAY").left_out(1),
        flowing("LANES").left_out(2),
        flowing("HELD"),
        flowing("NEW"),
        flowing("PARKED"),
        flowing("OLDEST").left_out(5),
        flowing("SEEN").left_out(3),
        flowing("STATE"),
    ];
    let mut sheet = Sheet::new(style, columns);
    for relay in relays {
        let state = match (&relay.error, relay.is_silent) {
            (_, true) => "silent",
            (Some(error), false) => error,
            (None, false) => "reports",
        };
        let oldest = relay.oldest_at.as_ref().map(|_| time_format::duration(relay.age_ms));
        let cells = [
            &*relay.outbox,
            &relay.application,
            &relay.relay,
            &relay.lane_count.to_string(),
            &relay.held.to_string(),
            &relay.new.to_string(),
            &relay.parked.to_string(),
            oldest.as_deref().unwrap_or("-"),
            &format!("{} ago", time_format::duration(relay.seen_ms_ago)),
            state,
        ];
        sheet.row(cells);
    }
    sheet.text()
}

fn parked(events: &[ParkedEvent], style: Style) -> String {
    let columns = [
        whole("EVENT"),
        flowing("OUTBOX").left_out(3),
        flowing("TOPIC"),
        flowing("KEY"),
        flowing("ATTEMPTS").left_out(2),
        flowing("PARKED FOR").left_out(4),
        flowing("XID").left_out(1),
        flowing("REASON").left_out(5),
    ];
    let mut sheet = Sheet::new(style, columns);
    for event in events {
        let cells = [
            &*event.event,
            &event.outbox,
            &event.topic,
            &event.key,
            &event.attempts.to_string(),
            &time_format::duration(event.age_ms),
            event.xid.as_deref().unwrap_or("-"),
            &event.reason,
        ];
        sheet.row(cells);
    }
    sheet.text()
}

/// Renders the result of an action.
#[must_use]
pub(crate) fn render_event_action(reply: &EventReply, _style: Style) -> String {
    let state = match reply.state {
        EventOutcome::New => "is to be published again",
        EventOutcome::Skipped => "is skipped",
    };
    format!("{} of {} {state}", reply.event, printable(&reply.outbox))
}
