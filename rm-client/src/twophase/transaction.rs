//! A local transaction that may be a branch of a global one, to be prepared.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use handfast_rm_core::two_phase::BranchName;
use tracing::{Instrument, Span};

use super::control::{Effect, admit};
use super::database::{XaDatabase, send};
use super::error::XaError;
use super::pooled_connection::PooledConnection;
use super::state::XaState;
use crate::at::BoundQuery;
use crate::context::{Context, OpenBranch};
use crate::trace;
use crate::xid::Xid;

/// A local transaction: a branch of the ambient global, or a plain one outside of any.
///
/// `&mut` of it is a `sqlx::Executor`. Everything goes to the database as it is, but for texts that
/// would end the transaction past the library. Dropped without [`commit`](Self::commit), it is
/// rolled back, with its connection.
#[must_use = "a local transaction that is dropped is rolled back"]
pub struct XaTransaction<'t, DB: XaDatabase> {
    pub(super) session: PooledConnection<DB>,
    pub(super) shared: Arc<XaState<DB>>,
    /// `None`: a plain local transaction.
    pub(super) branch: Option<Branch>,
    /// Lets a closure borrow what lives as long as the resource.
    scope: PhantomData<&'t ()>,
}

/// A branch that is not prepared yet.
#[derive(Debug)]
pub(super) struct Branch {
    pub(super) name: BranchName,
    pub(super) xid: Xid,
    _open: OpenBranch,
    /// How much its session had written when it began, if the database counts that.
    pub(super) begun: Option<i64>,
    /// Whether all its statements so far look like reads. A function may write all the same.
    pub(super) only_reads: bool,
    /// From its beginning until it is prepared.
    pub(super) span: Span,
}

impl<DB: XaDatabase> XaTransaction<'_, DB> {
    pub(super) async fn begin(
        shared: Arc<XaState<DB>>,
        context: Option<Context>,
    ) -> Result<Self, sqlx::Error> {
        let named = context.map(|context| {
            let (name, open) = (shared.name_branch(&context.xid), context.open_branch());
            (name, context.xid, open)
        });
        if let Some((name, ..)) = &named {
            name.check_length(DB::NAME_BYTES_MAX).map_err(XaError::from)?;
        }
        let mut session = PooledConnection::acquire(&shared.pool).await?;
        let start = named.as_ref().map_or_else(|| "BEGIN".to_owned(), |(name, ..)| DB::start(name));
        let begun = DB::written(&send::<DB>(&mut session, start).await?)?;
        let resource = &shared.identity.resource_id;
        let branch = named.map(|(name, xid, _open)| {
            let span = trace::branch(&xid, name.branch, resource, "XA", Some(DB::DIALECT));
            Branch { name, xid, _open, begun, only_reads: true, span }
        });
        Ok(Self { session, shared, branch, scope: PhantomData })
    }

    /// The global that this is a branch of.
    #[must_use]
    pub fn xid(&self) -> Option<&Xid> {
        self.branch.as_ref().map(|branch| &branch.xid)
    }

    /// Commits: phase one, if this is a branch. What it wrote stays locked in the database until
    /// its global is decided.
    ///
    /// # Errors
    /// The database's error, or an [`XaError`]. After an error the local transaction is rolled
    /// back, unless it is [`XaError::PrepareUnknown`].
    pub async fn commit(mut self) -> Result<(), sqlx::Error> {
        match self.branch.take() {
            Some(branch) => {
                let span = branch.span.clone();
                self.prepare(branch).instrument(span).await
            }
            None => self.end("COMMIT".to_owned()).await,
        }
    }

    /// Rolls back the local transaction.
    ///
    /// # Errors
    /// The database's error. It rolls back all the same: the connection is closed then.
    pub async fn rollback(mut self) -> Result<(), sqlx::Error> {
        match self.branch.take() {
            Some(branch) => self.abandon(&branch.name).await,
            None => self.end("ROLLBACK".to_owned()).await,
        }
    }

    /// Ends a local transaction that the coordinator need not know of.
    pub(super) async fn end(&mut self, sql: String) -> Result<(), sqlx::Error> {
        send::<DB>(&mut self.session, sql).await?;
        self.session.mark_clean();
        Ok(())
    }

    /// Rolls back a branch that is not prepared. Of the statements only the last must succeed: the
    /// ones before it bring the session into the state that the last one needs, if it is not there.
    pub(super) async fn abandon(&mut self, name: &BranchName) -> Result<(), sqlx::Error> {
        let mut statements = DB::abandon(name);
        let last = statements.pop();
        for sql in statements {
            // If an error matters, the last statement fails as well.
            let _ = send::<DB>(&mut self.session, sql).await;
        }
        match last {
            Some(last) => self.end(last).await,
            None => Ok(()),
        }
    }

    /// Lets a statement pass unless it would end the transaction.
    pub(super) fn admit(&mut self, query: &BoundQuery<DB>) -> Result<(), XaError> {
        self.note(effect_of(query)?);
        Ok(())
    }

    /// Takes note of a statement that passes.
    pub(super) fn note(&mut self, effect: Effect) {
        if let Some(branch) = &mut self.branch {
            branch.only_reads &= effect == Effect::Reads;
        }
    }
}

/// Refuses a statement that would end the transaction.
pub(super) fn effect_of<DB: XaDatabase>(query: &BoundQuery<DB>) -> Result<Effect, XaError> {
    admit(DB::DIALECT, query.sql().as_str())
}

impl<DB: XaDatabase> fmt::Debug for XaTransaction<'_, DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XaTransaction").field("branch", &self.branch).finish_non_exhaustive()
    }
}
