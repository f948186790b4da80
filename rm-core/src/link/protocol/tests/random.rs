//! Random steps: every request ends exactly once.

use proptest::prelude::*;

use super::*;

/// Something that happens to a link.
#[derive(Clone, Debug)]
enum Step {
    Submit,
    /// Begins, with an XID in stock if there is one.
    Begin,
    /// Registers a branch of the global that was begun last, if its XID is known.
    Register,
    Cancel(usize),
    Connected,
    Greet,
    Lose,
    GoAway,
    Send,
    Answer(usize),
    /// Answers a begin, and lends XIDs.
    Lend(usize),
    Busy(usize),
    Unknown(usize),
    Sleep,
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Submit),
        4 => Just(Step::Begin),
        4 => Just(Step::Register),
        1 => (0..40usize).prop_map(Step::Cancel),
        2 => Just(Step::Connected),
        3 => Just(Step::Greet),
        1 => Just(Step::Lose),
        1 => Just(Step::GoAway),
        3 => Just(Step::Send),
        4 => (0..40usize).prop_map(Step::Answer),
        2 => (0..40usize).prop_map(Step::Lend),
        1 => (0..40usize).prop_map(Step::Busy),
        2 => (0..40usize).prop_map(Step::Unknown),
        2 => Just(Step::Sleep),
        1 => (0..9_000u64).prop_map(Step::Pass),
    ]
}

/// The requests of a run.
#[derive(Default)]
struct Asked {
    submitted: Vec<RequestId>,
    cancelled: Vec<RequestId>,
    /// The begins that were not to be waited for.
    ahead: BTreeMap<RequestId, String>,
}

impl Asked {
    fn begin(&mut self, driven: &mut Driven) {
        let begun = driven.protocol.begin(driven.now, v1::BeginRequest::default(), DEADLINE);
        let Ok((id, lent)) = begun else { return };
        self.submitted.push(id);
        self.ahead.extend(lent.map(|lent| (id, lent.xid)));
    }

    fn register(&mut self, driven: &mut Driven) {
        let Some((_, xid)) = self.ahead.last_key_value() else { return };
        let request = v1::RegisterBranchRequest { xid: xid.clone(), ..Default::default() };
        let (now, deadline) = (driven.now, driven.now.after(DEADLINE));
        let ask = Ask::RegisterBranch(request);
        self.submitted.extend(driven.protocol.submit(now, "register_branch", ask, deadline).ok());
    }

    /// The answer to a begin. Another XID than the lent one is that of an earlier coordinator.
    fn lending(&self, id: RequestId) -> Answer {
        let xid = self.ahead.get(&id).cloned().unwrap_or_else(|| "tc:1".to_owned());
        let loan = v1::XidLoan {
            first: id.0 << 8,
            count: 3,
            timeout_ms_default: 5_000,
            timeout_ms_max: 9_000,
        };
        Answer::Begin(v1::BeginReply { xid, loan: Some(loan), ..v1::BeginReply::default() })
    }
}

fn take(driven: &mut Driven, asked: &mut Asked, step: Step) {
    let connection = driven.connection();
    if let Step::Begin = step {
        asked.begin(driven);
    } else if let Step::Register = step {
        asked.register(driven);
    } else if let Step::Lend(nth) = step
        && let Some(id) = asked.submitted.get(nth)
    {
        driven.answer(id.0, asked.lending(*id));
    }
    let Asked { submitted, cancelled, ahead } = asked;
    match step {
        Step::Begin | Step::Register | Step::Lend(_) => {}
        Step::Submit => submitted.extend(driven.try_begin().ok()),
        Step::Cancel(nth) => {
            if let Some(&id) = submitted.get(nth).filter(|id| !ahead.contains_key(id)) {
                driven.protocol.cancel(id);
                cancelled.push(id);
            }
        }
        Step::Connected => {
            driven.protocol.connected(connection);
        }
        Step::Greet => driven.answer(0, Answer::Hello(v1::HelloReply::default())),
        Step::Lose => driven.lose(),
        Step::GoAway => driven.answer(0, Answer::GoAway(v1::GoAway::default())),
        Step::Send => drop(driven.frame()),
        Step::Answer(nth) => {
            if let Some(id) = submitted.get(nth) {
                driven.answer(id.0, begun());
            }
        }
        Step::Busy(nth) => {
            if let Some(id) = submitted.get(nth) {
                driven.answer(id.0, refusal("HF-TC-BUSY"));
            }
        }
        Step::Unknown(nth) => {
            if let Some(id) = submitted.get(nth) {
                driven.answer(id.0, refusal("HF-TC-UNKNOWN-XID"));
            }
        }
        Step::Sleep => {
            if driven.protocol.next_deadline().is_some() {
                driven.sleep();
            }
        }
        Step::Pass(ms) => driven.now = driven.now.after(Duration::from_millis(ms)),
    }
    driven.drain();
}

proptest! {
    #[test]
    fn every_request_ends_exactly_once_unless_it_is_cancelled(
        steps in prop::collection::vec(step(), 0..200),
    ) {
        let mut driven = Driven::new(&["a", "b"]);
        let mut asked = Asked::default();
        for step in steps {
            take(&mut driven, &mut asked, step);
        }
        let Asked { submitted, cancelled, .. } = asked;
        driven.now = driven.now.after(DEADLINE);
        driven.tick();
        prop_assert!(driven.protocol.idle());
        for id in submitted {
            let times = driven.ended(id).len();
            let allowed = if cancelled.contains(&id) { 0..=1 } else { 1..=1 };
            prop_assert!(allowed.contains(&times), "{id:?} ended {times} times");
        }
    }
}
