//! PostgreSQL. Wake-ups come by NOTIFY, to the client of the next waiter and to no other.

use std::convert::Infallible;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Executor, PgConnection, PgPool, Postgres, Row};
use tokio::sync::{Semaphore, mpsc};

use super::backend::{ASKING_CONNECTIONS, CONNECTIONS, PooledCall, explain, sql_backend};
use super::barred::mark;
use super::notifications::Notifications;
use super::shares::{LockedRow, PermitDecision, SHARED, sql_shares};
use crate::backend::{
    AcquireRequest, AcquireResponse, LockRef, QueueMode, ReleaseRequest, ReleaseResponse, WakeUp,
};
use crate::error::{BackendError, LockError};
use crate::name::FencingToken;
use crate::observed_holder::ObservedHolder;

/// Locks in a table of a PostgreSQL database.
#[derive(Debug)]
pub struct PostgresLocks {
    pool: PgPool,
    asking: Semaphore,
    notifications: Notifications,
}

impl PostgresLocks {
    /// Connects by URL, and checks that the tables are there.
    ///
    /// # Errors
    /// [`LockError::Refused`] with the database's message.
    pub async fn connect(url: &str) -> Result<Self, LockError> {
        let options = url.parse().map_err(|error| LockError::Refused { source: explain(error) })?;
        Self::connect_with(options).await
    }

    /// Connects with options, and checks that the tables are there. Do not connect through a pooler
    /// that gives each transaction another connection: wake-ups would be lost.
    ///
    /// # Errors
    /// [`LockError::Refused`] with the database's message.
    pub async fn connect_with(options: PgConnectOptions) -> Result<Self, LockError> {
        let refused = |error| LockError::Refused { source: explain(error) };
        let pool =
            PgPoolOptions::new().max_connections(CONNECTIONS).after_connect(|connection, _| {
                Box::pin(async move { connection.execute(LIMITS).await.map(drop) })
            });
        let pool = pool.connect_with(options).await.map_err(refused)?;
        for check in [CHECK, CHECK_SHARES] {
            sqlx::query(check).fetch_optional(&pool).await.map_err(refused)?;
        }
        let asking = Semaphore::new(ASKING_CONNECTIONS);
        Ok(Self { pool, asking, notifications: Notifications::default() })
    }
}

sql_backend!(PostgresLocks, Postgres, "postgres", None);
sql_shares!(PostgresLocks, Postgres);

/// A row that stays locked is not waited for, and a process that stops in the midst of a
/// transaction keeps no row locked.
const LIMITS: &str = "SET lock_timeout = '1s'; SET idle_in_transaction_session_timeout = '5s'";

const CHECK: &str = "SELECT owner, label, fence, expires_at, barred, alive_until, seq \
    FROM distributed_lock NATURAL JOIN distributed_lock_waiter LIMIT 1";
/// The same check for the table of permits.
const CHECK_SHARES: &str =
    "SELECT name, token, label, parts, expires_at FROM distributed_lock_share LIMIT 1";

/// The WHERE is evaluated on the locked, newest version of the row. The clock is read at that
/// moment and not at the transaction's start. The queue is seen as of the statement's start.
const TAKE: &str = "\
    INSERT INTO distributed_lock AS d (name, owner, label, fence, expires_at) \
    VALUES ($1, $2, $3, 1, clock_timestamp() + make_interval(secs => $4)) \
    ON CONFLICT (name) DO UPDATE SET \
      fence = CASE WHEN d.owner = EXCLUDED.owner THEN d.fence ELSE d.fence + 1 END, \
      owner = EXCLUDED.owner, label = EXCLUDED.label, \
      expires_at = clock_timestamp() + make_interval(secs => $4) \
    WHERE strpos(d.barred, $5) = 0 AND (d.owner = EXCLUDED.owner OR \
      ((d.owner = '' OR d.expires_at <= clock_timestamp()) AND NOT EXISTS ( \
        SELECT 1 FROM distributed_lock_waiter w \
        WHERE w.name = $1 AND w.alive_until > clock_timestamp() AND w.token <> $2 \
          AND w.seq < COALESCE((SELECT me.seq FROM distributed_lock_waiter me \
            WHERE me.name = $1 AND me.token = $2), 9223372036854775807)))) \
    RETURNING fence";

const JOIN: &str = "\
    INSERT INTO distributed_lock_waiter (name, token, alive_until) \
    VALUES ($1, $2, clock_timestamp() + make_interval(secs => $3)) \
    ON CONFLICT (name, token) DO UPDATE SET alive_until = EXCLUDED.alive_until";

const FORGET: &str = "DELETE FROM distributed_lock_waiter WHERE name = $1 AND token = $2";

const FORGET_DEAD: &str = "DELETE FROM distributed_lock_waiter \
    WHERE name = $1 AND alive_until < clock_timestamp() - INTERVAL '1 minute'";

const LOOK: &str = "\
    SELECT owner, label, \
      CAST(GREATEST(EXTRACT(EPOCH FROM expires_at - clock_timestamp()), 0) AS FLOAT8), \
      (SELECT COUNT(*) FROM distributed_lock_waiter w \
        WHERE w.name = $1 AND w.alive_until > clock_timestamp() AND w.token <> $2 \
          AND w.seq < COALESCE((SELECT me.seq FROM distributed_lock_waiter me \
            WHERE me.name = $1 AND me.token = $2), 9223372036854775807)) \
    FROM distributed_lock WHERE name = $1";

const FREE: &str = "UPDATE distributed_lock \
    SET owner = '', label = '', expires_at = clock_timestamp() \
    WHERE name = $1 AND owner = $2 AND expires_at > clock_timestamp()";

const BAR: &str = "\
    INSERT INTO distributed_lock AS d (name, owner, label, fence, expires_at, barred) \
    VALUES ($1, '', '', 0, clock_timestamp(), $2) \
    ON CONFLICT (name) DO UPDATE SET barred = CASE WHEN strpos(d.barred, EXCLUDED.barred) > 0 \
      THEN d.barred ELSE left(EXCLUDED.barred || d.barred, 60) END";

/// This runs as a statement after the lock is free: a waiter that joined the queue before is seen
/// here, and one that joins later finds the lock free.
const WAKE: &str = "\
    SELECT pg_notify('handfast_' || split_part(head.token, '.', 1), head.token) \
    FROM (SELECT token FROM distributed_lock_waiter \
      WHERE name = $1 AND alive_until > clock_timestamp() ORDER BY seq LIMIT 1) head";

const BEGIN: &str = "BEGIN";

const MAKE_ROW: &str = "\
    INSERT INTO distributed_lock (name, owner, label, fence, expires_at) \
    VALUES ($1, '', '', 0, clock_timestamp()) ON CONFLICT (name) DO NOTHING";

const LOCK_ROW: &str = "\
    SELECT owner, fence, \
      CAST(CASE WHEN expires_at > clock_timestamp() THEN 1 ELSE 0 END AS BIGINT), barred \
    FROM distributed_lock WHERE name = $1 FOR UPDATE";

const END_SHARES: &str = "DELETE FROM distributed_lock_share \
    WHERE name = $1 AND expires_at <= clock_timestamp()";

const SHARES: &str = "SELECT token, parts FROM distributed_lock_share WHERE name = $1";

const PUT_SHARE: &str = "\
    INSERT INTO distributed_lock_share (name, token, label, parts, expires_at) \
    VALUES ($1, $2, $3, $4, \
      clock_timestamp() + CAST($5 AS BIGINT) * INTERVAL '1 microsecond') \
    ON CONFLICT (name, token) DO UPDATE SET expires_at = EXCLUDED.expires_at";

const RENEW_SHARE: &str = "UPDATE distributed_lock_share \
    SET expires_at = clock_timestamp() + CAST($1 AS BIGINT) * INTERVAL '1 microsecond' \
    WHERE name = $2 AND token = $3";

const FREE_SHARE: &str = "DELETE FROM distributed_lock_share WHERE name = $1 AND token = $2";

const SHARE_ROW: &str = "UPDATE distributed_lock \
    SET owner = $1, label = '', fence = $2, expires_at = COALESCE( \
      (SELECT MAX(expires_at) FROM distributed_lock_share WHERE name = $3), clock_timestamp()) \
    WHERE name = $4";

const FIRST_SHARE: &str = "\
    SELECT token, label, \
      CAST(GREATEST(EXTRACT(EPOCH FROM expires_at - clock_timestamp()), 0) AS FLOAT8) \
    FROM distributed_lock_share WHERE name = $1 AND expires_at > clock_timestamp() \
    ORDER BY expires_at LIMIT 1";

async fn take(
    connection: &mut PgConnection,
    request: &AcquireRequest,
    id: &str,
) -> Result<Option<i64>, sqlx::Error> {
    let take = sqlx::query_scalar(TAKE).bind(request.name.as_str()).bind(id).bind(&*request.label);
    let take = take.bind(request.lease.as_secs_f64()).bind(mark(request.id));
    take.fetch_optional(connection).await
}

async fn renew(
    connection: &mut PgConnection,
    lock_refs: &[LockRef],
    lease: Duration,
) -> Result<Vec<String>, sqlx::Error> {
    let mut query = sqlx::QueryBuilder::new(
        "UPDATE distributed_lock SET expires_at = clock_timestamp() + make_interval(secs => ",
    );
    query.push_bind(lease.as_secs_f64()).push(")");
    bind_lock_refs(&mut query, lock_refs);
    query.push(" AND expires_at > clock_timestamp() RETURNING owner");
    query.build_query_scalar().fetch_all(connection).await
}

async fn wake(connection: &mut PgConnection, name: &str) -> Result<(), sqlx::Error> {
    sqlx::query(WAKE).bind(name).execute(connection).await.map(drop)
}

async fn listen(
    locks: &PostgresLocks,
    client: u128,
    wake_ups: &mpsc::UnboundedSender<WakeUp>,
) -> Result<Infallible, BackendError> {
    locks.notifications.listen(&locks.pool, client, wake_ups).await
}
