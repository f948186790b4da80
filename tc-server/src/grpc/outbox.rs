//! Reports of relays from wire messages, and the answers to them.

use std::sync::Arc;

use handfast_core::{Rejection, Timestamp};
use handfast_proto::v1 as wire;

use super::bounds::{BadRequest, at_most};
use super::decoder::Decoder;
use super::from_wire::present;
use super::refusal;
use crate::relay_reports::{
    ActionResult, LaneReport, OutboxAction, OutboxVerb, ParkedEvent, RelayKey, RelayRefusal,
    RelayReport, RelayReports,
};

/// The most lanes of one relay: all that an outbox has.
const LANES_MAX: usize = 64;
/// The most parked events in one report.
const PARKED_MAX: usize = 100;
/// The longest id of an event.
const EVENT_BYTES_MAX: usize = 64;
/// The longest time for which an answer is kept back.
const WAIT_MS_MAX: u64 = 60_000;

/// A report, as it was sent.
#[derive(Debug)]
pub(super) struct DecodedReport {
    key: RelayKey,
    report: RelayReport,
    results: Vec<(u64, ActionResult)>,
    wait_ms: u64,
    leaves: bool,
}

impl Decoder {
    /// Reads the report of a process of this application.
    pub(super) fn outbox_report(
        &self,
        application: &Arc<str>,
        peer: &Arc<str>,
        request: wire::ReportOutboxRequest,
    ) -> Result<DecodedReport, BadRequest> {
        self.name("outbox", &request.outbox)?;
        self.name("relay", &request.relay)?;
        at_most("lanes", request.lanes.len(), LANES_MAX)?;
        at_most("parked events", request.parked.len(), PARKED_MAX)?;
        at_most("results", request.results.len(), PARKED_MAX)?;
        let error = self.reason(&request.error);
        let parked = request.parked.into_iter().map(|event| self.parked_event(event));
        let report = RelayReport {
            peer: Arc::clone(peer),
            lanes: request.lanes.into_iter().map(lane).collect(),
            parked: parked.collect::<Result<_, _>>()?,
            error: Some(error).filter(|error| !error.is_empty()).map(Into::into),
        };
        let key = RelayKey {
            application: Arc::clone(application),
            outbox: present("outbox", request.outbox)?.into(),
            relay: present("relay", request.relay)?.into(),
        };
        let results = request.results.into_iter().map(|result| self.result(&result)).collect();
        let wait_ms = request.wait_ms.min(WAIT_MS_MAX);
        Ok(DecodedReport { key, report, results, wait_ms, leaves: request.leaves })
    }

    fn parked_event(&self, event: wire::ParkedEvent) -> Result<ParkedEvent, BadRequest> {
        self.name("topic", &event.topic)?;
        self.name("key", &event.key)?;
        self.name("xid", &event.xid)?;
        let is_id = |c: char| c.is_ascii_alphanumeric() || c == '-';
        // It is part of paths and cursors.
        let is_plain = event.event.len() <= EVENT_BYTES_MAX && event.event.chars().all(is_id);
        if !is_plain || event.event.is_empty() {
            return Err(BadRequest::EventId(self.reason(&event.event).to_owned()));
        }
        Ok(ParkedEvent {
            error: self.reason(&event.error).into(),
            event: event.event.into(),
            topic: event.topic.into(),
            key: event.key.into(),
            attempts: event.attempts,
            parked_at: Timestamp(event.parked_at_ms),
            emitted_at: Timestamp(event.emitted_at_ms),
            xid: Some(event.xid).filter(|xid| !xid.is_empty()).map(Into::into),
        })
    }

    fn result(&self, result: &wire::OutboxActionResult) -> (u64, ActionResult) {
        let text = |text: &str| self.reason(text).to_owned();
        let refusal = || RelayRefusal { code: text(&result.code), message: text(&result.message) };
        let done = if result.code.is_empty() { Ok(()) } else { Err(refusal()) };
        (result.id, done)
    }
}

impl DecodedReport {
    /// Takes the report, and returns the body of its answer when that is due.
    pub(super) async fn answer(self, reports: &RelayReports) -> wire::server_message::Body {
        use wire::server_message::Body;
        let Self { key, report, results, wait_ms, leaves } = self;
        if leaves {
            reports.leave(&key, results);
            return Body::ReportOutbox(wire::ReportOutboxReply::default());
        }
        match reports.report(key, report, results, wait_ms).await {
            Ok(actions) => {
                let actions = actions.into_iter().map(action).collect();
                Body::ReportOutbox(wire::ReportOutboxReply { actions })
            }
            Err(too_many) => {
                let max = u64::try_from(too_many.max).unwrap_or(u64::MAX);
                let rejection = Rejection::LimitReached { what: "reporting relays", max };
                Body::Rejected(refusal::of_core(&rejection))
            }
        }
    }
}

fn lane(lane: wire::OutboxLane) -> LaneReport {
    LaneReport {
        lane: lane.lane,
        held: lane.held,
        new: lane.new_events,
        parked: lane.parked,
        oldest_new: Some(lane.oldest_new_at_ms).filter(|at| *at > 0).map(Timestamp),
    }
}

fn action(action: OutboxAction) -> wire::OutboxAction {
    let verb = match action.verb {
        OutboxVerb::Requeue => wire::OutboxVerb::Requeue,
        OutboxVerb::Skip => wire::OutboxVerb::Skip,
    };
    let event = action.event.as_ref().to_owned();
    wire::OutboxAction { id: action.number, verb: verb.into(), event }
}
