//! Random steps: every request ends exactly once.

use proptest::prelude::*;

use super::*;

/// Something that happens to a link.
#[derive(Clone, Debug)]
enum Step {
    Submit,
    Cancel(usize),
    Connected,
    Greet,
    Lose,
    GoAway,
    Send,
    Answer(usize),
    Busy(usize),
    Sleep,
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Submit),
        1 => (0..40usize).prop_map(Step::Cancel),
        2 => Just(Step::Connected),
        3 => Just(Step::Greet),
        1 => Just(Step::Lose),
        1 => Just(Step::GoAway),
        3 => Just(Step::Send),
        4 => (0..40usize).prop_map(Step::Answer),
        1 => (0..40usize).prop_map(Step::Busy),
        2 => Just(Step::Sleep),
        1 => (0..9_000u64).prop_map(Step::Pass),
    ]
}

fn take(
    driven: &mut Driven,
    submitted: &mut Vec<RequestId>,
    cancelled: &mut Vec<RequestId>,
    step: Step,
) {
    let connection = driven.connection();
    match step {
        Step::Submit => submitted.extend(driven.try_begin().ok()),
        Step::Cancel(nth) => {
            if let Some(&id) = submitted.get(nth) {
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
        let (mut submitted, mut cancelled) = (Vec::new(), Vec::new());
        for step in steps {
            take(&mut driven, &mut submitted, &mut cancelled, step);
        }
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
