//! The client's side of one stream: what to send next, given what has arrived. It has no socket and
//! no task.

use std::time::Instant;

use handfast_proto::v1::client_message::Body as Ask;
use handfast_proto::v1::server_message::Body as Answer;
use handfast_proto::v1::{self, BranchOutcome, ClientFrame, ClientMessage, Decision};
use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::lent::LentXids;
use super::shape::{Shape, done, resource_id};
use super::{Arrivals, Counters, Load, Window};

/// The API's limit of messages in a frame, minus one for the outcomes of phase two.
const FRAME_MESSAGES_MAX: usize = 1_000;
/// The id of the first slot's requests. Further slots follow; 1 is the id of the handshake.
const FIRST_ID: u64 = 2;
/// The id of the first report whose answer is not waited for.
const FIRST_REPORT_ID: u64 = 1 << 32;
/// The id of the first begin whose answer is not waited for.
const FIRST_BEGIN_ID: u64 = 1 << 40;

/// All transactions of one connection.
#[derive(Debug)]
pub(crate) struct StreamClient {
    shape: Shape,
    resource: String,
    window: Window,
    arrivals: Arrivals,
    random: SmallRng,
    behind_max: u64,
    slots: Vec<Slot>,
    free: Vec<usize>,
    outgoing: Vec<ClientMessage>,
    outcomes: Vec<BranchOutcome>,
    reports: u64,
    lent: LentXids,
    begins: u64,
    counters: Counters,
}

/// A transaction in progress, or a free place for one.
#[derive(Clone, Debug)]
struct Slot {
    xid: String,
    /// When it was due to begin.
    due: Instant,
    step: Step,
    /// The branch that was registered last.
    branch: u64,
    decision: Decision,
}

/// The reply that a slot waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Free,
    Beginning,
    /// The number of branches that are registered.
    Registering(u32),
    Ending,
    /// Rolling back after a refusal.
    RollingBack,
}

impl StreamClient {
    pub(crate) fn new(share: &Load, arrivals: Arrivals, window: Window, number: usize) -> Self {
        Self {
            shape: share.shape,
            behind_max: share.behind_max.unwrap_or(u64::MAX),
            resource: resource_id(number),
            window,
            arrivals,
            random: SmallRng::seed_from_u64(number as u64),
            slots: Vec::new(),
            free: Vec::new(),
            outgoing: Vec::new(),
            outcomes: Vec::new(),
            reports: 0,
            lent: LentXids::default(),
            begins: 0,
            counters: Counters::default(),
        }
    }

    /// Begins the transactions that are due, unless phase two is too far behind.
    pub(crate) fn start_due(&mut self, now: Instant) {
        while self.counters.behind() < self.behind_max {
            let open = self.slots.len() - self.free.len();
            let Some(due) = self.arrivals.due(now, open, &mut self.random) else { return };
            let decision = self.shape.decision(&mut self.random);
            let lent = if self.shape.waits_for_begin { None } else { self.lent.take() };
            let (xid, step) = (lent.unwrap_or_default(), Step::Beginning);
            let slot = Slot { xid, due, step, branch: 0, decision };
            let at = match self.free.pop() {
                Some(at) => {
                    self.slots[at] = slot;
                    at
                }
                None => {
                    self.slots.push(slot);
                    self.slots.len() - 1
                }
            };
            self.begin(at);
        }
    }

    /// Begins a global: if an XID is lent for it, its first branch is registered at once.
    fn begin(&mut self, at: usize) {
        let lent_xid = self.slots[at].xid.clone();
        let is_ahead = !lent_xid.is_empty();
        let id = if is_ahead { FIRST_BEGIN_ID + self.begins } else { at as u64 + FIRST_ID };
        let wants = if self.shape.waits_for_begin { 0 } else { self.lent.wants(id) };
        let body = Some(Ask::Begin(v1::BeginRequest { lent_xid, wants, ..Shape::begin() }));
        self.outgoing.push(ClientMessage { id, body });
        self.begins += 1;
        if is_ahead {
            self.register(at, 0);
        }
    }

    /// Receives a frame of the server.
    pub(crate) fn receive(&mut self, now: Instant, frame: v1::ServerFrame) {
        for message in frame.messages {
            match message.body {
                Some(Answer::PhaseTwo(call)) => self.finish(call),
                Some(Answer::GoAway(notice)) => self.counters.error(&notice.reason),
                Some(Answer::Begin(reply)) if message.id >= FIRST_BEGIN_ID => {
                    self.lent.receive(message.id, &reply);
                }
                Some(Answer::Rejected(refusal)) if message.id >= FIRST_REPORT_ID => {
                    self.counters.error(&refusal.code);
                }
                Some(_) if message.id >= FIRST_REPORT_ID => {}
                Some(answer) if message.id >= FIRST_ID => self.answered(now, message.id, answer),
                Some(_) | None => {}
            }
        }
    }

    /// Returns the next frame to send, if there is anything to send.
    pub(crate) fn next_frame(&mut self) -> Option<ClientFrame> {
        let rest = self.outgoing.len().min(FRAME_MESSAGES_MAX);
        let mut messages: Vec<ClientMessage> = self.outgoing.drain(..rest).collect();
        if !self.outcomes.is_empty() {
            let branches = std::mem::take(&mut self.outcomes);
            let body = Some(Ask::Finished(v1::PhaseTwoOutcome { branches }));
            messages.push(ClientMessage { id: 0, body });
        }
        (!messages.is_empty()).then_some(ClientFrame { messages })
    }

    /// Returns when the next transaction is due, in an open loop.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.arrivals.next()
    }

    /// Returns whether every transaction has ended, phase two included, and no more will begin.
    pub(crate) fn over(&self, now: Instant) -> bool {
        let all_ended = self.free.len() == self.slots.len();
        all_ended && self.arrivals.over(now) && self.counters.finished >= self.counters.owed
    }

    /// Returns the counts. A transaction that is still in progress counts as unanswered.
    pub(crate) fn into_counters(mut self) -> Counters {
        for _ in self.free.len()..self.slots.len() {
            self.counters.error("unanswered");
        }
        self.counters
    }

    fn answered(&mut self, now: Instant, id: u64, answer: Answer) {
        let at = usize::try_from(id - FIRST_ID).unwrap_or(usize::MAX);
        let Some(slot) = self.slots.get_mut(at) else {
            return self.counters.error("reply without a request");
        };
        match (slot.step, answer) {
            (Step::Beginning, Answer::Begin(reply)) => {
                self.lent.receive(id, &reply);
                slot.xid = reply.xid;
                self.register(at, 0);
            }
            (Step::Registering(before), Answer::RegisterBranch(reply)) if reply.decides => {
                self.report(before + 1, at);
                self.ended(now, at);
            }
            (Step::Registering(before), Answer::RegisterBranch(_)) => self.register(at, before + 1),
            (Step::Ending, Answer::End(_)) => self.ended(now, at),
            (Step::RollingBack, _) => self.release(at),
            (step, Answer::Rejected(refusal)) => self.refused(at, step, &refusal.code),
            (_, other) => {
                self.counters.error(&format!("unexpected answer {other:?}"));
                self.release(at);
            }
        }
    }

    /// Registers the next branch, or ends the global if it has all.
    fn register(&mut self, at: usize, registered: u32) {
        let slot = &mut self.slots[at];
        if registered == self.shape.branches {
            let decision = slot.decision;
            return self.end(at, Step::Ending, registered, decision);
        }
        let mut request = self.shape.registration(&slot.xid, &self.resource, &mut self.random);
        request.is_last = self.shape.last_decides
            && registered + 1 == self.shape.branches
            && slot.decision == Decision::Commit;
        (slot.step, slot.branch) = (Step::Registering(registered), request.branch_id);
        self.send(at, Ask::RegisterBranch(request));
    }

    /// Requests the end of a global that has `registered` branches.
    fn end(&mut self, at: usize, step: Step, registered: u32, decision: Decision) {
        // The branches are counted before the request leaves: phase two may come before the reply.
        self.counters.owe(registered.into());
        self.slots[at].step = step;
        self.send(at, Ask::End(Shape::end(&self.slots[at].xid, decision)));
    }

    /// Reports the local commit that has decided a global of this many branches.
    fn report(&mut self, registered: u32, at: usize) {
        self.counters.owe(registered.into());
        let Slot { xid, branch, .. } = &self.slots[at];
        let body = Some(Ask::ReportBranch(Shape::decided(xid, *branch)));
        self.outgoing.push(ClientMessage { id: FIRST_REPORT_ID + self.reports, body });
        self.reports += 1;
    }

    fn ended(&mut self, now: Instant, at: usize) {
        if self.window.holds(now) {
            self.counters.end(now.saturating_duration_since(self.slots[at].due));
        }
        self.release(at);
    }

    fn refused(&mut self, at: usize, step: Step, code: &str) {
        self.counters.error(code);
        match step {
            Step::Registering(registered) => {
                self.end(at, Step::RollingBack, registered, Decision::RollBack);
            }
            Step::Free | Step::Beginning | Step::Ending | Step::RollingBack => self.release(at),
        }
    }

    fn release(&mut self, at: usize) {
        self.slots[at].step = Step::Free;
        self.free.push(at);
    }

    fn finish(&mut self, call: v1::PhaseTwoCall) {
        self.counters.finished += call.branches.len() as u64;
        self.outcomes.extend(done(call));
    }

    fn send(&mut self, at: usize, ask: Ask) {
        self.outgoing.push(ClientMessage { id: at as u64 + FIRST_ID, body: Some(ask) });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{Pace, Wire};
    use super::*;

    fn client(in_flight: usize) -> (StreamClient, Instant) {
        let now = Instant::now();
        let window = Window { from: now, until: now + Duration::from_secs(1) };
        let shape = Shape { branches: 1, ..Shape::of_one_row() };
        let arrivals = Arrivals::new(Pace::Closed { in_flight }, now, window.until);
        let (wire, pace) = (Wire::Stream, Pace::Closed { in_flight });
        let share = Load { wire, connections: 1, shape, pace, behind_max: Some(2) };
        (StreamClient::new(&share, arrivals, window, 0), now)
    }

    fn receive(client: &mut StreamClient, now: Instant, id: u64, body: Answer) {
        let message = v1::ServerMessage { id, body: Some(body) };
        client.receive(now, v1::ServerFrame { messages: vec![message] });
    }

    fn sent(client: &mut StreamClient) -> Vec<ClientMessage> {
        client.next_frame().map(|frame| frame.messages).unwrap_or_default()
    }

    #[test]
    fn global_runs_from_begin_to_phase_two() {
        let (mut client, now) = client(1);
        client.start_due(now);
        assert!(matches!(
            sent(&mut client)[..],
            [ClientMessage { id: 2, body: Some(Ask::Begin(_)) }]
        ));
        receive(
            &mut client,
            now,
            2,
            Answer::Begin(v1::BeginReply {
                xid: "a:1".into(),
                timeout_ms: 1,
                ..v1::BeginReply::default()
            }),
        );
        assert!(matches!(sent(&mut client)[0].body, Some(Ask::RegisterBranch(_))));
        receive(&mut client, now, 2, Answer::RegisterBranch(v1::RegisterBranchReply::default()));
        assert!(matches!(sent(&mut client)[0].body, Some(Ask::End(_))));
        receive(&mut client, now, 2, Answer::End(v1::EndReply::default()));
        let later = now + Duration::from_secs(1);
        assert!(!client.over(later), "phase two has not come");
        let branches = vec![v1::PhaseTwoBranch::default()];
        let call = v1::PhaseTwoCall { branches, ..v1::PhaseTwoCall::default() };
        receive(&mut client, now, 0, Answer::PhaseTwo(call));
        assert!(matches!(sent(&mut client)[0].body, Some(Ask::Finished(_))));
        assert!(client.over(later));
        let counters = client.into_counters();
        assert_eq!((counters.ended, counters.owed, counters.finished), (1, 1, 1));
        assert!(counters.errors.is_empty());
    }

    #[test]
    fn global_with_a_lent_xid_is_registered_at_once() {
        let (mut client, now) = client(1);
        client.start_due(now);
        let begin = sent(&mut client);
        assert!(matches!(&begin[0].body, Some(Ask::Begin(request)) if request.wants == 64));
        let loan = Some(v1::XidLoan { first: 9, count: 1, ..v1::XidLoan::default() });
        let reply = v1::BeginReply { xid: "a:1".into(), loan, ..v1::BeginReply::default() };
        receive(&mut client, now, 2, Answer::Begin(reply));
        receive(&mut client, now, 2, Answer::RegisterBranch(v1::RegisterBranchReply::default()));
        receive(&mut client, now, 2, Answer::End(v1::EndReply::default()));
        sent(&mut client);
        client.start_due(now);
        let both = sent(&mut client);
        let [
            ClientMessage { body: Some(Ask::Begin(begin)), id },
            ClientMessage { id: 2, body: Some(Ask::RegisterBranch(branch)) },
        ] = &both[..]
        else {
            panic!("{both:?}")
        };
        assert_eq!((begin.lent_xid.as_str(), branch.xid.as_str(), begin.wants), ("a:9", "a:9", 64));
        receive(&mut client, now, *id, Answer::Begin(v1::BeginReply::default()));
        assert!(sent(&mut client).is_empty());
        assert!(client.counters.errors.is_empty());
    }

    #[test]
    fn no_begin_while_phase_two_is_too_far_behind() {
        let (mut client, now) = client(3);
        let end = |client: &mut StreamClient, id| {
            receive(
                client,
                now,
                id,
                Answer::Begin(v1::BeginReply {
                    xid: "a:1".into(),
                    timeout_ms: 1,
                    ..v1::BeginReply::default()
                }),
            );
            receive(client, now, id, Answer::RegisterBranch(v1::RegisterBranchReply::default()));
            receive(client, now, id, Answer::End(v1::EndReply::default()));
        };
        client.start_due(now);
        assert_eq!(sent(&mut client).len(), 3);
        end(&mut client, 2);
        end(&mut client, 3);
        sent(&mut client);
        client.start_due(now);
        assert!(sent(&mut client).is_empty(), "two branches are owed");
        let branches = vec![v1::PhaseTwoBranch::default()];
        receive(
            &mut client,
            now,
            0,
            Answer::PhaseTwo(v1::PhaseTwoCall { branches, ..Default::default() }),
        );
        client.start_due(now);
        let begun =
            sent(&mut client).into_iter().filter(|it| matches!(it.body, Some(Ask::Begin(_))));
        assert_eq!(begun.count(), 2);
    }

    #[test]
    fn refused_registration_is_rolled_back_and_counted() {
        let (mut client, now) = client(1);
        client.start_due(now);
        receive(
            &mut client,
            now,
            2,
            Answer::Begin(v1::BeginReply {
                xid: "a:1".into(),
                timeout_ms: 1,
                ..v1::BeginReply::default()
            }),
        );
        sent(&mut client);
        let refusal = v1::Rejection { code: "HF-TC-DEADLOCK".into(), ..v1::Rejection::default() };
        receive(&mut client, now, 2, Answer::Rejected(refusal));
        assert!(matches!(sent(&mut client)[0].body, Some(Ask::End(_))));
        receive(&mut client, now, 2, Answer::End(v1::EndReply::default()));
        let counters = client.into_counters();
        assert_eq!(counters.errors.get("HF-TC-DEADLOCK"), Some(&1));
        assert_eq!((counters.ended, counters.owed), (0, 0));
    }

    #[test]
    fn unanswered_request_is_counted() {
        let (mut client, now) = client(3);
        client.start_due(now);
        assert_eq!(sent(&mut client).len(), 3);
        assert_eq!(client.into_counters().errors.get("unanswered"), Some(&3));
    }
}
