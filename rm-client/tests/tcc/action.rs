//! The action under test: a debit, which its try reserves, and a trace of every operation.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use handfast::fence::FenceError;
use handfast::{Tcc, TccBranch};
use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, Executor, MySql, Postgres, Sqlite, Transaction};
use tokio::sync::Semaphore;

use crate::at::TestDatabase;

pub(crate) const DEBIT: &str = "debit";

/// How much to take from which account.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Amount {
    pub(crate) account: i64,
    pub(crate) cents: i64,
    pub(crate) note: String,
}

/// Ten cents.
pub(crate) fn ten_from(account: i64) -> Amount {
    Amount { account, cents: 10, note: String::new() }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum DebitError {
    #[error("account {0} holds too little")]
    TooLittle(i64),
    #[error("out of order")]
    OutOfOrder,
    #[error("closed forever")]
    Closed,
    #[error("the try has left {0:?}")]
    Left(Option<String>),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Fence(#[from] FenceError),
}

/// The faults of an action, and a record of its calls.
#[derive(Debug)]
pub(crate) struct Conduct {
    /// How many more confirms or cancels fail.
    pub(crate) failing: AtomicU32,
    /// How many more confirms or cancels panic.
    pub(crate) panicking: AtomicU32,
    /// Whether cancels fail for good.
    pub(crate) is_closed: AtomicBool,
    /// Operations wait here for a permit, in their local transaction.
    pub(crate) gate: Semaphore,
    pub(crate) called: Mutex<Vec<&'static str>>,
}

impl Conduct {
    pub(crate) fn called(&self) -> Vec<&'static str> {
        self.called.lock().unwrap().clone()
    }

    /// Makes operations wait until the gate is opened.
    pub(crate) fn shut(&self) {
        self.gate.forget_permits(Semaphore::MAX_PERMITS);
    }

    pub(crate) fn open(&self) {
        self.gate.add_permits(1_000);
    }
}

impl Default for Conduct {
    fn default() -> Self {
        Self {
            failing: AtomicU32::new(0),
            panicking: AtomicU32::new(0),
            is_closed: AtomicBool::new(false),
            gate: Semaphore::new(1_000),
            called: Mutex::default(),
        }
    }
}

/// Takes one, and returns whether there was one left.
fn one_less(left: &AtomicU32) -> bool {
    let less = |left: u32| left.checked_sub(1);
    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok()
}

/// The action, on a database.
pub(crate) struct Debit<DB> {
    conduct: Arc<Conduct>,
    database: PhantomData<fn() -> DB>,
}

impl<DB: LocalDatabase> Debit<DB> {
    pub(crate) fn new(conduct: &Arc<Conduct>) -> Self {
        Self { conduct: Arc::clone(conduct), database: PhantomData }
    }

    async fn enter(&self, operation: &'static str) {
        self.conduct.called.lock().unwrap().push(operation);
        self.conduct.gate.acquire().await.unwrap().forget();
    }

    /// Runs the second phase: reduces the reservation, and reads the data that the try has stored.
    async fn finish(
        &self,
        operation: &'static str,
        change: &str,
        amount: &Amount,
        branch: &TccBranch,
        local: &mut Transaction<'_, DB>,
    ) -> Result<(), DebitError> {
        self.enter(operation).await;
        let (id, cents) = (amount.account, amount.cents);
        let change = format!("UPDATE account SET held = held - {cents}{change} WHERE id = {id}");
        DB::write(local, change).await?;
        trace::<DB>(local, branch, operation).await?;
        // Fails after the writes, so that a trace shows if they were not rolled back.
        assert!(!one_less(&self.conduct.panicking), "the test makes it panic");
        if one_less(&self.conduct.failing) {
            return Err(DebitError::OutOfOrder);
        }
        let left = branch.left(local).await?;
        let left = left.map(|left| String::from_utf8_lossy(&left).into_owned());
        if left == Some(reservation(amount)) { Ok(()) } else { Err(DebitError::Left(left)) }
    }
}

impl<DB: LocalDatabase> Tcc for Debit<DB> {
    type Database = DB;
    type Input = Amount;
    type Error = DebitError;

    async fn try_(
        &self,
        amount: &Amount,
        branch: &TccBranch,
        local: &mut Transaction<'_, DB>,
    ) -> Result<(), DebitError> {
        self.enter("try").await;
        let (id, cents) = (amount.account, amount.cents);
        trace::<DB>(local, branch, "try").await?;
        let hold = format!(
            "UPDATE account SET cents = cents - {cents}, held = held + {cents} \
             WHERE id = {id} AND cents >= {cents}"
        );
        if DB::write(local, hold).await? == 0 {
            return Err(DebitError::TooLittle(id));
        }
        Ok(branch.leave(local, reservation(amount).as_bytes()).await?)
    }

    async fn confirm(
        &self,
        amount: &Amount,
        branch: &TccBranch,
        local: &mut Transaction<'_, DB>,
    ) -> Result<(), DebitError> {
        self.finish("confirm", "", amount, branch, local).await
    }

    async fn cancel(
        &self,
        amount: &Amount,
        branch: &TccBranch,
        local: &mut Transaction<'_, DB>,
    ) -> Result<(), DebitError> {
        if self.conduct.is_closed.load(Ordering::SeqCst) {
            return Err(DebitError::Closed);
        }
        let back = format!(", cents = cents + {}", amount.cents);
        self.finish("cancel", &back, amount, branch, local).await
    }

    fn is_hopeless(&self, error: &DebitError) -> bool {
        matches!(error, DebitError::Closed)
    }
}

/// The same action with a short time limit for its second phase.
pub(crate) struct HastyDebit<DB>(pub(crate) Debit<DB>);

impl<DB: LocalDatabase> Tcc for HastyDebit<DB> {
    type Database = DB;
    type Input = Amount;
    type Error = DebitError;

    const TIME_LIMIT: Duration = Duration::from_millis(200);

    async fn try_(
        &self,
        amount: &Amount,
        branch: &TccBranch,
        local: &mut Transaction<'_, DB>,
    ) -> Result<(), DebitError> {
        self.0.try_(amount, branch, local).await
    }

    async fn confirm(
        &self,
        amount: &Amount,
        branch: &TccBranch,
        local: &mut Transaction<'_, DB>,
    ) -> Result<(), DebitError> {
        self.0.confirm(amount, branch, local).await
    }

    async fn cancel(
        &self,
        amount: &Amount,
        branch: &TccBranch,
        local: &mut Transaction<'_, DB>,
    ) -> Result<(), DebitError> {
        self.0.cancel(amount, branch, local).await
    }
}

fn reservation(amount: &Amount) -> String {
    format!("reserved {} of {}", amount.cents, amount.account)
}

async fn trace<DB: LocalDatabase>(
    local: &mut Transaction<'_, DB>,
    branch: &TccBranch,
    operation: &str,
) -> Result<(), sqlx::Error> {
    let xid = branch.xid();
    let insert =
        format!("INSERT INTO trace (n, xid, operation) VALUES (1, '{xid}', '{operation}')");
    DB::write(local, insert).await.map(drop)
}

/// A database in whose local transactions a test can write.
pub(crate) trait LocalDatabase: TestDatabase {
    fn write<'l>(
        local: &'l mut Transaction<'_, Self>,
        sql: String,
    ) -> BoxFuture<'l, Result<u64, sqlx::Error>>;
}

macro_rules! local_database {
    ($($database:ty),*) => { $(
        impl LocalDatabase for $database {
            fn write<'l>(
                local: &'l mut Transaction<'_, Self>,
                sql: String,
            ) -> BoxFuture<'l, Result<u64, sqlx::Error>> {
                async move { Ok(local.execute(AssertSqlSafe(sql)).await?.rows_affected()) }.boxed()
            }
        }
    )* };
}

local_database!(Postgres, MySql, Sqlite);
