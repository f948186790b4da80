//! What the three databases have in common: the order of statements.

use std::ops::{Deref, DerefMut};

use sqlx::pool::PoolConnection;
use sqlx::{Database, Pool};

use crate::error::BackendError;

/// Connections for taking locks. What waits for them never keeps renewals and releases waiting.
pub(super) const ASKING_CONNECTIONS: usize = 6;
/// Connections in all: two more for renewals and releases, one that listens for all clients.
pub(super) const CONNECTIONS: u32 = 9;

/// A connection for one call. It goes with a call that is cut off: given back to the pool it would
/// keep its place there for as long as the database does not answer.
pub(super) struct Call<DB: Database> {
    connection: PoolConnection<DB>,
    is_over: bool,
}

impl<DB: Database> Call<DB> {
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

impl<DB: Database> Deref for Call<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        &self.connection
    }
}

impl<DB: Database> DerefMut for Call<DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        &mut self.connection
    }
}

impl<DB: Database> Drop for Call<DB> {
    fn drop(&mut self) {
        if !self.is_over {
            self.connection.close_on_drop();
        }
    }
}

/// The error of a statement.
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
    // PostgreSQL: undefined table, column. MySQL: the same. SQLite has one code for all.
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

            fn grade(&self) -> crate::backend::Grade {
                crate::backend::Grade::Correctness
            }

            async fn ask(&self, ask: &Ask) -> Result<Answer, BackendError> {
                // The semaphore is never closed.
                let _turn = self.asking.acquire().await;
                if let crate::backend::Share::One { of } = ask.share {
                    return self.ask_part(ask, of).await;
                }
                let mut call = Call::begin(&self.pool).await?;
                let answer = self.try_ask(&mut call, ask).await;
                call.end(answer).map_err(explain)
            }

            async fn renew(
                &self,
                holds: &[Hold],
                lease: Duration,
            ) -> Result<Vec<bool>, BackendError> {
                let mut call = Call::begin(&self.pool).await?;
                let held = try_renew(&mut call, holds, lease).await;
                call.end(held).map_err(explain)
            }

            async fn leave(&self, leave: &Leave) -> Result<Left, BackendError> {
                let mut call = Call::begin(&self.pool).await?;
                let left = self.try_leave(&mut call, leave).await;
                call.end(left).map_err(explain)
            }

            async fn listen(
                &self,
                client: u128,
                wakes: &mpsc::UnboundedSender<Wake>,
            ) -> Result<Infallible, BackendError> {
                listen(self, client, wakes).await
            }
        }

        impl $locks {
            /// How often the first in a queue looks, where there are no wake-ups.
            const POLL: Option<Duration> = $poll;

            async fn try_ask(
                &self,
                connection: &mut <$database as sqlx::Database>::Connection,
                ask: &Ask,
            ) -> Result<Answer, sqlx::Error> {
                let (name, token) = (ask.name.as_str(), ask.token.to_string());
                if ask.place != Place::Keep {
                    if let Some(fence) = take(connection, ask, &token).await? {
                        return Ok(Answer::granted(Fence::new(fence)));
                    }
                }
                if ask.place != Place::None {
                    // In the queue first, then once more: whoever lets go after this look sees the
                    // queue with this one in it.
                    join(connection, name, &token).await?;
                    if let Some(fence) = take(connection, ask, &token).await? {
                        forget(connection, name, &token).await?;
                        return Ok(Answer::granted(Fence::new(fence)));
                    }
                }
                if ask.place == Place::Join {
                    sqlx::query(FORGET_DEAD).bind(name).execute(&mut *connection).await?;
                }
                Ok(look(connection, name, &token).await?.answer(Self::POLL))
            }

            async fn try_leave(
                &self,
                connection: &mut <$database as sqlx::Database>::Connection,
                leave: &Leave,
            ) -> Result<Left, sqlx::Error> {
                let name = leave.hold.name.as_str();
                let token = leave.hold.token.to_string();
                if leave.is_doubtful {
                    let bar = sqlx::query(BAR).bind(name).bind(mark(leave.hold.token));
                    bar.execute(&mut *connection).await?;
                }
                let freed = sqlx::query(FREE).bind(name).bind(&token);
                let freed = freed.execute(&mut *connection).await?.rows_affected() == 1;
                let freed = freed || free_part(connection, name, &token).await?;
                // A request that was cut off after it had taken the lock has left it in the queue.
                // It would be called, and those behind it would wait for it.
                if !(freed && leave.is_alone) {
                    forget(connection, name, &token).await?;
                }
                let left = if freed {
                    Left::Freed
                } else {
                    Left::NotHeld { current: look(connection, name, &token).await?.holder() }
                };
                wake(connection, name).await?;
                Ok(left)
            }
        }

        async fn try_renew(
            connection: &mut <$database as sqlx::Database>::Connection,
            holds: &[Hold],
            lease: Duration,
        ) -> Result<Vec<bool>, sqlx::Error> {
            let whole = renew(connection, holds, lease).await?;
            let mut held = Vec::with_capacity(holds.len());
            for hold in holds {
                let is_held = whole.contains(&hold.token.to_string())
                    || renew_part(connection, hold, lease).await?;
                held.push(is_held);
            }
            Ok(held)
        }

        async fn join(
            connection: &mut <$database as sqlx::Database>::Connection,
            name: &str,
            token: &str,
        ) -> Result<(), sqlx::Error> {
            let alive = crate::backend::WAITER_ALIVE.as_secs_f64();
            let join = sqlx::query(JOIN).bind(name).bind(token).bind(alive);
            join.execute(connection).await.map(drop)
        }

        async fn forget(
            connection: &mut <$database as sqlx::Database>::Connection,
            name: &str,
            token: &str,
        ) -> Result<(), sqlx::Error> {
            sqlx::query(FORGET).bind(name).bind(token).execute(connection).await.map(drop)
        }

        async fn look(
            connection: &mut <$database as sqlx::Database>::Connection,
            name: &str,
            token: &str,
        ) -> Result<Seen, sqlx::Error> {
            let look = sqlx::query(LOOK).bind(name).bind(token);
            let Some(row) = look.fetch_optional(&mut *connection).await? else {
                // Nobody has ever had it.
                let (owner, label) = (String::new(), String::new());
                return Ok(Seen { owner, label, left: Duration::ZERO, ahead: 0 });
            };
            let (owner, label): (String, _) = (row.try_get(0)?, row.try_get(1)?);
            let left = Duration::try_from_secs_f64(row.try_get(2)?).unwrap_or_default();
            let mut seen = Seen { owner, label, left, ahead: row.try_get(3)? };
            if seen.owner == SHARED {
                // Whoever ends first: then there may be room.
                let first = sqlx::query_as(FIRST_SHARE).bind(name).fetch_optional(connection);
                let first: Option<(String, String, f64)> = first.await?;
                let (owner, label, left) = first.unwrap_or_default();
                let left = Duration::try_from_secs_f64(left).unwrap_or_default();
                seen = Seen { owner, label, left, ahead: seen.ahead };
            }
            Ok(seen)
        }

        /// The rows of what is held, by their primary key.
        fn bind_holds(query: &mut sqlx::QueryBuilder<$database>, holds: &[Hold]) {
            query.push(" WHERE name IN (");
            let mut names = query.separated(", ");
            for hold in holds {
                names.push_bind(hold.name.as_str().to_owned());
            }
            query.push(") AND owner IN (");
            let mut owners = query.separated(", ");
            for hold in holds {
                owners.push_bind(hold.token.to_string());
            }
            query.push(")");
        }
    };
}

pub(super) use sql_backend;
