//! Several processes of one service.

use futures::future::join_all;

use crate::action::{LocalDatabase, ten_from};
use crate::at::on_every_database;
use crate::scene::{Scene, debit};

on_every_database!(two_processes_finish_each_branch_once, a_try_is_confirmed_by_another_process,);

const BRANCHES: usize = 12;

async fn two_processes_finish_each_branch_once<DB: LocalDatabase>() {
    let scene = Scene::<DB>::new().await;
    let (first, second) = (scene.resource().await, scene.rescuer().await);
    let globals = join_all((0..BRANCHES).map(|_| scene.begin())).await;
    for (global, resource) in globals.iter().zip([&first, &second.resource].into_iter().cycle()) {
        debit(resource, global, &ten_from(1)).await.unwrap();
    }
    let xids: Vec<_> = globals.iter().map(|global| global.xid().clone()).collect();
    for ended in join_all(globals.into_iter().map(|global| global.commit())).await {
        ended.unwrap();
    }
    for xid in &xids {
        scene.until_committed(xid).await;
        assert_eq!(scene.traces(xid).await, ["confirm", "try"]);
    }
    assert_eq!(scene.account(1).await, [880, 0]);
    scene.assert_finished().await;
}

async fn a_try_is_confirmed_by_another_process<DB: LocalDatabase>() {
    let scene = Scene::<DB>::new().await;
    let first = scene.rescuer().await;
    let global = scene.begin().await;
    let xid = global.xid().clone();
    debit(&first.resource, &global, &ten_from(1)).await.unwrap();
    first.leave().await;
    global.commit().await.unwrap();
    let second = scene.rescuer().await;
    scene.until_committed(&xid).await;
    assert_eq!(second.conduct.called(), ["confirm"]);
    assert_eq!(scene.account(1).await, [990, 0]);
}
