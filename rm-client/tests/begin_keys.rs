//! Transactions with a key against a real coordinator: of all attempts at most one commits.

mod tc;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use handfast::{Error, GlobalStatus, Handfast, Retry, TransactionError};
use handfast_core::Coordinator;
use handfast_test_services::until;
use tc::{Tc, Wire};

async fn connect(tc: &Tc) -> Handfast {
    Handfast::connect(tc.endpoint()).application("tests").await.expect("it connects")
}

/// At most one of all attempts with one key commits, in whatever process they are made.
#[tokio::test]
async fn a_key_commits_once() {
    let tc = Tc::start().await;
    let (here, there) = (connect(&tc).await, connect(&tc).await);
    let keyed = |handfast: &Handfast| handfast.transaction("place-order").key("request-17");
    // Attempts that are rolled back are followed by others, also of another process.
    for handfast in [&here, &there, &here] {
        let error = keyed(handfast).run(async |_tx| Err::<(), _>("no stock")).await.unwrap_err();
        assert_eq!(error.code(), "HF-TM-ROLLED-BACK");
    }
    // None joins another that is under way.
    let first = keyed(&there).begin().await.unwrap();
    for handfast in [&here, &there] {
        let refused = keyed(handfast).begin().await.unwrap_err();
        assert_eq!(refused.code(), "HF-TM-BEGUN-BEFORE");
        let Error::BegunBefore { status, .. } = refused else { unreachable!("{refused:?}") };
        assert_eq!(status, GlobalStatus::Active);
    }
    let xid = first.xid().clone();
    first.commit().await.unwrap();
    let runs = AtomicUsize::new(0);
    for handfast in [&here, &there] {
        let work = async |_tx| Ok::<_, Error>(runs.fetch_add(1, Ordering::Relaxed));
        let error = keyed(handfast).run(work).await.unwrap_err();
        let TransactionError::NotBegun(Error::BegunBefore { key, xid: Some(found), status }) =
            &error
        else {
            unreachable!("{error:?}")
        };
        assert_eq!((&**key, found, *status), ("request-17", &xid, GlobalStatus::Committed));
        let text = format!("transaction not begun: key \"request-17\" has begun xid {xid} before");
        assert!(error.to_string().starts_with(&text), "{error}");
    }
    assert_eq!(runs.load(Ordering::Relaxed), 0);
    // Other keys are others.
    let other = here.transaction("place-order").key("request-18");
    other.run(async |_tx| Ok::<_, Error>(())).await.unwrap();
}

/// A begin that is sent again after its answer was lost is not taken for another attempt.
#[tokio::test]
async fn a_keyed_begin_finds_its_own_global_after_a_lost_answer() {
    let tc = Tc::start().await;
    let wire = Wire::to(tc.address()).await;
    let handfast = Handfast::connect(wire.endpoint())
        .back_off(Duration::from_millis(1), Duration::from_millis(20))
        .await
        .unwrap();
    wire.swallow_answers();
    let begin = tokio::spawn(handfast.transaction("place-order").key("request-17").begin());
    let count = |coordinator: &Coordinator| coordinator.counts().active;
    until("it is begun", async || tc.engine().view(count).await.expect("it answers") == 1).await;
    wire.mend();
    begin.await.unwrap().unwrap().commit().await.unwrap();
    assert_eq!(tc.engine().view(count).await.expect("it answers"), 0, "there was one alone");
}

/// A key that is used for retries of its own is tried again like a transaction without one.
#[tokio::test]
async fn a_repeated_transaction_may_have_a_key() {
    let tc = Tc::start().await;
    let handfast = connect(&tc).await;
    let runs = AtomicUsize::new(0);
    let retry = Retry::new().back_off(Duration::from_millis(1), Duration::from_millis(5));
    let keyed = handfast.transaction("place-order").key("request-17").retry(retry);
    let work = |_tx| async {
        let run = runs.fetch_add(1, Ordering::Relaxed);
        if run == 2 { Ok(()) } else { Err("deadlock") }
    };
    keyed.run_when(|_error: &&str| true, work).await.unwrap();
    assert_eq!(runs.load(Ordering::Relaxed), 3);
}
