//! A service that starts before its coordinator, and what its readiness says.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod at;

use std::time::Duration;

use at::bank::Bank;
use at::tc::Tc;
use at::{TestDatabase, on_every_database};
use handfast::{Connect, Error, Handfast};
use handfast_test_services::{until, until_some};

const DEBIT: &str = "UPDATE account SET cents = cents - 10 WHERE id = 1";
const PATIENCE: Duration = Duration::from_secs(30);

on_every_database!(a_service_starts_before_its_coordinator,);

/// Returns a coordinator that is not running, and a client that looks for it again and again.
async fn before_the_start() -> (Tc, Handfast) {
    let mut tc = Tc::start().await;
    tc.kill().await;
    let handfast = eager_to_retry(&tc).lazy().unwrap();
    (tc, handfast)
}

fn eager_to_retry(tc: &Tc) -> Connect {
    Handfast::connect(tc.endpoint()).back_off(Duration::from_millis(1), Duration::from_millis(20))
}

async fn until_not_ready(handfast: &Handfast) -> Error {
    until_some("the connection is missed", async || handfast.ready().err()).await
}

/// Resources are registered and a transaction is begun while no coordinator runs. Once one runs,
/// the transaction commits there, and another is rolled back: its undo is called for.
async fn a_service_starts_before_its_coordinator<DB: TestDatabase>() {
    let (mut tc, handfast) = before_the_start().await;
    assert_eq!(handfast.ready().unwrap_err().code(), "HF-TM-UNREACHABLE");
    let bank = Bank::<DB>::new(&handfast).await;
    let resource = handfast.at(bank.pool.clone()).await.unwrap();
    let (transaction, debited) = (handfast.transaction("first"), resource.clone());
    let first =
        tokio::spawn(transaction.run(async move |_tx| DB::run_alone(&debited, DEBIT).await));
    tc.restart().await;
    first.await.unwrap().unwrap();
    handfast.ready().unwrap();
    let global = handfast.transaction("second").begin().await.unwrap();
    global.scope(DB::run_alone(&resource, DEBIT)).await.unwrap();
    global.rollback("test").await.unwrap();
    assert_eq!(bank.cents(1).await, 990);
}

#[tokio::test]
async fn a_coordinator_that_does_not_come_is_reported_with_the_reason() {
    let mut tc = Tc::start().await;
    tc.kill().await;
    let connect = eager_to_retry(&tc).request_deadline(Duration::from_millis(200));
    let handfast = connect.lazy().unwrap();
    // A busy machine may not have tried within the deadline.
    until("an attempt has failed", async || {
        handfast.ready().is_err_and(|error| error.to_string().contains(&tc.endpoint()))
    })
    .await;
    let error = handfast.transaction("t").begin().await.unwrap_err();
    assert_eq!(error.code(), "HF-TM-UNREACHABLE");
    for error in [error, handfast.ready().unwrap_err()] {
        assert!(error.to_string().contains(&tc.endpoint()), "{error}");
    }
    let waited = handfast.until_ready(Duration::from_millis(50)).await.unwrap_err();
    assert_eq!(waited.code(), "HF-TM-UNREACHABLE");
}

#[tokio::test]
async fn readiness_follows_the_connection() {
    let (mut tc, handfast) = before_the_start().await;
    for _ in 0..2 {
        let error = until_not_ready(&handfast).await;
        assert_eq!(error.code(), "HF-TM-UNREACHABLE");
        tc.restart().await;
        handfast.until_ready(PATIENCE).await.unwrap();
        tc.kill().await;
    }
    let clone = handfast.clone();
    handfast.close().await;
    assert_eq!(clone.ready().unwrap_err().code(), "HF-TM-CLOSED");
    assert_eq!(clone.until_ready(PATIENCE).await.unwrap_err().code(), "HF-TM-CLOSED");
}

#[tokio::test]
async fn wrong_settings_are_reported_at_once() {
    let error = Handfast::connect("ftp://localhost").lazy().unwrap_err();
    assert_eq!(error.code(), "HF-CFG-CLIENT");
}
