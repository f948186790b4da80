//! The TM against a real coordinator: all ways in which a transaction can end.

mod tc;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use handfast::{
    Error, Global, GlobalStatus, Handfast, Propagation, RollbackCause, RollbackReason,
    TransactionError, Xid, current_xid,
};
use handfast_core::{Coordinator, GlobalFilter, Label, PageBounds};
use handfast_test_services::{until, until_some};
use tc::{Tc, Wire};
use tokio::net::TcpListener;

async fn connect(tc: &Tc) -> Handfast {
    Handfast::connect(tc.endpoint()).application("tests").await.expect("it connects")
}

/// Begins a global by a client with a short deadline, which a busy machine may miss.
async fn begin_in_time(handfast: &Handfast) -> Global {
    let begun = async || handfast.transaction("t").begin().await.ok();
    until_some("a global is begun in time", begun).await
}

/// Polls until the global has the expected status, which the coordinator reaches by itself.
async fn await_status(handfast: &Handfast, xid: &Xid, expected: GlobalStatus) {
    until("the global has the status", async || {
        handfast.outcome(xid).await.expect("it answers") == expected
    })
    .await;
}

#[tokio::test]
async fn a_closure_that_returns_ok_commits() {
    let tc = Tc::start().await;
    let handfast = connect(&tc).await;
    let work = async |tx: handfast::Transaction| {
        assert_eq!(tx.xid(), current_xid().as_ref());
        Ok::<_, std::io::Error>(tx.xid().unwrap().clone())
    };
    let xid = handfast.transaction("place-order").run(work).await.unwrap();
    assert_eq!(handfast.outcome(&xid).await.unwrap(), GlobalStatus::Committed);
    assert_eq!(current_xid(), None);
}

#[tokio::test]
async fn a_transaction_is_found_by_its_label() {
    let tc = Tc::start().await;
    let handfast = connect(&tc).await;
    let order = handfast.transaction("place-order").label("order", "41").label("order", "42");
    let xid = order.run(async |tx| Ok::<_, std::io::Error>(tx.xid().cloned())).await.unwrap();
    let found = async |value: &str| {
        let label = Some(Label::new("order", value));
        let filter = GlobalFilter { label, ..GlobalFilter::default() };
        let look = move |coordinator: &Coordinator| {
            coordinator.globals(&filter, None, PageBounds::NONE).items
        };
        let found = tc.engine().view(look).await.expect("it answers");
        found.into_iter().map(|global| global.record.xid.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(found("41").await, [""; 0], "a second value takes the place of the first");
    let xid = xid.expect("it has one").as_str().rsplit(':').next().map(str::to_owned);
    assert_eq!(found("42").await, Vec::from_iter(xid));

    let refused = handfast.transaction("place-order").label("a=b", "42").begin().await.unwrap();
    assert_eq!(refused.begun().await.unwrap_err().code(), "HF-TC-BAD-REQUEST");
}

#[tokio::test]
async fn a_closure_that_returns_err_rolls_back() {
    let tc = Tc::start().await;
    let handfast = connect(&tc).await;
    let error = handfast
        .transaction("place-order")
        .run(async |_tx| Err::<(), _>("out of stock"))
        .await
        .unwrap_err();
    let TransactionError::RolledBack { xid, by: RollbackCause::Application(text) } = &error else {
        unreachable!("{error:?}");
    };
    assert_eq!(*text, "out of stock");
    assert_eq!(error.code(), "HF-TM-ROLLED-BACK");
    assert_eq!(error.to_string(), format!("xid {xid} rolled back: out of stock"));
    let rolled_back = GlobalStatus::RolledBack(RollbackReason::Requested);
    assert_eq!(handfast.outcome(xid).await.unwrap(), rolled_back);
    assert_eq!(error.into_application(), Some("out of stock"));
}

#[tokio::test]
async fn set_rollback_only_wins_over_ok() {
    let tc = Tc::start().await;
    let handfast = connect(&tc).await;
    let work = async |tx: handfast::Transaction| {
        tx.set_rollback_only()?;
        Ok::<(), Error>(())
    };
    let error = handfast.transaction("t").run(work).await.unwrap_err();
    let TransactionError::RolledBack { by: RollbackCause::RollbackOnly, .. } = error else {
        unreachable!("{error:?}");
    };
}

#[tokio::test]
async fn a_participant_marks_the_global_of_its_process() {
    let tc = Tc::start().await;
    let handfast = connect(&tc).await;
    let inner = async |tx: handfast::Transaction| tx.set_rollback_only();
    let outer = async |_tx| handfast.transaction("inner").run(inner).await;
    let error = handfast.transaction("outer").run(outer).await.unwrap_err();
    let TransactionError::RolledBack { by: RollbackCause::RollbackOnly, .. } = error else {
        unreachable!("{error:?}");
    };
    let elsewhere: Xid = "tc:1".parse().unwrap();
    let marked = elsewhere.scope(handfast.transaction("inner").run(inner)).await.unwrap_err();
    assert_eq!(marked.into_application().unwrap().code(), "HF-TM-LAUNCHER-ELSEWHERE");
}

#[tokio::test]
async fn a_commit_after_the_timeout_rolls_back() {
    let tc = Tc::start().await;
    let handfast = connect(&tc).await;
    let asker = handfast.clone();
    // The coordinator's deadline has passed when the closure returns.
    let work = async |tx: handfast::Transaction| {
        let rolled_back = GlobalStatus::RolledBack(RollbackReason::Timeout);
        await_status(&asker, tx.xid().unwrap(), rolled_back).await;
        Ok::<(), Error>(())
    };
    let transaction = handfast.transaction("slow").timeout(Duration::from_millis(20));
    let error = transaction.run(work).await.unwrap_err();
    let TransactionError::RolledBack { by: RollbackCause::Timeout, .. } = error else {
        unreachable!("{error:?}");
    };
}

#[tokio::test]
async fn begin_commit_and_rollback_by_hand() {
    let tc = Tc::start().await;
    let handfast = connect(&tc).await;
    let global = handfast.transaction("t").begin().await.unwrap();
    let xid = global.xid().clone();
    assert_eq!(handfast.outcome(&xid).await.unwrap(), GlobalStatus::Active);
    assert_eq!(global.scope(async { current_xid() }).await, Some(xid.clone()));
    global.commit().await.unwrap();
    assert_eq!(handfast.outcome(&xid).await.unwrap(), GlobalStatus::Committed);

    let global = handfast.transaction("t").begin().await.unwrap();
    let xid = global.xid().clone();
    global.rollback("changed my mind").await.unwrap();
    let rolled_back = GlobalStatus::RolledBack(RollbackReason::Requested);
    assert_eq!(handfast.outcome(&xid).await.unwrap(), rolled_back);
}

#[tokio::test]
async fn dropped_globals_and_futures_are_rolled_back() {
    let tc = Tc::start().await;
    let handfast = connect(&tc).await;
    let rolled_back = GlobalStatus::RolledBack(RollbackReason::Requested);

    let global = handfast.transaction("t").begin().await.unwrap();
    let xid = global.xid().clone();
    drop(global);
    await_status(&handfast, &xid, rolled_back).await;

    let (sender, xid) = tokio::sync::oneshot::channel();
    let transaction = handfast.transaction("t");
    let task = tokio::spawn(transaction.run(async move |tx: handfast::Transaction| {
        sender.send(tx.xid().unwrap().clone()).unwrap();
        std::future::pending::<Result<(), Error>>().await
    }));
    let xid = xid.await.unwrap();
    task.abort();
    await_status(&handfast, &xid, rolled_back).await;
}

#[tokio::test]
async fn a_panic_rolls_back() {
    let tc = Tc::start().await;
    let handfast = connect(&tc).await;
    let (sender, xid) = tokio::sync::oneshot::channel();
    let transaction = handfast.transaction("t");
    let task = tokio::spawn(transaction.run(async move |tx: handfast::Transaction| {
        sender.send(tx.xid().unwrap().clone()).unwrap();
        assert!(tx.xid().is_none(), "this test panics within its transaction");
        Ok::<(), Error>(())
    }));
    let xid = xid.await.unwrap();
    assert!(task.await.unwrap_err().is_panic());
    let rolled_back = GlobalStatus::RolledBack(RollbackReason::Requested);
    await_status(&handfast, &xid, rolled_back).await;
}

#[tokio::test]
async fn closing_waits_for_rollbacks_under_way() {
    let tc = Tc::start().await;
    let (handfast, asker) = (connect(&tc).await, connect(&tc).await);
    let global = handfast.transaction("t").begin().await.unwrap();
    let xid = global.xid().clone();
    drop(global);
    handfast.close().await;
    let rolled_back = GlobalStatus::RolledBack(RollbackReason::Requested);
    assert_eq!(asker.outcome(&xid).await.unwrap(), rolled_back);
    let refused = handfast.transaction("t").begin().await.unwrap_err();
    assert_eq!(refused.code(), "HF-TM-CLOSED");
}

/// The end of the stream was lost: the coordinator kept calling a process that had closed, and
/// waited for each answer until its time was over.
#[tokio::test]
async fn a_process_that_closes_is_not_called_again() {
    let tc = Tc::start().await;
    let (closed, dropped) = (connect(&tc).await, connect(&tc).await);
    assert_eq!(tc.dispatcher().processes().len(), 2);
    closed.close().await;
    drop(dropped);
    until("both have left", async || tc.dispatcher().processes().is_empty()).await;
}

/// The place where the closure of a propagation kind ran.
#[derive(Debug, PartialEq)]
enum Ran {
    Joined,
    Alone(Option<Xid>),
    Refused(&'static str),
}

async fn ran(handfast: &Handfast, propagation: Propagation) -> Ran {
    let outer = current_xid();
    let inner = handfast.transaction("inner").propagation(propagation);
    let result = inner
        .run(async |tx| {
            assert_eq!(tx.xid(), current_xid().as_ref());
            Ok::<_, Error>(tx.xid().cloned())
        })
        .await;
    assert_eq!(current_xid(), outer, "the outer transaction goes on");
    match result {
        Ok(inner) if inner.is_some() && inner == outer => Ran::Joined,
        Ok(inner) => Ran::Alone(inner),
        Err(error) if error.code() == "HF-TM-TRANSACTION-REQUIRED" => Ran::Refused("required"),
        Err(error) if error.code() == "HF-TM-TRANSACTION-FORBIDDEN" => Ran::Refused("forbidden"),
        Err(error) => unreachable!("{error}"),
    }
}

#[tokio::test]
async fn propagation_kinds_outside_a_transaction() {
    let tc = Tc::start().await;
    let handfast = connect(&tc).await;
    for kind in [Propagation::Required, Propagation::RequiresNew] {
        let Ran::Alone(Some(xid)) = ran(&handfast, kind).await else { unreachable!("{kind}") };
        assert_eq!(handfast.outcome(&xid).await.unwrap(), GlobalStatus::Committed, "{kind}");
    }
    for kind in [Propagation::Supports, Propagation::NotSupported, Propagation::Never] {
        assert_eq!(ran(&handfast, kind).await, Ran::Alone(None), "{kind}");
    }
    assert_eq!(ran(&handfast, Propagation::Mandatory).await, Ran::Refused("required"));
}

#[tokio::test]
async fn propagation_kinds_inside_a_transaction() {
    let tc = Tc::start().await;
    let handfast = connect(&tc).await;
    let outer = handfast.transaction("outer").begin().await.unwrap();
    let inside = async {
        for kind in [Propagation::Required, Propagation::Supports, Propagation::Mandatory] {
            assert_eq!(ran(&handfast, kind).await, Ran::Joined, "{kind}");
        }
        let new = ran(&handfast, Propagation::RequiresNew).await;
        let Ran::Alone(Some(new)) = new else { unreachable!("{new:?}") };
        assert_eq!(handfast.outcome(&new).await.unwrap(), GlobalStatus::Committed);
        assert_eq!(ran(&handfast, Propagation::NotSupported).await, Ran::Alone(None));
        assert_eq!(ran(&handfast, Propagation::Never).await, Ran::Refused("forbidden"));
        let joined = handfast.transaction("t").begin().await.unwrap_err();
        assert_eq!(joined.code(), "HF-TM-TRANSACTION-FORBIDDEN");
    };
    outer.scope(inside).await;
    // No participant has decided the global.
    assert_eq!(handfast.outcome(outer.xid()).await.unwrap(), GlobalStatus::Active);
    outer.commit().await.unwrap();
    let supports = handfast.transaction("t").propagation(Propagation::Supports);
    assert_eq!(supports.begin().await.unwrap_err().code(), "HF-TM-NOT-EXPLICIT");
}

#[tokio::test]
async fn a_participants_error_leaves_the_decision_to_the_caller() {
    let tc = Tc::start().await;
    let handfast = connect(&tc).await;
    let work = async |_tx| {
        let inner = handfast.transaction("inner").run(async |_tx| Err::<(), _>("refused")).await;
        let TransactionError::Application(text) = inner.unwrap_err() else {
            unreachable!("a participant decides nothing")
        };
        assert_eq!(text, "refused");
        Ok::<_, Error>(current_xid().unwrap())
    };
    let xid = handfast.transaction("outer").run(work).await.unwrap();
    assert_eq!(handfast.outcome(&xid).await.unwrap(), GlobalStatus::Committed);
}

#[tokio::test]
async fn a_client_reconnects_to_a_restarted_coordinator() {
    let mut tc = Tc::start().await;
    let handfast = Handfast::connect(tc.endpoint())
        .back_off(Duration::from_millis(1), Duration::from_millis(20))
        .await
        .unwrap();
    let commits = Arc::new(AtomicUsize::new(0));
    for _ in 0..3 {
        tc.kill().await;
        let (transaction, count) = (handfast.transaction("t"), Arc::clone(&commits));
        // Requested while no coordinator runs, and answered after its restart.
        let waiting = tokio::spawn(transaction.run(async move |_tx| {
            count.fetch_add(1, Ordering::SeqCst);
            Ok::<(), Error>(())
        }));
        tc.restart().await;
        waiting.await.unwrap().unwrap();
    }
    assert_eq!(commits.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_global_lost_by_the_coordinator_is_not_committed() {
    let mut tc = Tc::start().await;
    let handfast = Handfast::connect(tc.endpoint())
        .back_off(Duration::from_millis(1), Duration::from_millis(20))
        .await
        .unwrap();
    let committed = handfast.transaction("t").begin().await.unwrap();
    let undone = handfast.transaction("t").begin().await.unwrap();
    // Otherwise the next coordinator would be sent the begin again.
    undone.begun().await.unwrap();
    tc.kill().await;
    tc.restart().await;
    let error = committed.commit().await.unwrap_err();
    let TransactionError::Unknown { source, .. } = &error else { unreachable!("{error:?}") };
    assert_eq!(source.code(), "HF-TC-UNKNOWN-XID");
    let error = undone.rollback("test").await.unwrap_err();
    assert_eq!(error.code(), "HF-TM-FORGOTTEN");
}

#[tokio::test]
async fn a_commit_without_an_answer_is_unknown_and_not_rolled_back() {
    let tc = Tc::start().await;
    let wire = Wire::to(tc.address()).await;
    let handfast = Handfast::connect(wire.endpoint())
        .request_deadline(Duration::from_millis(500))
        .back_off(Duration::from_millis(1), Duration::from_millis(20))
        .await
        .unwrap();
    let global = begin_in_time(&handfast).await;
    let xid = global.xid().clone();
    wire.swallow_answers();
    let error = global.commit().await.unwrap_err();
    let TransactionError::Unknown { source, .. } = &error else { unreachable!("{error:?}") };
    assert_eq!(source.code(), "HF-TM-UNANSWERED");
    // Asked by another client, which has a deadline of its own. The request may be on its way.
    let asker = connect(&tc).await;
    await_status(&asker, &xid, GlobalStatus::Committed).await;
    wire.mend();
    assert_eq!(asker.outcome(&xid).await.unwrap(), GlobalStatus::Committed);
}

#[tokio::test]
async fn a_commit_that_never_arrived_is_unknown() {
    let tc = Tc::start().await;
    let wire = Wire::to(tc.address()).await;
    let handfast = Handfast::connect(wire.endpoint())
        .request_deadline(Duration::from_millis(500))
        .back_off(Duration::from_millis(1), Duration::from_millis(20))
        .await
        .unwrap();
    let global = begin_in_time(&handfast).await;
    let xid = global.xid().clone();
    wire.swallow_requests();
    let error = global.commit().await.unwrap_err();
    assert_eq!(error.code(), "HF-TM-UNKNOWN");
    wire.mend();
    // All earlier requests of this client, such as a rollback, arrive before this one.
    until("a later transaction is committed in time", async || {
        handfast.transaction("t").run(async |_tx| Ok::<(), Error>(())).await.is_ok()
    })
    .await;
    assert_eq!(connect(&tc).await.outcome(&xid).await.unwrap(), GlobalStatus::Active);
}

/// The caller that waited for the rollback is gone. The rows would stay locked until the global's
/// time is over.
#[tokio::test]
async fn a_dropped_rollback_is_requested_again() {
    let tc = Tc::start().await;
    let wire = Wire::to(tc.address()).await;
    let handfast = Handfast::connect(wire.endpoint())
        .back_off(Duration::from_millis(1), Duration::from_millis(20))
        .await
        .unwrap();
    let global = handfast.transaction("t").begin().await.unwrap();
    let xid = global.xid().clone();
    wire.swallow_requests();
    let gone = tokio::time::timeout(Duration::from_millis(50), global.rollback("gone")).await;
    assert!(gone.is_err(), "no coordinator answers");
    wire.mend();
    await_status(&connect(&tc).await, &xid, GlobalStatus::RolledBack(RollbackReason::Requested))
        .await;
}

#[tokio::test]
async fn a_lost_answer_is_requested_again_after_a_reconnect() {
    let tc = Tc::start().await;
    let wire = Wire::to(tc.address()).await;
    let handfast = Handfast::connect(wire.endpoint())
        .back_off(Duration::from_millis(1), Duration::from_millis(20))
        .await
        .unwrap();
    let asker = connect(&tc).await;
    let global = handfast.transaction("t").begin().await.unwrap();
    let xid = global.xid().clone();
    wire.swallow_answers();
    let commit = tokio::spawn(global.commit());
    await_status(&asker, &xid, GlobalStatus::Committed).await;
    wire.mend();
    commit.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_commit_without_a_coordinator_is_unknown() {
    let mut tc = Tc::start().await;
    let handfast = Handfast::connect(tc.endpoint())
        .request_deadline(Duration::from_millis(100))
        .await
        .unwrap();
    let global = begin_in_time(&handfast).await;
    tc.kill().await;
    let error = global.commit().await.unwrap_err();
    assert_eq!(error.code(), "HF-TM-UNKNOWN");
}

#[tokio::test]
async fn connecting_without_a_coordinator_gives_the_reason() {
    let mut tc = Tc::start().await;
    tc.kill().await;
    let error = Handfast::connect(tc.endpoint())
        .connect_timeout(Duration::from_millis(200))
        .await
        .unwrap_err();
    assert_eq!(error.code(), "HF-TM-UNREACHABLE");
    assert!(error.to_string().contains(&tc.endpoint()), "{error}");
}

#[tokio::test]
async fn a_first_endpoint_that_is_silent_is_left() {
    let (mut dead, tc) = (Tc::start().await, Tc::start().await);
    dead.kill().await;
    let handfast = Handfast::connect(dead.endpoint()).endpoint(tc.endpoint()).await.unwrap();
    handfast.transaction("t").run(async |_tx| Ok::<(), Error>(())).await.unwrap();
}

/// A silent first endpoint kept a client from connecting at all, although the second endpoint
/// serves.
#[tokio::test]
async fn a_first_endpoint_that_accepts_and_is_silent_is_left() {
    let tc = Tc::start().await;
    // Connections wait in the backlog, as with a frozen process or one that is still starting.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = format!("http://{}", silent.local_addr().unwrap());
    let handfast = Handfast::connect(silent).endpoint(tc.endpoint()).await.unwrap();
    handfast.transaction("t").run(async |_tx| Ok::<(), Error>(())).await.unwrap();
}

/// Only the transport's keep-alive noticed the freeze, after ten seconds, which is longer than a
/// request's deadline here.
#[tokio::test]
async fn a_frozen_coordinator_is_replaced_while_a_request_waits() {
    let tc = Tc::start().await;
    let wire = Wire::to(tc.address()).await;
    let handfast = Handfast::connect(wire.endpoint())
        .endpoint(tc.endpoint())
        .request_deadline(Duration::from_secs(9))
        .await
        .unwrap();
    wire.swallow_requests();
    wire.swallow_answers();
    handfast.transaction("t").run(async |_tx| Ok::<(), Error>(())).await.unwrap();
}

#[tokio::test]
async fn wrong_settings_are_reported_before_connecting() {
    let ftp = Handfast::connect("ftp://localhost").await.unwrap_err();
    let no_ca = Handfast::connect("https://localhost:1").await.unwrap_err();
    let token = Handfast::connect("http://localhost:1").token("a\nb").await.unwrap_err();
    for error in [ftp, no_ca, token] {
        assert_eq!(error.code(), "HF-CFG-CLIENT", "{error}");
    }
}
