//! The process of a last branch dies or stops around its local commit, which decides the global.
//! The coordinator asks the database when the global's time is over.

use std::time::Instant;

use handfast_server::admin::model::{RollbackReason, Status};
use handfast_test_services::until;
use sqlx::Sqlite;

use crate::at::{TestDatabase, on_every_database};
use crate::child::{ClientInput, before_the_timeout};
use crate::client::Work;
use crate::scene::{CHANGES, Scene};

on_every_database!(
    a_killed_last_branch_is_followed,
    a_killed_branch_with_a_named_row_is_followed,
    a_killed_answer_is_asked_for_again,
    a_question_that_is_taken_up_late_changes_nothing,
    a_stopped_last_branch_is_barred_or_waited_for,
    a_decided_global_outlives_the_coordinator,
);

/// The crash points: whether the branch has committed there.
const POINTS: [(&str, bool); 3] =
    [("after-register", false), ("before-local-commit", false), ("after-local-commit", true)];

fn last<DB: TestDatabase>(scene: &Scene<DB>) -> ClientInput<Work> {
    let statements = CHANGES.iter().map(|sql| (*sql).to_owned()).collect();
    ClientInput { work: Work::Last(statements), ..scene.client(None, &[]) }
}

/// A branch whose row is granted before its change.
fn named<DB: TestDatabase>(scene: &Scene<DB>) -> ClientInput<Work> {
    let id = if DB::NAME_IN_TESTS == "postgres" { "$1" } else { "?" };
    let sql = format!("UPDATE account SET cents = cents - 10 WHERE id = {id}");
    ClientInput { work: Work::NamedRow(sql, 1), ..scene.client(None, &[]) }
}

async fn a_killed_last_branch_is_followed<DB: TestDatabase>() {
    is_followed::<DB>(last, "", 1_000).await;
}

async fn a_killed_branch_with_a_named_row_is_followed<DB: TestDatabase>() {
    // The other global passes each point once.
    is_followed::<DB>(named, ":2", 990).await;
}

/// `cents` are in the account that the branch takes 10 from.
async fn is_followed<DB: TestDatabase>(
    client: fn(&Scene<DB>) -> ClientInput<Work>,
    pass: &str,
    cents: i64,
) {
    for (point, has_committed) in POINTS {
        let scene = Scene::<DB>::new().await;
        let point = format!("{point}{pass}");
        let killed =
            async |timeout| client(&scene).timeout(timeout).crash_with_its_global_at(&point).await;
        let xid = before_the_timeout(killed).await;
        let left = scene.bank.accounts().await;
        let taken = if has_committed { 10 } else { 0 };
        assert_eq!(scene.bank.cents(1).await, cents - taken, "{point}");
        // No process can say how the branch has ended: the coordinator asks until one can.
        let rescuer = scene.rescuer().await;
        let due = if has_committed { Status::Committed } else { Status::RolledBack };
        let ended = scene.coordinator.until(&xid, |detail| detail.transaction.status == due).await;
        let why = ended.transaction.rollback_reason;
        assert_eq!(why, (!has_committed).then_some(RollbackReason::Timeout), "{point}");
        if has_committed {
            assert_eq!(scene.bank.accounts().await, left, "{point}");
            assert_eq!(scene.bank.undo_rows().await, (0, 0), "{point}");
            scene.assert_finished().await;
        } else {
            scene.assert_clean(&left, 1).await;
        }
        rescuer.leave().await;
    }
}

/// Where one local transaction writes at a time, the branches share it, and each is followed by
/// itself.
#[tokio::test]
async fn killed_branches_of_one_local_transaction_are_followed() {
    for (point, have_committed) in [("before-joint-commit", false), ("after-joint-commit", true)] {
        let killed = async |timeout| {
            let scene = Scene::<Sqlite>::new().await;
            let sql = "UPDATE account SET cents = cents - 10 WHERE id = ?".to_owned();
            let work = Work::NamedRows(sql, 3);
            let client = ClientInput { work, ..scene.client(None, &[]) };
            let mut client = client.timeout(timeout).crash_at(point);
            let xids = client.next_report::<Vec<String>>().await;
            let apart = client.crashed_or_report::<Vec<String>>().await;
            apart.is_none().then_some((scene, xids))
        };
        let (scene, xids) = before_the_timeout(killed).await;
        let rescuer = scene.rescuer().await;
        let mut committed = 0;
        for (xid, id) in xids.iter().zip(1..) {
            let is_over = |status| matches!(status, Status::Committed | Status::RolledBack);
            let ended = scene.coordinator.until(xid, |it| is_over(it.transaction.status)).await;
            let taken = ended.transaction.status == Status::Committed;
            assert_eq!(scene.bank.cents(id).await, if taken { 990 } else { 1_000 }, "{point}");
            committed += u32::from(taken);
        }
        // The one that came first may have had a local transaction of its own.
        let expected = if have_committed { 2..=3 } else { 0..=1 };
        assert!(expected.contains(&committed), "{point}: {committed}");
        assert_eq!(scene.bank.undo_rows().await.0, 0, "{point}");
        rescuer.leave().await;
    }
}

/// The process that is asked dies before its guard row is there, so another one is asked.
async fn a_killed_answer_is_asked_for_again<DB: TestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let before = scene.bank.accounts().await;
    let killed = async |timeout| {
        last(&scene).timeout(timeout).crash_with_its_global_at("before-local-commit").await
    };
    let xid = before_the_timeout(killed).await;
    let mut asked = scene.client(None, &[]).crash_at("in-settle-before-commit");
    asked.next_report::<String>().await;
    assert_eq!(asked.next_report::<String>().await, "done");
    asked.crashed().await;
    scene.coordinator.until(&xid, |it| it.transaction.status == Status::Active).await;
    let rescuer = scene.rescuer().await;
    scene.coordinator.until(&xid, |it| it.transaction.status == Status::RolledBack).await;
    assert_eq!(scene.bank.accounts().await, before);
    rescuer.leave().await;
}

/// Another process has answered meanwhile, and the undo row of the committed branch is deleted. The
/// guard row in its place bars nothing, and its answer is no news.
async fn a_question_that_is_taken_up_late_changes_nothing<DB: TestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let killed = async |timeout| {
        last(&scene).timeout(timeout).crash_with_its_global_at("after-local-commit").await
    };
    let mut late = scene.client(None, &[]).start();
    late.next_report::<String>().await;
    assert_eq!(late.next_report::<String>().await, "done");
    late.pause();
    let xid = before_the_timeout(killed).await;
    let committed = scene.bank.accounts().await;
    until("it is asked", async || scene.coordinator.status().await.pending_branches > 0).await;
    let rescuer = scene.rescuer().await;
    scene.coordinator.until(&xid, |it| it.transaction.status == Status::Committed).await;
    assert_eq!(scene.bank.undo_rows().await, (0, 0));
    late.go_on();
    until("its guard row is there", async || scene.bank.undo_rows().await == (0, 1)).await;
    assert_eq!(scene.bank.accounts().await, committed);
    scene.coordinator.until(&xid, |it| it.transaction.status == Status::Committed).await;
    rescuer.leave().await;
}

/// A guard row bars a branch whose undo row the database has not seen. Where the row is inserted
/// already, the question waits for the end of the local transaction, and gets what has happened.
async fn a_stopped_last_branch_is_barred_or_waited_for<DB: TestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let before = scene.bank.accounts().await;
    let stopped = async |timeout| {
        let mut client = last(&scene).timeout(timeout).stop_at("before-local-commit");
        let xid = client.next_report::<String>().await;
        let over = Instant::now() + timeout;
        client.stopped().await;
        Some((client, xid, over))
    };
    let (mut client, xid, over) = before_the_timeout(stopped).await;
    let rescuer = scene.rescuer().await;
    until("the global's time is over", async || Instant::now() > over).await;
    let status = |wanted| scene.coordinator.until(&xid, move |it| it.transaction.status == wanted);
    if DB::NAME_IN_TESTS == "mysql" {
        status(Status::RolledBack).await;
        client.go_on();
        assert_eq!(client.next_report::<String>().await, "HF-AT-GLOBAL-FINISHED");
        scene.assert_clean(&before, 0).await;
    } else {
        client.go_on();
        assert_eq!(client.next_report::<String>().await, "done");
        status(Status::Committed).await;
        assert_ne!(scene.bank.accounts().await, before);
        scene.assert_finished().await;
    }
    rescuer.leave().await;
}

/// The coordinator dies after the branch has committed and before it has heard so. The report is
/// sent again to the next one.
async fn a_decided_global_outlives_the_coordinator<DB: TestDatabase>() {
    let mut scene = Scene::<DB>::new().await;
    let before = scene.bank.accounts().await;
    let statements = CHANGES.iter().map(|sql| (*sql).to_owned()).collect();
    let client = ClientInput { work: Work::LastOfTwo(statements), ..scene.client(None, &[]) };
    let mut client = client.stop_at("after-local-commit:2");
    let xid = client.next_report::<String>().await;
    client.stopped().await;
    scene.coordinator.kill().await;
    scene.coordinator.restart().await;
    scene.coordinator.until(&xid, |it| it.transaction.status == Status::Active).await;
    client.go_on();
    assert_eq!(client.next_report::<String>().await, "done");
    scene.coordinator.until(&xid, |it| it.transaction.status == Status::Committed).await;
    assert_ne!(scene.bank.accounts().await, before);
    assert_eq!(scene.bank.undo_rows().await, (0, 0));
    scene.assert_finished().await;
}
