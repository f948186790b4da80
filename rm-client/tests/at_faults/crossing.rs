//! Sixteen clients update the same two rows in opposite order. All of them finish: a deadlock is
//! refused with its cycle, the refused global is rolled back and submitted again, and no client
//! polls.

use std::time::Duration;

use futures::future::join_all;
use handfast::{AtError, AtResource, Handfast, RejectionDetail, RollbackCause, TransactionError};

use crate::at::bank::Bank;
use crate::at::{TestDatabase, on_every_database};
use crate::scene::{Scene, alone};

const CLIENTS: i64 = 16;
const ROUNDS: i64 = 3;

const GIVE: &str = "UPDATE account SET cents = cents + 1 WHERE id = 1";
const TAKE: &str = "UPDATE account SET cents = cents - 1 WHERE id = 2";

on_every_database!(
    a_deadlock_is_refused_with_its_cycle,
    sixteen_clients_cross_in_two_databases,
    sixteen_clients_cross_in_two_branches,
    sixteen_clients_cross_in_one_local_transaction,
);

async fn a_deadlock_is_refused_with_its_cycle<DB: TestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let resource = scene.resource().await;
    let (first, second) = (scene.begin().await, scene.begin().await);
    let (x1, x2) = (first.xid().clone(), second.xid().clone());
    first.scope(alone(&resource, &[GIVE])).await.unwrap();
    second.scope(alone(&resource, &[TAKE])).await.unwrap();
    let waiting = async {
        first.scope(alone(&resource, &[TAKE])).await.unwrap();
        first.commit().await.unwrap();
    };
    let crossing = async {
        scene.until_a_request_waits().await;
        let error = second.scope(alone(&resource, &[GIVE])).await.unwrap_err();
        second.rollback("deadlock").await.unwrap();
        error
    };
    let ((), error) = Box::pin(async { tokio::join!(waiting, crossing) }).await;
    let text = full_text(&error);
    let refusal =
        AtError::of(&error).and_then(AtError::rejection).expect("the coordinator refuses");
    assert_eq!(refusal.code(), "HF-TC-DEADLOCK");
    let RejectionDetail::Deadlock { cycle } = refusal.detail() else { panic!("{refusal:?}") };
    let mut cycle = cycle.to_vec();
    cycle.sort_unstable();
    assert_eq!(cycle, [x1.as_str(), x2.as_str()]);
    for xid in [&x1, &x2] {
        let number = xid.as_str().rsplit_once(':').unwrap().1;
        assert!(text.contains(number), "{number} is not in {text:?}");
    }
    scene.until_committed(&x1).await;
    assert_eq!((scene.bank.cents(1).await, scene.bank.cents(2).await), (1_001, 999));
    assert_eq!(scene.bank.undo_rows().await.0, 0);
    scene.assert_finished().await;
}

async fn sixteen_clients_cross_in_two_databases<DB: TestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let other = Bank::<DB>::new(&scene.handfast).await;
    let (here, there) = (patient(&scene, &scene.bank).await, patient(&scene, &other).await);
    all_cross(&scene, |turned| match turned {
        LockOrder::Forward => [(here.clone(), GIVE), (there.clone(), TAKE)],
        LockOrder::Reversed => [(there.clone(), TAKE), (here.clone(), GIVE)],
    })
    .await;
    let sums = (scene.bank.cents(1).await, other.cents(2).await);
    assert_eq!(sums, (1_000 + CLIENTS * ROUNDS, 1_000 - CLIENTS * ROUNDS));
    assert_eq!((scene.bank.undo_rows().await.0, other.undo_rows().await.0), (0, 0));
    scene.assert_finished().await;
}

async fn sixteen_clients_cross_in_two_branches<DB: TestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let resource = patient(&scene, &scene.bank).await;
    all_cross(&scene, |turned| match turned {
        LockOrder::Forward => [(resource.clone(), GIVE), (resource.clone(), TAKE)],
        LockOrder::Reversed => [(resource.clone(), TAKE), (resource.clone(), GIVE)],
    })
    .await;
    assert_crossed(&scene, ROUNDS).await;
}

/// The database itself detects most of these deadlocks. PostgreSQL takes a second for each, so
/// there is one round, with a lock timeout that is longer than all of them together.
async fn sixteen_clients_cross_in_one_local_transaction<DB: TestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let resource = patient(&scene, &scene.bank).await;
    let clients = (0..CLIENTS).map(|client| {
        let statements = match LockOrder::of(client) {
            LockOrder::Forward => [GIVE, TAKE],
            LockOrder::Reversed => [TAKE, GIVE],
        };
        let (handfast, resource) = (&scene.handfast, &resource);
        async move { submit(handfast, async || alone(resource, &statements).await).await }
    });
    Box::pin(join_all(clients.collect::<Vec<_>>())).await;
    assert_crossed(&scene, 1).await;
}

/// Returns a resource whose lock timeout is longer than the whole test, so that only deadlocks are
/// refused.
async fn patient<DB: TestDatabase>(scene: &Scene<DB>, bank: &Bank<DB>) -> AtResource<DB> {
    scene.handfast.at(bank.pool.clone()).lock_timeout(LOCK_TIMEOUT).await.unwrap()
}

async fn assert_crossed<DB: TestDatabase>(scene: &Scene<DB>, rounds: i64) {
    scene.until_finished().await;
    let sums = (scene.bank.cents(1).await, scene.bank.cents(2).await);
    assert_eq!(sums, (1_000 + CLIENTS * rounds, 1_000 - CLIENTS * rounds));
    assert_eq!(scene.bank.undo_rows().await.0, 0);
    scene.assert_finished().await;
}

/// The order in which a client locks the rows.
#[derive(Clone, Copy)]
enum LockOrder {
    Forward,
    Reversed,
}

impl LockOrder {
    fn of(number: i64) -> Self {
        if number % 2 == 0 { Self::Forward } else { Self::Reversed }
    }
}

/// Runs all clients concurrently, each with globals of two branches, in reversed order every other
/// time.
async fn all_cross<DB: TestDatabase>(
    scene: &Scene<DB>,
    steps: impl Fn(LockOrder) -> [(AtResource<DB>, &'static str); 2],
) {
    let clients = (0..CLIENTS).map(|client| {
        let (handfast, steps) = (&scene.handfast, &steps);
        async move {
            for round in 0..ROUNDS {
                let [first, second] = steps(LockOrder::of(client + round));
                let work = async || {
                    alone(&first.0, &[first.1]).await?;
                    alone(&second.0, &[second.1]).await
                };
                submit(handfast, work).await;
            }
        }
    });
    Box::pin(join_all(clients.collect::<Vec<_>>())).await;
    scene.until_finished().await;
}

/// How long the clients may take if their deadlocks are detected one after the other.
const LOCK_TIMEOUT: Duration = Duration::from_secs(300);

/// Runs work as a global until it is committed. Deadlocks are the only allowed errors.
async fn submit(handfast: &Handfast, work: impl AsyncFn() -> Result<(), sqlx::Error>) {
    loop {
        let global = handfast.transaction("cross").timeout(LOCK_TIMEOUT);
        let ended = global.run(async |_| work().await).await;
        match ended {
            Ok(()) => return,
            Err(TransactionError::RolledBack { by: RollbackCause::Application(error), .. })
                if is_deadlock(&error) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// Returns whether an error is a deadlock, reported by the coordinator or the database.
fn is_deadlock(error: &sqlx::Error) -> bool {
    if let Some(ours) = AtError::of(error) {
        return ours.code() == "HF-TC-DEADLOCK";
    }
    let Some(error) = error.as_database_error() else { return false };
    matches!(&*error.code().unwrap_or_default(), "40P01" | "40001")
}

fn full_text(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}
