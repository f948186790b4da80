//! The coordinator is killed between any two steps and started again on its records. Its answers
//! stay valid, and its outstanding work is done once.

use futures::future::join_all;
use handfast::{GlobalStatus, Handfast, TccResource, Xid};
use handfast_test_services::until;
use tokio::sync::mpsc;

use crate::action::{Debit, LocalDatabase, ten_from};
use crate::at::on_every_database;
use crate::scene::{DEBITED, Scene, UNTOUCHED, debit, roll_back};

on_every_database!(
    an_undecided_global_survives,
    an_answered_commit_survives,
    a_confirm_that_is_cut_off_is_done_once,
    a_cancel_that_is_cut_off_is_done_once,
    debits_stay_right_under_kills_at_any_moment,
);

async fn an_undecided_global_survives<DB: LocalDatabase>() {
    let mut scene = Scene::<DB>::new().await;
    let resource = scene.resource().await;
    let (committed, rolled_back) = (scene.begin().await, scene.begin().await);
    let xid = committed.xid().clone();
    debit(&resource, &committed, &ten_from(1)).await.unwrap();
    debit(&resource, &rolled_back, &ten_from(2)).await.unwrap();
    scene.coordinator.kill().await;
    scene.coordinator.restart().await;
    committed.commit().await.unwrap();
    rolled_back.rollback("test").await.unwrap();
    scene.until_committed(&xid).await;
    assert_eq!([scene.account(1).await, scene.account(2).await], [DEBITED, UNTOUCHED]);
    scene.assert_finished().await;
}

async fn an_answered_commit_survives<DB: LocalDatabase>() {
    let mut scene = Scene::<DB>::new().await;
    let first = scene.rescuer().await;
    let global = scene.begin().await;
    let xid = global.xid().clone();
    debit(&first.resource, &global, &ten_from(1)).await.unwrap();
    first.leave().await;
    global.commit().await.unwrap();
    scene.coordinator.kill().await;
    scene.coordinator.restart().await;
    let second = scene.rescuer().await;
    scene.until_committed(&xid).await;
    // The branch's input, and the data that its try has stored, have survived.
    assert_eq!(second.conduct.called(), ["confirm"]);
    assert_eq!(scene.account(1).await, DEBITED);
}

/// Waits until the action was called this number of times.
async fn until_called<DB: LocalDatabase>(scene: &Scene<DB>, times: usize) {
    until("the action is called", async || scene.conduct.called().len() >= times).await;
}

async fn a_confirm_that_is_cut_off_is_done_once<DB: LocalDatabase>() {
    let mut scene = Scene::<DB>::new().await;
    let resource = scene.resource().await;
    let global = scene.begin().await;
    let xid = global.xid().clone();
    debit(&resource, &global, &ten_from(1)).await.unwrap();
    scene.conduct.shut();
    global.commit().await.unwrap();
    until_called(&scene, 2).await;
    scene.coordinator.kill().await;
    scene.conduct.open();
    scene.coordinator.restart().await;
    scene.until_committed(&xid).await;
    assert_eq!(scene.account(1).await, DEBITED);
    assert_eq!(scene.traces(&xid).await, ["confirm", "try"]);
}

async fn a_cancel_that_is_cut_off_is_done_once<DB: LocalDatabase>() {
    let mut scene = Scene::<DB>::new().await;
    let resource = scene.resource().await;
    let global = scene.begin().await;
    let xid = global.xid().clone();
    debit(&resource, &global, &ten_from(1)).await.unwrap();
    scene.conduct.shut();
    let rolled_back = roll_back(global);
    until_called(&scene, 2).await;
    scene.coordinator.kill().await;
    scene.conduct.open();
    scene.coordinator.restart().await;
    rolled_back.await.unwrap().unwrap();
    assert_eq!(scene.account(1).await, UNTOUCHED);
    assert_eq!(scene.traces(&xid).await, ["cancel", "try"]);
}

const DEBITS: usize = 32;
const WORKERS: usize = 4;
const DEBITS_PER_KILL: usize = 8;

async fn debits_stay_right_under_kills_at_any_moment<DB: LocalDatabase>() {
    let mut scene = Scene::<DB>::new().await;
    let resource = scene.resource().await;
    let handfast = scene.handfast.clone();
    let (finished, mut debited) = mpsc::unbounded_channel();
    let workers = (0..WORKERS).map(|_| {
        let (handfast, resource, finished) = (&handfast, &resource, finished.clone());
        async move {
            for _ in 0..DEBITS / WORKERS {
                finished.send(debit_twice(handfast, resource).await).unwrap();
            }
        }
    });
    let workers = join_all(workers.collect::<Vec<_>>());
    drop(finished);
    let kills = async {
        let mut ended = Vec::new();
        while let Some(debits) = debited.recv().await {
            ended.push(debits);
            if ended.len() % DEBITS_PER_KILL == 0 {
                scene.coordinator.kill().await;
                scene.coordinator.restart().await;
            }
        }
        ended
    };
    let (_, ended) = tokio::join!(Box::pin(workers), kills);
    assert_eq!(ended.len(), DEBITS);
    check(&scene, ended).await;
}

/// A debit of two accounts, as far as its client knows.
struct Debits {
    xid: Option<Xid>,
    told_committed: bool,
}

async fn debit_twice<DB: LocalDatabase>(
    handfast: &Handfast,
    resource: &TccResource<Debit<DB>>,
) -> Debits {
    let Ok(global) = handfast.transaction("debits").begin().await else {
        return Debits { xid: None, told_committed: false };
    };
    let xid = Some(global.xid().clone());
    let tried = async {
        debit(resource, &global, &ten_from(1)).await?;
        debit(resource, &global, &ten_from(2)).await
    };
    let ended = match tried.await {
        Ok(()) => global.commit().await,
        Err(_) => {
            // The answer does not matter: the global can only be rolled back.
            let _ = global.rollback("a try failed").await;
            return Debits { xid, told_committed: false };
        }
    };
    Debits { xid, told_committed: ended.is_ok() }
}

/// Waits until everything has ended. Each global has debited both accounts or none.
async fn check<DB: LocalDatabase>(scene: &Scene<DB>, ended: Vec<Debits>) {
    until("everything ends", async || {
        let status = scene.coordinator.status().await;
        status.active + status.committing + status.rolling_back == 0
    })
    .await;
    let mut committed = 0;
    for debits in ended {
        let Some(xid) = debits.xid else { continue };
        let status = scene.handfast.outcome(&xid).await.unwrap();
        let is_committed = status == GlobalStatus::Committed;
        assert!(is_committed || !debits.told_committed, "{xid} was answered, now {status}");
        let confirms = scene.traces(&xid).await.iter().filter(|it| *it == "confirm").count();
        assert_eq!(confirms, if is_committed { 2 } else { 0 }, "{xid} is {status}");
        committed += i64::from(is_committed);
    }
    let expected = [1_000 - 10 * committed, 0];
    assert_eq!([scene.account(1).await, scene.account(2).await], [expected; 2]);
    scene.assert_finished().await;
}
