//! Prepared branches without an outstanding call, and those of other nodes.

use std::time::Duration;

use handfast::XaResource;

use crate::child::PATIENCE;
use crate::database::{Name, XaTestDatabase, on_both};
use crate::scene::{DEBIT, OTHER_DEBIT, Scene, branch};

on_both!(
    a_sweep_runs_at_the_start,
    sweeps_are_repeated,
    an_unknown_branch_is_rolled_back_after_a_time,
    an_undecided_branch_is_left,
    a_decided_branch_is_finished,
    a_late_prepare_is_rolled_back,
    branches_of_other_names_are_not_touched,
);

impl<DB: XaTestDatabase> Scene<DB> {
    /// Creates a resource that sweeps only on request.
    async fn swept_by_hand(&self, orphan_after: Duration) -> XaResource<DB> {
        let resource = self.handfast.xa(self.bank.pool.clone()).node(&self.node);
        let resource = resource.sweep_every(Duration::from_secs(3_600));
        resource.orphan_after(orphan_after).await.unwrap()
    }

    /// Sweeps until no branch is prepared: servers notice only after a while that a session has
    /// ended.
    async fn until_swept(&self, resource: &XaResource<DB>) {
        let swept = async {
            while !self.prepared().await.is_empty() {
                resource.sweep().await.unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, swept).await.expect("everything is swept");
    }
}

/// A name of this node, for a global that the coordinator never began.
fn orphan(node: &str) -> Name {
    Name::Ours(format!("hf1/{node}/00000000000000aa/127.0.0.1:1:7"))
}

async fn a_sweep_runs_at_the_start<DB: XaTestDatabase>() {
    let scene = Scene::<DB>::new().await;
    DB::prepare_past(&scene.bank.pool, &orphan(&scene.node), DEBIT).await.unwrap();
    let _resource = scene.swept_by_hand(Duration::ZERO).await;
    scene.until_prepared(0).await;
    scene.assert_clean([1000, 1000]).await;
}

async fn sweeps_are_repeated<DB: XaTestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let resource = scene.handfast.xa(scene.bank.pool.clone()).node(&scene.node);
    let resource = resource.sweep_every(Duration::from_millis(20));
    let _resource = resource.orphan_after(Duration::from_millis(100)).await.unwrap();
    for _ in 0..2 {
        DB::prepare_past(&scene.bank.pool, &orphan(&scene.node), DEBIT).await.unwrap();
        scene.until_prepared(0).await;
    }
    scene.assert_clean([1000, 1000]).await;
}

async fn an_unknown_branch_is_rolled_back_after_a_time<DB: XaTestDatabase>() {
    let scene = Scene::<DB>::new().await;
    DB::prepare_past(&scene.bank.pool, &orphan(&scene.node), DEBIT).await.unwrap();
    let patient = scene.swept_by_hand(Duration::from_secs(3_600)).await;
    let swept = patient.sweep().await.unwrap();
    assert_eq!((swept.committed, swept.rolled_back, swept.left), (0, 0, 1));
    let hasty = scene.swept_by_hand(Duration::ZERO).await;
    scene.until_swept(&hasty).await;
    scene.assert_clean([1000, 1000]).await;
}

async fn an_undecided_branch_is_left<DB: XaTestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let resource = scene.swept_by_hand(Duration::ZERO).await;
    let global = scene.begin().await;
    branch(&resource, &global, DEBIT).await.unwrap();
    for _ in 0..3 {
        let swept = resource.sweep().await.unwrap();
        assert_eq!((swept.committed, swept.rolled_back, swept.left), (0, 0, 1));
    }
    let xid = global.xid().clone();
    global.commit().await.unwrap();
    scene.until_committed(&xid).await;
    scene.assert_clean([990, 1000]).await;
}

/// The sweep and phase two both finish a decided branch, in either order.
async fn a_decided_branch_is_finished<DB: XaTestDatabase>() {
    let scene = Scene::<DB>::new().await;
    for commits in [true, false] {
        let global = scene.begin().await;
        let xid = global.xid().clone();
        let mut client = scene.client(Some(&xid), DEBIT).crash_at("xa-before-phase-two");
        assert_eq!(client.next_report::<String>().await, "done");
        let ended = tokio::spawn(async move {
            if commits { global.commit().await } else { global.rollback("test").await }
        });
        client.crashed().await;
        let rescuer = scene.rescuer().await;
        scene.until_swept(&rescuer.resource).await;
        ended.await.unwrap().unwrap();
        if commits {
            scene.until_committed(&xid).await;
        }
        scene.assert_clean([990, 1000]).await;
        rescuer.leave().await;
    }
}

/// The branch answers the rollback while its PREPARE is under way. The coordinator makes no further
/// call for it.
async fn a_late_prepare_is_rolled_back<DB: XaTestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let resource = scene.swept_by_hand(Duration::ZERO).await;
    let global = scene.begin().await;
    branch(&resource, &global, OTHER_DEBIT).await.unwrap();
    let xid = global.xid().clone();
    global.rollback("test").await.unwrap();
    let late = Name::Ours(format!("hf1/{}/00000000000000bb/{xid}", scene.node));
    DB::prepare_past(&scene.bank.pool, &late, DEBIT).await.unwrap();
    scene.until_swept(&resource).await;
    scene.assert_clean([1000, 1000]).await;
}

async fn branches_of_other_names_are_not_touched<DB: XaTestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let node = &scene.node;
    let names = [
        // Of another node, whose id has this node's id as a prefix.
        (orphan(&format!("{node}x")), DEBIT),
        // In the library's format, but with a text that the library never writes.
        (Name::Ours(format!("hf1/{node}/1/a:1")), OTHER_DEBIT),
        // Of another program, in a format of its own.
        (Name::Foreign(format!("mine-{node}")), "UPDATE account SET cents = 7 WHERE id = 3"),
    ];
    for (name, sql) in &names {
        DB::prepare_past(&scene.bank.pool, name, sql).await.unwrap();
    }
    let resource = scene.swept_by_hand(Duration::ZERO).await;
    for _ in 0..2 {
        assert_eq!(resource.sweep().await.unwrap(), handfast::Swept::default());
    }
    assert_eq!(scene.prepared().await.len(), names.len());
    for (name, _) in &names {
        DB::roll_back_past(&scene.bank.pool, name).await.unwrap();
    }
    scene.assert_clean([1000, 1000]).await;
}
