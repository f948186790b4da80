//! The errors of a caller whose time limit has passed.

use super::*;

fn end_of(answers: Vec<Result<AcquireResponse, BackendError>>) -> LockError {
    let (mut machine, mut out) = (machine(), Vec::new());
    let (start, name) = (Moment::at(Duration::ZERO), LockName::new("a").unwrap());
    let limit = start + Duration::from_secs(1);
    let (mode, wait) = (LockMode::Exclusive, WaitPolicy::Until(limit));
    machine.decide(start, Event::Acquire { number: 1, name, mode, wait }, &mut out);
    for answer in answers {
        machine.decide(start, Event::AcquireAnswered { number: 1, answer }, &mut out);
        if let Some(next) = machine.next_deadline().filter(|next| *next < limit) {
            machine.decide(next, Event::Tick, &mut out);
        }
    }
    machine.decide(limit, Event::Tick, &mut out);
    let refused = out.into_iter().find_map(|effect| match effect {
        Effect::Refused { reason, .. } => Some(reason),
        Effect::Acquire(_)
        | Effect::Renew { .. }
        | Effect::Release(_)
        | Effect::Granted { .. }
        | Effect::Extended { .. }
        | Effect::Downgraded { .. }
        | Effect::DowngradeRefused { .. }
        | Effect::Lost { .. }
        | Effect::Ended { .. } => None,
    });
    refused.unwrap()
}

/// A regression: the error named an unknown holder, however long the backend had been down.
#[test]
fn timeout_over_a_failing_backend_is_unavailable() {
    let failed = || Err(BackendError::unanswered());
    let busy =
        || Ok(AcquireResponse::Busy { holder: None, retry_after: Duration::from_millis(100) });
    for (answers, code) in [
        (vec![failed(), failed()], "HF-LOCK-UNAVAILABLE"),
        (vec![busy(), failed()], "HF-LOCK-UNAVAILABLE"),
        (vec![failed(), busy()], "HF-LOCK-TIMED-OUT"),
        // Nothing has failed yet.
        (vec![], "HF-LOCK-TIMED-OUT"),
    ] {
        let case = format!("{answers:?}");
        assert_eq!(end_of(answers).code(), code, "{case}");
    }
}
