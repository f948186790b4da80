//! A participant that keeps accounts in SQLite behind the fence. Its processes share the database,
//! which outlives each of them.

use handfast::Handfast;
use handfast::fence::{Fence, FenceError, Operation};
use handfast::participant::{Branch, Participant, Vote};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{Row, SqlitePool};

const TABLES: &str = "CREATE TABLE vault (cents INTEGER NOT NULL);
    INSERT INTO vault VALUES (1000);
    CREATE TABLE set_aside (xid TEXT NOT NULL, branch INTEGER NOT NULL, cents INTEGER NOT NULL)";

pub(crate) struct Vault {
    pool: SqlitePool,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum VaultError {
    #[error("not so much left")]
    Short,
    #[error(transparent)]
    Fence(#[from] FenceError),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Handfast(#[from] handfast::Error),
}

impl Vault {
    pub(crate) async fn open(path: &str) -> Self {
        let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
        let patient = options.busy_timeout(std::time::Duration::from_secs(30));
        let pool = SqlitePoolOptions::new().max_connections(2).connect_with(patient);
        Self { pool: pool.await.unwrap() }
    }

    pub(crate) async fn lay_out(&self, handfast: &Handfast) {
        handfast.migrate(&self.pool).await.unwrap();
        sqlx::raw_sql(TABLES).execute(&self.pool).await.unwrap();
    }

    /// Returns the free and the reserved cents.
    pub(crate) async fn cents(&self) -> [i64; 2] {
        let sql = "SELECT cents, (SELECT coalesce(sum(cents), 0) FROM set_aside) FROM vault";
        let row = sqlx::query(sql).fetch_one(&self.pool).await.unwrap();
        [row.get(0), row.get(1)]
    }

    async fn end(
        &self,
        branch: &Branch<i64>,
        operation: Operation,
        back: i64,
    ) -> Result<(), VaultError> {
        let fence = Fence::new(&branch.xid, branch.id, "vault")?;
        let (xid, id) = (branch.xid.to_string(), i64::try_from(branch.id).unwrap());
        let ended = fence.run(&self.pool, operation, async |mut local| {
            let give_back = sqlx::query("UPDATE vault SET cents = cents + ?").bind(back);
            give_back.execute(&mut **local).await?;
            let forget = sqlx::query("DELETE FROM set_aside WHERE xid = ? AND branch = ?");
            forget.bind(&xid).bind(id).execute(&mut **local).await?;
            Ok::<_, VaultError>(())
        });
        ended.await.map(drop)
    }
}

impl Participant for Vault {
    type Input = i64;
    type Error = VaultError;

    async fn prepare(&self, branch: &Branch<i64>) -> Result<Vote, VaultError> {
        let fence = Fence::new(&branch.xid, branch.id, "vault")?;
        let (xid, id) = (branch.xid.to_string(), i64::try_from(branch.id).unwrap());
        let cents = branch.input;
        let prepared = fence.run(&self.pool, Operation::Try, async |mut local| {
            let take = "UPDATE vault SET cents = cents - ?1 WHERE cents >= ?1";
            let taken = sqlx::query(take).bind(cents).execute(&mut **local).await?;
            if taken.rows_affected() == 0 {
                return Err(VaultError::Short);
            }
            let note = sqlx::query("INSERT INTO set_aside VALUES (?, ?, ?)").bind(&xid);
            note.bind(id).bind(cents).execute(&mut **local).await?;
            Ok(())
        });
        match prepared.await {
            Ok(_) => Ok(Vote::Yes),
            Err(error @ (VaultError::Short | VaultError::Fence(FenceError::Barred { .. }))) => {
                Ok(Vote::No(error.to_string()))
            }
            Err(error) => Err(error),
        }
    }

    async fn commit(&self, branch: &Branch<i64>) -> Result<(), VaultError> {
        self.end(branch, Operation::Confirm, 0).await
    }

    async fn roll_back(&self, branch: &Branch<i64>) -> Result<(), VaultError> {
        self.end(branch, Operation::Cancel, branch.input).await
    }

    async fn prepared(&self) -> Result<Vec<Branch<i64>>, VaultError> {
        let all = "SELECT xid, branch, cents FROM set_aside LIMIT 1000";
        let rows = sqlx::query(all).fetch_all(&self.pool).await?;
        let branch = |row: &sqlx::sqlite::SqliteRow| {
            let xid = row.get::<String, _>(0).parse()?;
            Ok(Branch { xid, id: row.get::<i64, _>(1).cast_unsigned(), input: row.get(2) })
        };
        rows.iter().map(branch).collect()
    }
}
