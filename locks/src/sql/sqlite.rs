//! SQLite, for the processes of one machine. There are no wake-ups: the first waiter in the queue
//! polls.

use std::convert::Infallible;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{Row, Sqlite, SqliteConnection, SqlitePool};
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
const POLL: Duration = Duration::from_millis(10);

/// Locks in a table of a SQLite database. Its clock is the machine's: if that is set forward by
/// more than a lease, all leases end.
#[derive(Debug)]
pub struct SqliteLocks {
    pool: SqlitePool,
    asking: Semaphore,
}

impl SqliteLocks {
    /// Opens a database by URL, as `sqlite:orders.db`, and checks that the tables are there.
    ///
    /// # Errors
    /// [`LockError::Refused`] with the database's message.
    pub async fn connect(url: &str) -> Result<Self, LockError> {
        let options = url.parse().map_err(|error| LockError::Refused { source: explain(error) })?;
        Self::connect_with(options).await
    }

    /// Opens a database with options, and checks that the tables are there.
    ///
    /// # Errors
    /// [`LockError::Refused`] with the database's message.
    pub async fn connect_with(options: SqliteConnectOptions) -> Result<Self, LockError> {
        let refused = |error| LockError::Refused { source: explain(error) };
        let pool = SqlitePoolOptions::new().max_connections(CONNECTIONS);
        let pool = pool.connect_with(options).await.map_err(refused)?;
        for check in [CHECK, CHECK_SHARES] {
            sqlx::query(check).fetch_optional(&pool).await.map_err(refused)?;
        }
        Ok(Self { pool, asking: Semaphore::new(ASKING_CONNECTIONS) })
    }
}

sql_backend!(SqliteLocks, Sqlite, "sqlite", Some(POLL));
sql_shares!(SqliteLocks, Sqlite);

const CHECK: &str = "SELECT owner, label, fence, expires_at, barred, alive_until, seq \
    FROM distributed_lock NATURAL JOIN distributed_lock_waiter LIMIT 1";
/// The same check for the table of permits.
const CHECK_SHARES: &str =
    "SELECT name, token, label, parts, expires_at FROM distributed_lock_share LIMIT 1";

/// A statement that writes runs alone, and reads the clock after it has waited for its turn.
const TAKE: &str = "\
    INSERT INTO distributed_lock AS d (name, owner, label, fence, expires_at) \
    VALUES (?1, ?2, ?3, 1, unixepoch('subsec') + ?4) \
    ON CONFLICT (name) DO UPDATE SET \
      fence = CASE WHEN owner = excluded.owner THEN fence ELSE fence + 1 END, \
      owner = excluded.owner, label = excluded.label, expires_at = excluded.expires_at \
    WHERE instr(barred, ?5) = 0 AND (owner = excluded.owner OR \
      ((owner = '' OR expires_at <= unixepoch('subsec')) AND NOT EXISTS ( \
        SELECT 1 FROM distributed_lock_waiter w \
        WHERE w.name = ?1 AND w.alive_until > unixepoch('subsec') AND w.token <> ?2 \
          AND w.seq < COALESCE((SELECT me.seq FROM distributed_lock_waiter me \
            WHERE me.name = ?1 AND me.token = ?2), 9223372036854775807)))) \
    RETURNING fence";

const JOIN: &str = "\
    INSERT INTO distributed_lock_waiter (name, token, alive_until) \
    VALUES (?1, ?2, unixepoch('subsec') + ?3) \
    ON CONFLICT (name, token) DO UPDATE SET alive_until = excluded.alive_until";

const FORGET: &str = "DELETE FROM distributed_lock_waiter WHERE name = ?1 AND token = ?2";

const FORGET_DEAD: &str = "DELETE FROM distributed_lock_waiter \
    WHERE name = ?1 AND alive_until < unixepoch('subsec') - 60";

const LOOK: &str = "\
    SELECT owner, label, MAX(expires_at - unixepoch('subsec'), 0.0), \
      (SELECT COUNT(*) FROM distributed_lock_waiter w \
        WHERE w.name = ?1 AND w.alive_until > unixepoch('subsec') AND w.token <> ?2 \
          AND w.seq < COALESCE((SELECT me.seq FROM distributed_lock_waiter me \
            WHERE me.name = ?1 AND me.token = ?2), 9223372036854775807)) \
    FROM distributed_lock WHERE name = ?1";

const FREE: &str = "UPDATE distributed_lock \
    SET owner = '', label = '', expires_at = unixepoch('subsec') \
    WHERE name = ?1 AND owner = ?2 AND expires_at > unixepoch('subsec')";

const BAR: &str = "\
    INSERT INTO distributed_lock (name, owner, label, fence, expires_at, barred) \
    VALUES (?1, '', '', 0, unixepoch('subsec'), ?2) \
    ON CONFLICT (name) DO UPDATE SET barred = CASE WHEN instr(barred, excluded.barred) > 0 \
      THEN barred ELSE substr(excluded.barred || barred, 1, 60) END";

const BEGIN: &str = "BEGIN IMMEDIATE";

const MAKE_ROW: &str = "\
    INSERT OR IGNORE INTO distributed_lock (name, owner, label, fence, expires_at) \
    VALUES (?, '', '', 0, unixepoch('subsec'))";

/// `BEGIN IMMEDIATE` has locked the whole database already.
const LOCK_ROW: &str = "SELECT owner, fence, expires_at > unixepoch('subsec'), barred \
    FROM distributed_lock WHERE name = ?";

const END_SHARES: &str = "DELETE FROM distributed_lock_share \
    WHERE name = ? AND expires_at <= unixepoch('subsec')";

const SHARES: &str = "SELECT token, parts FROM distributed_lock_share WHERE name = ?";

const PUT_SHARE: &str = "\
    INSERT INTO distributed_lock_share (name, token, label, parts, expires_at) \
    VALUES (?, ?, ?, ?, unixepoch('subsec') + ? / 1e6) \
    ON CONFLICT (name, token) DO UPDATE SET expires_at = excluded.expires_at";

const RENEW_SHARE: &str = "UPDATE distributed_lock_share \
    SET expires_at = unixepoch('subsec') + ? / 1e6 WHERE name = ? AND token = ?";

const FREE_SHARE: &str = "DELETE FROM distributed_lock_share WHERE name = ? AND token = ?";

const SHARE_ROW: &str = "UPDATE distributed_lock \
    SET owner = ?, label = '', fence = ?, expires_at = COALESCE( \
      (SELECT MAX(expires_at) FROM distributed_lock_share WHERE name = ?), unixepoch('subsec')) \
    WHERE name = ?";

const FIRST_SHARE: &str = "\
    SELECT token, label, MAX(expires_at - unixepoch('subsec'), 0.0) \
    FROM distributed_lock_share WHERE name = ? AND expires_at > unixepoch('subsec') \
    ORDER BY expires_at LIMIT 1";

async fn take(
    connection: &mut SqliteConnection,
    request: &AcquireRequest,
    id: &str,
) -> Result<Option<i64>, sqlx::Error> {
    let take = sqlx::query_scalar(TAKE).bind(request.name.as_str()).bind(id).bind(&*request.label);
    let take = take.bind(request.lease.as_secs_f64()).bind(mark(request.id));
    take.fetch_optional(connection).await
}

async fn renew(
    connection: &mut SqliteConnection,
    lock_refs: &[LockRef],
    lease: Duration,
) -> Result<Vec<String>, sqlx::Error> {
    let mut query =
        sqlx::QueryBuilder::new("UPDATE distributed_lock SET expires_at = unixepoch('subsec') + ");
    query.push_bind(lease.as_secs_f64());
    bind_lock_refs(&mut query, lock_refs);
    query.push(" AND expires_at > unixepoch('subsec') RETURNING owner");
    query.build_query_scalar().fetch_all(connection).await
}

async fn wake(_: &mut SqliteConnection, _: &str) -> Result<(), sqlx::Error> {
    Ok(())
}

async fn listen(
    _: &SqliteLocks,
    _: u128,
    _: &mpsc::UnboundedSender<WakeUp>,
) -> Result<Infallible, BackendError> {
    std::future::pending().await
}
