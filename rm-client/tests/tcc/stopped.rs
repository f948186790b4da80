//! A client is suspended in its try while its global is rolled back, and then continues. It is too
//! late, and reserves nothing.

use handfast_server::admin::model::Status;

use crate::action::LocalDatabase;
use crate::at::on_every_database;
use crate::scene::{BARRED, CANCELLED, Scene, UNTOUCHED, roll_back};

on_every_database!(a_try_after_its_cancel_is_barred, a_cancel_waits_for_a_running_try,);

async fn a_try_after_its_cancel_is_barred<DB: LocalDatabase>() {
    let scene = Scene::<DB>::impatient().await;
    let global = scene.begin().await;
    let xid = global.xid().clone();
    let mut client = scene.client(Some(&xid), 1).stop_at("tcc-after-register");
    client.stopped().await;
    let rescuer = scene.rescuer().await;
    roll_back(global).await.unwrap().unwrap();
    assert_eq!(scene.fences(&xid).await, [BARRED]);
    assert_eq!(rescuer.conduct.called(), [""; 0]);
    client.go_on();
    assert_eq!(client.next_report::<String>().await, "HF-FENCE-BARRED");
    assert_eq!(scene.account(1).await, UNTOUCHED);
    assert_eq!(scene.traces(&xid).await, [""; 0]);
    scene.assert_finished().await;
}

async fn a_cancel_waits_for_a_running_try<DB: LocalDatabase>() {
    let scene = Scene::<DB>::impatient().await;
    let global = scene.begin().await;
    let xid = global.xid().clone();
    let mut client = scene.client(Some(&xid), 1).stop_at("tcc-in-try");
    client.stopped().await;
    let _rescuer = scene.rescuer().await;
    let rolled_back = roll_back(global);
    scene.until(&xid, Status::RollingBack).await;
    scene.coordinator.until_phase_two_is_under_way().await;
    client.go_on();
    assert_eq!(client.next_report::<String>().await, "done");
    rolled_back.await.unwrap().unwrap();
    assert_eq!(scene.account(1).await, UNTOUCHED);
    assert_eq!(scene.traces(&xid).await, ["cancel", "try"]);
    assert_eq!(scene.fences(&xid).await, [CANCELLED]);
    scene.assert_finished().await;
}
