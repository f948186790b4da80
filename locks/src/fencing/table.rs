//! The fencing token in a column of the protected row.

use crate::error::LockError;
use crate::guard::Guard;
use crate::name::FencingToken;

/// A table whose rows carry the fencing token of the last holder that has claimed them.
///
/// This costs less than a row of [`lock_claim`](crate::Guard::claim) when a lock protects one row:
/// the claim is one UPDATE, and every write repeats the check, so that reads and writes need not
/// share a transaction. This type makes the SQL, and the caller executes it.
///
/// ```
/// use handfast_locks::fencing::FencedTable;
/// use handfast_locks::{Guard, LockError};
///
/// async fn add(pool: &sqlx::SqlitePool, guard: &Guard) -> Result<(), Box<dyn std::error::Error>> {
///     let stock = FencedTable::new("stock", "id", "fence")?;
///     let token = guard.fencing_token().number();
///     let text = sqlx::AssertSqlSafe(stock.claim_text("?", "?"));
///     let claimed = sqlx::query(text).bind(token).bind(7).bind(token).execute(pool).await?;
///     stock.check(guard, claimed.rows_affected())?;
///     let n: i64 = sqlx::query_scalar("SELECT n FROM stock WHERE id = 7").fetch_one(pool).await?;
///     let write = "UPDATE stock SET n = ? WHERE id = 7 AND fence <= ?";
///     let written = sqlx::query(write).bind(n + 1).bind(token).execute(pool).await?;
///     stock.check(guard, written.rows_affected())?;
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
pub struct FencedTable {
    table: String,
    key: String,
    token_column: String,
}

impl FencedTable {
    /// Describes a table by its name, the column of its key, and the column of the token, which is
    /// a `BIGINT NOT NULL DEFAULT 0`.
    ///
    /// # Errors
    /// [`LockError::Name`] for a name other than a plain identifier. Only those can be put into SQL
    /// of every database as they are.
    pub fn new(table: &str, key: &str, token_column: &str) -> Result<Self, LockError> {
        let [table, key, token_column] = [table, key, token_column].map(identifier);
        Ok(Self { table: table?, key: key?, token_column: token_column? })
    }

    /// Returns the UPDATE that installs a token, to be executed before the first read. Bind the
    /// token, the key and the token again. `token` and `key` are the database's placeholders: `$1`
    /// and `$2` on PostgreSQL, where the token is bound once, and `?` elsewhere.
    #[must_use]
    pub fn claim_text(&self, token: &str, key: &str) -> String {
        let Self { table, key: key_column, token_column } = self;
        format!(
            "UPDATE {table} SET {token_column} = {token} \
             WHERE {key_column} = {key} AND {token_column} <= {token}"
        )
    }

    /// Checks how many rows a claim or a fenced write has found: one, or it came too late. The SQL
    /// compares with `<=`, so a holder may write as often as it likes.
    ///
    /// # Errors
    /// [`LockError::Stale`] for any number other than one. On MySQL, through a driver that does not
    /// ask for the rows found, a write that changes nothing counts as none.
    pub fn check(&self, guard: &Guard, rows: u64) -> Result<(), LockError> {
        self.check_token(guard.fencing_token(), rows)
    }

    /// Checks the same for a service that received the token from the holder.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn check_token(&self, fencing_token: FencingToken, rows: u64) -> Result<(), LockError> {
        if rows == 1 {
            return Ok(());
        }
        Err(LockError::Stale { name: self.table.clone(), fencing_token })
    }
}

fn identifier(name: &str) -> Result<String, LockError> {
    let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if is_plain && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        return Ok(name.to_owned());
    }
    let reason = "it is not a plain identifier";
    Err(LockError::Name { name: name.to_owned(), reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_identifiers_are_accepted() {
        for name in ["", "1a", "a b", "a;b", "a\"b", "größe"] {
            assert!(FencedTable::new(name, "id", "fence").is_err(), "{name:?}");
        }
        let table = FencedTable::new("stock", "id", "fence").unwrap();
        assert_eq!(
            table.claim_text("$1", "$2"),
            "UPDATE stock SET fence = $1 WHERE id = $2 AND fence <= $1"
        );
        assert!(table.check_token(FencingToken::new(1), 1).is_ok());
        assert!(table.check_token(FencingToken::new(1), 0).is_err());
    }
}
