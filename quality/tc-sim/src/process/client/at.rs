//! Phase one of an AT branch on a model database: the order of steps of `phase_one/commit.rs` and
//! `phase_one/attempts.rs`, and what `at/running_branches.rs` keeps.
//!
//! ```text
//! statements … ─┬─ INSERT undo_log ─┬─ COMMIT
//!               └─ RegisterBranch ──┘
//! ```
//!
//! Left out: SQL, images of columns, savepoints, and the daily sweep of old guard rows.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use handfast::{Error, RejectionDetail};
use handfast_core::{BranchId, Xid, XidText};
use handfast_proto::v1::client_message::Body as ClientBody;
use handfast_proto::v1::server_message::Body as ServerBody;
use handfast_proto::v1::{self, Holding, PhaseOneOutcome, RowKeys};
use handfast_rm_core::fence::FenceRefusal;

use super::ClientProcess;
use super::guarded::GuardKnowledge;
use crate::model::database::{ConnectionPool, Database, DatabaseError, LocalTransaction};
use crate::model::observation::{Observation, Observer};
use crate::model::values::{EventStatus, RowId, RowVersion, Undo, UndoItem, UndoWay, WriterMark};
use crate::plan::Mode;
use crate::workload::edit::{Edit, EventDraft};
use crate::world::World;

/// How long a branch waits for row locks of the coordinator.
const LOCK_TIMEOUT: Duration = Duration::from_secs(3);
/// How often a branch is attempted, if another global holds a row lock.
const ATTEMPTS_MAX: u32 = 5;
/// The table of every model database, as row keys name it.
const TABLE: &str = "item";
/// The tag of changes that add to counters.
const UP: u64 = 1;
/// The tag of changes that take from them.
const DOWN: u64 = 2;

/// Why a branch failed.
#[derive(Debug)]
pub(crate) enum BranchError {
    /// The database refused, or did not answer. The error is for the log.
    Database(#[expect(dead_code, reason = "read through Debug alone")] DatabaseError),
    /// The coordinator refused, or did not answer.
    Coordinator(Error),
    /// There is a guard row: the global is rolled back.
    GlobalFinished,
    /// A COMMIT, a PREPARE or a call to another service had no answer.
    CommitUnknown,
    /// The fence refused. The refusal is for the log.
    Fence(#[expect(dead_code, reason = "read through Debug alone")] FenceRefusal),
    /// The service refused.
    Refused,
}

impl From<DatabaseError> for BranchError {
    fn from(error: DatabaseError) -> Self {
        Self::Database(error)
    }
}

/// A database as a resource of one process.
#[derive(Debug)]
pub(crate) struct AtResource {
    pub(crate) database: Arc<Database>,
    pub(super) connections: Arc<ConnectionPool>,
    pub(super) guards: GuardKnowledge,
    running: Mutex<RunningBranches>,
}

/// The branches of one process and resource that may still commit.
#[derive(Debug)]
struct RunningBranches {
    /// The upper bits of their ids, unique to the process and resource.
    process: u64,
    last: u64,
    /// Whether a guard row bars each of them.
    open: BTreeMap<BranchId, bool>,
}

/// The reaction when another global holds a row lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Conflict {
    /// Wait, and keep the local transaction open.
    Wait,
    /// Roll the local transaction back, wait, and run it again.
    Replay,
}

/// A branch while it runs.
struct Branch {
    xid: Xid,
    text: String,
    id: BranchId,
    conflict: Conflict,
    /// Whether it is the last one of its global.
    is_last: bool,
    /// Whether its local commit decides the global.
    decides: bool,
    /// Whether the coordinator may lose it in a crash after that.
    may_be_lost: bool,
    registered: bool,
    in_doubt: bool,
    /// Whether it only adds to counters, and holds its rows together with others.
    counts: bool,
    events: Vec<EventDraft>,
}

impl AtResource {
    pub(crate) fn new(
        world: &World,
        database: &Arc<Database>,
        client: usize,
        life: u64,
    ) -> Arc<Self> {
        // Unique to the process's life and the resource, in 63 bits, as the product's.
        let process = ((client as u64 + 1) << 16 | life << 4 | database.index as u64) << 32;
        let running = RunningBranches { process, last: 0, open: BTreeMap::new() };
        Arc::new(Self {
            database: Arc::clone(database),
            connections: Arc::default(),
            guards: GuardKnowledge::new(world, database),
            running: Mutex::new(running),
        })
    }

    fn start_branch(&self) -> BranchId {
        let mut running = self.lock();
        running.last += 1;
        let id = BranchId(running.process | running.last);
        running.open.insert(id, false);
        id
    }

    /// Returns whether a branch may still commit. One of another process always may.
    pub(crate) fn may_still_commit(&self, branch: BranchId) -> bool {
        let running = self.lock();
        let made_here = branch.0 & !u64::from(u32::MAX) == running.process;
        !made_here || running.open.contains_key(&branch)
    }

    /// Records that a guard row bars a branch. Returns whether the row can be deleted at once.
    pub(crate) fn mark_guarded(&self, branch: BranchId) -> bool {
        if let Some(guarded) = self.lock().open.get_mut(&branch) {
            *guarded = true;
            return false;
        }
        !self.may_still_commit(branch)
    }

    /// Records that a branch cannot commit any more. Returns whether its guard row is to be
    /// deleted.
    fn end_branch(&self, branch: BranchId) -> bool {
        self.lock().open.remove(&branch) == Some(true)
    }

    fn lock(&self) -> MutexGuard<'_, RunningBranches> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientProcess {
    /// Changes rows of one database as a branch of a global. Returns whether its local commit has
    /// decided the global.
    ///
    /// # Errors
    /// After an error no change is left, except possibly after [`BranchError::CommitUnknown`].
    pub(super) async fn run_branch(
        self: &Arc<Self>,
        database: usize,
        xid: &str,
        (edits, events): (&[Edit], &[EventDraft]),
        is_last: bool,
    ) -> Result<bool, BranchError> {
        let resource = Arc::clone(&self.resources[database]);
        let replay = self.world.draw(|random| random.happens(500));
        let may_count = self.world.plan.modes.contains(&Mode::Counters);
        let counts = may_count && self.world.draw(|random| random.happens(600));
        let mut branch = Branch {
            xid: parse_xid(xid),
            text: xid.to_owned(),
            id: resource.start_branch(),
            conflict: if replay { Conflict::Replay } else { Conflict::Wait },
            is_last,
            decides: false,
            may_be_lost: false,
            registered: false,
            in_doubt: false,
            counts,
            events: events.to_vec(),
        };
        let ended = self.attempts(&resource, &mut branch, edits).await;
        let name = (branch.xid, branch.id);
        self.world.log(self.owner(), || format!("branch {}/{}: {ended:?}", name.0, name.1));
        if !branch.in_doubt && resource.end_branch(branch.id) {
            self.delete_undo_row(&resource, name);
        }
        ended?;
        if branch.decides {
            self.crash_point("after-last-commit").await;
            // In the product this is not waited for, nor here.
            let process = Arc::clone(self);
            self.world.spawn(self.owner(), async move {
                let reported = process.report(&branch, PhaseOneOutcome::Done).await;
                let is_lost = reported.is_err_and(|error| error.code() == "HF-TC-UNKNOWN-XID");
                if is_lost && branch.may_be_lost {
                    process.delete_undo_row(&resource, name);
                }
            });
            return Ok(true);
        }
        Ok(false)
    }

    async fn attempts(
        self: &Arc<Self>,
        resource: &AtResource,
        branch: &mut Branch,
        edits: &[Edit],
    ) -> Result<(), BranchError> {
        for _ in 0..ATTEMPTS_MAX {
            let ended = self.attempt(resource, branch, edits).await;
            let locked =
                matches!(&ended, Err(BranchError::Coordinator(error)) if is_row_locked(error));
            if !locked || branch.conflict == Conflict::Wait {
                return ended;
            }
            // Nothing is held meanwhile. Locks that are granted are kept for the next attempt.
            let registration =
                registration(resource, branch, edits, LOCK_TIMEOUT, Holding::Nothing);
            branch.registered = true;
            if let Err(error) = self.register(registration).await {
                drop(self.report(branch, PhaseOneOutcome::Failed).await);
                return Err(BranchError::Coordinator(error));
            }
        }
        drop(self.report(branch, PhaseOneOutcome::Failed).await);
        Err(BranchError::Database(DatabaseError::LockTimeout))
    }

    async fn attempt(
        self: &Arc<Self>,
        resource: &AtResource,
        branch: &mut Branch,
        edits: &[Edit],
    ) -> Result<(), BranchError> {
        let local = match resource.database.begin_in(&resource.connections).await {
            Ok(local) => local,
            Err(error) => {
                if std::mem::take(&mut branch.registered) {
                    drop(self.report(branch, PhaseOneOutcome::Failed).await);
                }
                return Err(error.into());
            }
        };
        match self.prepare_commit(resource, &local, branch, edits).await {
            Ok(()) => self.commit_branch(local, branch).await,
            Err(error) => {
                // A branch is reported as failed only if its rows are certainly back: its locks go
                // with the report.
                let rolled_back = local.roll_back().await;
                if rolled_back.is_ok() && branch.registered {
                    drop(self.report(branch, PhaseOneOutcome::Failed).await);
                }
                Err(error)
            }
        }
    }

    /// Executes the statements, then inserts the undo row and registers the branch.
    async fn prepare_commit(
        self: &Arc<Self>,
        resource: &AtResource,
        local: &LocalTransaction,
        branch: &mut Branch,
        edits: &[Edit],
    ) -> Result<(), BranchError> {
        let mut items = Vec::with_capacity(edits.len());
        let writer = Some((branch.xid, branch.id));
        let mut marked = false;
        for edit in edits {
            if !marked && resource.is_guarded(&self.world, local).await? {
                local.mark(WriterMark::Branch((branch.xid, branch.id))).await?;
                marked = true;
            }
            let before = local.lock_row(edit.row).await?;
            let after = RowVersion { value: before.value + edit.delta, writer };
            local.update(edit.row, after).await?;
            let way = if branch.counts { UndoWay::Sum } else { UndoWay::Image };
            items.push(UndoItem { way, row: edit.row, before, after });
        }
        for draft in &branch.events {
            let event = self.event(*draft);
            local.emit(event, (branch.xid, branch.id), EventStatus::Held).await?;
        }
        if marked {
            local.unmark().await?;
        }
        let waits = resource.database.waits_with_locks() && branch.conflict == Conflict::Wait;
        let wait = if waits { LOCK_TIMEOUT } else { Duration::ZERO };
        let mut request = registration(resource, branch, edits, wait, Holding::DatabaseLocks);
        request.is_last = branch.is_last;
        branch.may_be_lost = branch.is_last && branch.events.is_empty() && !marked;
        request.may_be_lost = branch.may_be_lost;
        let insert = local.insert_undo((branch.xid, branch.id), Undo::Log(items));
        let (inserted, registered) = futures::join!(insert, self.register(request));
        // An unanswered registration may have arrived.
        branch.registered |= registered.as_ref().map_or_else(is_unanswered, |_| true);
        // Looked at first: a guard row says that the global is over, whatever the coordinator says.
        match inserted {
            Err(DatabaseError::UniqueViolation) => return Err(BranchError::GlobalFinished),
            other => other?,
        }
        branch.decides = registered.map_err(BranchError::Coordinator)?;
        Ok(())
    }

    async fn commit_branch(
        self: &Arc<Self>,
        local: LocalTransaction,
        branch: &mut Branch,
    ) -> Result<(), BranchError> {
        // If the process dies here the outcome is unknown too, and no process is left to report it.
        match local.commit().await {
            Ok(()) => Ok(()),
            Err(_) => {
                branch.in_doubt = true;
                drop(self.report(branch, PhaseOneOutcome::Unknown).await);
                Err(BranchError::CommitUnknown)
            }
        }
    }

    /// Registers a branch. Returns whether its local commit decides the global.
    pub(super) async fn register(
        self: &Arc<Self>,
        request: v1::RegisterBranchRequest,
    ) -> Result<bool, Error> {
        let wait = request.wait.as_ref().map_or(0, |wait| wait.timeout_ms);
        let body = ClientBody::RegisterBranch(request);
        let reply = self.request("register_branch", body, Duration::from_millis(wait)).await?;
        Ok(matches!(reply, ServerBody::RegisterBranch(reply) if reply.decides))
    }

    async fn report(
        self: &Arc<Self>,
        branch: &Branch,
        outcome: PhaseOneOutcome,
    ) -> Result<(), Error> {
        self.report_branch(&branch.text, branch.id, outcome).await
    }

    pub(super) async fn report_branch(
        self: &Arc<Self>,
        xid: &str,
        id: BranchId,
        outcome: PhaseOneOutcome,
    ) -> Result<(), Error> {
        let request = v1::ReportBranchRequest {
            xid: xid.to_owned(),
            branch_id: id.0,
            outcome: outcome.into(),
        };
        let reported =
            self.request("report_branch", ClientBody::ReportBranch(request), Duration::ZERO).await;
        reported.map(drop).inspect_err(|error| {
            // As in the product, the report saves time and decides nothing.
            self.world.log(self.owner(), || format!("branch outcome not reported: {error}"));
        })
    }

    /// Reads rows of one database that no undecided global has locked.
    ///
    /// # Errors
    /// If the rows could not be read, or the check of their locks failed.
    pub(super) async fn read_committed(
        self: &Arc<Self>,
        database: usize,
        rows: &[RowId],
    ) -> Result<(), BranchError> {
        let resource = Arc::clone(&self.resources[database]);
        let local = resource.database.begin_in(&resource.connections).await?;
        let mut read = Vec::with_capacity(rows.len());
        for row in rows {
            read.push((*row, local.lock_row(*row).await?));
        }
        let waits = resource.database.waits_with_locks();
        let wait = if waits { LOCK_TIMEOUT } else { Duration::ZERO };
        let request = v1::CheckLocksRequest {
            xid: String::new(),
            resource_id: resource.database.resource_id(),
            rows: vec![row_keys(rows.iter().copied(), None)],
            wait: Some(lock_wait(wait, Holding::DatabaseLocks)),
        };
        let checked = self.request("check_locks", ClientBody::CheckLocks(request), wait).await;
        if let Err(error) = checked {
            local.roll_back().await?;
            return Err(BranchError::Coordinator(error));
        }
        local.commit().await?;
        self.judge.observe(&Observation::CommittedRead { database, read: &read });
        Ok(())
    }
}

fn registration(
    resource: &AtResource,
    branch: &Branch,
    edits: &[Edit],
    wait: Duration,
    holding: Holding,
) -> v1::RegisterBranchRequest {
    v1::RegisterBranchRequest {
        xid: branch.text.clone(),
        branch_id: branch.id.0,
        resource_id: resource.database.resource_id(),
        mode: v1::Mode::At.into(),
        rows: locked_rows(edits, branch.counts),
        wait: Some(lock_wait(wait, holding)),
        application_data: Vec::new(),
        client_id: String::new(),
        traceparent: String::new(),
        is_last: false,
        may_be_lost: false,
    }
}

/// The rows of a branch. Those that it adds to are of one kind, and those that it takes from of
/// another.
fn locked_rows(edits: &[Edit], counts: bool) -> Vec<RowKeys> {
    if !counts {
        return vec![row_keys(edits.iter().map(|edit| edit.row), None)];
    }
    let (up, down): (Vec<&Edit>, Vec<&Edit>) = edits.iter().partition(|edit| edit.delta > 0);
    let kinds = [(up, UP), (down, DOWN)].into_iter().filter(|(edits, _)| !edits.is_empty());
    kinds.map(|(edits, tag)| row_keys(edits.iter().map(|edit| edit.row), Some(tag))).collect()
}

/// Rows that are locked exclusively, or in delta mode under a tag.
fn row_keys(rows: impl Iterator<Item = RowId>, delta_tag: Option<u64>) -> RowKeys {
    let keys = rows.map(|row| {
        let text = row.0.to_string();
        format!("{}:{text}", text.len()).into_bytes()
    });
    let mode = delta_tag.map_or(v1::LockMode::Exclusive, |_| v1::LockMode::Delta).into();
    let (table, delta_tag) = (TABLE.to_owned(), delta_tag.unwrap_or(0));
    RowKeys { table, mode, keys: keys.collect(), delta_tag }
}

fn lock_wait(wait: Duration, holding: Holding) -> v1::LockWait {
    let timeout_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    v1::LockWait { timeout_ms, holding: holding.into() }
}

/// Parses an XID that a coordinator assigned.
pub(super) fn parse_xid(text: &str) -> Xid {
    XidText::parse(text).expect("a coordinator's XID has its text form").xid
}

fn is_row_locked(error: &Error) -> bool {
    let detail = error.rejection().map(handfast::Rejection::detail);
    matches!(detail, Some(RejectionDetail::RowLocked { .. }))
}

/// Returns whether a request had no reply: it may have arrived.
pub(super) fn is_unanswered(error: &Error) -> bool {
    matches!(error, Error::Unanswered { .. })
}
