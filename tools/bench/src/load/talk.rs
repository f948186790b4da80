//! The client's side of one stream: what to send next, given what has come. No socket, no task.

use std::time::Instant;

use handfast_proto::v1::client_message::Body as Ask;
use handfast_proto::v1::server_message::Body as Answer;
use handfast_proto::v1::{self, BranchOutcome, ClientFrame, ClientMessage, Decision};
use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::shape::{Shape, done, resource_id};
use super::{Arrivals, Load, Tally, Window};

/// The API's limit of messages in a frame, less one for the outcomes of phase two.
const FRAME_MESSAGES_MAX: usize = 1_000;
/// Ids of requests are those of their slots, counted on from here; 1 is the greeting's.
const FIRST_ID: u64 = 2;

/// All transactions of one connection.
#[derive(Debug)]
pub(crate) struct Talk {
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
    tally: Tally,
}

/// A transaction under way, or a place for one.
#[derive(Clone, Debug)]
struct Slot {
    xid: String,
    /// When it was to begin.
    due: Instant,
    step: Step,
}

/// Which answer is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Free,
    Beginning,
    /// So many branches are registered.
    Registering(u32),
    Ending,
    /// Rolling back after a refusal.
    GivingUp,
}

impl Talk {
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
            tally: Tally::default(),
        }
    }

    /// Begins what is due, unless phase two is too far behind.
    pub(crate) fn start_due(&mut self, now: Instant) {
        while self.tally.behind() < self.behind_max {
            let open = self.slots.len() - self.free.len();
            let Some(due) = self.arrivals.due(now, open, &mut self.random) else { return };
            let slot = Slot { xid: String::new(), due, step: Step::Beginning };
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
            self.send(at, Ask::Begin(Shape::begin()));
        }
    }

    /// Takes what the server sent.
    pub(crate) fn receive(&mut self, now: Instant, frame: v1::ServerFrame) {
        for message in frame.messages {
            match message.body {
                Some(Answer::PhaseTwo(call)) => self.finish(call),
                Some(Answer::GoAway(notice)) => self.tally.error(&notice.reason),
                Some(answer) if message.id >= FIRST_ID => self.answered(now, message.id, answer),
                Some(_) | None => {}
            }
        }
    }

    /// Everything that is to be sent, if there is anything.
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

    /// When the next transaction is due, in an open loop.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.arrivals.next()
    }

    /// Whether all has ended that will ever begin, phase two included.
    pub(crate) fn over(&self, now: Instant) -> bool {
        let all_ended = self.free.len() == self.slots.len();
        all_ended && self.arrivals.over(now) && self.tally.finished >= self.tally.owed
    }

    /// What was counted; what is still under way counts as lost.
    pub(crate) fn into_tally(mut self) -> Tally {
        for _ in self.free.len()..self.slots.len() {
            self.tally.error("unanswered");
        }
        self.tally
    }

    fn answered(&mut self, now: Instant, id: u64, answer: Answer) {
        let at = usize::try_from(id - FIRST_ID).unwrap_or(usize::MAX);
        let Some(slot) = self.slots.get_mut(at) else {
            return self.tally.error("answer to nothing");
        };
        match (slot.step, answer) {
            (Step::Beginning, Answer::Begin(reply)) => {
                slot.xid = reply.xid;
                self.register(at, 0);
            }
            (Step::Registering(before), Answer::RegisterBranch(_)) => self.register(at, before + 1),
            (Step::Ending, Answer::End(_)) => self.ended(now, at),
            (Step::GivingUp, _) => self.release(at),
            (step, Answer::Rejected(refusal)) => self.refused(at, step, &refusal.code),
            (_, other) => {
                self.tally.error(&format!("unexpected answer {other:?}"));
                self.release(at);
            }
        }
    }

    /// Registers the next branch, or ends the global when it has all.
    fn register(&mut self, at: usize, registered: u32) {
        if registered == self.shape.branches {
            let decision = self.shape.decision(&mut self.random);
            return self.end(at, Step::Ending, registered, decision);
        }
        let xid = &self.slots[at].xid;
        let request = self.shape.registration(xid, &self.resource, &mut self.random);
        self.slots[at].step = Step::Registering(registered);
        self.send(at, Ask::RegisterBranch(request));
    }

    /// Asks for the end of a global with so many branches.
    fn end(&mut self, at: usize, step: Step, registered: u32, decision: Decision) {
        self.tally.owe(registered.into());
        self.slots[at].step = step;
        self.send(at, Ask::End(Shape::end(&self.slots[at].xid, decision)));
    }

    fn ended(&mut self, now: Instant, at: usize) {
        if self.window.holds(now) {
            self.tally.end(now.saturating_duration_since(self.slots[at].due));
        }
        self.release(at);
    }

    fn refused(&mut self, at: usize, step: Step, code: &str) {
        self.tally.error(code);
        match step {
            Step::Registering(registered) => {
                self.end(at, Step::GivingUp, registered, Decision::RollBack);
            }
            Step::Free | Step::Beginning | Step::Ending | Step::GivingUp => self.release(at),
        }
    }

    fn release(&mut self, at: usize) {
        self.slots[at].step = Step::Free;
        self.free.push(at);
    }

    fn finish(&mut self, call: v1::PhaseTwoCall) {
        self.tally.finished += call.branches.len() as u64;
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

    fn talk(in_flight: usize) -> (Talk, Instant) {
        let now = Instant::now();
        let window = Window { from: now, until: now + Duration::from_secs(1) };
        let shape = Shape { branches: 1, ..Shape::of_one_row() };
        let arrivals = Arrivals::new(Pace::Closed { in_flight }, now, window.until);
        let (wire, pace) = (Wire::Stream, Pace::Closed { in_flight });
        let share = Load { wire, connections: 1, shape, pace, behind_max: Some(2) };
        (Talk::new(&share, arrivals, window, 0), now)
    }

    fn say(talk: &mut Talk, now: Instant, id: u64, body: Answer) {
        let message = v1::ServerMessage { id, body: Some(body) };
        talk.receive(now, v1::ServerFrame { messages: vec![message] });
    }

    fn asked(talk: &mut Talk) -> Vec<ClientMessage> {
        talk.next_frame().map(|frame| frame.messages).unwrap_or_default()
    }

    #[test]
    fn a_global_goes_from_begin_to_its_end_and_phase_two() {
        let (mut talk, now) = talk(1);
        talk.start_due(now);
        assert!(matches!(
            asked(&mut talk)[..],
            [ClientMessage { id: 2, body: Some(Ask::Begin(_)) }]
        ));
        say(&mut talk, now, 2, Answer::Begin(v1::BeginReply { xid: "a:1".into(), timeout_ms: 1 }));
        assert!(matches!(asked(&mut talk)[0].body, Some(Ask::RegisterBranch(_))));
        say(&mut talk, now, 2, Answer::RegisterBranch(v1::RegisterBranchReply::default()));
        assert!(matches!(asked(&mut talk)[0].body, Some(Ask::End(_))));
        say(&mut talk, now, 2, Answer::End(v1::EndReply::default()));
        let later = now + Duration::from_secs(1);
        assert!(!talk.over(later), "phase two has not come");
        let branches = vec![v1::PhaseTwoBranch::default()];
        let call = v1::PhaseTwoCall { branches, ..v1::PhaseTwoCall::default() };
        say(&mut talk, now, 0, Answer::PhaseTwo(call));
        assert!(matches!(asked(&mut talk)[0].body, Some(Ask::Finished(_))));
        assert!(talk.over(later));
        let tally = talk.into_tally();
        assert_eq!((tally.ended, tally.owed, tally.finished), (1, 1, 1));
        assert!(tally.errors.is_empty());
    }

    #[test]
    fn nothing_begins_while_phase_two_is_too_far_behind() {
        let (mut talk, now) = talk(3);
        let end = |talk: &mut Talk, id| {
            say(talk, now, id, Answer::Begin(v1::BeginReply { xid: "a:1".into(), timeout_ms: 1 }));
            say(talk, now, id, Answer::RegisterBranch(v1::RegisterBranchReply::default()));
            say(talk, now, id, Answer::End(v1::EndReply::default()));
        };
        talk.start_due(now);
        assert_eq!(asked(&mut talk).len(), 3);
        end(&mut talk, 2);
        end(&mut talk, 3);
        asked(&mut talk);
        talk.start_due(now);
        assert!(asked(&mut talk).is_empty(), "two branches are owed");
        let branches = vec![v1::PhaseTwoBranch::default()];
        say(
            &mut talk,
            now,
            0,
            Answer::PhaseTwo(v1::PhaseTwoCall { branches, ..Default::default() }),
        );
        talk.start_due(now);
        let begun =
            asked(&mut talk).into_iter().filter(|it| matches!(it.body, Some(Ask::Begin(_))));
        assert_eq!(begun.count(), 2);
    }

    #[test]
    fn a_refused_registration_is_given_up_and_counted() {
        let (mut talk, now) = talk(1);
        talk.start_due(now);
        say(&mut talk, now, 2, Answer::Begin(v1::BeginReply { xid: "a:1".into(), timeout_ms: 1 }));
        asked(&mut talk);
        let refusal = v1::Rejection { code: "HF-TC-DEADLOCK".into(), ..v1::Rejection::default() };
        say(&mut talk, now, 2, Answer::Rejected(refusal));
        assert!(matches!(asked(&mut talk)[0].body, Some(Ask::End(_))));
        say(&mut talk, now, 2, Answer::End(v1::EndReply::default()));
        let tally = talk.into_tally();
        assert_eq!(tally.errors.get("HF-TC-DEADLOCK"), Some(&1));
        assert_eq!((tally.ended, tally.owed), (0, 0));
    }

    #[test]
    fn what_is_never_answered_is_counted() {
        let (mut talk, now) = talk(3);
        talk.start_due(now);
        assert_eq!(asked(&mut talk).len(), 3);
        assert_eq!(talk.into_tally().errors.get("unanswered"), Some(&3));
    }
}
