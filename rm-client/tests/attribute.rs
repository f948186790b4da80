//! The attribute `#[handfast::transaction]` against a real coordinator.

#![expect(
    clippy::unwrap_used,
    reason = "in a test a panic is the report, also in shared functions"
)]

mod at;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use at::Stage;
use handfast::{AtResource, Error, Handfast, Retry, TransactionError, current_xid};
use handfast_core::{Coordinator, GlobalFilter, PageBounds};
use sqlx::Sqlite;

const ACCOUNT: &[&str] = &[
    "CREATE TABLE account (id INT NOT NULL PRIMARY KEY, amount BIGINT NOT NULL)",
    "INSERT INTO account VALUES (1, 0)",
];
const ADD: &str = "UPDATE account SET amount = amount + ? WHERE id = 1";

#[handfast::transaction(name = "add", timeout = "30s", labels(amount = amount, "by-whom" = "shop"))]
async fn add(
    handfast: &Handfast,
    account: &AtResource<Sqlite>,
    amount: i64,
) -> Result<u64, TransactionError<sqlx::Error>> {
    assert!(current_xid().is_some());
    let done = sqlx::query(ADD).bind(amount).execute(account).await?;
    if amount < 0 {
        return Err(sqlx::Error::RowNotFound);
    }
    Ok(done.rows_affected())
}

/// The error of the service, which an error of the transaction becomes too.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("there is too little")]
    TooLittle,
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error("{0}")]
    Transaction(String),
}

impl From<TransactionError<Self>> for Refusal {
    fn from(error: TransactionError<Self>) -> Self {
        let text = error.to_string();
        error.into_application().unwrap_or(Self::Transaction(text))
    }
}

struct Bank {
    handfast: Handfast,
    account: AtResource<Sqlite>,
    attempts: AtomicU32,
}

impl Bank {
    #[handfast::transaction]
    async fn take(&self, amount: i64) -> Result<i64, Refusal> {
        sqlx::query(ADD).bind(-amount).execute(&self.account).await?;
        let left: i64 =
            sqlx::query_scalar("SELECT amount FROM account").fetch_one(&self.account).await?;
        if left < 0 { Err(Refusal::TooLittle) } else { Ok(left) }
    }

    #[handfast::transaction(retry = Retry::new().back_off(SHORT, SHORT), tx = tx)]
    async fn insist(&self, amount: i64) -> Result<(), TransactionError<sqlx::Error>> {
        assert_eq!(tx.xid(), current_xid().as_ref());
        self.attempts.fetch_add(1, Ordering::Relaxed);
        sqlx::query(ADD).bind(amount).execute(&self.account).await?;
        Ok(())
    }

    #[handfast::transaction(on = self.handfast, propagation = "mandatory", read_committed)]
    async fn only_within(&self) -> anyhow::Result<String> {
        Ok(current_xid().map(|xid| xid.to_string()).unwrap_or_default())
    }
}

const SHORT: Duration = Duration::from_millis(1);

async fn bank(stage: &Stage<Sqlite>) -> Bank {
    let account = stage.handfast.at(stage.pool.clone()).lock_timeout(SHORT).await.unwrap();
    Bank { handfast: stage.handfast.clone(), account, attempts: AtomicU32::new(0) }
}

async fn amount(stage: &Stage<Sqlite>) -> String {
    stage.value("SELECT amount FROM account").await.unwrap()
}

#[tokio::test]
async fn ok_commits_and_err_rolls_back() {
    let stage = Stage::<Sqlite>::new(ACCOUNT).await;
    assert_eq!(add(&stage.handfast, &stage.resource, 7).await.unwrap(), 1);
    let error = add(&stage.handfast, &stage.resource, -5).await.unwrap_err();
    assert_eq!(error.code(), "HF-TM-ROLLED-BACK");
    assert!(matches!(error.application(), Some(sqlx::Error::RowNotFound)), "{error:?}");
    assert_eq!(amount(&stage).await, "7");
}

#[tokio::test]
async fn labels_are_those_of_the_arguments() {
    let stage = Stage::<Sqlite>::new(ACCOUNT).await;
    add(&stage.handfast, &stage.resource, 7).await.unwrap();
    let labels = |coordinator: &Coordinator| {
        let found = coordinator.globals(&GlobalFilter::default(), None, PageBounds::NONE).items;
        let labels = found.iter().flat_map(|global| global.record.labels.iter());
        labels.map(|label| format!("{}={}", label.name, label.value)).collect::<Vec<_>>()
    };
    let labels = stage.tc.engine().view(labels).await.unwrap();
    assert_eq!(labels, ["amount=7", "by-whom=shop"]);
}

/// Handlers of web servers and spawned tasks move between threads.
#[tokio::test]
async fn it_can_be_spawned() {
    let stage = Stage::<Sqlite>::new(ACCOUNT).await;
    let (handfast, account) = (stage.handfast.clone(), stage.resource.clone());
    let spawned = tokio::spawn(async move { add(&handfast, &account, 3).await });
    spawned.await.unwrap().unwrap();
    let insisting = bank(&stage).await;
    tokio::spawn(async move { insisting.insist(4).await }).await.unwrap().unwrap();
    assert_eq!(amount(&stage).await, "7");
}

#[tokio::test]
async fn an_error_of_the_service_stays_what_it_is() {
    let stage = Stage::<Sqlite>::new(ACCOUNT).await;
    let bank = bank(&stage).await;
    assert!(matches!(bank.take(5).await, Err(Refusal::TooLittle)));
    assert_eq!(bank.take(-5).await.unwrap(), 5);
    stage.handfast.close().await;
    let error = bank.take(-5).await.unwrap_err();
    assert!(matches!(&error, Refusal::Transaction(text) if text.contains("HF-TM-CLOSED")));
}

#[tokio::test]
async fn a_row_that_is_locked_is_tried_again() {
    let stage = Stage::<Sqlite>::new(ACCOUNT).await;
    let bank = bank(&stage).await;
    let holder = stage.begin().await;
    stage.branch(&holder, &["UPDATE account SET amount = 9"]).await;
    let error = bank.insist(1).await.unwrap_err();
    assert!(handfast::is_transient(error.application().unwrap()), "{error}");
    assert_eq!(bank.attempts.load(Ordering::Relaxed), 3);
    stage.roll_back(holder).await;
    bank.insist(1).await.unwrap();
    assert_eq!(amount(&stage).await, "1");
}

#[tokio::test]
async fn settings_are_those_of_the_builder() {
    let stage = Stage::<Sqlite>::new(ACCOUNT).await;
    let bank = bank(&stage).await;
    let outside = bank.only_within().await.unwrap_err();
    let refused = outside.downcast_ref::<TransactionError<anyhow::Error>>().unwrap();
    assert!(matches!(refused, TransactionError::NotBegun(Error::TransactionRequired)));
    let global = stage.begin().await;
    let within = global.scope(bank.only_within()).await.unwrap();
    assert_eq!(within, global.xid().to_string());
    stage.roll_back(global).await;
}
