//! The coordinator is killed between any two of its calls.

use handfast_proto::v1::Decision;
use handfast_proto::v1::try_branch_reply::Result as Tried;

use crate::coordinator::Coordinator;
use crate::participant::{Balance, Points};

const HELD: Balance = Balance { free: 70, held: 30, taken: 0 };
const TAKEN: Balance = Balance { free: 70, held: 0, taken: 30 };
const UNTOUCHED: Balance = Balance { free: 100, held: 0, taken: 0 };

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_after_a_kill_is_confirmed() {
    let mut points = Points::start().await;
    let coordinator = Coordinator::new(&points.prefix);
    let (mut application, xid) = tried(&coordinator, &mut points).await;
    coordinator.kill();
    application.end(&xid, Decision::Commit).await.unwrap_err();
    let mut application = coordinator.start().await;
    application.end(&xid, Decision::Commit).await.unwrap();
    points.carried_out("confirm").await.answer.send(()).unwrap();
    assert_eq!(points.balance(), TAKEN);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_during_confirm_confirms_once() {
    let mut points = Points::start().await;
    let coordinator = Coordinator::new(&points.prefix);
    let (mut application, xid) = tried(&coordinator, &mut points).await;
    application.end(&xid, Decision::Commit).await.unwrap();
    let unanswered = points.carried_out("confirm").await;
    coordinator.kill();
    drop(unanswered);
    let _application = coordinator.start().await;
    // No request triggers it: the restart finds the owed calls.
    points.carried_out("confirm").await.answer.send(()).unwrap();
    assert_eq!(points.balance(), TAKEN);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_during_cancel_cancels_once() {
    let mut points = Points::start().await;
    let coordinator = Coordinator::new(&points.prefix);
    let (mut application, xid) = tried(&coordinator, &mut points).await;
    application.end(&xid, Decision::RollBack).await.unwrap();
    let unanswered = points.carried_out("cancel").await;
    coordinator.kill();
    drop(unanswered);
    let _application = coordinator.start().await;
    points.carried_out("cancel").await.answer.send(()).unwrap();
    assert_eq!(points.balance(), UNTOUCHED);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_during_try_holds_once() {
    let mut points = Points::start().await;
    let coordinator = Coordinator::new(&points.prefix);
    let mut application = coordinator.start().await;
    let xid = application.begin().await;
    let url = points.url();
    let trying = {
        let (mut application, xid, url) = (application.clone(), xid.clone(), url.clone());
        tokio::spawn(async move { application.try_(&xid, &url).await })
    };
    let unanswered = points.carried_out("try").await;
    coordinator.kill();
    drop(unanswered);
    trying.await.unwrap().unwrap_err();
    let mut application = coordinator.start().await;
    // The client repeats unanswered requests, like the library.
    let (again, waiting) = tokio::join!(application.try_(&xid, &url), async {
        points.carried_out("try").await.answer.send(()).unwrap();
    });
    let ((), again) = (waiting, again.unwrap());
    assert!(matches!(again.result, Some(Tried::Done(_))), "{again:?}");
    assert_eq!(points.balance(), HELD);
    application.end(&xid, Decision::Commit).await.unwrap();
    points.carried_out("confirm").await.answer.send(()).unwrap();
    assert_eq!(points.balance(), TAKEN);
}

/// Returns a global for which 30 points are held.
async fn tried(
    coordinator: &Coordinator,
    points: &mut Points,
) -> (crate::coordinator::Application, String) {
    let mut application = coordinator.start().await;
    let xid = application.begin().await;
    let url = points.url();
    let (tried, ()) = tokio::join!(application.try_(&xid, &url), async {
        points.carried_out("try").await.answer.send(()).unwrap();
    });
    let tried = tried.unwrap();
    assert!(matches!(tried.result, Some(Tried::Done(_))), "{tried:?}");
    assert_eq!(points.balance(), HELD);
    (application, xid)
}
