//! The differences between the databases: how to connect, the text of statements, and what an error
//! means. Which statement runs when is decided elsewhere.

mod mysql;
mod postgres;

use std::fmt;

use futures::future::BoxFuture;

use super::connection::DriverConnection;

pub(super) use mysql::MySqlDialect;
pub(super) use postgres::PostgresDialect;

/// A kind of database.
pub(super) trait Dialect: fmt::Debug + Send + Sync {
    /// Opens a connection whose commits are durable, which reads what is committed, and which waits
    /// for locks no longer than a few seconds.
    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn DriverConnection>, sqlx::Error>>;

    /// Returns the statements.
    fn statements(&self) -> &'static Statements;

    /// Returns the text that stores this many records, each with namespace, key and value.
    fn put_records(&self, count: usize) -> String;

    /// Returns the text that deletes this many records, with the namespace before all keys.
    fn delete_records(&self, count: usize) -> String;

    /// Tells what a failed call means.
    fn call_error(&self, error: &sqlx::Error) -> CallError;

    /// Returns what is wrong with the server's settings, from the rows of
    /// [`Statements::server_settings`], each a name and a value.
    fn complaints(&self, settings: &[(String, String)]) -> Vec<String>;

    /// Returns how the same rows show that the server is a replica, if it is one.
    fn replica(&self, settings: &[(String, String)]) -> Option<String>;

    /// Returns the largest batch in bytes that the server takes, by the same rows.
    fn batch_bytes_max(&self, settings: &[(String, String)]) -> usize;
}

/// The statements with a fixed text. Their places are in the order of the named values.
#[derive(Debug)]
pub(super) struct Statements {
    /// Tables, in the order in which they are created.
    pub(super) create_tables: &'static [&'static str],
    /// Namespace. Returns applied number, cluster id and layout.
    pub(super) mark: &'static str,
    /// Namespace, cluster id, layout. Does nothing if the row is there.
    pub(super) make_mark: &'static str,
    /// Namespace. Does nothing if the row is there.
    pub(super) make_lease: &'static str,
    /// Namespace. Makes row 0 of a journal of which nothing is applied, unless it is there.
    pub(super) make_journal: &'static str,
    /// Returns names and values of settings.
    pub(super) server_settings: &'static str,
    /// Namespace. Returns number and epoch of the journal's newest row.
    pub(super) newest: &'static str,
    /// Namespace, number. Returns the epoch of a row of the journal.
    pub(super) epoch_at: &'static str,
    /// Number, epoch, time, namespace, number before, epoch. Stores a mark behind a row of a
    /// smaller epoch.
    pub(super) append_mark: &'static str,
    /// Number, epoch, time, batch, namespace, number before, epoch. Stores a batch behind a row of
    /// the same epoch.
    pub(super) append_batch: &'static str,
    /// Namespace, number, epoch, batch. Changes the row if it has this batch.
    pub(super) confirm_batch: &'static str,
    /// Begins a transaction whose statements all see the same moment.
    pub(super) begin_snapshot: &'static str,
    /// Lets a transaction of this connection be idle for a minute while its rows are read.
    pub(super) wait_for_readers: &'static str,
    /// Begins a transaction that changes something.
    pub(super) begin: &'static str,
    /// Namespace, last key read, row limit. Returns keys and lengths of values, in order.
    pub(super) record_lengths: &'static str,
    /// Namespace, last key read, last key to read. Returns keys and values in the order of keys.
    pub(super) records: &'static str,
    /// Namespace, number before, last number, row limit. Returns numbers and lengths in order.
    pub(super) batch_lengths: &'static str,
    /// Namespace, number before, last number. Returns numbers and batches in order.
    pub(super) batches: &'static str,
    /// Number, namespace, number expected. Sets the applied number.
    pub(super) advance_mark: &'static str,
    /// Namespace, number. Deletes the rows before it from the journal.
    pub(super) delete_batches: &'static str,
    /// Layout, namespace, layout. Sets the layout, unless it is as late.
    pub(super) raise_layout: &'static str,
    /// Namespace. Returns holder, epoch, microseconds left, and node.
    pub(super) lease: &'static str,
    /// Holder, least epoch, microseconds, node, namespace, holder.
    pub(super) take_lease: &'static str,
    /// Microseconds, namespace, holder, epoch.
    pub(super) renew_lease: &'static str,
    /// Namespace, holder, epoch.
    pub(super) end_lease: &'static str,
    /// Namespace, id, node. Notes that a node is there.
    pub(super) note_node: &'static str,
    /// Namespace, microseconds. Deletes the nodes that have not been noted for that long.
    pub(super) forget_nodes: &'static str,
    /// Namespace, row limit. Returns nodes and microseconds since each was noted, by id.
    pub(super) nodes: &'static str,
}

/// Why a call failed, by what the caller can do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CallError {
    /// The statement took no effect: its row is there already.
    #[error("the row is there already")]
    Duplicate,
    /// The statement took no effect, for a reason that passes.
    #[error("{0}")]
    Again(String),
    /// The connection broke, fell silent or was never made. Whether a statement that changes
    /// something took effect is not known.
    #[error("{0}")]
    Unknown(String),
    /// The server is a replica. In a fail-over it becomes the primary soon.
    #[error("{0}")]
    Replica(String),
    /// Trying again does not help.
    #[error("{0}")]
    Lasting(String),
}

impl CallError {
    /// Sorts an error that is none of the database's own.
    fn of_connection(error: &sqlx::Error) -> Self {
        let of_connection =
            matches!(error, sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_));
        let text = error.to_string();
        if of_connection { Self::Unknown(text) } else { Self::Lasting(text) }
    }
}

/// Returns the value of a setting.
fn setting<'s>(settings: &'s [(String, String)], name: &str) -> Option<&'s str> {
    settings.iter().find(|(found, _)| found == name).map(|(_, value)| &**value)
}
