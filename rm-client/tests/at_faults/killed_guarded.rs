//! A client of a guarded table dies. Its rows stay held until phase two is done, by any
//! process, and not for longer.

use handfast::GlobalStatus;
use handfast::guarded::{self, GuardMode, GuardStart};
use handfast_test_services::until;
use sqlx::Postgres;

use crate::at::TestDatabase;
use crate::scene::{CHANGES, Scene, roll_back};

const OUTSIDE: &str = "UPDATE account SET cents = cents WHERE id = 1";

async fn scene() -> Scene<Postgres> {
    let scene = Scene::<Postgres>::new().await;
    let (mode, start) = (GuardMode::Refuse, GuardStart::AtOnce);
    guarded::enable(&scene.bank.pool, "account", mode, start).await.unwrap();
    scene
}

async fn is_refused(scene: &Scene<Postgres>, xid: &str) -> bool {
    match Postgres::raw(&scene.bank.pool, OUTSIDE).await {
        Ok(_) => false,
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains("HF-GUARD-ROW") && text.contains(xid), "{text}");
            true
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_a_client_that_dies_stay_held_until_they_are_restored() {
    let scene = scene().await;
    let before = scene.bank.accounts().await;
    for point in ["after-local-commit", "in-rollback-before-commit", "after-phase-two-commit"] {
        let global = scene.begin().await;
        let xid = global.xid().clone();
        let mut client = scene.client(Some(&xid), &CHANGES).crash_at(point);
        let rolled_back = if point == "after-local-commit" {
            client.crashed().await;
            assert!(is_refused(&scene, xid.as_str()).await, "{point}");
            roll_back(global)
        } else {
            assert_eq!(client.next_report::<String>().await, "done");
            assert!(is_refused(&scene, xid.as_str()).await, "{point}");
            let rolled_back = roll_back(global);
            client.crashed().await;
            rolled_back
        };
        let restored = point == "after-phase-two-commit";
        assert_eq!(is_refused(&scene, xid.as_str()).await, !restored, "{point}");
        let rescuer = scene.rescuer().await;
        rolled_back.await.unwrap().unwrap();
        assert!(!is_refused(&scene, xid.as_str()).await, "{point}");
        scene.assert_clean(&before, 0).await;
        rescuer.leave().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_client_leaves_that_dies_in_a_commit_is_swept() {
    let scene = scene().await;
    let global = scene.begin().await;
    let xid = global.xid().clone();
    let change = "UPDATE account SET cents = cents - 10 WHERE id = 1";
    let mut client = scene.client(Some(&xid), &[change]).crash_at("after-phase-two-commit");
    assert_eq!(client.next_report::<String>().await, "done");
    assert!(is_refused(&scene, xid.as_str()).await);
    global.commit().await.unwrap();
    client.crashed().await;
    assert_eq!(scene.handfast.outcome(&xid).await.unwrap(), GlobalStatus::Committing);
    assert!(!is_refused(&scene, xid.as_str()).await, "without the undo row nothing is held");
    let kept = async || guarded::holders(&scene.bank.pool, 10).await.unwrap();
    assert_eq!(kept().await.len(), 1, "the client had no time to delete it");
    let rescuer = scene.rescuer().await;
    scene.until_committed(&xid).await;
    until("what was left is swept", async || kept().await.is_empty()).await;
    rescuer.leave().await;
}
