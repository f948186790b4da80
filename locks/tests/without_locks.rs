//! The recommendations of the page on locks where no lock of this crate is needed: the reaction of
//! the databases to two callers that want the same rows, and the duties of the callers.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "conformance/setup.rs"]
#[expect(dead_code, reason = "it serves the other tests too")]
mod setup;

use std::time::Duration;

use futures::future::join_all;
use sqlx::mysql::{MySqlPool, MySqlPoolOptions};
use sqlx::postgres::{PgPool, PgPoolOptions};
use tokio::sync::Barrier;

use setup::{mysql, postgres};

const WRITERS: usize = 64;
/// How many repetitions a writer of a hot row makes before it gives up: each time another writer
/// has got through.
const REPETITIONS_MAX: usize = WRITERS * 4;
const CONNECTIONS: u32 = 8;

/// The codes of a deadlock on the two databases.
const DEADLOCKS: [&str; 2] = ["40P01", "40001"];

macro_rules! on_a_server {
    ($server:ident, $pool:ty, $options:ty, $url:expr, $snapshot:literal, $id:literal,
     $versioned:literal) => {
        mod $server {
            use super::*;

            async fn pool() -> $pool {
                let pool = <$options>::new().max_connections(CONNECTIONS);
                let pool = pool.connect(&$url.await).await.unwrap();
                let table = "CREATE TABLE stock (id BIGINT PRIMARY KEY, n BIGINT NOT NULL)";
                sqlx::query(table).execute(&pool).await.unwrap();
                sqlx::query("INSERT INTO stock VALUES (1, 0), (2, 0)")
                    .execute(&pool)
                    .await
                    .unwrap();
                pool
            }

            async fn sum(pool: &$pool) -> Vec<i64> {
                let read = sqlx::query_scalar("SELECT n FROM stock ORDER BY id");
                read.fetch_all(pool).await.unwrap()
            }

            /// Locks one row, waits until the other side has locked its own, and locks that.
            async fn both(
                pool: &$pool,
                order: [i64; 2],
                meet: Option<&Barrier>,
            ) -> Result<(), sqlx::Error> {
                let mut local = pool.begin().await?;
                for (at, id) in order.into_iter().enumerate() {
                    let lock = concat!("SELECT n FROM stock WHERE id = ", $id, " FOR UPDATE");
                    let n: i64 = sqlx::query_scalar(lock).bind(id).fetch_one(&mut *local).await?;
                    let write = sqlx::query($versioned).bind(n + 1).bind(id).bind(n);
                    write.execute(&mut *local).await?;
                    if let (0, Some(meet)) = (at, meet) {
                        meet.wait().await;
                    }
                }
                local.commit().await
            }

            /// D3: of two callers that lock rows in opposite order, the database refuses one, which
            /// succeeds when it retries.
            #[tokio::test]
            async fn of_two_in_opposite_order_one_must_retry() {
                let (pool, meet) = (pool().await, Barrier::new(2));
                let (first, second) = tokio::join!(
                    both(&pool, [1, 2], Some(&meet)),
                    both(&pool, [2, 1], Some(&meet))
                );
                let refused = match (first, second) {
                    (Ok(()), Err(refused)) | (Err(refused), Ok(())) => refused,
                    other => panic!("{other:?}"),
                };
                let code = refused.as_database_error().and_then(|error| error.code());
                assert!(DEADLOCKS.contains(&&*code.unwrap()), "{refused}");
                both(&pool, [2, 1], None).await.unwrap();
                assert_eq!(sum(&pool).await, [2, 2]);
            }

            /// D4: writers of one row that compare what they have read lose no update, and each
            /// gets through after a limited number of repetitions.
            #[tokio::test]
            async fn comparing_writers_get_through() {
                let pool = pool().await;
                let writers = (0..WRITERS).map(|_| {
                    let pool = pool.clone();
                    tokio::spawn(async move { increment(&pool).await })
                });
                let repetitions = join_all(writers).await.into_iter().map(Result::unwrap);
                assert!(repetitions.max().unwrap() <= REPETITIONS_MAX);
                assert_eq!(sum(&pool).await, [i64::try_from(WRITERS).unwrap(), 0]);
            }

            /// D4: a value that was read where later writes are not visible yet, as on a replica
            /// that is behind, overwrites nothing. A snapshot from before the writes stands for the
            /// replica.
            #[tokio::test]
            async fn a_stale_read_overwrites_nothing() {
                let pool = pool().await;
                let read = concat!("SELECT n FROM stock WHERE id = ", $id);
                let mut behind = pool.begin_with($snapshot).await.unwrap();
                let look = sqlx::query_scalar(read).bind(1_i64);
                let n: i64 = look.fetch_one(&mut *behind).await.unwrap();
                increment(&pool).await;
                let look = sqlx::query_scalar(read).bind(1_i64);
                let same: i64 = look.fetch_one(&mut *behind).await.unwrap();
                assert_eq!(same, n, "it is behind");
                let write = sqlx::query($versioned).bind(n + 1).bind(1_i64).bind(n);
                assert_eq!(write.execute(&pool).await.unwrap().rows_affected(), 0);
                assert_eq!(sum(&pool).await, [1, 0]);
            }

            /// Increments the value, and repeats with a growing random pause until no other writer
            /// has come between.
            async fn increment(pool: &$pool) -> usize {
                let read = concat!("SELECT n FROM stock WHERE id = ", $id);
                for repetition in 0.. {
                    let n: i64 =
                        sqlx::query_scalar(read).bind(1_i64).fetch_one(pool).await.unwrap();
                    let write = sqlx::query($versioned).bind(n + 1).bind(1_i64).bind(n);
                    if write.execute(pool).await.unwrap().rows_affected() == 1 {
                        return repetition;
                    }
                    let most = u64::try_from(repetition.min(10)).unwrap() + 1;
                    // The pause is part of what the page recommends: no event ends it.
                    tokio::time::sleep(Duration::from_millis(rand::random_range(0..=most))).await;
                }
                unreachable!("numbers do not end")
            }
        }
    };
}

on_a_server!(
    on_postgres,
    PgPool,
    PgPoolOptions,
    postgres(),
    "BEGIN ISOLATION LEVEL REPEATABLE READ",
    "$1",
    "UPDATE stock SET n = $1 WHERE id = $2 AND n = $3"
);
on_a_server!(
    on_mysql,
    MySqlPool,
    MySqlPoolOptions,
    mysql(),
    "START TRANSACTION WITH CONSISTENT SNAPSHOT",
    "?",
    "UPDATE stock SET n = ? WHERE id = ? AND n = ?"
);
