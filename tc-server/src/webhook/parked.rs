//! Notices when a relay reports events as parked that were not parked before.
//!
//! One alert is raised for each relay and look, about the newest of these events: a broker that
//! refuses everything parks many at once. An event that is parked again has another alert.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use handfast_core::Timestamp;
use tokio::time::sleep;

use super::Alerts;
use super::event::AlertEvent;
use crate::relay_reports::{ParkedEvent, RelayReports, RelayView};

/// How often is looked.
const PERIOD: Duration = Duration::from_secs(1);

/// Events that have had their alert: BOUNDED by what relays report.
type Alerted = BTreeSet<(Arc<str>, Timestamp)>;

/// Looks at the reports of relays from time to time, until it is dropped.
pub(crate) async fn watch_parked(relays: RelayReports, alerts: Alerts) {
    let mut alerted = Alerted::new();
    loop {
        sleep(PERIOD).await;
        for event in new_alerts(&relays.relays(), &mut alerted) {
            alerts.enqueue(event);
        }
    }
}

/// Returns the alerts about events that were not parked before.
fn new_alerts(relays: &[RelayView], alerted: &mut Alerted) -> Vec<AlertEvent> {
    let (mut events, mut parked) = (Vec::new(), Alerted::new());
    for relay in relays {
        let mut newest = None;
        for event in &relay.report.parked {
            let as_alerted = (Arc::clone(&event.event), event.parked_at);
            // An event that two relays report, since its lane moves, has one alert.
            let is_new = !alerted.contains(&as_alerted) && !parked.contains(&as_alerted);
            if is_new && newest.is_none_or(|it: &ParkedEvent| event.parked_at > it.parked_at) {
                newest = Some(event);
            }
            parked.insert(as_alerted);
        }
        events.extend(newest.map(|event| AlertEvent::of_parked(relay, event)));
    }
    *alerted = parked;
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay_reports::{RelayKey, RelayReport};

    fn relay(name: &str, events: &[(&str, u64)]) -> RelayView {
        let event = |(id, at): &(&str, u64)| ParkedEvent {
            event: (*id).into(),
            topic: "orders".into(),
            key: "7".into(),
            error: "no such topic".into(),
            attempts: 10,
            parked_at: Timestamp(*at),
            emitted_at: Timestamp(1),
            xid: None,
        };
        let parked = events.iter().map(event).collect();
        let (application, outbox) = ("shop".into(), "orders".into());
        RelayView {
            key: RelayKey { application, outbox, relay: name.into() },
            report: Arc::new(RelayReport { parked, ..RelayReport::default() }),
            reported_at: Timestamp(9),
            is_silent: false,
        }
    }

    #[test]
    fn the_newest_of_the_events_that_are_parked_is_told_once() {
        let mut alerted = Alerted::new();
        let mut subjects = |relays: &[RelayView]| {
            let events = new_alerts(relays, &mut alerted);
            events.into_iter().map(|event| event.subject).collect::<Vec<_>>()
        };
        assert_eq!(subjects(&[relay("a", &[("e2", 6), ("e3", 7), ("e1", 5)])]), ["e3"]);
        assert_eq!(subjects(&[relay("a", &[("e2", 6), ("e3", 7), ("e1", 5)])]), [""; 0]);
        // The lane of one moves.
        assert_eq!(subjects(&[relay("a", &[("e2", 6)]), relay("b", &[("e2", 6)])]), [""; 0]);
        assert_eq!(subjects(&[relay("b", &[])]), [""; 0]);
        assert_eq!(subjects(&[relay("b", &[("e2", 8)])]), ["e2"], "parked again");
    }
}
