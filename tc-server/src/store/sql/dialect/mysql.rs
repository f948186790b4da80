//! MySQL and MariaDB, and what speaks their protocol and SQL: Galera and TiDB.

use std::fmt;

use futures::future::BoxFuture;
use sqlx::mysql::{MySqlConnectOptions, MySqlDatabaseError, MySqlRow};
use sqlx::{ConnectOptions, MySql, MySqlConnection, Row as _, TypeInfo, ValueRef};

use super::{CallError, Dialect, Statements, setting};
use crate::store::sql::connection::{Cell, DriverConnection, Row, Value, driver_connection};

/// The part of a packet that is left for values other than the batch.
const PACKET_BYTES_SPARE: usize = 64 << 10;
/// The least packet with which the store works: a batch may hold one request of 4 MiB and other
/// decisions.
const PACKET_BYTES_MIN: usize = 16 << 20;

/// MySQL and MariaDB.
pub(in crate::store::sql) struct MySqlDialect {
    options: MySqlConnectOptions,
}

impl MySqlDialect {
    pub(in crate::store::sql) fn new(options: MySqlConnectOptions) -> Self {
        Self { options: options.disable_statement_logging() }
    }
}

impl fmt::Debug for MySqlDialect {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.options.get_host();
        f.debug_struct("MySqlDialect").field("host", &host).finish_non_exhaustive()
    }
}

driver_connection!(MySqlConnection, MySql, MySqlRow);

/// READ COMMITTED takes no gap locks, and a statement sees the rows that it has waited for.
const ISOLATION: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";
/// On MariaDB a program that was stopped in a transaction holds its rows only for seconds; MySQL
/// reads that part as a comment.
const LIMITS: &str = "SET SESSION autocommit = 1, innodb_lock_wait_timeout = 2 \
    /*M!100300 , idle_transaction_timeout = 5 */";
/// A node of Galera answers a read only after it has applied what was committed elsewhere before.
const GALERA: &str = "SHOW GLOBAL VARIABLES LIKE 'wsrep_on'";
const READ_WHAT_IS_COMMITTED_ELSEWHERE: &str = "SET SESSION wsrep_sync_wait = 3";

impl Dialect for MySqlDialect {
    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn DriverConnection>, sqlx::Error>> {
        Box::pin(async {
            let mut connection = self.options.connect().await?;
            for sql in [ISOLATION, LIMITS] {
                sqlx::raw_sql(sql).execute(&mut connection).await?;
            }
            let of_galera = sqlx::raw_sql(GALERA).fetch_optional(&mut connection).await?;
            let of_galera = of_galera.map(|row| row.try_get_unchecked::<String, _>(1)).transpose();
            if of_galera?.as_deref() == Some("ON") {
                let sql = READ_WHAT_IS_COMMITTED_ELSEWHERE;
                sqlx::raw_sql(sql).execute(&mut connection).await?;
            }
            let connection: Box<dyn DriverConnection> = Box::new(connection);
            Ok(connection)
        })
    }

    fn statements(&self) -> &'static Statements {
        &STATEMENTS
    }

    fn put_records(&self, count: usize) -> String {
        let rows = vec!["(?, ?, ?)"; count].join(", ");
        format!(
            "INSERT INTO tc_record (namespace, record_key, value) VALUES {rows} \
             ON DUPLICATE KEY UPDATE value = VALUES(value)"
        )
    }

    fn delete_records(&self, count: usize) -> String {
        let keys = vec!["?"; count].join(", ");
        format!("DELETE FROM tc_record WHERE namespace = ? AND record_key IN ({keys})")
    }

    fn call_error(&self, error: &sqlx::Error) -> CallError {
        let of_database = error.as_database_error();
        let Some(of_database) = of_database.and_then(|it| it.try_downcast_ref()) else {
            return CallError::of_connection(error);
        };
        let (number, text) = (MySqlDatabaseError::number(of_database), error.to_string());
        match number {
            1022 | 1062 => CallError::Duplicate,
            // A deadlock, or a wait for a lock that took too long; TiDB: a write conflict.
            1205 | 1213 | 8002 | 8022 | 9007 => CallError::Again(text),
            // The disk, the tablespace or the connections are used up.
            1021 | 1040 | 1114 | 1203 => CallError::Again(text),
            // The server is shutting down or has lost the connection or its disk, or is read only,
            // as a primary that became a replica. Galera: the node has no quorum. TiDB: a part of
            // it does not answer. A statement that took too long was ended, or a connection that
            // nothing was asked on.
            1030
            | 1047
            | 1053
            | 1077
            | 1079
            | 1105
            | 1158..=1161
            | 1180
            | 1290
            | 1317
            | 1792
            | 1836
            | 1927
            | 1969
            | 3024
            | 4031
            | 9001..=9006 => CallError::Unknown(text),
            _ => CallError::Lasting(text),
        }
    }

    fn complaints(&self, settings: &[(String, String)]) -> Vec<String> {
        let is = |name, value| setting(settings, name).is_some_and(|found| found == value);
        let is_not = |name, value| setting(settings, name).is_some_and(|found| found != value);
        let mut complaints = Vec::new();
        if is_not("innodb_flush_log_at_trx_commit", "1") {
            complaints.push("`innodb_flush_log_at_trx_commit` is not 1: set it to 1".to_owned());
        }
        if is("log_bin", "ON") && is_not("sync_binlog", "1") {
            complaints.push("`sync_binlog` is not 1 and the binlog is on: set it to 1".to_owned());
        }
        if packet_bytes(settings) < PACKET_BYTES_MIN {
            let name = "max_allowed_packet";
            complaints.push(format!("`{name}` is less than {PACKET_BYTES_MIN}: raise it"));
        }
        complaints
    }

    fn replica(&self, settings: &[(String, String)]) -> Option<String> {
        let is_on = |name: &&str| setting(settings, name) == Some("ON");
        let name = ["read_only", "super_read_only"].into_iter().find(is_on)?;
        Some(format!("`{name}` is on: name the primary in the URL"))
    }

    fn batch_bytes_max(&self, settings: &[(String, String)]) -> usize {
        packet_bytes(settings).saturating_sub(PACKET_BYTES_SPARE)
    }
}

fn packet_bytes(settings: &[(String, String)]) -> usize {
    let bytes = setting(settings, "max_allowed_packet").and_then(|bytes| bytes.parse().ok());
    bytes.unwrap_or(PACKET_BYTES_MIN)
}

const STATEMENTS: Statements = Statements {
    create_tables: &[
        "CREATE TABLE IF NOT EXISTS tc_journal ( \
           namespace VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, \
           number BIGINT NOT NULL, epoch BIGINT NOT NULL, at BIGINT NOT NULL, \
           batch LONGBLOB NOT NULL, PRIMARY KEY (namespace, number)) ENGINE = InnoDB",
        "CREATE TABLE IF NOT EXISTS tc_record ( \
           namespace VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, \
           record_key VARBINARY(255) NOT NULL, value LONGBLOB NOT NULL, \
           PRIMARY KEY (namespace, record_key)) ENGINE = InnoDB",
        "CREATE TABLE IF NOT EXISTS tc_lease ( \
           namespace VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY, \
           holder VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, \
           epoch BIGINT NOT NULL, until DATETIME(6) NOT NULL, \
           node TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL) ENGINE = InnoDB",
        "CREATE TABLE IF NOT EXISTS tc_node ( \
           namespace VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, \
           id VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, \
           node TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, \
           seen DATETIME(6) NOT NULL, PRIMARY KEY (namespace, id)) ENGINE = InnoDB",
        "CREATE TABLE IF NOT EXISTS tc_mark ( \
           namespace VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY, \
           applied BIGINT NOT NULL, cluster_id VARBINARY(16) NOT NULL, layout BIGINT NOT NULL) \
           ENGINE = InnoDB",
    ],
    mark: "SELECT applied, cluster_id, layout FROM tc_mark WHERE namespace = ?",
    make_mark: "INSERT INTO tc_mark (namespace, applied, cluster_id, layout) \
        VALUES (?, 0, ?, ?) ON DUPLICATE KEY UPDATE applied = applied",
    make_lease: "INSERT INTO tc_lease (namespace, holder, epoch, until, node) \
        VALUES (?, '', 0, UTC_TIMESTAMP(6), '') ON DUPLICATE KEY UPDATE epoch = epoch",
    make_journal: "INSERT INTO tc_journal (namespace, number, epoch, at, batch) \
        SELECT m.namespace, 0, 0, 0, '' FROM tc_mark m WHERE m.namespace = ? AND m.applied = 0 \
        ON DUPLICATE KEY UPDATE tc_journal.epoch = tc_journal.epoch",
    server_settings: "SHOW GLOBAL VARIABLES WHERE Variable_name IN \
        ('innodb_flush_log_at_trx_commit', 'sync_binlog', 'log_bin', 'read_only', \
         'super_read_only', 'max_allowed_packet')",
    newest: "SELECT number, epoch FROM tc_journal WHERE namespace = ? \
        ORDER BY number DESC LIMIT 1",
    epoch_at: "SELECT epoch FROM tc_journal WHERE namespace = ? AND number = ?",
    append_mark: "INSERT INTO tc_journal (namespace, number, epoch, at, batch) \
        SELECT p.namespace, ?, ?, ?, '' FROM tc_journal p \
        WHERE p.namespace = ? AND p.number = ? AND p.epoch < ? FOR UPDATE",
    append_batch: "INSERT INTO tc_journal (namespace, number, epoch, at, batch) \
        SELECT p.namespace, ?, ?, ?, ? FROM tc_journal p \
        WHERE p.namespace = ? AND p.number = ? AND p.epoch = ? FOR UPDATE",
    confirm_batch: "UPDATE tc_journal SET at = at + 1 \
        WHERE namespace = ? AND number = ? AND epoch = ? AND batch = ?",
    begin_snapshot: "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; \
        START TRANSACTION WITH CONSISTENT SNAPSHOT",
    wait_for_readers: "SET SESSION autocommit = 1 /*M!100300 , idle_transaction_timeout = 60 */",
    begin: "START TRANSACTION",
    record_lengths: "SELECT record_key, CAST(OCTET_LENGTH(value) AS SIGNED) FROM tc_record \
        WHERE namespace = ? AND record_key > ? ORDER BY record_key LIMIT ?",
    records: "SELECT record_key, value FROM tc_record \
        WHERE namespace = ? AND record_key > ? AND record_key <= ? ORDER BY record_key",
    batch_lengths: "SELECT number, CAST(OCTET_LENGTH(batch) AS SIGNED) FROM tc_journal \
        WHERE namespace = ? AND number > ? AND number <= ? ORDER BY number LIMIT ?",
    batches: "SELECT number, batch FROM tc_journal \
        WHERE namespace = ? AND number > ? AND number <= ? ORDER BY number",
    advance_mark: "UPDATE tc_mark SET applied = ? WHERE namespace = ? AND applied = ?",
    raise_layout: "UPDATE tc_mark SET layout = ? WHERE namespace = ? AND layout < ?",
    delete_batches: "DELETE FROM tc_journal WHERE namespace = ? AND number < ?",
    lease: "SELECT holder, epoch, TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), until), node \
        FROM tc_lease WHERE namespace = ?",
    take_lease: "UPDATE tc_lease SET holder = ?, epoch = GREATEST(epoch + 1, ?), \
          until = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, node = ? \
        WHERE namespace = ? AND (until < UTC_TIMESTAMP(6) OR holder = ?)",
    renew_lease: "UPDATE tc_lease SET until = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND \
        WHERE namespace = ? AND holder = ? AND epoch = ?",
    // The epoch matters: a process may have taken the lease again before its earlier term gives it
    // up.
    end_lease: "UPDATE tc_lease SET until = UTC_TIMESTAMP(6) \
        WHERE namespace = ? AND holder = ? AND epoch = ?",
    note_node: "INSERT INTO tc_node (namespace, id, node, seen) \
        VALUES (?, ?, ?, UTC_TIMESTAMP(6)) \
        ON DUPLICATE KEY UPDATE node = VALUES(node), seen = VALUES(seen)",
    forget_nodes: "DELETE FROM tc_node WHERE namespace = ? \
        AND seen < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND",
    nodes: "SELECT node, TIMESTAMPDIFF(MICROSECOND, seen, UTC_TIMESTAMP(6)) \
        FROM tc_node WHERE namespace = ? ORDER BY id LIMIT ?",
};
