//! Fencing at the resource: claims, and holders that are paused anywhere.

use std::fmt;

use handfast_locks::fencing::{ClaimDatabase, FencedKey, FencedTable, claim};
use handfast_locks::{FencingToken, LockError, LockName};
use sqlx::mysql::MySqlPool;
use sqlx::postgres::PgPool;
use sqlx::sqlite::SqlitePool;

use crate::setup::{fresh, mysql, postgres, redis_connection, server, sqlite};

/// The number of pauses on each resource. `HANDFAST_TEST_PAUSES` asks for more.
const PAUSES: u32 = 300;

/// A resource with a number that two holders of a lock increment, with a read and a write.
trait Resource: fmt::Debug {
    /// Installs a token if `claims` is set, and reads.
    async fn read(&self, fencing_token: FencingToken, claims: bool) -> Result<i64, LockError>;
    /// Writes, unless a later token was seen.
    async fn write(&self, fencing_token: FencingToken, number: i64) -> Result<(), LockError>;
}

/// Counts lost updates. The old holder is paused before or after its read, the next one runs
/// meanwhile, then the old one goes on. An update is lost if a write succeeded and the number does
/// not show it.
async fn lost_updates(resource: &impl Resource, claims: bool) -> u32 {
    let pauses = std::env::var("HANDFAST_TEST_PAUSES").ok().and_then(|text| text.parse().ok());
    let mut lost = 0;
    for pause in 0..pauses.unwrap_or(PAUSES) {
        let (old, new) = (
            FencingToken::new(i64::from(pause) * 2 + 1),
            FencingToken::new(i64::from(pause) * 2 + 2),
        );
        let start = resource.read(old, claims).await.unwrap();
        let mut written = 0;
        // The old holder goes on before the next one comes, between the next one's read and its
        // write, or after its write.
        let place = pause % 3;
        let resume = async || resource.write(old, start + 1).await;
        if place == 0 {
            written += i64::from(resume().await.is_ok());
        }
        let read = resource.read(new, claims).await.unwrap();
        if place == 1 {
            written += i64::from(resume().await.is_ok());
        }
        written += i64::from(resource.write(new, read + 1).await.is_ok());
        if place == 2 {
            written += i64::from(resume().await.is_ok());
        }
        let end = resource.read(new, claims).await.unwrap();
        lost += u32::from(end != start + written);
    }
    lost
}

async fn no_update_is_lost_with_a_claim(resource: &impl Resource) {
    assert_eq!(lost_updates(resource, true).await, 0, "{resource:?}");
}

async fn some_are_without(resource: &impl Resource) {
    assert!(lost_updates(resource, false).await > 0, "{resource:?}");
}

macro_rules! row_resource {
    ($name:ident, $pool:ty, $id:literal, $key:literal, $write:literal, $is_numbered:literal) => {
        /// The token in a column of the row.
        #[derive(Debug)]
        struct $name($pool);

        impl $name {
            async fn made(pool: $pool) -> Self {
                let table = "CREATE TABLE stock (id INT NOT NULL PRIMARY KEY, n BIGINT NOT NULL, \
                    fence BIGINT NOT NULL)";
                sqlx::query(table).execute(&pool).await.unwrap();
                sqlx::query("INSERT INTO stock VALUES (7, 0, 0)").execute(&pool).await.unwrap();
                Self(pool)
            }

            fn table() -> FencedTable {
                FencedTable::new("stock", "id", "fence").unwrap()
            }
        }

        impl Resource for $name {
            async fn read(
                &self,
                fencing_token: FencingToken,
                claims: bool,
            ) -> Result<i64, LockError> {
                if claims {
                    let text = sqlx::AssertSqlSafe(Self::table().claim_text($id, $key));
                    let mut query = sqlx::query(text).bind(fencing_token.number()).bind(7);
                    if !$is_numbered {
                        query = query.bind(fencing_token.number());
                    }
                    let rows = query.execute(&self.0).await.unwrap().rows_affected();
                    Self::table().check_token(fencing_token, rows)?;
                }
                let read = sqlx::query_scalar("SELECT n FROM stock WHERE id = 7");
                Ok(read.fetch_one(&self.0).await.unwrap())
            }

            async fn write(
                &self,
                fencing_token: FencingToken,
                number: i64,
            ) -> Result<(), LockError> {
                let mut query = sqlx::query($write).bind(fencing_token.number()).bind(number);
                if !$is_numbered {
                    query = query.bind(fencing_token.number());
                }
                let rows = query.execute(&self.0).await.unwrap().rows_affected();
                Self::table().check_token(fencing_token, rows)
            }
        }
    };
}

row_resource!(
    PostgresRow,
    PgPool,
    "$1",
    "$2",
    "UPDATE stock SET fence = $1, n = $2 WHERE id = 7 AND fence <= $1",
    true
);
row_resource!(
    MySqlRow,
    MySqlPool,
    "?",
    "?",
    "UPDATE stock SET fence = ?, n = ? WHERE id = 7 AND fence <= ?",
    false
);
row_resource!(
    SqliteRow,
    SqlitePool,
    "?",
    "?",
    "UPDATE stock SET fence = ?, n = ? WHERE id = 7 AND fence <= ?",
    false
);

#[derive(Debug)]
struct RedisKey(String, redis::aio::MultiplexedConnection);

impl Resource for RedisKey {
    async fn read(&self, fencing_token: FencingToken, claims: bool) -> Result<i64, LockError> {
        let mut connection = self.1.clone();
        let value = if claims {
            FencedKey::new(&self.0).claim(&mut connection, fencing_token).await?
        } else {
            redis::cmd("GET").arg(&self.0).query_async(&mut connection).await.unwrap()
        };
        let value = value.map(|value| String::from_utf8(value).unwrap().parse().unwrap());
        Ok(value.unwrap_or_default())
    }

    async fn write(&self, fencing_token: FencingToken, number: i64) -> Result<(), LockError> {
        let mut connection = self.1.clone();
        let value = number.to_string();
        FencedKey::new(&self.0).set(&mut connection, fencing_token, value.as_bytes()).await
    }
}

#[tokio::test]
async fn no_pause_loses_an_update_of_a_row_on_postgres() {
    let pool = PgPool::connect(&postgres().await).await.unwrap();
    let row = PostgresRow::made(pool).await;
    no_update_is_lost_with_a_claim(&row).await;
    sqlx::query("UPDATE stock SET fence = 0").execute(&row.0).await.unwrap();
    some_are_without(&row).await;
}

#[tokio::test]
async fn no_pause_loses_an_update_of_a_row_on_mysql() {
    let pool = MySqlPool::connect(&mysql().await).await.unwrap();
    let row = MySqlRow::made(pool).await;
    no_update_is_lost_with_a_claim(&row).await;
    sqlx::query("UPDATE stock SET fence = 0").execute(&row.0).await.unwrap();
    some_are_without(&row).await;
}

#[tokio::test]
async fn no_pause_loses_an_update_of_a_row_on_sqlite() {
    let (url, _folder) = sqlite().await;
    let row = SqliteRow::made(SqlitePool::connect(&url).await.unwrap()).await;
    no_update_is_lost_with_a_claim(&row).await;
    sqlx::query("UPDATE stock SET fence = 0").execute(&row.0).await.unwrap();
    some_are_without(&row).await;
}

#[tokio::test]
async fn no_pause_loses_an_update_on_redis() {
    let connection = redis_connection(&server("HANDFAST_TEST_REDIS")).await;
    no_update_is_lost_with_a_claim(&RedisKey(fresh(), connection.clone())).await;
    some_are_without(&RedisKey(fresh(), connection)).await;
}

/// The row per lock: a larger or equal token passes, a smaller one does not, and a transaction that
/// is rolled back has claimed nothing.
async fn claims_are_ordered<DB: ClaimDatabase>(pool: &sqlx::Pool<DB>) {
    let name = LockName::new(fresh()).unwrap();
    for (number, passes) in [(33, true), (33, true), (34, true), (33, false), (34, true)] {
        let mut local = pool.begin().await.unwrap();
        let claimed = claim(&mut local, &name, FencingToken::new(number)).await;
        assert_eq!(claimed.is_ok(), passes, "{number}: {claimed:?}");
        if !passes {
            assert!(matches!(claimed, Err(LockError::Stale { .. })), "{claimed:?}");
        }
        local.commit().await.unwrap();
    }
    let mut local = pool.begin().await.unwrap();
    claim(&mut local, &name, FencingToken::new(99)).await.unwrap();
    local.rollback().await.unwrap();
    let mut local = pool.begin().await.unwrap();
    claim(&mut local, &name, FencingToken::new(35)).await.unwrap();
}

#[tokio::test]
async fn claims_are_ordered_on_every_database() {
    claims_are_ordered(&PgPool::connect(&postgres().await).await.unwrap()).await;
    claims_are_ordered(&MySqlPool::connect(&mysql().await).await.unwrap()).await;
    let (url, _folder) = sqlite().await;
    claims_are_ordered(&SqlitePool::connect(&url).await.unwrap()).await;
}

#[tokio::test]
async fn a_guard_that_lost_its_lock_claims_nothing() {
    let (url, _folder) = sqlite().await;
    let pool = SqlitePool::connect(&url).await.unwrap();
    let setup = crate::TestBackend::new(crate::Kind::Memory).await;
    let guard = setup.locks().lock(&fresh()).await.unwrap();
    let mut local = pool.begin().await.unwrap();
    guard.claim(&mut local).await.unwrap();
    local.commit().await.unwrap();
    let locks = setup.settings().hold_max(std::time::Duration::from_millis(200)).start().unwrap();
    let guard = locks.lock(&fresh()).await.unwrap();
    guard.lost().await;
    let mut local = pool.begin().await.unwrap();
    let claimed = guard.claim(&mut local).await;
    assert!(matches!(claimed, Err(LockError::Lost { .. })), "{claimed:?}");
}
