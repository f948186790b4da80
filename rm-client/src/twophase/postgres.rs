//! PostgreSQL: `PREPARE TRANSACTION`, `COMMIT PREPARED`, `pg_prepared_xacts`.
//!
//! The server remembers how each transaction number ended. The number of a branch is sent with its
//! registration, so that it is known how a branch ended that is not there any more.

use futures::FutureExt;
use futures::future::BoxFuture;
use handfast_rm_core::two_phase::{BranchName, DatabaseReply, Node, Trace};
use sqlx::postgres::PgArguments;
use sqlx::{PgConnection, Postgres};

use super::database::{BranchWork, Sessions, TwoPhase};
use super::error::XaError;
use crate::at::database::{Backend, Steps, rows};

/// Asks for the transaction's number. Fails if the transaction cannot be prepared any more:
/// PREPARE TRANSACTION of a failed one is a silent ROLLBACK that reports success. A transaction
/// that has sent a NOTIFY and written nothing gets its number here.
const DEED: &str = "SELECT pg_current_xact_id()::text";
/// Asks for the number of a transaction that looks as if it had only read: it has one if it has
/// written or locked a row.
const DEED_OF_READS: &str = "SELECT pg_current_xact_id_if_assigned()::text";
const TRACE: &str = "SELECT pg_xact_status($1::text::xid8)";
const PREPARED: &str = "SELECT gid FROM pg_prepared_xacts \
    WHERE database = current_database() AND starts_with(gid, $1) ORDER BY prepared LIMIT $2";

impl TwoPhase for Postgres {
    const NAME_BYTES_MAX: usize = 199;

    fn require(connection: &mut PgConnection) -> BoxFuture<'_, Result<Sessions, XaError>> {
        async {
            let setting = "SELECT current_setting('max_prepared_transactions')::bigint";
            let found = rows::<Self>(connection, setting.to_owned(), PgArguments::default());
            let found = found.await?;
            let row = found.first().ok_or(sqlx::Error::RowNotFound)?;
            match Self::number(row, 0)? {
                Some(1..) => Ok(Sessions::Free),
                Some(_) | None => Err(XaError::PreparedDisabled),
            }
        }
        .boxed()
    }

    fn start(_: &BranchName) -> String {
        "BEGIN".to_owned()
    }

    fn written(_: &Steps<Self>) -> Result<Option<i64>, sqlx::Error> {
        Ok(None)
    }

    fn branch_work(
        connection: &mut PgConnection,
        _: Option<i64>,
        only_reads: bool,
    ) -> BoxFuture<'_, Result<BranchWork, sqlx::Error>> {
        async move {
            let work = if only_reads { DEED_OF_READS } else { DEED };
            let found = rows::<Self>(connection, work.to_owned(), PgArguments::default()).await?;
            let row = found.first().ok_or(sqlx::Error::RowNotFound)?;
            let number = Self::text(row, 0)?;
            Ok(number.map_or(BranchWork::ReadOnly, |number| BranchWork::Wrote(Some(number))))
        }
        .boxed()
    }

    fn end_reading(_: &BranchName) -> String {
        "COMMIT".to_owned()
    }

    fn prepare(name: &BranchName) -> String {
        format!("PREPARE TRANSACTION {}", literal(name))
    }

    fn abandon(_: &BranchName) -> Vec<String> {
        vec!["ROLLBACK".to_owned()]
    }

    fn commit(name: &BranchName) -> String {
        format!("COMMIT PREPARED {}", literal(name))
    }

    fn roll_back(name: &BranchName) -> String {
        format!("ROLLBACK PREPARED {}", literal(name))
    }

    fn answer(error: &sqlx::Error) -> DatabaseReply {
        let Some(error) = error.as_database_error() else { return DatabaseReply::Lost };
        match error.code().as_deref() {
            // undefined_object
            Some("42704") => DatabaseReply::Missing,
            // object_not_in_prerequisite_state: the branch is busy in another session.
            Some("55000") => DatabaseReply::Busy,
            Some(_) | None => DatabaseReply::Refused,
        }
    }

    fn trace<'c>(
        connection: &'c mut PgConnection,
        _: &'c BranchName,
        number: Option<&'c str>,
    ) -> BoxFuture<'c, Result<Trace, sqlx::Error>> {
        async move {
            // Only the sweep has no number. It has just seen the branch, and will look again.
            let Some(number) = number else { return Ok(Trace::Open) };
            let mut arguments = PgArguments::default();
            Self::bind_text(&mut arguments, number);
            let found = rows::<Self>(connection, TRACE.to_owned(), arguments).await?;
            let row = found.first().ok_or(sqlx::Error::RowNotFound)?;
            Ok(trace_of(Self::text(row, 0)?.as_deref()))
        }
        .boxed()
    }

    fn prepared<'c>(
        connection: &'c mut PgConnection,
        node: &'c Node,
        max: usize,
    ) -> BoxFuture<'c, Result<Vec<BranchName>, sqlx::Error>> {
        async move {
            let mut arguments = PgArguments::default();
            Self::bind_text(&mut arguments, &node.prefix());
            Self::bind_number(&mut arguments, i64::try_from(max).unwrap_or(i64::MAX));
            let found = rows::<Self>(connection, PREPARED.to_owned(), arguments).await?;
            let mut names = Vec::with_capacity(found.len());
            for row in &found {
                let gid = Self::text(row, 0)?.unwrap_or_default();
                names.extend(BranchName::parse(&gid, node));
            }
            Ok(names)
        }
        .boxed()
    }
}

/// `pg_xact_status`, which counts a crashed transaction as aborted and forgets very old ones.
fn trace_of(status: Option<&str>) -> Trace {
    match status {
        Some("committed") => Trace::Committed,
        Some("aborted") => Trace::RolledBack,
        Some(_) => Trace::Open,
        None => Trace::Ended,
    }
}

/// An XID may hold quotes; standard_conforming_strings is on, so that a backslash is itself.
fn literal(name: &BranchName) -> String {
    format!("'{}'", name.to_string().replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use handfast_rm_core::XidText;

    #[test]
    fn a_name_is_quoted() {
        let node = Node::new("n").unwrap();
        let name = BranchName { node, branch: 1, xid: XidText::new("a';--:1").unwrap() };
        assert_eq!(Postgres::commit(&name), "COMMIT PREPARED 'hf1/n/0000000000000001/a'';--:1'");
    }

    #[test]
    fn a_status_is_a_trace() {
        assert_eq!(trace_of(Some("committed")), Trace::Committed);
        assert_eq!(trace_of(Some("aborted")), Trace::RolledBack);
        assert_eq!(trace_of(Some("in progress")), Trace::Open);
        assert_eq!(trace_of(None), Trace::Ended);
    }
}
