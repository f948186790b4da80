//! The settings of a store in a SQL database.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sqlx::mysql::MySqlConnectOptions;
use sqlx::postgres::PgConnectOptions;

use super::connection::SqlDatabase;
use super::dialect::{Dialect, MySqlDialect, PostgresDialect};
use super::record_pages;
use crate::store::{CoordinatorNode, RecordSnapshot, StoreError};

const NAMESPACE_BYTES_MAX: usize = 64;
const LEASE_MIN: Duration = Duration::from_millis(300);

/// Where a store is, and how this process takes part in it.
#[derive(Clone)]
#[non_exhaustive]
pub struct SqlSettings {
    /// The database, as `postgres://user:password@host:port/database` or `mysql://…`. The password
    /// is shown nowhere.
    pub url: String,
    /// The name of this store among those in the same tables.
    pub namespace: String,
    /// This process, as the others see it.
    pub node: CoordinatorNode,
    /// How long the lead lasts without being renewed. Too short: a pause of the database or of this
    /// process costs the lead; too long: after a crash no process leads for that long.
    pub lease: Duration,
    /// How long one call of the database may take before the connection is given up. Too short: a
    /// large batch is sent again and again; too long: a dead connection is noticed late.
    pub call_limit: Duration,
    /// Bytes of the journal, the newest and as it is stored, that are not compacted. Too few:
    /// finished globals are put into the table of the records and deleted from it again before
    /// long; too many: a new leader reads for longer.
    pub tail_bytes: u64,
    /// Bytes of the journal before those after which it is compacted. Too few: many small
    /// transactions; too many: each keeps the database from storing batches for longer.
    pub compact_bytes: u64,
    /// Uses a database whose settings could lose acknowledged changes.
    pub allow_unsafe: bool,
}

impl SqlSettings {
    /// The default of [`tail_bytes`](Self::tail_bytes).
    pub const TAIL_BYTES: u64 = 16 << 20;

    /// Returns the defaults: namespace `default`, 3 s, 10 s, 16 MiB and 1 MiB.
    #[must_use]
    pub fn new(url: impl Into<String>, node: CoordinatorNode) -> Self {
        Self {
            url: url.into(),
            namespace: "default".to_owned(),
            node,
            lease: Duration::from_secs(3),
            call_limit: Duration::from_secs(10),
            tail_bytes: Self::TAIL_BYTES,
            compact_bytes: 1 << 20,
            allow_unsafe: false,
        }
    }

    /// Reads the records as they are at one moment. Changes nothing in the database: tables that
    /// are missing stay so.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unusable`] if the database does not answer or holds no such store.
    pub async fn snapshot(&self) -> Result<RecordSnapshot, StoreError> {
        record_pages::open(&self.database()?).await
    }

    /// Checks the settings, and returns the database that they name.
    pub(super) fn database(&self) -> Result<SqlDatabase, StoreError> {
        let (scheme, rest) = self.url.split_once("://").unwrap_or_default();
        let dialect = match scheme {
            "postgres" | "postgresql" => self.postgres(),
            "mysql" | "mariadb" => self.mysql(),
            _ => Err("the URL must begin with postgres:// or mysql://".to_owned()),
        };
        let dialect = dialect.and_then(|found| self.check().map(|()| found));
        let of_kind = || format!("the {} store", if rest.is_empty() { "sql" } else { scheme });
        let (at, dialect) =
            dialect.map_err(|reason| StoreError::Unusable { store: of_kind(), reason })?;
        let name = format!("the store {scheme}://{at}, namespace {}", self.namespace);
        let (name, namespace) = (Arc::from(name), Arc::from(&*self.namespace));
        Ok(SqlDatabase { name, namespace, dialect, call_limit: self.call_limit })
    }

    fn postgres(&self) -> Result<(String, Arc<dyn Dialect>), String> {
        let options: PgConnectOptions = self.url.parse().map_err(unreadable)?;
        let at = address(options.get_host(), options.get_port(), options.get_database());
        Ok((at, Arc::new(PostgresDialect::new(options))))
    }

    fn mysql(&self) -> Result<(String, Arc<dyn Dialect>), String> {
        let options: MySqlConnectOptions = self.url.parse().map_err(unreadable)?;
        let at = address(options.get_host(), options.get_port(), options.get_database());
        Ok((at, Arc::new(MySqlDialect::new(options))))
    }

    fn check(&self) -> Result<(), String> {
        let of_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let length = self.namespace.len();
        if !(1..=NAMESPACE_BYTES_MAX).contains(&length) || !self.namespace.chars().all(of_name) {
            return Err(format!(
                "a namespace has 1 to {NAMESPACE_BYTES_MAX} letters, digits and `-_.`"
            ));
        }
        if self.lease < LEASE_MIN {
            return Err(format!("a lease lasts at least {LEASE_MIN:?}"));
        }
        Ok(())
    }
}

impl fmt::Debug for SqlSettings {
    /// Without the URL, which may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlSettings")
            .field("namespace", &self.namespace)
            .field("node", &self.node)
            .field("lease", &self.lease)
            .field("call_limit", &self.call_limit)
            .field("tail_bytes", &self.tail_bytes)
            .field("compact_bytes", &self.compact_bytes)
            .field("allow_unsafe", &self.allow_unsafe)
            .finish_non_exhaustive()
    }
}

fn unreadable(error: sqlx::Error) -> String {
    format!("its URL cannot be read: {error}")
}

fn address(host: &str, port: u16, database: Option<&str>) -> String {
    format!("{host}:{port}/{}", database.unwrap_or_default())
}
