//! Events that are received once: repeated deliveries, failing effects, concurrent deliveries.

use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use handfast::outbox::{Consumer, Event, OutboxError, Received, purge_inbox};
use sqlx::{AssertSqlSafe, Executor, MySql, Postgres, Sqlite, Transaction};
use tokio::sync::oneshot;

use crate::at::{TestDatabase, on_every_database};
use crate::scene::{Scene, event};

on_every_database!(
    an_effect_happens_once,
    concurrent_deliveries_have_one_effect,
    an_effect_that_fails_is_not_remembered,
    a_purged_event_is_forgotten,
);

/// The operations that an effect needs from a database.
pub(crate) trait Effect: TestDatabase {
    fn write<'l>(
        local: &'l mut Transaction<'_, Self>,
        sql: &'l str,
    ) -> BoxFuture<'l, Result<(), OutboxError>>;
}

macro_rules! effect {
    ($($db:ty),*) => {$(
        impl Effect for $db {
            fn write<'l>(
                local: &'l mut Transaction<'_, Self>,
                sql: &'l str,
            ) -> BoxFuture<'l, Result<(), OutboxError>> {
                async move {
                    local.execute(AssertSqlSafe(sql.to_owned())).await?;
                    Ok(())
                }
                .boxed()
            }
        }
    )*};
}

effect!(Postgres, MySql, Sqlite);

const TAKE: &str = "UPDATE account SET cents = cents - 1 WHERE id = 1";

async fn receive<DB: Effect>(
    consumer: &Consumer<DB>,
    event: &Event,
) -> Result<Received<()>, OutboxError> {
    consumer.receive(event, |local, _| DB::write(local, TAKE)).await
}

async fn cents<DB: Effect>(scene: &Scene<DB>) -> String {
    scene.stage.value("SELECT cents FROM account WHERE id = 1").await.unwrap()
}

async fn an_effect_happens_once<DB: Effect>() {
    let scene = Scene::<DB>::new().await;
    let payments = Consumer::new(scene.pool().clone(), "payments");
    let stock = Consumer::new(scene.pool().clone(), "stock");
    let event = event("1", "a");
    assert_eq!(receive(&payments, &event).await.unwrap(), Received::Done(()));
    assert_eq!(receive(&payments, &event).await.unwrap(), Received::Before);
    assert_eq!(receive(&payments, &event).await.unwrap(), Received::Before);
    assert_eq!(receive(&stock, &event).await.unwrap(), Received::Done(()), "another consumer");
    assert_eq!(cents(&scene).await, "98");
    let deliveries = "SELECT MAX(deliveries) FROM event_inbox";
    assert_eq!(scene.stage.value(deliveries).await.as_deref(), Some("3"));
}

async fn concurrent_deliveries_have_one_effect<DB: Effect>() {
    let scene = Scene::<DB>::new().await;
    let payments = Consumer::new(scene.pool().clone(), "payments");
    for round in 0..5 {
        let event = event("1", "a");
        let received = join_all((0..6).map(|_| receive(&payments, &event))).await;
        let done = received.iter().filter(|end| *end.as_ref().unwrap() == Received::Done(()));
        assert_eq!(done.count(), 1, "round {round}");
    }
    assert_eq!(cents(&scene).await, "95");
}

async fn an_effect_that_fails_is_not_remembered<DB: Effect>() {
    let scene = Scene::<DB>::new().await;
    let payments = Consumer::new(scene.pool().clone(), "payments");
    let event = event("1", "a");
    let failed = payments.receive(&event, |local, _| {
        async {
            DB::write(local, TAKE).await?;
            Err::<(), _>(OutboxError::Malformed { reason: "on purpose".to_owned() })
        }
        .boxed()
    });
    assert_eq!(failed.await.unwrap_err().code(), "HF-OUTBOX-MALFORMED");
    assert_eq!(cents(&scene).await, "100");
    assert_eq!(receive(&payments, &event).await.unwrap(), Received::Done(()));
    assert_eq!(cents(&scene).await, "99");
}

async fn a_purged_event_is_forgotten<DB: Effect>() {
    let scene = Scene::<DB>::new().await;
    let payments = Consumer::new(scene.pool().clone(), "payments");
    let event = event("1", "a");
    receive(&payments, &event).await.unwrap();
    let day = Duration::from_secs(86_400);
    assert_eq!(purge_inbox(scene.pool(), day, 10).await.unwrap(), 0);
    assert_eq!(purge_inbox(scene.pool(), Duration::ZERO, 10).await.unwrap(), 1);
    assert_eq!(receive(&payments, &event).await.unwrap(), Received::Done(()));
}

/// A deadlock rolls the whole local transaction back on MySQL. An effect that went on after it ran
/// outside of a local transaction, COMMIT of nothing succeeded, and the event counted as received
/// without a row in the inbox.
#[tokio::test]
async fn an_effect_that_swallows_a_deadlock_is_not_done() {
    let scene = Scene::<MySql>::new().await;
    let (locked, is_locked) = oneshot::channel::<()>();
    let mut rival = scene.pool().begin().await.unwrap();
    // The server ends the transaction that has changed fewer rows.
    for id in 3..40 {
        let insert = format!("INSERT INTO account VALUES ({id}, 0)");
        MySql::write(&mut rival, &insert).await.unwrap();
    }
    MySql::write(&mut rival, "UPDATE account SET cents = 0 WHERE id = 2").await.unwrap();
    let rival = tokio::spawn(async move {
        drop(is_locked.await);
        MySql::write(&mut rival, "UPDATE account SET cents = 0 WHERE id = 1").await.unwrap();
        rival.rollback().await.unwrap();
    });
    let payments = Consumer::new(scene.pool().clone(), "payments");
    let event = event("1", "a");
    let mut locked = Some(locked);
    let received = payments.receive(&event, |local, _| {
        let locked = locked.take();
        async move {
            MySql::write(local, TAKE).await?;
            drop(locked);
            let swallowed = MySql::write(local, "UPDATE account SET cents = 1 WHERE id = 2").await;
            assert_eq!(swallowed.unwrap_err().code(), "HF-OUTBOX-CONFLICT");
            Ok::<_, OutboxError>(())
        }
        .boxed()
    });
    assert_eq!(received.await.unwrap_err().code(), "HF-OUTBOX-ENDED-EARLY");
    rival.await.unwrap();
    assert_eq!(cents(&scene).await, "100");
    assert_eq!(receive(&payments, &event).await.unwrap(), Received::Done(()));
    assert_eq!(cents(&scene).await, "99");
}
