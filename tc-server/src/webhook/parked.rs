//! Notices when a relay reports events as parked that were not parked before.
//!
//! One alert is raised for each relay and look, about the newest of these events: a broker that
//! refuses everything parks many at once. An event that is parked again is told again.

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

/// Events as they were told: BOUNDED by what relays report.
type Told = BTreeSet<(Arc<str>, Timestamp)>;

/// Looks at the reports of relays from time to time, until it is dropped.
pub(crate) async fn watch_parked(relays: RelayReports, alerts: Alerts) {
    let mut told = Told::new();
    loop {
        sleep(PERIOD).await;
        for event in news(&relays.relays(), &mut told) {
            alerts.enqueue(event);
        }
    }
}

/// Returns the alerts about events that were not parked before.
fn news(relays: &[RelayView], told: &mut Told) -> Vec<AlertEvent> {
    let (mut news, mut parked) = (Vec::new(), Told::new());
    for relay in relays {
        let mut newest = None;
        for event in &relay.report.parked {
            let as_told = (Arc::clone(&event.event), event.parked_at);
            // An event that two relays report, since its lane moves, is told once.
            let is_new = !told.contains(&as_told) && !parked.contains(&as_told);
            if is_new && newest.is_none_or(|it: &ParkedEvent| event.parked_at > it.parked_at) {
                newest = Some(event);
            }
            parked.insert(as_told);
        }
        news.extend(newest.map(|event| AlertEvent::of_parked(relay, event)));
    }
    *told = parked;
    news
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
        let mut told = Told::new();
        let mut subjects = |relays: &[RelayView]| {
            let news = news(relays, &mut told);
            news.into_iter().map(|event| event.subject).collect::<Vec<_>>()
        };
        assert_eq!(subjects(&[relay("a", &[("e2", 6), ("e3", 7), ("e1", 5)])]), ["e3"]);
        assert_eq!(subjects(&[relay("a", &[("e2", 6), ("e3", 7), ("e1", 5)])]), [""; 0]);
        // The lane of one moves.
        assert_eq!(subjects(&[relay("a", &[("e2", 6)]), relay("b", &[("e2", 6)])]), [""; 0]);
        assert_eq!(subjects(&[relay("b", &[])]), [""; 0]);
        assert_eq!(subjects(&[relay("b", &[("e2", 8)])]), ["e2"], "parked again");
    }
}
