//! Connections that stay with a resource between its branches.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures::FutureExt;
use handfast::{AtResource, TransactionError};
use handfast_test_services::until;
use sqlx::pool::PoolOptions;
use sqlx::{AssertSqlSafe, Executor, MySql, Pool, Postgres, SqlSafeStr};

use crate::at::{Stage, TestDatabase, on_every_database};

on_every_database!(
    a_kept_connection_is_used_again,
    others_get_a_connection_that_is_not_used,
    a_pool_can_be_closed,
);

const ACCOUNT: &[&str] = &[
    "CREATE TABLE account (id BIGINT NOT NULL PRIMARY KEY, n INT NOT NULL)",
    "INSERT INTO account VALUES (1, 0)",
];
const CHANGE: &str = "UPDATE account SET n = n + 1 WHERE id = 1";

/// A pool with one connection, and how often it was taken of it.
async fn single<DB: TestDatabase>(stage: &Stage<DB>) -> (Pool<DB>, Arc<AtomicU32>) {
    let taken = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&taken);
    let options = (*stage.pool.connect_options()).clone();
    let one = PoolOptions::<DB>::new().max_connections(1).before_acquire(move |_, _| {
        count.fetch_add(1, Ordering::SeqCst);
        async { Ok(true) }.boxed()
    });
    (one.connect_with(options).await.unwrap(), taken)
}

/// How a branch is made.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// A single statement, which decides its global.
    Last,
    /// A local transaction.
    Begun,
}

/// Runs a global of one statement.
async fn change<DB: TestDatabase>(
    stage: &Stage<DB>,
    resource: &AtResource<DB>,
    form: Form,
) -> Result<(), TransactionError<sqlx::Error>> {
    let changed = stage.handfast.transaction("change").run(async |_tx| match form {
        Form::Last => DB::run_alone(&resource.last(), CHANGE).await.map(drop),
        Form::Begun => {
            let mut local = resource.begin().await?;
            DB::run(&mut local, CHANGE).await?;
            local.commit().await
        }
    });
    changed.await
}

/// Whether a branch takes a connection of the pool.
async fn takes_one<DB: TestDatabase>(
    stage: &Stage<DB>,
    resource: &AtResource<DB>,
    taken: &AtomicU32,
    form: Form,
) -> bool {
    let before = taken.load(Ordering::SeqCst);
    change(stage, resource, form).await.unwrap();
    taken.load(Ordering::SeqCst) > before
}

async fn a_kept_connection_is_used_again<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(ACCOUNT).await;
    let (pool, taken) = single(&stage).await;
    let resource = stage.handfast.at(pool.clone()).await.unwrap();
    let keeping = stage.handfast.at(pool).keep_connections(1).await.unwrap();
    for form in [Form::Last, Form::Begun] {
        for _ in 0..10 {
            let takes = takes_one(&stage, &resource, &taken, form).await;
            assert!(takes, "{form:?}: none is kept unless asked for");
        }
        // Phase two takes the connection now and then, and one that is not used for a while goes
        // back.
        until("a branch is spared the way to the pool", async || {
            !takes_one(&stage, &keeping, &taken, form).await
        })
        .await;
    }
}

/// Without this, another user of the only connection would wait for the next branch.
async fn others_get_a_connection_that_is_not_used<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(ACCOUNT).await;
    let (pool, _) = single(&stage).await;
    let resource = stage.handfast.at(pool.clone()).keep_connections(1).await.unwrap();
    for count in 1..=5 {
        change(&stage, &resource, Form::Begun).await.unwrap();
        // Waits for 30 s at most.
        let found = DB::raw_rows(&pool, "SELECT CAST(n AS CHAR(9)) FROM account").await.unwrap();
        assert_eq!(found[0][0].as_deref().map(str::trim), Some(count.to_string().as_str()));
    }
}

#[tokio::test]
async fn a_connection_to_postgres_that_is_lost_while_it_is_kept_is_replaced() {
    a_lost_connection_is_replaced::<Postgres>().await;
}

#[tokio::test]
async fn a_connection_to_mariadb_that_is_lost_while_it_is_kept_is_replaced() {
    a_lost_connection_is_replaced::<MySql>().await;
}

async fn a_lost_connection_is_replaced<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(ACCOUNT).await;
    let (pool, _) = single(&stage).await;
    let resource = stage.handfast.at(pool).keep_connections(1).await.unwrap();
    change(&stage, &resource, Form::Begun).await.unwrap();
    let others = match DB::NAME_IN_TESTS {
        "postgres" => {
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE datname = current_database() AND pid <> pg_backend_pid()"
        }
        _ => {
            "BEGIN NOT ATOMIC FOR other IN (SELECT id FROM information_schema.processlist \
             WHERE db = DATABASE() AND id <> CONNECTION_ID()) DO \
             EXECUTE IMMEDIATE CONCAT('KILL ', other.id); END FOR; END"
        }
    };
    change(&stage, &resource, Form::Begun).await.unwrap();
    DB::raw(&stage.pool, others).await.unwrap();
    // The branch that meets it may fail. Its global is not committed then, or says so.
    let failed = AtomicU32::new(0);
    until("a branch commits", async || {
        let is_changed = change(&stage, &resource, Form::Begun).await.is_ok();
        failed.fetch_add(u32::from(!is_changed), Ordering::SeqCst);
        is_changed
    })
    .await;
    assert!(failed.into_inner() <= 1, "the one that has met it gives it up");
}

/// Regression: such a connection was kept, and the next branch took the answer to the call that was
/// cut off for its own. A statement without an effect passed for one that had changed its row.
#[tokio::test]
async fn a_connection_to_mariadb_whose_call_was_cut_off_is_not_kept() {
    let stage = Stage::<MySql>::new(ACCOUNT).await;
    let (pool, _) = single(&stage).await;
    let resource = stage.handfast.at(pool).keep_connections(1).await.unwrap();
    let never = "UPDATE account SET n = n + 1 WHERE id = 1 AND n < 0";
    MySql::run_alone(&resource, never).await.unwrap();
    for round in 0..10 {
        let cut_off = stage.begin().await;
        let prepare = async {
            let mut local = resource.begin().await.unwrap();
            let text = AssertSqlSafe(format!("SELECT {round}")).into_sql_str();
            // Sent, and hardly ever answered at once.
            let _ = Executor::prepare(&mut local, text).now_or_never();
        };
        cut_off.scope(prepare).await;
        let changed = stage
            .handfast
            .transaction("change")
            .run(async |_tx| MySql::run_alone(&resource.last(), never).await);
        assert_eq!(changed.await.unwrap(), 0);
    }
}

async fn a_pool_can_be_closed<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(ACCOUNT).await;
    let (pool, _) = single(&stage).await;
    let resource = stage.handfast.at(pool.clone()).keep_connections(1).await.unwrap();
    change(&stage, &resource, Form::Begun).await.unwrap();
    change(&stage, &resource, Form::Begun).await.unwrap();
    pool.close().await;
    assert_eq!(pool.size(), 0);
    change(&stage, &resource, Form::Begun).await.unwrap_err();
}
