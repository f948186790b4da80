//! A row per lock in the resource's database: the largest token that has claimed it.

use async_trait::async_trait;
use sqlx::{Database, Transaction};

use crate::error::{BackendError, LockError};
use crate::guard::Guard;
use crate::name::{Fence, LockName};

/// A database whose transactions can claim. Ours alone implement it.
#[async_trait]
pub trait ClaimDatabase: Database + sealed::Sealed {
    /// Installs a token unless a larger one is there; answers whether it is installed. The row
    /// stays locked until the transaction ends.
    #[doc(hidden)]
    async fn install(
        local: &mut Transaction<'_, Self>,
        name: &str,
        fence: i64,
    ) -> Result<bool, sqlx::Error>;
}

/// Installs a fencing token in the resource's database, as the **first statement** of the local
/// transaction that reads and writes under it: from there on every older holder is refused, also by
/// this transaction's own COMMIT, because it keeps the row locked.
///
/// [`Guard::claim`] does it for a guard; this is for services that were sent the token by somebody
/// who holds the lock.
///
/// # Errors
/// [`LockError::Stale`] if a later holder has been here: roll back. [`LockError::Claim`] if the
/// database failed.
pub async fn claim<DB: ClaimDatabase>(
    local: &mut Transaction<'_, DB>,
    name: &LockName,
    fence: Fence,
) -> Result<(), LockError> {
    match DB::install(local, name.as_str(), fence.number()).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(LockError::Stale { name: name.to_string(), fence }),
        Err(error) => Err(LockError::Claim {
            name: name.to_string(),
            source: BackendError::passing("the resource's database failed", error),
        }),
    }
}

impl Guard {
    /// Claims the resource for this holder: the **first statement** of each local transaction under
    /// the lock, before its first read. The table `lock_claim` must be in that database.
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
    /// [`LockError::Lost`] if the lock is known to be lost, and those of [`claim`].
    pub async fn claim<DB: ClaimDatabase>(
        &self,
        local: &mut Transaction<'_, DB>,
    ) -> Result<(), LockError> {
        self.check()?;
        claim(local, self.name(), self.fence()).await
    }
}

mod sealed {
    pub trait Sealed {}
}

/// One statement where a conflict that is not resolved changes no row.
macro_rules! install_at_once {
    ($database:ty, $text:literal) => {
        impl sealed::Sealed for $database {}

        #[async_trait]
        impl ClaimDatabase for $database {
            async fn install(
                local: &mut Transaction<'_, Self>,
                name: &str,
                fence: i64,
            ) -> Result<bool, sqlx::Error> {
                let install = sqlx::query($text).bind(name).bind(fence);
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
    /// The first statement locks the row; what it holds is then read in its newest version, because
    /// affected rows tell nothing when the driver asks for rows that were found.
    async fn install(
        local: &mut Transaction<'_, Self>,
        name: &str,
        fence: i64,
    ) -> Result<bool, sqlx::Error> {
        let install = "INSERT INTO lock_claim (name, fence) VALUES (?, ?) \
            ON DUPLICATE KEY UPDATE fence = GREATEST(fence, VALUES(fence))";
        sqlx::query(install).bind(name).bind(fence).execute(&mut **local).await?;
        let read = "SELECT fence FROM lock_claim WHERE name = ? FOR UPDATE";
        let installed: i64 = sqlx::query_scalar(read).bind(name).fetch_one(&mut **local).await?;
        Ok(installed == fence)
    }
}
