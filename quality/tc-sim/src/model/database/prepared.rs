//! Two-phase commit on a model database: what `twophase/mysql.rs` and `twophase/postgres.rs` need.
//!
//! A prepared transaction belongs to the database. It keeps its row locks when its client dies, and
//! still has them after a crash. On MariaDB it is bound to its session until that ends, and its
//! outcome is not kept. SQLite has no two-phase commit.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::channel::oneshot;
use handfast_core::Decision;
use handfast_rm_core::two_phase::{DatabaseReply, Trace};

use super::{
    Database, DatabaseError, Flavour, LocalTransaction, LocalTransactionId, Lock, OpenTransaction,
    State,
};
use crate::model::observation::Observation;
use crate::model::values::{RowChanges, UndoKey};
use crate::world::{MS, Owner, SECOND, World};

/// A prepared transaction, which waits for the decision.
#[derive(Debug)]
pub(super) struct PreparedTransaction {
    session: LocalTransactionId,
    /// Whether it is bound to its session, so that no other session can end it.
    attached: bool,
    open: OpenTransaction,
}

/// A session that stays with the branch that it has prepared. When it is dropped the session ends,
/// and any session may end the branch.
#[derive(Debug)]
pub(crate) struct HeldConnection {
    database: Arc<Database>,
    session: LocalTransactionId,
}

impl Drop for HeldConnection {
    fn drop(&mut self) {
        self.database.disconnect(self.session);
    }
}

impl Database {
    /// Returns whether the database has two-phase commit.
    pub(crate) fn can_prepare(&self) -> bool {
        self.flavour != Flavour::Sqlite
    }

    /// `XA START`, or `BEGIN` and a query for the transaction's number on PostgreSQL.
    pub(crate) async fn begin_branch(
        self: &Arc<Self>,
        key: UndoKey,
        name: String,
    ) -> Result<(LocalTransaction, Option<String>), DatabaseError> {
        let local = self.begin().await?;
        let session = local.session();
        let mut state = self.lock();
        let open = state.open.get_mut(&session).ok_or(DatabaseError::Broken)?;
        open.branch = Some((key, name));
        drop(state);
        let number = (self.flavour == Flavour::Postgres).then(|| session.0.to_string());
        Ok((local, number))
    }

    /// Prepares an open branch. Returns its session if the branch stays bound to it.
    pub(super) fn prepare(
        self: &Arc<Self>,
        session: LocalTransactionId,
    ) -> Result<Option<HeldConnection>, DatabaseError> {
        let attached = self.flavour == Flavour::MariaDb;
        let mut state = self.lock();
        let open = state.open.remove(&session).ok_or(DatabaseError::Broken)?;
        let (branch, name) = open.branch.clone().ok_or(DatabaseError::Broken)?;
        state.prepared.insert(name.clone(), PreparedTransaction { session, attached, open });
        drop(state);
        self.world.log(self.owner(), || format!("prepares {name}"));
        self.observer.observe(&Observation::Prepared { branch });
        Ok(attached.then(|| HeldConnection { database: Arc::clone(self), session }))
    }

    /// `COMMIT PREPARED`, `XA COMMIT` or the rollback, over the session that holds the branch or
    /// over another one. Once it is sent the database executes it even if the client dies.
    pub(crate) async fn end_prepared(
        self: &Arc<Self>,
        name: String,
        decision: Decision,
        held: Option<HeldConnection>,
    ) -> Result<DatabaseReply, DatabaseError> {
        let (sender, outcome) = oneshot::channel();
        let database = Arc::clone(self);
        self.world.spawn(self.owner(), async move {
            // The held session belongs to this task, so that it ends only after the branch.
            let ended = match database.travel().await {
                Ok(()) => Ok(database.end(&name, decision, held.as_ref())),
                Err(error) => Err(error),
            };
            // A client that has died hears no answer.
            let _gone = sender.send(ended);
        });
        let answer = outcome.await.unwrap_or(Err(DatabaseError::Broken))?;
        self.answer(answer).await
    }

    fn end(&self, name: &str, decision: Decision, held: Option<&HeldConnection>) -> DatabaseReply {
        let mut state = self.lock();
        let may_end = |prepared: &PreparedTransaction| {
            !prepared.attached || held.is_some_and(|held| held.session == prepared.session)
        };
        if !state.prepared.get(name).is_some_and(may_end) {
            return DatabaseReply::Missing;
        }
        let Some(PreparedTransaction { session, open, .. }) = state.prepared.remove(name) else {
            return DatabaseReply::Missing;
        };
        let branch = open.branch.as_ref().map(|(branch, _)| *branch);
        let mut written = RowChanges::default();
        if decision == Decision::Commit {
            written = RowChanges { prepared: branch, ..state.apply(&open) };
            state.committed.insert(session);
        }
        state.release(session, &open);
        drop(state);
        self.world.log(self.owner(), || format!("ends {name}: {decision:?} {written}"));
        let database = self.index;
        self.observer.observe(&Observation::PreparedEnded { name, branch, decision });
        self.observer.observe(&Observation::LocalCommit { database, written: &written });
        DatabaseReply::Done
    }

    /// Returns what the database still knows of a branch that it could not end.
    pub(crate) async fn trace(
        &self,
        name: &str,
        number: Option<&str>,
    ) -> Result<Trace, DatabaseError> {
        self.travel().await?;
        let trace = match (self.flavour, number.map(str::parse::<u64>)) {
            (Flavour::Postgres, Some(Ok(number))) => {
                self.lock().trace_of_number(LocalTransactionId(number))
            }
            (Flavour::Postgres, Some(Err(_)) | None) => Trace::Open,
            (Flavour::MariaDb | Flavour::Sqlite, _) => self.lock().trace_of_name(name),
        };
        self.answer(trace).await
    }

    /// `XA RECOVER`, or a query of `pg_prepared_xacts`.
    pub(crate) async fn recover(&self) -> Result<Vec<String>, DatabaseError> {
        self.travel().await?;
        let names = self.prepared();
        self.answer(names).await
    }

    /// Returns the names of all prepared transactions.
    pub(crate) fn prepared(&self) -> Vec<String> {
        self.lock().prepared.keys().cloned().collect()
    }

    /// Adds a prepared transaction that no process of this run has made.
    pub(crate) fn add_prepared(&self, name: String) {
        let mut state = self.lock();
        state.session_last += 1;
        let session = LocalTransactionId(state.session_last);
        let prepared =
            PreparedTransaction { session, attached: false, open: OpenTransaction::default() };
        state.prepared.insert(name, prepared);
    }

    /// Ends a client's connection. The server notices at once or seconds later.
    pub(super) fn disconnect(self: &Arc<Self>, session: LocalTransactionId) {
        let (database, world) = (Arc::clone(self), Arc::clone(&self.world));
        let sleep = world.sleep(disconnect_delay(&world));
        world.spawn(Owner::World, async move {
            sleep.await;
            database.end_session(session);
        });
    }

    /// Rolls back what is open in a session, and frees a branch that it has prepared.
    fn end_session(&self, session: LocalTransactionId) {
        let mut state = self.lock();
        let mut prepared = state.prepared.values_mut();
        if let Some(prepared) = prepared.find(|prepared| prepared.session == session) {
            prepared.attached = false;
        }
        drop(state);
        self.roll_back(session);
    }
}

/// Draws how long the server takes to notice the end of a connection: mostly it is reset at once,
/// and sometimes the client's machine is lost without a word.
fn disconnect_delay(world: &World) -> u64 {
    world.draw(|random| match random.happens(800) {
        true => random.between(100, 10 * MS),
        false => random.between(100 * MS, 6 * SECOND),
    })
}

impl State {
    /// Restores the locks of prepared transactions after a crash. They have no session then.
    pub(super) fn recover_prepared(&mut self) {
        for prepared in self.prepared.values_mut() {
            prepared.attached = false;
            for key in &prepared.open.locks {
                let lock = Lock { holder: prepared.session, waiting: VecDeque::new() };
                self.locks.insert(*key, lock);
            }
        }
    }

    /// As `pg_xact_status` answers.
    fn trace_of_number(&self, session: LocalTransactionId) -> Trace {
        let is_prepared = self.prepared.values().any(|prepared| prepared.session == session);
        if is_prepared || self.open.contains_key(&session) {
            Trace::Open
        } else if self.committed.contains(&session) {
            Trace::Committed
        } else {
            Trace::RolledBack
        }
    }

    /// As an attempt to begin a branch of that name shows.
    fn trace_of_name(&self, name: &str) -> Trace {
        let has =
            |open: &OpenTransaction| open.branch.as_ref().is_some_and(|(_, named)| named == name);
        let there = self.prepared.contains_key(name) || self.open.values().any(has);
        if there { Trace::Open } else { Trace::Ended }
    }

    /// Returns the transactions that are neither committed nor rolled back.
    pub(super) fn uncommitted(&self) -> impl Iterator<Item = &OpenTransaction> {
        self.open.values().chain(self.prepared.values().map(|prepared| &prepared.open))
    }
}
