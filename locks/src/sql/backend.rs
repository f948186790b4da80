//! The common part of the three databases: the order of statements.

use std::ops::{Deref, DerefMut};

use sqlx::pool::PoolConnection;
use sqlx::{Database, Pool};

use crate::error::BackendError;

/// The number of connections for requests for locks. Requests that wait for one never keep renewals
/// and releases waiting.
pub(super) const ASKING_CONNECTIONS: usize = 6;
/// The number of connections in all: two more for renewals and releases, and one that listens for
/// all clients.
pub(super) const CONNECTIONS: u32 = 9;

/// A connection for one call. A call that is cut off closes it: given back to the pool, it would
/// keep its place there for as long as the database does not answer.
pub(super) struct PooledCall<DB: Database> {
    connection: PoolConnection<DB>,
    is_over: bool,
}

impl<DB: Database> PooledCall<DB> {
    pub(super) async fn begin(pool: &Pool<DB>) -> Result<Self, BackendError> {
        let connection = pool.acquire().await.map_err(explain)?;
        Ok(Self { connection, is_over: false })
    }

    /// Gives the connection back: the call has its answer.
    pub(super) fn end<T>(mut self, answer: T) -> T {
        self.is_over = true;
        answer
    }
}

impl<DB: Database> Deref for PooledCall<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        &self.connection
    }
}

impl<DB: Database> DerefMut for PooledCall<DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        &mut self.connection
    }
}

impl<DB: Database> Drop for PooledCall<DB> {
    fn drop(&mut self) {
        if !self.is_over {
            self.connection.close_on_drop();
        }
    }
}

/// Makes the error of a statement.
pub(super) fn explain(error: sqlx::Error) -> BackendError {
    if is_schema_mismatch(&error) {
        return BackendError::lasting(format!(
            "table distributed_lock is missing or has other columns: apply the client migrations, \
             with `handfast.migrate(&pool).await` or from migrations/ ({error})"
        ));
    }
    BackendError::passing("the database failed", error)
}

fn is_schema_mismatch(error: &sqlx::Error) -> bool {
    let Some(error) = error.as_database_error() else { return false };
    // PostgreSQL: undefined table, column. MySQL: the same. SQLite has one code for all errors of
    // SQL.
    let code = error.code();
    let is_undefined = |code: &str| ["42P01", "42703", "42S02", "42S22"].contains(&code);
    let of_sqlite = ["no such table", "no such column", "has no column"];
    code.is_some_and(|code| is_undefined(&code))
        || of_sqlite.iter().any(|words| error.message().contains(words))
}

/// Implements [`Backend`](crate::Backend) for a type with a `pool`, `asking` and the statements of
/// its database. One impl per database: a generic one would need bounds that no compiler message
/// explains.
macro_rules! sql_backend {
    ($locks:ty, $database:ty, $name:literal, $poll:expr) => {
        #[async_trait::async_trait]
        impl crate::backend::Backend for $locks {
            fn name(&self) -> &'static str {
                $name
            }

            fn guarantee(&self) -> crate::backend::Guarantee {
                crate::backend::Guarantee::Correctness
            }

            async fn acquire(
                &self,
                request: &AcquireRequest,
            ) -> Result<AcquireResponse, BackendError> {
                // The semaphore is never closed.
                let _turn = self.asking.acquire().await;
                if let crate::backend::LockMode::Shared { permits } = request.mode {
                    return self.acquire_permit(request, permits).await;
                }
                let mut call = PooledCall::begin(&self.pool).await?;
                let answer = self.try_acquire(&mut call, request).await;
                call.end(answer).map_err(explain)
            }

            async fn renew(
                &self,
                lock_refs: &[LockRef],
                lease: Duration,
            ) -> Result<Vec<bool>, BackendError> {
                let mut call = PooledCall::begin(&self.pool).await?;
                let held = try_renew(&mut call, lock_refs, lease).await;
                call.end(held).map_err(explain)
            }

            async fn release(
                &self,
                request: &ReleaseRequest,
            ) -> Result<ReleaseResponse, BackendError> {
                let mut call = PooledCall::begin(&self.pool).await?;
                let left = self.try_release(&mut call, request).await;
                call.end(left).map_err(explain)
            }

            async fn listen(
                &self,
                client: u128,
                wake_ups: &mpsc::UnboundedSender<WakeUp>,
            ) -> Result<Infallible, BackendError> {
                listen(self, client, wake_ups).await
            }
        }

        impl $locks {
            /// How often the first waiter in a queue polls, if there are no wake-ups.
            const POLL: Option<Duration> = $poll;

            async fn try_acquire(
                &self,
                connection: &mut <$database as sqlx::Database>::Connection,
                request: &AcquireRequest,
            ) -> Result<AcquireResponse, sqlx::Error> {
                let (name, id) = (request.name.as_str(), request.id.to_string());
                if request.queue != QueueMode::KeepPlace {
                    if let Some(fencing_token) = take(connection, request, &id).await? {
                        return Ok(AcquireResponse::granted(FencingToken::new(fencing_token)));
                    }
                }
                if request.queue != QueueMode::NoWait {
                    // The request joins the queue first and then tries once more: a release after
                    // this statement sees the queue with this waiter in it.
                    join(connection, name, &id).await?;
                    if let Some(fencing_token) = take(connection, request, &id).await? {
                        leave_queue(connection, name, &id).await?;
                        return Ok(AcquireResponse::granted(FencingToken::new(fencing_token)));
                    }
                }
                // A waiter does this once and not at each heartbeat: every statement passes dead
                // waiters over, and their rows only take room.
                if request.queue == QueueMode::Join {
                    sqlx::query(FORGET_DEAD).bind(name).execute(&mut *connection).await?;
                }
                Ok(read_lock(connection, name, &id).await?.answer(Self::POLL))
            }

            async fn try_release(
                &self,
                connection: &mut <$database as sqlx::Database>::Connection,
                request: &ReleaseRequest,
            ) -> Result<ReleaseResponse, sqlx::Error> {
                let name = request.lock_ref.name.as_str();
                let id = request.lock_ref.id.to_string();
                // The bar comes before the lock is free: a late request that arrived in between
                // would take the lock again, and no caller would release it.
                if request.refuse_late_requests {
                    let bar = sqlx::query(BAR).bind(name).bind(mark(request.lock_ref.id));
                    bar.execute(&mut *connection).await?;
                }
                let freed = sqlx::query(FREE).bind(name).bind(&id);
                let freed = freed.execute(&mut *connection).await?.rows_affected() == 1;
                let freed = freed || release_permit(connection, name, &id).await?;
                // A request that was cut off after it had taken the lock has left its id in the
                // queue. That id would be woken, and the waiters behind it would wait for it.
                if !(freed && request.is_uncontended) {
                    leave_queue(connection, name, &id).await?;
                }
                let left = if freed {
                    ReleaseResponse::Released
                } else {
                    ReleaseResponse::NotHeld {
                        current: read_lock(connection, name, &id).await?.holder(),
                    }
                };
                wake(connection, name).await?;
                Ok(left)
            }
        }

        async fn try_renew(
            connection: &mut <$database as sqlx::Database>::Connection,
            lock_refs: &[LockRef],
            lease: Duration,
        ) -> Result<Vec<bool>, sqlx::Error> {
            let whole = renew(connection, lock_refs, lease).await?;
            let mut held = Vec::with_capacity(lock_refs.len());
            for lock_ref in lock_refs {
                // An id that the statement for exclusive locks has not found may be that of a
                // permit.
                let is_held = whole.contains(&lock_ref.id.to_string())
                    || renew_permit(connection, lock_ref, lease).await?;
                held.push(is_held);
            }
            Ok(held)
        }

        async fn join(
            connection: &mut <$database as sqlx::Database>::Connection,
            name: &str,
            id: &str,
        ) -> Result<(), sqlx::Error> {
            let alive = crate::backend::WAITER_TIMEOUT.as_secs_f64();
            let join = sqlx::query(JOIN).bind(name).bind(id).bind(alive);
            join.execute(connection).await.map(drop)
        }

        async fn leave_queue(
            connection: &mut <$database as sqlx::Database>::Connection,
            name: &str,
            id: &str,
        ) -> Result<(), sqlx::Error> {
            sqlx::query(FORGET).bind(name).bind(id).execute(connection).await.map(drop)
        }

        async fn read_lock(
            connection: &mut <$database as sqlx::Database>::Connection,
            name: &str,
            id: &str,
        ) -> Result<ObservedHolder, sqlx::Error> {
            let look = sqlx::query(LOOK).bind(name).bind(id);
            let Some(row) = look.fetch_optional(&mut *connection).await? else {
                // The lock was never held.
                let (owner, label) = (String::new(), String::new());
                return Ok(ObservedHolder { owner, label, left: Duration::ZERO, ahead: 0 });
            };
            let (owner, label): (String, _) = (row.try_get(0)?, row.try_get(1)?);
            let left = Duration::try_from_secs_f64(row.try_get(2)?).unwrap_or_default();
            let mut observed = ObservedHolder { owner, label, left, ahead: row.try_get(3)? };
            if observed.owner == SHARED {
                // The shared holder whose lease ends first: then there may be room.
                let first = sqlx::query_as(FIRST_SHARE).bind(name).fetch_optional(connection);
                let first: Option<(String, String, f64)> = first.await?;
                let (owner, label, left) = first.unwrap_or_default();
                let left = Duration::try_from_secs_f64(left).unwrap_or_default();
                observed = ObservedHolder { owner, label, left, ahead: observed.ahead };
            }
            Ok(observed)
        }

        /// Restricts a query to the rows of held locks, by their primary key.
        fn bind_lock_refs(query: &mut sqlx::QueryBuilder<$database>, lock_refs: &[LockRef]) {
            query.push(" WHERE name IN (");
            let mut names = query.separated(", ");
            for lock_ref in lock_refs {
                names.push_bind(lock_ref.name.as_str().to_owned());
            }
            query.push(") AND owner IN (");
            let mut owners = query.separated(", ");
            for lock_ref in lock_refs {
                owners.push_bind(lock_ref.id.to_string());
            }
            query.push(")");
        }
    };
}

pub(super) use sql_backend;
