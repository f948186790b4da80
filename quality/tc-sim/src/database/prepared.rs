//! Two-phase commit on a model database: what `twophase/mysql.rs` and `twophase/postgres.rs` ask of
//! theirs.
//!
//! A prepared transaction is the database's own. It keeps its row locks whatever becomes of its
//! client, and comes back with them after a crash. On MariaDB it belongs to its session until that
//! ends, and how it ended is not kept. SQLite has none of this.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::channel::oneshot;
use handfast_core::Decision;
use handfast_rm_core::two_phase::{Answer, Trace};

use super::{Database, DatabaseError, Flavour, LocalId, Lock, Open, State, UndoKey};
use crate::local::Local;
use crate::oracle::{Observation, Written};
use crate::world::{MS, Owner, SECOND, World};

/// A local transaction that waits for the decision.
#[derive(Debug)]
pub(super) struct Prepared {
    session: LocalId,
    /// Whether its session still has it, so that no other can end it.
    attached: bool,
    open: Open,
}

/// A session that stays with the branch that it has prepared. Dropped, it ends, and the branch is
/// anybody's.
#[derive(Debug)]
pub(crate) struct Held {
    database: Arc<Database>,
    session: LocalId,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.database.part(self.session);
    }
}

impl Database {
    /// Whether it has two-phase commit.
    pub(crate) fn can_prepare(&self) -> bool {
        self.flavour != Flavour::Sqlite
    }

    /// `XA START`, or `BEGIN` and a question for the transaction's number where there are numbers.
    pub(crate) async fn begin_branch(
        self: &Arc<Self>,
        key: UndoKey,
        name: String,
    ) -> Result<(Local, Option<String>), DatabaseError> {
        let local = self.begin().await?;
        let session = local.session();
        let mut state = self.lock();
        let open = state.open.get_mut(&session).ok_or(DatabaseError::Broken)?;
        open.branch = Some((key, name));
        drop(state);
        let number = (self.flavour == Flavour::Postgres).then(|| session.0.to_string());
        Ok((local, number))
    }

    /// Prepares an open branch. Gives back its session where that has to stay.
    pub(crate) fn prepare(
        self: &Arc<Self>,
        session: LocalId,
    ) -> Result<Option<Held>, DatabaseError> {
        let attached = self.flavour == Flavour::MariaDb;
        let mut state = self.lock();
        let open = state.open.remove(&session).ok_or(DatabaseError::Broken)?;
        let (branch, name) = open.branch.clone().ok_or(DatabaseError::Broken)?;
        state.prepared.insert(name.clone(), Prepared { session, attached, open });
        drop(state);
        self.world.log(self.owner(), || format!("prepares {name}"));
        self.world.observe(&Observation::Prepared { branch });
        Ok(attached.then(|| Held { database: Arc::clone(self), session }))
    }

    /// `COMMIT PREPARED`, `XA COMMIT` or their opposites, over the session that holds the branch or
    /// another one. Sent, it is the database's business, whatever becomes of the client.
    pub(crate) async fn end_prepared(
        self: &Arc<Self>,
        name: String,
        decision: Decision,
        held: Option<Held>,
    ) -> Result<Answer, DatabaseError> {
        let (told, outcome) = oneshot::channel();
        let database = Arc::clone(self);
        self.world.spawn(self.owner(), async move {
            let ended = match database.travel().await {
                Ok(()) => Ok(database.end(&name, decision, held.as_ref())),
                Err(error) => Err(error),
            };
            // The connection ends with its client.
            let _gone = told.send(ended);
        });
        let answer = outcome.await.unwrap_or(Err(DatabaseError::Broken))?;
        self.answer(answer).await
    }

    fn end(&self, name: &str, decision: Decision, held: Option<&Held>) -> Answer {
        let mut state = self.lock();
        let ours = |prepared: &Prepared| {
            !prepared.attached || held.is_some_and(|held| held.session == prepared.session)
        };
        if !state.prepared.get(name).is_some_and(ours) {
            return Answer::Missing;
        }
        let Some(Prepared { session, open, .. }) = state.prepared.remove(name) else {
            return Answer::Missing;
        };
        let branch = open.branch.as_ref().map(|(branch, _)| *branch);
        let mut written = Written::default();
        if decision == Decision::Commit {
            written = Written { prepared: branch, ..state.apply(&open) };
            state.committed.insert(session);
        }
        state.release(session, &open);
        drop(state);
        self.world.log(self.owner(), || format!("ends {name}: {decision:?} {written}"));
        let database = self.index;
        self.world.observe(&Observation::PreparedEnded { name, branch, decision });
        self.world.observe(&Observation::LocalCommit { database, written: &written });
        Answer::Done
    }

    /// What else is known of a branch that is not there to be ended.
    pub(crate) async fn trace(
        &self,
        name: &str,
        number: Option<&str>,
    ) -> Result<Trace, DatabaseError> {
        self.travel().await?;
        let trace = match (self.flavour, number.map(str::parse::<u64>)) {
            (Flavour::Postgres, Some(Ok(number))) => self.lock().trace_of_number(LocalId(number)),
            (Flavour::Postgres, Some(Err(_)) | None) => Trace::Open,
            (Flavour::MariaDb | Flavour::Sqlite, _) => self.lock().trace_of_name(name),
        };
        self.answer(trace).await
    }

    /// `XA RECOVER`, or a look into `pg_prepared_xacts`.
    pub(crate) async fn recover(&self) -> Result<Vec<String>, DatabaseError> {
        self.travel().await?;
        let names = self.prepared();
        self.answer(names).await
    }

    /// Everything that is prepared.
    pub(crate) fn prepared(&self) -> Vec<String> {
        self.lock().prepared.keys().cloned().collect()
    }

    /// Has a prepared transaction of which nobody here knows.
    pub(crate) fn leave_prepared(&self, name: String) {
        let mut state = self.lock();
        state.session_last += 1;
        let session = LocalId(state.session_last);
        let left = Prepared { session, attached: false, open: Open::default() };
        state.prepared.insert(name, left);
    }

    /// A client's connection ends, and the server notices soon or late.
    pub(crate) fn part(self: &Arc<Self>, session: LocalId) {
        let (database, world) = (Arc::clone(self), Arc::clone(&self.world));
        let sleep = world.sleep(notice(&world));
        world.spawn(Owner::World, async move {
            sleep.await;
            database.end_session(session);
        });
    }

    /// What is open in it is rolled back, what is prepared is anybody's.
    fn end_session(&self, session: LocalId) {
        let mut state = self.lock();
        let own = state.prepared.values_mut().find(|prepared| prepared.session == session);
        if let Some(prepared) = own {
            prepared.attached = false;
        }
        drop(state);
        self.roll_back(session);
    }
}

/// Mostly the end of a connection is noticed at once; a machine that is gone says nothing.
fn notice(world: &World) -> u64 {
    world.draw(|random| match random.happens(800) {
        true => random.between(100, 10 * MS),
        false => random.between(100 * MS, 6 * SECOND),
    })
}

impl State {
    /// After a crash: prepared transactions have their locks, and no session.
    pub(super) fn recover_prepared(&mut self) {
        for prepared in self.prepared.values_mut() {
            prepared.attached = false;
            for key in &prepared.open.locks {
                let lock = Lock { holder: prepared.session, waiting: VecDeque::new() };
                self.locks.insert(*key, lock);
            }
        }
    }

    /// By `pg_xact_status`.
    fn trace_of_number(&self, session: LocalId) -> Trace {
        let is_prepared = self.prepared.values().any(|prepared| prepared.session == session);
        if is_prepared || self.open.contains_key(&session) {
            Trace::Open
        } else if self.committed.contains(&session) {
            Trace::Committed
        } else {
            Trace::RolledBack
        }
    }

    /// By beginning a branch of that name.
    fn trace_of_name(&self, name: &str) -> Trace {
        let has = |open: &Open| open.branch.as_ref().is_some_and(|(_, named)| named == name);
        let there = self.prepared.contains_key(name) || self.open.values().any(has);
        if there { Trace::Open } else { Trace::Ended }
    }

    /// What is not committed and not rolled back.
    pub(super) fn undecided(&self) -> impl Iterator<Item = &Open> {
        self.open.values().chain(self.prepared.values().map(|prepared| &prepared.open))
    }
}
