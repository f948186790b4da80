//! A TCC branch and an AT branch in one global: both or neither.

use handfast::{AtResource, Global, GlobalStatus};

use crate::action::{Amount, LocalDatabase, ten_from};
use crate::at::{code, on_every_database};
use crate::scene::{DEBITED, Scene, TRIED, UNTOUCHED, debit};

on_every_database!(both_commit, both_roll_back, a_try_that_fails_takes_the_other_back);

const CHANGE: &str = "UPDATE note SET body = 'changed' WHERE id = 1";

async fn change<DB: LocalDatabase>(resource: &AtResource<DB>, global: &Global) {
    let work = async {
        let mut local = resource.begin().await?;
        DB::run(&mut local, CHANGE).await?;
        local.commit().await
    };
    let changed = Box::pin(global.scope(work)).await;
    changed.unwrap_or_else(|error| panic!("{}", code(&error)));
}

async fn both_commit<DB: LocalDatabase>() {
    let scene = Scene::<DB>::new().await;
    let (debits, notes) = (scene.resource().await, scene.handfast.at(scene.pool.clone()));
    let notes = notes.await.unwrap();
    let global = scene.begin().await;
    let xid = global.xid().clone();
    debit(&debits, &global, &ten_from(1)).await.unwrap();
    change(&notes, &global).await;
    assert_eq!((scene.account(1).await, scene.note().await.as_str()), (TRIED, "changed"));
    global.commit().await.unwrap();
    scene.until_committed(&xid).await;
    assert_eq!((scene.account(1).await, scene.note().await.as_str()), (DEBITED, "changed"));
    assert_eq!(scene.number("SELECT COUNT(*) FROM undo_log").await, 0);
    scene.assert_finished().await;
}

async fn both_roll_back<DB: LocalDatabase>() {
    let scene = Scene::<DB>::new().await;
    let (debits, notes) = (scene.resource().await, scene.handfast.at(scene.pool.clone()));
    let notes = notes.await.unwrap();
    let global = scene.begin().await;
    change(&notes, &global).await;
    debit(&debits, &global, &ten_from(1)).await.unwrap();
    global.rollback("test").await.unwrap();
    assert_eq!((scene.account(1).await, scene.note().await.as_str()), (UNTOUCHED, "as it was"));
    assert_eq!(scene.number("SELECT COUNT(*) FROM undo_log").await, 0);
    scene.assert_finished().await;
}

async fn a_try_that_fails_takes_the_other_back<DB: LocalDatabase>() {
    let scene = Scene::<DB>::new().await;
    let (debits, notes) = (scene.resource().await, scene.handfast.at(scene.pool.clone()));
    let notes = notes.await.unwrap();
    let global = scene.begin().await;
    let xid = global.xid().clone();
    change(&notes, &global).await;
    let too_much = Amount { cents: 1_001, ..ten_from(1) };
    let error = debit(&debits, &global, &too_much).await.unwrap_err();
    assert_eq!(error.code(), "HF-TCC-ACTION");
    global.rollback("the try failed").await.unwrap();
    assert_eq!((scene.account(1).await, scene.note().await.as_str()), (UNTOUCHED, "as it was"));
    let status = scene.handfast.outcome(&xid).await.unwrap();
    assert!(matches!(status, GlobalStatus::RolledBack(_)), "{status}");
}
