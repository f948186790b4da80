//! SQLite has no prepared transactions: the resource is refused, with a reason, when it is made.
//!
//! Nothing else here is ever called, because there is no resource to call it through.

use futures::FutureExt;
use futures::future::BoxFuture;
use handfast_rm_core::two_phase::{BranchName, DatabaseReply, Node, Trace};
use sqlx::{Sqlite, SqliteConnection};

use super::database::{BranchWork, Sessions, TwoPhase};
use super::error::XaError;
use crate::at::database::Steps;

fn refusal() -> XaError {
    XaError::Unsupported { product: "SQLite" }
}

impl TwoPhase for Sqlite {
    const NAME_BYTES_MAX: usize = 0;

    fn require(_: &mut SqliteConnection) -> BoxFuture<'_, Result<Sessions, XaError>> {
        async { Err(refusal()) }.boxed()
    }

    fn start(_: &BranchName) -> String {
        String::new()
    }

    fn written(_: &Steps<Self>) -> Result<Option<i64>, sqlx::Error> {
        Ok(None)
    }

    fn branch_work(
        _: &mut SqliteConnection,
        _: Option<i64>,
        _: bool,
    ) -> BoxFuture<'_, Result<BranchWork, sqlx::Error>> {
        async { Err(refusal().into()) }.boxed()
    }

    fn end_reading(_: &BranchName) -> String {
        String::new()
    }

    fn prepare(_: &BranchName) -> String {
        String::new()
    }

    fn abandon(_: &BranchName) -> Vec<String> {
        Vec::new()
    }

    fn commit(_: &BranchName) -> String {
        String::new()
    }

    fn roll_back(_: &BranchName) -> String {
        String::new()
    }

    fn answer(_: &sqlx::Error) -> DatabaseReply {
        DatabaseReply::Refused
    }

    fn trace<'c>(
        _: &'c mut SqliteConnection,
        _: &'c BranchName,
        _: Option<&'c str>,
    ) -> BoxFuture<'c, Result<Trace, sqlx::Error>> {
        async { Err(refusal().into()) }.boxed()
    }

    fn prepared<'c>(
        _: &'c mut SqliteConnection,
        _: &'c Node,
        _: usize,
    ) -> BoxFuture<'c, Result<Vec<BranchName>, sqlx::Error>> {
        async { Ok(Vec::new()) }.boxed()
    }
}
