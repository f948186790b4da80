//! The coordinator is killed between any two steps and started again on its records. Its answers
//! stay valid, and its outstanding work is done.

use futures::future::join_all;
use handfast::{AtResource, GlobalStatus, Handfast, Xid};
use handfast_server::admin::model::Status;
use tokio::sync::mpsc;

use crate::at::{TestDatabase, on_every_database};
use crate::scene::{CHANGES, Foreign, Scene, alone, branch, roll_back};

on_every_database!(
    an_undecided_global_survives_and_commits,
    an_undecided_global_survives_and_rolls_back,
    an_answered_commit_survives,
    a_rollback_goes_on,
    a_commit_cut_off_in_phase_two_is_finished,
    a_rollback_cut_off_in_phase_two_is_finished,
    money_stays_right_under_kills_at_any_moment,
);

async fn an_undecided_global_survives_and_commits<DB: TestDatabase>() {
    let mut scene = Scene::<DB>::new().await;
    let resource = scene.resource().await;
    let global = scene.begin().await;
    let xid = global.xid().clone();
    branch(&resource, &global, &CHANGES).await.unwrap();
    let after = scene.bank.accounts().await;
    scene.coordinator.kill().await;
    scene.coordinator.restart().await;
    assert_eq!(scene.handfast.outcome(&xid).await.unwrap(), GlobalStatus::Active);
    // The global's locks have survived with it.
    assert_eq!(scene.coordinator.status().await.locks, 3);
    global.commit().await.unwrap();
    scene.until_committed(&xid).await;
    scene.assert_clean(&after, 0).await;
}

async fn an_undecided_global_survives_and_rolls_back<DB: TestDatabase>() {
    let mut scene = Scene::<DB>::new().await;
    let before = scene.bank.accounts().await;
    let resource = scene.resource().await;
    let global = scene.begin().await;
    branch(&resource, &global, &CHANGES).await.unwrap();
    scene.coordinator.kill().await;
    scene.coordinator.restart().await;
    roll_back(global).await.unwrap().unwrap();
    scene.assert_clean(&before, 0).await;
}

async fn an_answered_commit_survives<DB: TestDatabase>() {
    let mut scene = Scene::<DB>::new().await;
    let resource = scene.resource().await;
    let global = scene.begin().await;
    let xid = global.xid().clone();
    branch(&resource, &global, &CHANGES).await.unwrap();
    let after = scene.bank.accounts().await;
    global.commit().await.unwrap();
    scene.coordinator.kill().await;
    scene.coordinator.restart().await;
    scene.until_committed(&xid).await;
    scene.assert_clean(&after, 0).await;
}

async fn a_rollback_goes_on<DB: TestDatabase>() {
    let mut scene = Scene::<DB>::new().await;
    let before = scene.bank.accounts().await;
    let global = scene.begin().await;
    let xid = global.xid().clone();
    let rescuer = scene.rescuer().await;
    branch(rescuer.resource(), &global, &CHANGES).await.unwrap();
    rescuer.leave().await;
    let rolled_back = roll_back(global);
    scene.until(&xid, Status::RollingBack).await;
    scene.coordinator.kill().await;
    scene.coordinator.restart().await;
    let _rescuer = scene.rescuer().await;
    rolled_back.await.unwrap().unwrap();
    scene.assert_clean(&before, 0).await;
}

/// A lock on every undo row, which blocks phase two in the database.
const HOLD: &str = "UPDATE undo_log SET context = 'held'";

async fn a_commit_cut_off_in_phase_two_is_finished<DB: TestDatabase>() {
    let mut scene = Scene::<DB>::new().await;
    let resource = scene.resource().await;
    let global = scene.begin().await;
    let xid = global.xid().clone();
    branch(&resource, &global, &CHANGES).await.unwrap();
    let after = scene.bank.accounts().await;
    let holder = Foreign::new(&scene.bank, HOLD).await;
    global.commit().await.unwrap();
    scene.coordinator.until_phase_two_is_under_way().await;
    scene.coordinator.kill().await;
    holder.roll_back().await;
    scene.coordinator.restart().await;
    scene.until_committed(&xid).await;
    scene.assert_clean(&after, 0).await;
}

async fn a_rollback_cut_off_in_phase_two_is_finished<DB: TestDatabase>() {
    let mut scene = Scene::<DB>::new().await;
    let before = scene.bank.accounts().await;
    let resource = scene.resource().await;
    let global = scene.begin().await;
    branch(&resource, &global, &CHANGES).await.unwrap();
    let holder = Foreign::new(&scene.bank, HOLD).await;
    let rolled_back = roll_back(global);
    scene.coordinator.until_phase_two_is_under_way().await;
    scene.coordinator.kill().await;
    holder.roll_back().await;
    scene.coordinator.restart().await;
    rolled_back.await.unwrap().unwrap();
    scene.assert_clean(&before, 0).await;
}

const TRANSFERS: i64 = 48;
const WORKERS: i64 = 8;
const TRANSFERS_PER_KILL: usize = 8;

/// Every transfer leaves a receipt: an account with the transfer's number. The receipt must exist
/// if and only if the transfer was committed.
async fn money_stays_right_under_kills_at_any_moment<DB: TestDatabase>() {
    let mut scene = Scene::<DB>::new().await;
    let resource = scene.resource().await;
    let handfast = scene.handfast.clone();
    let (finished, mut ended) = mpsc::unbounded_channel();
    let workers = (0..WORKERS).map(|worker| {
        let (handfast, resource, finished) = (&handfast, &resource, finished.clone());
        async move {
            for round in 0..TRANSFERS / WORKERS {
                let receipt = 1_000 + round * WORKERS + worker;
                let ended = transfer(handfast, resource, receipt).await;
                finished.send((receipt, ended)).unwrap();
            }
        }
    });
    let workers = join_all(workers.collect::<Vec<_>>());
    drop(finished);
    let kills = async {
        let mut transfers = Vec::new();
        while let Some(transfer) = ended.recv().await {
            transfers.push(transfer);
            if transfers.len() % TRANSFERS_PER_KILL == 0 {
                scene.coordinator.kill().await;
                scene.coordinator.restart().await;
            }
        }
        transfers
    };
    let (_, transfers) = tokio::join!(Box::pin(workers), kills);
    assert_eq!(i64::try_from(transfers.len()).unwrap(), TRANSFERS);
    scene.until_finished().await;
    for (receipt, transfer) in transfers {
        let status = match &transfer.xid {
            Some(xid) => scene.handfast.outcome(xid).await.unwrap(),
            None => GlobalStatus::Unknown,
        };
        let committed = status == GlobalStatus::Committed;
        assert!(committed || !transfer.told_committed, "{receipt} was answered, now {status}");
        assert_eq!(scene.bank.has(receipt).await, committed, "{receipt} is {status}");
    }
    assert_eq!(scene.bank.sum().await, 3_000);
    assert_eq!(scene.bank.undo_rows().await.0, 0);
    scene.assert_finished().await;
}

/// How a transfer ended, as far as its client knows.
struct Transfer {
    xid: Option<Xid>,
    told_committed: bool,
}

async fn transfer<DB: TestDatabase>(
    handfast: &Handfast,
    resource: &AtResource<DB>,
    receipt: i64,
) -> Transfer {
    let Ok(global) = handfast.transaction("transfer").begin().await else {
        return Transfer { xid: None, told_committed: false };
    };
    let xid = global.xid().clone();
    let take = format!("UPDATE account SET cents = cents - 1 WHERE id = {}", 1 + receipt % 2);
    let give = "UPDATE account SET cents = cents + 1 WHERE id = 3".to_owned();
    let note = format!("INSERT INTO account (id, cents) VALUES ({receipt}, 0)");
    let moved = global.scope(async {
        alone(resource, &[&take, &note]).await?;
        alone(resource, &[&give]).await
    });
    let ended = match moved.await {
        Ok(()) => global.commit().await,
        Err(_) => {
            // The answer does not matter: the global can only be rolled back.
            let _ = global.rollback("a branch failed").await;
            return Transfer { xid: Some(xid), told_committed: false };
        }
    };
    Transfer { xid: Some(xid), told_committed: ended.is_ok() }
}
