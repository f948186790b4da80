//! PostgreSQL, and what speaks its protocol and SQL: YugabyteDB and CockroachDB.

use std::fmt;

use futures::future::BoxFuture;
use sqlx::postgres::{PgConnectOptions, PgRow};
use sqlx::{ConnectOptions, PgConnection, Postgres, Row as _, TypeInfo, ValueRef};

use super::{CallError, Dialect, Statements, setting};
use crate::store::sql::connection::{Cell, DriverConnection, Row, Value, driver_connection};

/// A bytea and a message of the protocol end at 1 GiB. The rest is for the other values.
const BATCH_BYTES_MAX: usize = 1_000 << 20;

/// PostgreSQL.
pub(in crate::store::sql) struct PostgresDialect {
    options: PgConnectOptions,
}

impl PostgresDialect {
    pub(in crate::store::sql) fn new(options: PgConnectOptions) -> Self {
        Self { options: options.disable_statement_logging() }
    }
}

impl fmt::Debug for PostgresDialect {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.options.get_host();
        f.debug_struct("PostgresDialect").field("host", &host).finish_non_exhaustive()
    }
}

driver_connection!(PgConnection, Postgres, PgRow);

/// Settings of a connection. A setting that the server does not know is left out. Read committed,
/// so that a statement sees the rows that it has waited for. A program that was stopped in a
/// transaction, or whose host has gone, holds its rows only for seconds. There is no
/// `statement_timeout`: a server could take it for a reason to end its wait for a synchronous
/// standby. Rows are found by the primary key alone: of tables whose rows live for seconds the
/// statistics say nothing, and the planner would read all of one, dead rows included, to delete a
/// few.
const SET_UP: &str = "\
    SELECT set_config(s.name, w.setting, false) FROM pg_settings s JOIN (VALUES \
      ('default_transaction_isolation', 'read committed'), \
      ('lock_timeout', '2s'), \
      ('idle_in_transaction_session_timeout', '5s'), \
      ('enable_seqscan', 'off'), \
      ('enable_bitmapscan', 'off'), \
      ('enable_hashjoin', 'off'), \
      ('enable_mergejoin', 'off'), \
      ('tcp_keepalives_idle', '5'), \
      ('tcp_keepalives_interval', '2'), \
      ('tcp_keepalives_count', '3')) AS w (name, setting) ON w.name = s.name";

/// A commit must be durable before it is answered. Levels above this one are kept, and so is
/// `remote_write`, which is chosen where a standby's memory counts as durable.
const BE_DURABLE: &str = "\
    SELECT set_config('synchronous_commit', 'on', false) \
    WHERE current_setting('synchronous_commit') IN ('off', 'local')";

impl Dialect for PostgresDialect {
    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn DriverConnection>, sqlx::Error>> {
        Box::pin(async {
            let mut connection = self.options.connect().await?;
            for sql in [SET_UP, BE_DURABLE] {
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
        let mut sql = String::from("INSERT INTO tc_record (namespace, record_key, value) VALUES ");
        for place in (0..count).map(|row| 3 * row) {
            let comma = if place == 0 { "" } else { ", " };
            let [namespace, key, value] = [place + 1, place + 2, place + 3];
            sql.push_str(&format!("{comma}(${namespace}, ${key}, ${value})"));
        }
        sql + " ON CONFLICT (namespace, record_key) DO UPDATE SET value = EXCLUDED.value"
    }

    fn delete_records(&self, count: usize) -> String {
        // A join, since a list behind IN may become a filter over all rows of the namespace.
        let keys: Vec<String> = (0..count).map(|key| format!("(${}::bytea)", key + 2)).collect();
        let keys = keys.join(", ");
        format!(
            "DELETE FROM tc_record r USING (VALUES {keys}) AS k (record_key) \
             WHERE r.namespace = $1 AND r.record_key = k.record_key"
        )
    }

    fn call_error(&self, error: &sqlx::Error) -> CallError {
        let Some(of_database) = error.as_database_error() else {
            return CallError::of_connection(error);
        };
        let (code, text) = (of_database.code().unwrap_or_default(), error.to_string());
        match &*code {
            "23505" => CallError::Duplicate,
            // The transaction was rolled back for another one, or waited too long for its locks.
            "40001" | "40P01" | "55P03" => CallError::Again(text),
            // The disk, the memory or the connections are used up.
            "53000" | "53100" | "53200" | "53300" | "53400" => CallError::Again(text),
            // The server is shutting down, starting, or has lost the connection or its disk; or it
            // is read only, as a primary that became a standby; or a transaction took too long.
            "25006" | "25P03" | "25P04" | "40003" | "57014" | "57P01" | "57P02" | "57P03"
            | "57P05" => CallError::Unknown(text),
            code if code.starts_with("08") || code.starts_with("58") => CallError::Unknown(text),
            _ => CallError::Lasting(text),
        }
    }

    fn complaints(&self, settings: &[(String, String)]) -> Vec<String> {
        let mut complaints = Vec::new();
        for name in ["fsync", "full_page_writes"] {
            if setting(settings, name) == Some("off") {
                complaints.push(format!("`{name}` is off: set it to on"));
            }
        }
        if let Some(level @ ("off" | "local")) = setting(settings, "synchronous_commit") {
            let name = "synchronous_commit";
            complaints.push(format!("`{name}` stays {level}: connect without a pooler"));
        }
        complaints
    }

    fn replica(&self, settings: &[(String, String)]) -> Option<String> {
        let is_standby = setting(settings, "in_recovery") == Some("on");
        is_standby.then(|| "it is a standby: name the primary in the URL".to_owned())
    }

    fn batch_bytes_max(&self, _settings: &[(String, String)]) -> usize {
        BATCH_BYTES_MAX
    }
}

const STATEMENTS: Statements = Statements {
    create_tables: &[
        "CREATE TABLE IF NOT EXISTS tc_journal (namespace text NOT NULL, number bigint NOT NULL, \
           epoch bigint NOT NULL, at bigint NOT NULL, batch bytea NOT NULL, \
           PRIMARY KEY (namespace, number))",
        "CREATE TABLE IF NOT EXISTS tc_record (namespace text NOT NULL, record_key bytea NOT NULL, \
           value bytea NOT NULL, PRIMARY KEY (namespace, record_key))",
        "CREATE TABLE IF NOT EXISTS tc_lease (namespace text NOT NULL PRIMARY KEY, \
           holder text NOT NULL, epoch bigint NOT NULL, until timestamptz NOT NULL, \
           node text NOT NULL)",
        "CREATE TABLE IF NOT EXISTS tc_node (namespace text NOT NULL, id text NOT NULL, \
           node text NOT NULL, seen timestamptz NOT NULL, PRIMARY KEY (namespace, id))",
        "CREATE TABLE IF NOT EXISTS tc_mark (namespace text NOT NULL PRIMARY KEY, \
           applied bigint NOT NULL, cluster_id bytea NOT NULL, layout bigint NOT NULL)",
    ],
    mark: "SELECT applied, cluster_id, layout FROM tc_mark WHERE namespace = $1",
    make_mark: "INSERT INTO tc_mark (namespace, applied, cluster_id, layout) \
        VALUES ($1, 0, $2, $3) ON CONFLICT (namespace) DO NOTHING",
    make_lease: "INSERT INTO tc_lease (namespace, holder, epoch, until, node) \
        VALUES ($1, '', 0, clock_timestamp(), '') ON CONFLICT (namespace) DO NOTHING",
    make_journal: "INSERT INTO tc_journal (namespace, number, epoch, at, batch) \
        SELECT namespace, 0, 0, 0, '' FROM tc_mark WHERE namespace = $1 AND applied = 0 \
        ON CONFLICT (namespace, number) DO NOTHING",
    server_settings: "SELECT name, setting FROM pg_settings \
        WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit') \
        UNION ALL SELECT 'in_recovery', CASE WHEN pg_is_in_recovery() THEN 'on' ELSE 'off' END",
    newest: "SELECT number, epoch FROM tc_journal WHERE namespace = $1 \
        ORDER BY number DESC LIMIT 1",
    epoch_at: "SELECT epoch FROM tc_journal WHERE namespace = $1 AND number = $2",
    append_mark: "INSERT INTO tc_journal (namespace, number, epoch, at, batch) \
        SELECT p.namespace, $1, $2, $3, '' FROM tc_journal p \
        WHERE p.namespace = $4 AND p.number = $5 AND p.epoch < $6 FOR UPDATE",
    append_batch: "INSERT INTO tc_journal (namespace, number, epoch, at, batch) \
        SELECT p.namespace, $1, $2, $3, $4 FROM tc_journal p \
        WHERE p.namespace = $5 AND p.number = $6 AND p.epoch = $7 FOR UPDATE",
    confirm_batch: "UPDATE tc_journal SET at = at + 1 \
        WHERE namespace = $1 AND number = $2 AND epoch = $3 AND batch = $4",
    begin_snapshot: "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    wait_for_readers: "SELECT set_config(s.name, '60s', false) FROM pg_settings s \
        WHERE s.name = 'idle_in_transaction_session_timeout'",
    begin: "BEGIN",
    record_lengths: "SELECT record_key, CAST(OCTET_LENGTH(value) AS bigint) FROM tc_record \
        WHERE namespace = $1 AND record_key > $2 ORDER BY record_key LIMIT $3",
    records: "SELECT record_key, value FROM tc_record \
        WHERE namespace = $1 AND record_key > $2 AND record_key <= $3 ORDER BY record_key",
    batch_lengths: "SELECT number, CAST(OCTET_LENGTH(batch) AS bigint) FROM tc_journal \
        WHERE namespace = $1 AND number > $2 AND number <= $3 ORDER BY number LIMIT $4",
    batches: "SELECT number, batch FROM tc_journal \
        WHERE namespace = $1 AND number > $2 AND number <= $3 ORDER BY number",
    advance_mark: "UPDATE tc_mark SET applied = $1 WHERE namespace = $2 AND applied = $3",
    raise_layout: "UPDATE tc_mark SET layout = $1 WHERE namespace = $2 AND layout < $3",
    delete_batches: "DELETE FROM tc_journal WHERE namespace = $1 AND number < $2",
    lease: "SELECT holder, epoch, \
          CAST(EXTRACT(EPOCH FROM until - clock_timestamp()) * 1000000 AS bigint), node \
        FROM tc_lease WHERE namespace = $1",
    take_lease: "UPDATE tc_lease SET holder = $1, epoch = GREATEST(epoch + 1, $2), \
          until = clock_timestamp() + $3 * interval '1 microsecond', node = $4 \
        WHERE namespace = $5 AND (until < clock_timestamp() OR holder = $6)",
    renew_lease: "UPDATE tc_lease \
        SET until = clock_timestamp() + $1 * interval '1 microsecond' \
        WHERE namespace = $2 AND holder = $3 AND epoch = $4",
    // The epoch matters: a process may have taken the lease again before its earlier term gives it
    // up.
    end_lease: "UPDATE tc_lease SET until = clock_timestamp() \
        WHERE namespace = $1 AND holder = $2 AND epoch = $3",
    note_node: "INSERT INTO tc_node (namespace, id, node, seen) \
        VALUES ($1, $2, $3, clock_timestamp()) ON CONFLICT (namespace, id) \
        DO UPDATE SET node = EXCLUDED.node, seen = EXCLUDED.seen",
    forget_nodes: "DELETE FROM tc_node WHERE namespace = $1 \
        AND seen < clock_timestamp() - $2 * interval '1 microsecond'",
    nodes: "SELECT node, \
          CAST(EXTRACT(EPOCH FROM clock_timestamp() - seen) * 1000000 AS bigint) \
        FROM tc_node WHERE namespace = $1 ORDER BY id LIMIT $2",
};
