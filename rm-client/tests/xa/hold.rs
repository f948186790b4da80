//! Sessions that must stay with their prepared branch: MariaDB, MySQL before 8.0.29.

use std::time::Duration;

use crate::database::{XaTestDatabase, on_both};
use crate::scene::{DEBIT, Scene, branch};

on_both!(
    a_branch_prepared_in_one_process_is_finished_by_another,
    a_branch_is_finished_after_its_holder_dies,
);

/// Without a hold, or after its end, any process can finish the branch.
async fn a_branch_prepared_in_one_process_is_finished_by_another<DB: XaTestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let mut cents = 1000;
    for limit in [Duration::ZERO, Duration::from_millis(200)] {
        let global = scene.begin().await;
        let xid = global.xid().clone();
        let resource = scene.handfast.xa(scene.bank.pool.clone()).node(&scene.node);
        let resource = resource.hold_limit(limit).await.unwrap();
        branch(&resource, &global, DEBIT).await.unwrap();
        // A process without a branch of the global also receives calls of phase two.
        let mut other = scene.client(None, "").start();
        let _xid = other.next_report::<String>().await;
        assert_eq!(other.next_report::<String>().await, "done");
        global.commit().await.unwrap();
        cents -= 10;
        scene.until_committed(&xid).await;
        assert_eq!(scene.bank.cents(1).await, cents);
        assert_eq!(scene.prepared().await, Vec::<String>::new());
        other.kill().await;
    }
}

async fn a_branch_is_finished_after_its_holder_dies<DB: XaTestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let global = scene.begin().await;
    let xid = global.xid().clone();
    // The process would hold the session for an hour.
    let mut holder = scene.client(Some(&xid), DEBIT).start();
    assert_eq!(holder.next_report::<String>().await, "done");
    holder.kill().await;
    global.commit().await.unwrap();
    let rescuer = scene.rescuer().await;
    scene.until_committed(&xid).await;
    scene.assert_clean([990, 1000]).await;
    rescuer.leave().await;
}
