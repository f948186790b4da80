//! A row per lock in the resource's database, with the largest fencing token that has claimed it.

use async_trait::async_trait;
use sqlx::{Database, Transaction};

use crate::error::{BackendError, LockError};
use crate::guard::Guard;
use crate::name::{FencingToken, LockName};

/// A database whose transactions can claim. Only this crate implements it.
#[async_trait]
pub trait ClaimDatabase: Database + sealed::Sealed {
    /// Installs a token unless a larger one is there, and returns whether it is installed. The row
    /// stays locked until the transaction ends.
    #[doc(hidden)]
    async fn install(
        local: &mut Transaction<'_, Self>,
        name: &str,
        fencing_token: i64,
    ) -> Result<bool, sqlx::Error>;
}

/// Installs a fencing token in the resource's database, as the **first statement** of the local
/// transaction that reads and writes under it. From there on every older holder is refused, and
/// also up to this transaction's own COMMIT, because the transaction keeps the row locked.
///
/// [`Guard::claim`] does this for a guard. This function is for a service that received the token
/// from the holder of the lock.
///
/// # Errors
/// [`LockError::Stale`] if a later holder has claimed the lock: roll back. [`LockError::Claim`] if
/// the database failed.
pub async fn claim<DB: ClaimDatabase>(
    local: &mut Transaction<'_, DB>,
    name: &LockName,
    fencing_token: FencingToken,
) -> Result<(), LockError> {
    match DB::install(local, name.as_str(), fencing_token.number()).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(LockError::Stale { name: name.to_string(), fencing_token }),
        Err(error) => Err(LockError::Claim {
            name: name.to_string(),
            source: BackendError::passing("the resource's database failed", error),
        }),
    }
}

impl Guard {
    /// Claims the resource for this holder. This must be the **first statement** of each local
    /// transaction under the lock, before its first read. The table `lock_claim` must be in that
    /// database.
    ///
    /// ```
    /// use handfast_locks::{Guard, LockError};
    ///
    /// async fn add(pool: &sqlx::PgPool, guard: &Guard) -> Result<(), Box<dyn std::error::Error>> {
    ///     let mut local = pool.begin().await?;
    ///     guard.claim(&mut local).await?;
    ///     let n: i64 = sqlx::query_scalar("SELECT n FROM stock").fetch_one(&mut *local).await?;
    ///     sqlx::query("UPDATE stock SET n = $1").bind(n + 1).execute(&mut *local).await?;
    ///     local.commit().await?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`LockError::Lost`] if the lock is known to be lost, and the errors of [`claim`].
    pub async fn claim<DB: ClaimDatabase>(
        &self,
        local: &mut Transaction<'_, DB>,
    ) -> Result<(), LockError> {
        self.check()?;
        claim(local, self.name(), self.fencing_token()).await
    }
}

mod sealed {
    pub trait Sealed {}
}

/// Implements the claim as one statement, for databases where a conflict that is not resolved
/// changes no row.
macro_rules! install_at_once {
    ($database:ty, $text:literal) => {
        impl sealed::Sealed for $database {}

        #[async_trait]
        impl ClaimDatabase for $database {
            async fn install(
                local: &mut Transaction<'_, Self>,
                name: &str,
                fencing_token: i64,
            ) -> Result<bool, sqlx::Error> {
                let install = sqlx::query($text).bind(name).bind(fencing_token);
                Ok(install.execute(&mut **local).await?.rows_affected() == 1)
            }
        }
    };
}

#[cfg(feature = "postgres")]
install_at_once!(
    sqlx::Postgres,
    "INSERT INTO lock_claim AS c (name, fence) VALUES ($1, $2) ON CONFLICT (name) \
     DO UPDATE SET fence = EXCLUDED.fence WHERE c.fence <= EXCLUDED.fence"
);

#[cfg(feature = "sqlite")]
install_at_once!(
    sqlx::Sqlite,
    "INSERT INTO lock_claim (name, fence) VALUES (?, ?) ON CONFLICT (name) \
     DO UPDATE SET fence = excluded.fence WHERE fence <= excluded.fence"
);

#[cfg(feature = "mysql")]
impl sealed::Sealed for sqlx::MySql {}

#[cfg(feature = "mysql")]
#[async_trait]
impl ClaimDatabase for sqlx::MySql {
    /// The first statement locks the row. The second reads the newest version of it, because the
    /// number of affected rows says nothing when the driver asks for the rows found.
    async fn install(
        local: &mut Transaction<'_, Self>,
        name: &str,
        fencing_token: i64,
    ) -> Result<bool, sqlx::Error> {
        let install = "INSERT INTO lock_claim (name, fence) VALUES (?, ?) \
            ON DUPLICATE KEY UPDATE fence = GREATEST(fence, VALUES(fence))";
        sqlx::query(install).bind(name).bind(fencing_token).execute(&mut **local).await?;
        let read = "SELECT fence FROM lock_claim WHERE name = ? FOR UPDATE";
        let installed: i64 = sqlx::query_scalar(read).bind(name).fetch_one(&mut **local).await?;
        Ok(installed == fencing_token)
    }
}
