//! The part of two-phase commit that differs between databases: statements, and the meaning of
//! answers.
//!
//! Sealed as AT mode's trait is: [`XaDatabase`] is the bound that users see. SQL is sent as plain
//! text, because not every server prepares these statements.

use futures::future::BoxFuture;
use handfast_rm_core::two_phase::{BranchName, DatabaseReply, Node, Trace};

use super::error::XaError;
use crate::at::BoundQuery;
use crate::at::database::{Backend, Steps};

/// A database that a resource of two-phase commit can be made of: `sqlx::Postgres` or
/// `sqlx::MySql`. `sqlx::Sqlite` implements it only to be refused with a reason.
pub trait XaDatabase: TwoPhase {}

impl<DB: TwoPhase> XaDatabase for DB {}

/// Whether a session is free again once its branch is prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sessions {
    /// Any session can finish the branch, and this one can begin another.
    Free,
    /// The branch belongs to the session until the session ends; then any other can finish it.
    Stay,
}

/// The work of a branch, asked for just before it is registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BranchWork {
    /// Nothing that could be rolled back.
    ReadOnly,
    /// Changes, with the transaction's number where the database remembers by it how they end.
    Wrote(Option<String>),
}

/// One database product.
pub trait TwoPhase: Backend {
    /// The longest name of a branch, in bytes.
    const NAME_BYTES_MAX: usize;

    /// Makes sure that the server can prepare and recover. Returns whether sessions stay with
    /// prepared branches.
    fn require(connection: &mut Self::Connection) -> BoxFuture<'_, Result<Sessions, XaError>>;

    /// Begins a branch.
    fn start(name: &BranchName) -> String;

    /// Returns how much the session has written, if the answer to [`start`](Self::start) says so.
    fn written(steps: &Steps<Self>) -> Result<Option<i64>, sqlx::Error>;

    /// Asks for the work of the open branch so far. Fails if it cannot be prepared any more.
    /// `begun` is the result of [`written`](Self::written); `only_reads` says whether all texts
    /// so far look like reads.
    fn branch_work(
        connection: &mut Self::Connection,
        begun: Option<i64>,
        only_reads: bool,
    ) -> BoxFuture<'_, Result<BranchWork, sqlx::Error>>;

    /// Ends an open branch that has only read.
    fn end_reading(name: &BranchName) -> String;

    /// Ends the work of a branch and prepares it.
    fn prepare(name: &BranchName) -> String;

    /// Rolls back a branch that is not prepared, in order; only the last must succeed.
    fn abandon(name: &BranchName) -> Vec<String>;

    /// Commits a prepared branch.
    fn commit(name: &BranchName) -> String;

    /// Rolls back a prepared branch.
    fn roll_back(name: &BranchName) -> String;

    /// Returns the meaning of an error.
    fn answer(error: &sqlx::Error) -> DatabaseReply;

    /// Asks what else is known of a branch that was not found when it was to be finished. `number`
    /// is the one from [`BranchWork::Wrote`].
    fn trace<'c>(
        connection: &'c mut Self::Connection,
        name: &'c BranchName,
        number: Option<&'c str>,
    ) -> BoxFuture<'c, Result<Trace, sqlx::Error>>;

    /// Lists the prepared branches of a node in this database, at most `max`.
    fn prepared<'c>(
        connection: &'c mut Self::Connection,
        node: &'c Node,
        max: usize,
    ) -> BoxFuture<'c, Result<Vec<BranchName>, sqlx::Error>>;
}

/// Sends one statement of ours.
pub(super) async fn send<DB: TwoPhase>(
    connection: &mut DB::Connection,
    sql: String,
) -> Result<Steps<DB>, sqlx::Error> {
    DB::steps(connection, BoundQuery::plain(sql)).await
}

/// Returns the meaning of a result.
pub(super) fn answer_of<DB: TwoPhase, T>(result: &Result<T, sqlx::Error>) -> DatabaseReply {
    match result {
        Ok(_) => DatabaseReply::Done,
        Err(error) => DB::answer(error),
    }
}
