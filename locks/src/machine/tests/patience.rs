//! What is said to one whose patience has ended.

use super::*;

fn end_of(answers: Vec<Result<Answer, BackendError>>) -> LockError {
    let (mut machine, mut out) = (machine(), Vec::new());
    let (start, name) = (Moment::at(Duration::ZERO), LockName::new("a").unwrap());
    let limit = start + Duration::from_secs(1);
    let (share, patience) = (Share::All, Patience::Until(limit));
    machine.decide(start, Event::Ask { number: 1, name, share, patience }, &mut out);
    for answer in answers {
        machine.decide(start, Event::Answered { number: 1, answer }, &mut out);
        if let Some(next) = machine.next_deadline().filter(|next| *next < limit) {
            machine.decide(next, Event::Tick, &mut out);
        }
    }
    machine.decide(limit, Event::Tick, &mut out);
    let refused = out.into_iter().find_map(|effect| match effect {
        Effect::Refused { why, .. } => Some(why),
        Effect::Ask(_)
        | Effect::Renew { .. }
        | Effect::Leave(_)
        | Effect::Granted { .. }
        | Effect::Extended { .. }
        | Effect::Downgraded { .. }
        | Effect::Lost { .. }
        | Effect::Ended { .. } => None,
    });
    refused.unwrap()
}

/// It was told as a wait for somebody unknown, however long the backend had been down.
#[test]
fn whoever_waits_for_a_backend_that_fails_hears_of_that() {
    let failed = || Err(BackendError::unanswered());
    let busy = || Ok(Answer::Busy { holder: None, look_again: Duration::from_millis(100) });
    for (answers, code) in [
        (vec![failed(), failed()], "HF-LOCK-UNAVAILABLE"),
        (vec![busy(), failed()], "HF-LOCK-UNAVAILABLE"),
        (vec![failed(), busy()], "HF-LOCK-TIMED-OUT"),
        // Nothing has failed yet.
        (vec![], "HF-LOCK-TIMED-OUT"),
    ] {
        let said = format!("{answers:?}");
        assert_eq!(end_of(answers).code(), code, "{said}");
    }
}
