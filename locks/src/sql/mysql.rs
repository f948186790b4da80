//! MySQL and MariaDB. There are no wake-ups: the first waiter in the queue polls.

use std::convert::Infallible;
use std::time::Duration;

use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use sqlx::{Executor, MySql, MySqlConnection, MySqlPool, Row};
use tokio::sync::{Semaphore, mpsc};

use super::backend::{ASKING_CONNECTIONS, CONNECTIONS, PooledCall, explain, sql_backend};
use super::barred::mark;
use super::shares::{LockedRow, PermitDecision, SHARED, sql_shares};
use crate::backend::{
    AcquireRequest, AcquireResponse, LockRef, QueueMode, ReleaseRequest, ReleaseResponse, WakeUp,
};
use crate::error::{BackendError, LockError};
use crate::name::FencingToken;
use crate::observed_holder::ObservedHolder;

/// How often the first waiter in a queue polls.
const POLL: Duration = Duration::from_millis(20);

/// Locks in a table of a MySQL or MariaDB database.
#[derive(Debug)]
pub struct MySqlLocks {
    pool: MySqlPool,
    asking: Semaphore,
}

impl MySqlLocks {
    /// Connects by URL, and checks that the tables are there.
    ///
    /// # Errors
    /// [`LockError::Refused`] with the database's message.
    pub async fn connect(url: &str) -> Result<Self, LockError> {
        let options = url.parse().map_err(|error| LockError::Refused { source: explain(error) })?;
        Self::connect_with(options).await
    }

    /// Connects with options, and checks that the tables are there.
    ///
    /// # Errors
    /// [`LockError::Refused`] with the database's message.
    pub async fn connect_with(options: MySqlConnectOptions) -> Result<Self, LockError> {
        let refused = |error| LockError::Refused { source: explain(error) };
        let pool =
            MySqlPoolOptions::new().max_connections(CONNECTIONS).after_connect(|connection, _| {
                Box::pin(async move {
                    connection.execute(ISOLATION).await?;
                    connection.execute(LIMITS).await.map(drop)
                })
            });
        let pool = pool.connect_with(options).await.map_err(refused)?;
        for check in [CHECK, CHECK_SHARES] {
            sqlx::query(check).fetch_optional(&pool).await.map_err(refused)?;
        }
        Ok(Self { pool, asking: Semaphore::new(ASKING_CONNECTIONS) })
    }
}

sql_backend!(MySqlLocks, MySql, "mysql", Some(POLL));
sql_shares!(MySqlLocks, MySql);

/// READ COMMITTED takes no gap locks, and reads the queue as it is committed.
const ISOLATION: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";
/// A row that stays locked is not waited for. On MariaDB, a process that stops in the midst of a
/// transaction keeps no row locked; MySQL reads that part as a comment.
const LIMITS: &str =
    "SET SESSION innodb_lock_wait_timeout = 1 /*M!100300 , idle_transaction_timeout = 5 */";

const CHECK: &str = "SELECT owner, label, fence, expires_at, barred, alive_until, seq \
    FROM distributed_lock NATURAL JOIN distributed_lock_waiter LIMIT 1";
/// The same check for the table of permits.
const CHECK_SHARES: &str =
    "SELECT name, token, label, parts, expires_at FROM distributed_lock_share LIMIT 1";

/// The result is the last insert id: the fencing token, or 0. Affected rows would not tell, because
/// the driver asks for the rows found. An assignment sees the changes of those before it, so the
/// order is: the fencing token, then the owner, then what follows from the owner.
const TAKE: &str = "\
    INSERT INTO distributed_lock (name, owner, label, fence, expires_at) \
    VALUES (?, ?, ?, LAST_INSERT_ID(1), UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND) \
    ON DUPLICATE KEY UPDATE \
      fence = IF(LOCATE(?, barred) > 0, fence + LAST_INSERT_ID(0), \
        IF(owner = VALUES(owner), LAST_INSERT_ID(fence), \
          IF((owner = '' OR expires_at <= UTC_TIMESTAMP(6)) AND ? = 0, \
            LAST_INSERT_ID(fence + 1), fence + LAST_INSERT_ID(0)))), \
      owner = IF((owner = '' OR expires_at <= UTC_TIMESTAMP(6)) AND LOCATE(?, barred) = 0 \
            AND ? = 0, VALUES(owner), owner), \
      label = IF(owner = VALUES(owner) AND LOCATE(?, barred) = 0, VALUES(label), label), \
      expires_at = IF(owner = VALUES(owner) AND LOCATE(?, barred) = 0, VALUES(expires_at), \
        expires_at)";

/// Counts the waiters that have waited longer. It runs before the statement that takes the lock,
/// which on this database cannot look at another table at the same time.
const AHEAD: &str = "\
    SELECT COUNT(*) FROM (SELECT ? AS name, ? AS token) me JOIN distributed_lock_waiter w \
      ON w.name = me.name AND w.token <> me.token AND w.alive_until > UTC_TIMESTAMP(6) \
      AND w.seq < COALESCE((SELECT own.seq FROM distributed_lock_waiter own \
        WHERE own.name = me.name AND own.token = me.token), 9223372036854775807)";

const JOIN: &str = "\
    INSERT INTO distributed_lock_waiter (name, token, alive_until) \
    VALUES (?, ?, UTC_TIMESTAMP(6) + INTERVAL ? SECOND) \
    ON DUPLICATE KEY UPDATE alive_until = VALUES(alive_until)";

const FORGET: &str = "DELETE FROM distributed_lock_waiter WHERE name = ? AND token = ?";

const FORGET_DEAD: &str = "DELETE FROM distributed_lock_waiter \
    WHERE name = ? AND alive_until < UTC_TIMESTAMP(6) - INTERVAL 1 MINUTE";

const LOOK: &str = "\
    SELECT d.owner, d.label, \
      GREATEST(TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), d.expires_at), 0) / 1e6, \
      (SELECT COUNT(*) FROM distributed_lock_waiter w \
        WHERE w.name = me.name AND w.token <> me.token AND w.alive_until > UTC_TIMESTAMP(6) \
          AND w.seq < COALESCE((SELECT own.seq FROM distributed_lock_waiter own \
            WHERE own.name = me.name AND own.token = me.token), 9223372036854775807)) \
    FROM (SELECT ? AS name, ? AS token) me JOIN distributed_lock d ON d.name = me.name";

const FREE: &str = "UPDATE distributed_lock \
    SET owner = '', label = '', expires_at = UTC_TIMESTAMP(6) \
    WHERE name = ? AND owner = ? AND expires_at > UTC_TIMESTAMP(6)";

const BAR: &str = "\
    INSERT INTO distributed_lock (name, owner, label, fence, expires_at, barred) \
    VALUES (?, '', '', 0, UTC_TIMESTAMP(6), ?) \
    ON DUPLICATE KEY UPDATE barred = IF(LOCATE(VALUES(barred), barred) > 0, barred, \
      LEFT(CONCAT(VALUES(barred), barred), 60))";

const BEGIN: &str = "START TRANSACTION";

const MAKE_ROW: &str = "\
    INSERT IGNORE INTO distributed_lock (name, owner, label, fence, expires_at) \
    VALUES (?, '', '', 0, UTC_TIMESTAMP(6))";

const LOCK_ROW: &str = "\
    SELECT owner, fence, CAST(expires_at > UTC_TIMESTAMP(6) AS SIGNED), barred \
    FROM distributed_lock WHERE name = ? FOR UPDATE";

const END_SHARES: &str = "DELETE FROM distributed_lock_share \
    WHERE name = ? AND expires_at <= UTC_TIMESTAMP(6)";

const SHARES: &str = "SELECT token, parts FROM distributed_lock_share WHERE name = ?";

const PUT_SHARE: &str = "\
    INSERT INTO distributed_lock_share (name, token, label, parts, expires_at) \
    VALUES (?, ?, ?, ?, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND) \
    ON DUPLICATE KEY UPDATE expires_at = VALUES(expires_at)";

const RENEW_SHARE: &str = "UPDATE distributed_lock_share \
    SET expires_at = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND WHERE name = ? AND token = ?";

const FREE_SHARE: &str = "DELETE FROM distributed_lock_share WHERE name = ? AND token = ?";

const SHARE_ROW: &str = "UPDATE distributed_lock \
    SET owner = ?, label = '', fence = ?, expires_at = COALESCE( \
      (SELECT MAX(expires_at) FROM distributed_lock_share WHERE name = ?), UTC_TIMESTAMP(6)) \
    WHERE name = ?";

const FIRST_SHARE: &str = "\
    SELECT token, label, \
      GREATEST(TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), expires_at), 0) / 1e6 \
    FROM distributed_lock_share WHERE name = ? AND expires_at > UTC_TIMESTAMP(6) \
    ORDER BY expires_at LIMIT 1";

async fn take(
    connection: &mut MySqlConnection,
    request: &AcquireRequest,
    id: &str,
) -> Result<Option<i64>, sqlx::Error> {
    let name = request.name.as_str();
    let ahead = sqlx::query_scalar(AHEAD).bind(name).bind(id);
    let ahead: i64 = ahead.fetch_one(&mut *connection).await?;
    let lease = i64::try_from(request.lease.as_micros()).unwrap_or(i64::MAX);
    let take = sqlx::query(TAKE).bind(name).bind(id).bind(&*request.label).bind(lease);
    let mark = mark(request.id);
    let take = take.bind(&mark).bind(ahead).bind(&mark).bind(ahead).bind(&mark).bind(&mark);
    let taken = take.execute(connection).await?.last_insert_id();
    Ok(i64::try_from(taken).ok().filter(|fencing_token| *fencing_token > 0))
}

async fn renew(
    connection: &mut MySqlConnection,
    lock_refs: &[LockRef],
    lease: Duration,
) -> Result<Vec<String>, sqlx::Error> {
    let mut query = sqlx::QueryBuilder::new(
        "UPDATE distributed_lock SET expires_at = UTC_TIMESTAMP(6) + INTERVAL ",
    );
    query.push_bind(i64::try_from(lease.as_micros()).unwrap_or(i64::MAX)).push(" MICROSECOND");
    bind_lock_refs(&mut query, lock_refs);
    query.push(" AND expires_at > UTC_TIMESTAMP(6)");
    query.build().execute(&mut *connection).await?;
    // A row that is held was renewed by this statement: no other process renews it.
    let mut query = sqlx::QueryBuilder::new("SELECT owner FROM distributed_lock");
    bind_lock_refs(&mut query, lock_refs);
    query.push(" AND expires_at > UTC_TIMESTAMP(6)");
    query.build_query_scalar().fetch_all(connection).await
}

async fn wake(_: &mut MySqlConnection, _: &str) -> Result<(), sqlx::Error> {
    Ok(())
}

async fn listen(
    _: &MySqlLocks,
    _: u128,
    _: &mpsc::UnboundedSender<WakeUp>,
) -> Result<Infallible, BackendError> {
    std::future::pending().await
}
