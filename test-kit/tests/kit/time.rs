//! Time that a test moves.

use std::time::{Duration, Instant};

use handfast::{TransactionError, Xid};
use handfast_test::{KitError, TestKit};

use super::complaint;
use super::shop::Shop;

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_timeout_passes_for_coordinator_and_client() {
    let begun = Instant::now();
    let kit = TestKit::start().await.unwrap();
    let shop = Shop::open(&kit).await.unwrap();
    let order = shop.handfast.transaction("slow").timeout(MINUTE).run(async |_tx| {
        shop.insert(1, 3).await?;
        // A call of another service that takes too long, on the same clock.
        tokio::time::sleep(MINUTE * 2).await;
        shop.take(3).await
    });
    let advance = async {
        while kit.last_xid().is_none() || shop.books().await.0 == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        kit.advance(MINUTE * 3).await;
    };
    let (ended, ()) = tokio::join!(order, advance);
    assert!(matches!(ended, Err(TransactionError::RolledBack { .. })), "{ended:?}");
    kit.assert_rolled_back(&kit.last_xid().unwrap()).await;
    shop.assert_nothing_left(&kit).await;
    assert_eq!(shop.books().await, (0, 10));
    assert!(begun.elapsed() < MINUTE, "real time");
}

#[tokio::test]
async fn time_that_has_not_passed_ends_nothing() {
    let kit = TestKit::start().await.unwrap();
    let shop = Shop::open(&kit).await.unwrap();
    let tx = shop.handfast.transaction("slow").timeout(MINUTE).begin().await.unwrap();
    tx.xid().scope(shop.insert(1, 3)).await.unwrap();
    kit.advance(MINUTE / 2).await;
    let said = complaint(kit.assert_rolled_back(tx.xid())).await;
    assert!(said.contains("active") && said.contains("TestKit::advance"), "{said}");
    tx.commit().await.unwrap();
    assert_eq!(shop.books().await, (1, 10));
}

/// A client that is idle for an hour keeps its connection: each step leaves room for its signs of
/// life.
#[tokio::test]
async fn an_hour_breaks_no_connection() {
    let kit = TestKit::start().await.unwrap();
    let shop = Shop::open(&kit).await.unwrap();
    let tx = shop.handfast.transaction("long").timeout(120 * MINUTE).begin().await.unwrap();
    tx.xid().scope(shop.insert(1, 3)).await.unwrap();
    // Waits for a row in the coordinator's queue, so that it owes an answer all the time.
    let waits = async {
        let other = shop.handfast.transaction("waits").timeout(120 * MINUTE);
        let other = other.run(async |_tx| {
            let change = "UPDATE orders SET units = 4 WHERE id = 1";
            sqlx::query(change).execute(&shop.orders).await
        });
        other.await
    };
    let time = async {
        while kit.xids().len() < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        kit.advance(60 * MINUTE).await;
        tx.commit().await
    };
    let (waited, committed) = tokio::join!(waits, time);
    committed.unwrap();
    // Its wait for the row ended with the lock timeout.
    assert!(matches!(waited, Err(TransactionError::RolledBack { .. })), "{waited:?}");
    assert!(kit.handfast().ready().is_ok());
    assert_eq!(shop.books().await, (1, 10));
    shop.assert_nothing_left(&kit).await;
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_paused_is_refused() {
    let refused = TestKit::start().await.unwrap_err();
    assert!(matches!(refused, KitError::PausedClock), "{refused}");
    assert_eq!(refused.code(), "HF-TEST-PAUSED-CLOCK");
}

#[tokio::test(flavor = "multi_thread")]
async fn several_threads_can_do_everything_but_move_the_clock() {
    let kit = TestKit::start().await.unwrap();
    let shop = Shop::open(&kit).await.unwrap();
    shop.place(1, 3).await.unwrap();
    kit.assert_committed(&kit.last_xid().unwrap()).await;
    shop.assert_nothing_left(&kit).await;
    let said = std::panic::AssertUnwindSafe(kit.advance(MINUTE));
    let said = futures::FutureExt::catch_unwind(said).await.unwrap_err();
    let said = said.downcast_ref::<&str>().copied().unwrap_or_default();
    assert!(said.contains("current-thread"), "{said}");
}

/// A service under test takes little time: `cargo test -p handfast-test -- --nocapture` shows it.
#[tokio::test]
async fn how_long_a_test_of_a_service_takes() {
    let begun = Instant::now();
    let kit = TestKit::start().await.unwrap();
    let started = begun.elapsed();
    let shop = Shop::open(&kit).await.unwrap();
    let opened = begun.elapsed();
    shop.place(1, 3).await.unwrap();
    let xid: Xid = kit.last_xid().unwrap();
    kit.assert_committed(&xid).await;
    shop.assert_nothing_left(&kit).await;
    let ended = begun.elapsed();
    assert_eq!(shop.books().await, (1, 7));
    kit.advance(MINUTE).await;
    let minute = begun.elapsed() - ended;
    println!("kit {started:?}, two databases {opened:?}, order {ended:?}; a minute {minute:?}");
}
