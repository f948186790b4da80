//! Where a request stands in a trace comes back with the calls of phase two, also from the records,
//! and changes nothing that is decided.

use std::sync::Arc;

use handfast_core::{
    BranchId, CallTrace, Change, Command, Coordinator, Correlation, DecidedBy, Decision, Effect,
    Epoch, Holding, Labels, Limits, LockWait, Mode, NewBranch, Outcome, Record, Reply, ReplyWhen,
    Request, RequestTrace, SpanPlace, Timestamp, TracedCommand, VotingRounds, Xid,
};

const TRACE: [u8; 16] = [7; 16];
const BEGIN: u8 = 1;
const REGISTER: u8 = 2;
const END: u8 = 3;

/// A coordinator and what it has stored.
struct Stage {
    coordinator: Coordinator,
    records: Vec<Record>,
    calls: Vec<handfast_core::PhaseTwoCall>,
}

/// The client's span of a request has this number, the coordinator's ten more.
fn trace(number: u8) -> RequestTrace {
    RequestTrace { client: place(number), own: [number + 10; 8] }
}

fn place(number: u8) -> SpanPlace {
    SpanPlace { trace_id: TRACE, span_id: [number; 8] }
}

impl Stage {
    fn new() -> Self {
        let coordinator = Coordinator::load(Epoch(1), "tc".into(), Limits::default(), []);
        let coordinator = coordinator.expect("no records");
        Self { coordinator, records: Vec::new(), calls: Vec::new() }
    }

    fn ask(&mut self, traced: Option<u8>, command: Command) -> Reply {
        let command = match traced {
            Some(number) => {
                Command::Traced(Box::new(TracedCommand { trace: trace(number), command }))
            }
            None => command,
        };
        let mut out = Outcome::default();
        let request = Request { reply_to: Some(Correlation(1)), command };
        self.coordinator.decide(Timestamp(1_000), request, &mut out);
        self.store(out.changes);
        let mut replies = Vec::new();
        for effect in out.effects {
            match effect {
                Effect::Reply { reply, .. } => replies.push(reply),
                Effect::PhaseTwo(call) => self.calls.push(call),
                Effect::Vote(_) | Effect::Hold { .. } | Effect::Alert(_) => {}
            }
        }
        replies.pop().expect("each of these requests is answered at once")
    }

    fn store(&mut self, changes: Vec<Change>) {
        for change in changes {
            self.records.retain(|record| record.key() != change.key());
            if let Change::Put(record) = change {
                self.records.push(record);
            }
        }
    }

    fn begin(&mut self, traced: Option<u8>) -> Xid {
        let (application, name) = ("shop".into(), "order".into());
        let labels = Labels::NONE;
        let begin = Command::Begin { application, name, timeout_ms: None, labels, key: None };
        let Reply::Begun { xid, .. } = self.ask(traced, begin) else { panic!("not begun") };
        xid
    }

    fn register(&mut self, traced: Option<u8>, xid: Xid) {
        let branch = NewBranch {
            id: BranchId(1),
            resource: "stock".into(),
            mode: Mode::At,
            rows: Vec::new(),
            application_data: Box::default(),
            registered_by: None,
        };
        let wait = LockWait { timeout_ms: 0, holding: Holding::Nothing };
        let reply = self.ask(traced, Command::RegisterBranch { xid, branch, wait });
        assert!(matches!(reply, Reply::Registered { .. }), "{reply:?}");
    }

    fn end(&mut self, traced: Option<u8>, xid: Xid, by: DecidedBy) {
        let decision = match by {
            DecidedBy::Operator => Decision::RollBack,
            DecidedBy::Client => Decision::Commit,
        };
        let (rounds, reply_when) = (VotingRounds::PrepareOnly, ReplyWhen::Decided);
        let end = Command::End { xid, decision, rounds, by, reason: Arc::from(""), reply_when };
        let reply = self.ask(traced, end);
        assert!(matches!(reply, Reply::Ended(_)), "{reply:?}");
    }

    /// The only call of phase two since the last time.
    fn call(&mut self) -> Option<CallTrace> {
        let [call] = &*self.calls else { panic!("{:?}", self.calls) };
        let trace = call.trace.as_deref().cloned();
        self.calls.clear();
        trace
    }

    /// The next coordinator takes over, and owes the call.
    fn restart(&mut self) {
        let records = self.records.clone();
        let next = Coordinator::load(Epoch(2), "tc".into(), Limits::default(), records);
        self.coordinator = next.expect("what was stored fits");
        let mut out = Outcome::default();
        self.coordinator.owed(&mut out);
        for effect in out.effects {
            let Effect::PhaseTwo(call) = effect else { panic!("{effect:?}") };
            self.calls.push(call);
        }
    }
}

#[test]
fn a_call_follows_from_the_decision_and_the_registration() {
    let mut stage = Stage::new();
    let xid = stage.begin(Some(BEGIN));
    stage.register(Some(REGISTER), xid);
    stage.end(Some(END), xid, DecidedBy::Client);
    let of_this_leader = stage.call().expect("a trace");
    assert_eq!(of_this_leader.parent, place(END + 10));
    assert_eq!(of_this_leader.decision, Some(place(END + 10)));
    assert_eq!(of_this_leader.registration, Some(trace(REGISTER)));
    assert_eq!(of_this_leader.decided_at, Timestamp(1_000));

    // The span of the decision may be lost with the process that took it.
    stage.restart();
    let of_the_next = stage.call().expect("a trace");
    assert_eq!(of_the_next, CallTrace { parent: place(END), ..of_this_leader });
}

#[test]
fn what_stands_in_no_trace_is_left_out() {
    for (begin, register, end, parent) in [
        (None, None, None, None),
        (Some(BEGIN), None, None, Some(place(BEGIN))),
        (None, Some(REGISTER), None, Some(place(REGISTER + 10))),
        (None, None, Some(END), Some(place(END + 10))),
    ] {
        let mut stage = Stage::new();
        let xid = stage.begin(begin);
        stage.register(register, xid);
        stage.end(end, xid, DecidedBy::Client);
        assert_eq!(stage.call().map(|trace| trace.parent), parent);
    }
}

#[test]
fn a_decision_is_noted_once() {
    let mut stage = Stage::new();
    let xid = stage.begin(Some(BEGIN));
    stage.register(Some(REGISTER), xid);
    stage.end(None, xid, DecidedBy::Operator);
    assert_eq!(stage.call().map(|trace| trace.parent), Some(place(BEGIN)));
    let end = Command::End {
        xid,
        decision: Decision::RollBack,
        rounds: VotingRounds::PrepareOnly,
        by: DecidedBy::Client,
        reason: Arc::from(""),
        reply_when: ReplyWhen::Decided,
    };
    stage.ask(Some(END), end);
    stage.restart();
    assert_eq!(stage.call().map(|trace| trace.parent), Some(place(BEGIN)));
}

#[test]
fn a_finished_global_stands_in_no_trace() {
    let mut stage = Stage::new();
    let xid = stage.begin(Some(BEGIN));
    stage.end(Some(END), xid, DecidedBy::Client);
    let [Record::Global(record)] = &*stage.records else { panic!("{:?}", stage.records) };
    assert_eq!(record.trace, None);
}
