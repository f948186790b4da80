//! A client dies that has taken from a counter which others are taking from. What it has taken
//! is given back once, by any process, and what the others have taken stays taken.

use std::time::Duration;

use handfast::{AtResource, Counter, Handfast};

use crate::at::{TestDatabase, on_every_database};
use crate::client::Work;
use crate::scene::{Scene, roll_back};

on_every_database!(
    what_a_killed_client_has_taken_is_given_back_once,
    what_a_killed_crowd_has_taken_is_given_back,
);

const TAKE: &str = "UPDATE account SET cents = cents - 10 WHERE id = 1 AND cents >= 10";

/// Where the client dies, and whether it has taken anything by then.
const POINTS: [(&str, bool); 6] = [
    ("before-undo-insert", false),
    ("after-register", false),
    ("before-local-commit", false),
    ("after-local-commit", true),
    ("in-rollback-before-commit", true),
    ("after-phase-two-commit", false),
];

/// Another process of the service, which finishes what the client has left.
async fn rescuer<DB: TestDatabase>(scene: &Scene<DB>) -> (Handfast, AtResource<DB>) {
    let handfast = Handfast::connect(scene.coordinator.endpoint()).application("rescuer");
    let handfast = handfast.await.unwrap();
    let at = handfast.at(scene.bank.pool.clone());
    let resource = at.counter("account", "cents", Counter::at_least(0)).await.unwrap();
    (handfast, resource)
}

async fn what_a_killed_client_has_taken_is_given_back_once<DB: TestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let mut cents = scene.bank.cents(1).await;
    for (point, has_taken) in POINTS {
        let (global, other) = (scene.begin().await, scene.begin().await);
        let statements = vec![TAKE.to_owned(); 2];
        let client = scene.client(Some(global.xid()), &[]);
        let client = crate::child::ClientInput { work: Work::Counted(statements), ..client };
        let mut client = client.crash_at(point);
        let is_in_phase_two = ["in-rollback-before-commit", "after-phase-two-commit"];
        let rolled_back = if is_in_phase_two.contains(&point) {
            assert_eq!(client.next_report::<String>().await, "done");
            let rolled_back = roll_back(global);
            client.crashed().await;
            rolled_back
        } else {
            client.crashed().await;
            roll_back(global)
        };
        let taken = if has_taken { 20 } else { 0 };
        assert_eq!(scene.bank.cents(1).await, cents - taken, "{point}");
        // It does not wait for the one that is being rolled back.
        let (handfast, resource) = rescuer(&scene).await;
        let take = other.scope(DB::run_alone(&resource, TAKE));
        assert_eq!(take.await.unwrap(), 1, "{point}");
        rolled_back.await.unwrap().unwrap();
        other.commit().await.unwrap();
        cents -= 10;
        scene.until_finished().await;
        assert_eq!(scene.bank.cents(1).await, cents, "{point}");
        assert_eq!(scene.bank.undo_rows().await.0, 0, "{point}");
        handfast.close().await;
    }
}

const CROWD: usize = 12;
/// Short, since nothing but the timeout ends the globals of a process that has died.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Several globals share the local transaction in which the process dies.
async fn what_a_killed_crowd_has_taken_is_given_back<DB: TestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let mut cents = scene.bank.cents(1).await;
    for point in ["before-joint-commit", "after-joint-commit"] {
        let client = scene.client(None, &[]).timeout(TIMEOUT);
        let work = Work::Crowd(TAKE.to_owned(), CROWD);
        let mut client = crate::child::ClientInput { work, ..client }.crash_at(point);
        assert_eq!(client.next_report::<String>().await, "done");
        cents -= 10;
        client.crashed().await;
        if point == "after-joint-commit" {
            assert!(scene.bank.undo_rows().await.0 > 0, "some have committed locally");
        }
        let (handfast, _resource) = rescuer(&scene).await;
        scene.until_finished().await;
        assert_eq!(scene.bank.cents(1).await, cents, "{point}");
        assert_eq!(scene.bank.undo_rows().await.0, 0, "{point}");
        handfast.close().await;
    }
}
