//! The election: one leader at a time, followed by the others, and handed over.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::task::Poll;
use std::thread;
use std::time::Instant;

use handfast_core::Epoch;
use handfast_server::store::{Leader, Store, StoreError};

use crate::setup::{LONG, Model, Namespace, SHORT, node, puts};
use crate::wire::Delivery;

#[test]
fn a_leader_is_followed() {
    let shared = Namespace::new();
    let [first, second] = ["first", "second"].map(|name| shared.candidate(name, LONG));
    assert_eq!(*first.store.leader().borrow(), Leader::Unknown);
    let (epoch, _) = first.lead();
    first.sees(&Leader::Here);
    second.sees(&Leader::Elsewhere { epoch, node: node("first") });
    first.run(first.store.resign(epoch));
    first.sees(&Leader::Unknown);
    second.sees(&Leader::Unknown);
    let (epoch, _) = second.lead();
    second.sees(&Leader::Here);
    first.sees(&Leader::Elsewhere { epoch, node: node("second") });
}

/// Its lease is longer than the test may take.
#[test]
fn a_leader_that_resigns_hands_over_at_once() {
    let shared = Namespace::new();
    let [first, second] = ["first", "second"].map(|name| shared.candidate(name, LONG));
    let (epoch, _) = first.lead();
    assert!(first.store.certain_until(epoch) > Some(Instant::now()));
    thread::scope(|scope| {
        let gains = scope.spawn(|| second.lead());
        first.commit(epoch, puts([1], 50)).unwrap();
        first.run(first.store.resign(epoch));
        let (later, found) = gains.join().unwrap();
        assert!(later > epoch);
        let mut model = Model::default();
        model.apply(&puts([1], 50));
        model.check(found);
    });
    let late = first.commit(epoch, puts([2], 50));
    assert!(matches!(late, Err(StoreError::LostLeadership)), "{late:?}");
    first.run(first.store.lost(epoch));
    assert!(first.store.certain_until(epoch) <= Some(Instant::now()));
}

/// A candidate that is dropped gives up, wherever it is, and leaves the lead to others.
#[test]
fn a_candidate_that_is_dropped_is_in_no_way() {
    let shared = Namespace::new();
    let [first, second] = ["first", "second"].map(|name| shared.candidate(name, LONG));
    let (mut last, _) = first.lead();
    for polls in 1..=30 {
        let epoch = last;
        second.run(async {
            let mut gains = second.store.lead(Epoch(0));
            assert!(futures::poll!(&mut gains).is_pending());
            first.store.resign(epoch).await;
            for _ in 0..polls {
                if let Poll::Ready(led) = futures::poll!(&mut gains) {
                    return second.store.resign(led.unwrap().0).await;
                }
                tokio::task::yield_now().await;
            }
        });
        last = first.lead().0;
        assert!(last > epoch);
    }
}

#[test]
fn a_leader_that_is_cut_off_notices_it() {
    let shared = Namespace::new();
    let wire = shared.wire();
    let first = shared.through(wire.url()).candidate("first", SHORT);
    let (epoch, _) = first.lead();
    wire.deliver(Delivery::Later);
    first.run(first.store.lost(epoch));
    assert!(first.store.certain_until(epoch) <= Some(Instant::now()));
    let late = first.commit(epoch, puts([1], 50));
    assert!(matches!(late, Err(StoreError::LostLeadership)), "{late:?}");
    let second = shared.candidate("second", LONG);
    let (later, _) = second.lead();
    wire.mend();
    first.sees(&Leader::Elsewhere { epoch: later, node: node("second") });
}

/// A commit that is never answered ends when the lead is lost.
#[test]
fn a_commit_without_an_answer_ends_with_the_lead() {
    let shared = Namespace::new();
    let wire = shared.wire();
    let first = shared.through(wire.url()).candidate("first", SHORT);
    let (epoch, _) = first.lead();
    wire.deliver_from(b"/journal/", Delivery::WithoutAnswers);
    let late = first.commit(epoch, puts([1], 50));
    assert!(matches!(late, Err(StoreError::LostLeadership)), "{late:?}");
}

#[test]
fn a_leader_whose_key_is_deleted_notices_it() {
    let shared = Namespace::new();
    let leader = shared.candidate("leader", LONG);
    let (epoch, _) = leader.lead();
    shared.delete("lease");
    leader.run(leader.store.lost(epoch));
    assert!(leader.lead().0 > epoch);
}

/// Each epoch has one leader, and each leader finds what all earlier ones have stored.
#[test]
fn two_candidates_have_one_leader_in_each_epoch() {
    const TIMES: u64 = 15;
    let shared = Namespace::new();
    let leaders = Mutex::new(BTreeMap::new());
    thread::scope(|scope| {
        for (at, name) in (0..).zip(["first", "second"]) {
            let (shared, leaders) = (&shared, &leaders);
            scope.spawn(move || {
                let candidate = shared.candidate(name, LONG);
                for time in 0..TIMES {
                    let (epoch, found) = candidate.lead();
                    let count = {
                        let mut leaders = leaders.lock().unwrap();
                        assert_eq!(leaders.insert(epoch, name), None, "epoch {epoch:?} twice");
                        assert_eq!(leaders.last_key_value().unwrap().0, &epoch);
                        leaders.len() - 1
                    };
                    assert_eq!(found.len(), count);
                    candidate.commit(epoch, puts([at * TIMES + time], 50)).unwrap();
                    candidate.run(candidate.store.resign(epoch));
                }
            });
        }
    });
    let count = leaders.lock().unwrap().len();
    assert_eq!(count as u64, 2 * TIMES);
}
