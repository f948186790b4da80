//! Phase one of an AT branch on a model database: the order of steps of `at/commit.rs` and
//! `at/replay.rs`, and what `at/running.rs` keeps.
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
use handfast_proto::v1::client_message::Body as Ask;
use handfast_proto::v1::{self, Holding, PhaseOneOutcome, RowKeys};
use handfast_rm_core::fence::Refusal;

use super::ClientProcess;
use crate::database::{Cell, Database, DatabaseError, EventStatus, RowId, Undo, UndoItem};
use crate::local::Local;
use crate::oracle::Observation;

/// How long a branch waits for global locks.
const LOCK_TIMEOUT: Duration = Duration::from_secs(3);
/// How often a closure is repeated for a lock that was in the way.
const REPEATS_MAX: u32 = 5;
/// The table of every model database.
const TABLE: &str = "item";

/// What a branch does to one row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edit {
    pub(crate) row: RowId,
    pub(crate) delta: i64,
}

/// What a branch tells others by an event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tell {
    pub(crate) key: u32,
    pub(crate) units: i64,
}

/// Why a branch did not come to be.
#[derive(Debug)]
pub(crate) enum BranchError {
    /// The database says no, or nothing. The error is for the log.
    Database(#[expect(dead_code, reason = "read through Debug alone")] DatabaseError),
    /// The coordinator says no, or nothing.
    Coordinator(Error),
    /// The guard row is there: the global is rolled back.
    GlobalFinished,
    /// The COMMIT had no answer.
    CommitUnknown,
    /// The fence says no. The refusal is for the log.
    Fence(#[expect(dead_code, reason = "read through Debug alone")] Refusal),
    /// The business says no.
    Business,
}

impl From<DatabaseError> for BranchError {
    fn from(error: DatabaseError) -> Self {
        Self::Database(error)
    }
}

/// A database as a process uses it.
#[derive(Debug)]
pub(crate) struct AtResource {
    pub(crate) database: Arc<Database>,
    /// Which branches of this process may still commit, and whether a guard row bars them.
    running: Mutex<Running>,
}

#[derive(Debug)]
struct Running {
    /// Of this process and resource: the upper bits of its branch ids.
    process: u64,
    made: u64,
    open: BTreeMap<BranchId, bool>,
}

/// What to do when a global lock is in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Conflict {
    /// Wait with the database's locks held.
    Wait,
    /// Let go of everything, wait, and run again.
    Replay,
}

/// A branch, registered or to be.
struct Branch {
    xid: Xid,
    text: String,
    id: BranchId,
    conflict: Conflict,
    registered: bool,
    in_doubt: bool,
    tells: Vec<Tell>,
}

impl AtResource {
    pub(crate) fn new(database: &Arc<Database>, client: usize, life: u64) -> Arc<Self> {
        // Unique per process life and resource; 63 bits, as the product's.
        let process = ((client as u64 + 1) << 16 | life << 4 | database.index as u64) << 32;
        let running = Running { process, made: 0, open: BTreeMap::new() };
        Arc::new(Self { database: Arc::clone(database), running: Mutex::new(running) })
    }

    fn start_branch(&self) -> BranchId {
        let mut running = self.lock();
        running.made += 1;
        let id = BranchId(running.process | running.made);
        running.open.insert(id, false);
        id
    }

    /// Whether a branch may still commit: here, or for all that is known somewhere else.
    pub(crate) fn may_come_late(&self, branch: BranchId) -> bool {
        let running = self.lock();
        let made_here = branch.0 & !u64::from(u32::MAX) == running.process;
        !made_here || running.open.contains_key(&branch)
    }

    /// A guard row bars the branch. Whether it can go at once.
    pub(crate) fn guarded(&self, branch: BranchId) -> bool {
        if let Some(guarded) = self.lock().open.get_mut(&branch) {
            *guarded = true;
            return false;
        }
        !self.may_come_late(branch)
    }

    /// The branch can commit no more. Whether a guard row is to go.
    fn end_branch(&self, branch: BranchId) -> bool {
        self.lock().open.remove(&branch) == Some(true)
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientProcess {
    /// Changes rows of one database as a branch of a global.
    ///
    /// # Errors
    /// After an error nothing stays, unless it is [`BranchError::CommitUnknown`].
    pub(crate) async fn run_branch(
        self: &Arc<Self>,
        database: usize,
        xid: &str,
        edits: &[Edit],
        tells: &[Tell],
    ) -> Result<(), BranchError> {
        let resource = Arc::clone(&self.resources[database]);
        let replay = self.world.draw(|random| random.happens(500));
        let mut branch = Branch {
            xid: number_of(xid),
            text: xid.to_owned(),
            id: resource.start_branch(),
            conflict: if replay { Conflict::Replay } else { Conflict::Wait },
            registered: false,
            in_doubt: false,
            tells: tells.to_vec(),
        };
        let ended = self.attempts(&resource, &mut branch, edits).await;
        let name = (branch.xid, branch.id);
        self.world.log(self.owner(), || format!("branch {}/{}: {ended:?}", name.0, name.1));
        if !branch.in_doubt && resource.end_branch(branch.id) {
            self.remove_guard(&resource, name);
        }
        ended
    }

    async fn attempts(
        self: &Arc<Self>,
        resource: &AtResource,
        branch: &mut Branch,
        edits: &[Edit],
    ) -> Result<(), BranchError> {
        for _ in 0..REPEATS_MAX {
            let ended = self.attempt(resource, branch, edits).await;
            let locked = matches!(&ended, Err(BranchError::Coordinator(error)) if locked(error));
            if !locked || branch.conflict == Conflict::Wait {
                return ended;
            }
            // With nothing held; what is granted is kept for the next attempt.
            let registration =
                registration(resource, branch, edits, LOCK_TIMEOUT, Holding::Nothing);
            branch.registered = true;
            if let Err(error) = self.register(registration).await {
                self.report(branch, PhaseOneOutcome::Failed).await;
                return Err(BranchError::Coordinator(error));
            }
        }
        self.report(branch, PhaseOneOutcome::Failed).await;
        Err(BranchError::Database(DatabaseError::LockTimeout))
    }

    async fn attempt(
        self: &Arc<Self>,
        resource: &AtResource,
        branch: &mut Branch,
        edits: &[Edit],
    ) -> Result<(), BranchError> {
        let local = match resource.database.begin().await {
            Ok(local) => local,
            Err(error) => {
                if std::mem::take(&mut branch.registered) {
                    self.report(branch, PhaseOneOutcome::Failed).await;
                }
                return Err(error.into());
            }
        };
        match self.prepare(resource, &local, branch, edits).await {
            Ok(()) => self.commit_branch(local, branch).await,
            Err(error) => {
                let rolled_back = local.roll_back().await;
                if rolled_back.is_ok() && branch.registered {
                    self.report(branch, PhaseOneOutcome::Failed).await;
                }
                Err(error)
            }
        }
    }

    /// Statements, undo row, registration.
    async fn prepare(
        self: &Arc<Self>,
        resource: &AtResource,
        local: &Local,
        branch: &mut Branch,
        edits: &[Edit],
    ) -> Result<(), BranchError> {
        let mut items = Vec::with_capacity(edits.len());
        for edit in edits {
            let before = local.lock_row(edit.row).await?;
            let writer = Some((branch.xid, branch.id));
            let after = Cell { value: before.value + edit.delta, writer };
            local.update(edit.row, after).await?;
            items.push(UndoItem { row: edit.row, before, after });
        }
        for tell in &branch.tells {
            let event = self.event_of(*tell);
            local.emit(event, (branch.xid, branch.id), EventStatus::Held).await?;
        }
        let waits = resource.database.waits_with_locks() && branch.conflict == Conflict::Wait;
        let wait = if waits { LOCK_TIMEOUT } else { Duration::ZERO };
        let request = registration(resource, branch, edits, wait, Holding::DatabaseLocks);
        let insert = local.insert_undo((branch.xid, branch.id), Undo::Log(items));
        let (inserted, registered) = futures::join!(insert, self.register(request));
        // An unanswered registration may have arrived.
        branch.registered |= registered.as_ref().map_or_else(unanswered, |()| true);
        match inserted {
            Err(DatabaseError::UniqueViolation) => return Err(BranchError::GlobalFinished),
            other => other?,
        }
        registered.map_err(BranchError::Coordinator)
    }

    async fn commit_branch(
        self: &Arc<Self>,
        local: Local,
        branch: &mut Branch,
    ) -> Result<(), BranchError> {
        // Cut off here by its process's end it is in doubt; there is nobody to tell of it then.
        match local.commit().await {
            Ok(()) => Ok(()),
            Err(_) => {
                branch.in_doubt = true;
                self.report(branch, PhaseOneOutcome::Unknown).await;
                Err(BranchError::CommitUnknown)
            }
        }
    }

    pub(super) async fn register(
        self: &Arc<Self>,
        request: v1::RegisterBranchRequest,
    ) -> Result<(), Error> {
        let wait = request.wait.as_ref().map_or(0, |wait| wait.timeout_ms);
        let ask = Ask::RegisterBranch(request);
        self.ask("register_branch", ask, Duration::from_millis(wait)).await.map(drop)
    }

    async fn report(self: &Arc<Self>, branch: &Branch, outcome: PhaseOneOutcome) {
        self.report_branch(&branch.text, branch.id, outcome).await;
    }

    pub(super) async fn report_branch(
        self: &Arc<Self>,
        xid: &str,
        id: BranchId,
        outcome: PhaseOneOutcome,
    ) {
        let request = v1::ReportBranchRequest {
            xid: xid.to_owned(),
            branch_id: id.0,
            outcome: outcome.into(),
        };
        let reported = self.ask("report_branch", Ask::ReportBranch(request), Duration::ZERO).await;
        if let Err(error) = reported {
            // As in the product: the report saves time and decides nothing.
            self.world.log(self.owner(), || format!("branch outcome not reported: {error}"));
        }
    }

    /// A globally committed read: rows of one database, none of them in the hands of a global.
    ///
    /// # Errors
    /// The read tells nothing then.
    pub(crate) async fn read_committed(
        self: &Arc<Self>,
        database: usize,
        rows: &[RowId],
    ) -> Result<(), BranchError> {
        let resource = Arc::clone(&self.resources[database]);
        let local = resource.database.begin().await?;
        let mut read = Vec::with_capacity(rows.len());
        for row in rows {
            read.push((*row, local.lock_row(*row).await?));
        }
        let waits = resource.database.waits_with_locks();
        let wait = if waits { LOCK_TIMEOUT } else { Duration::ZERO };
        let request = v1::CheckLocksRequest {
            xid: String::new(),
            resource_id: resource.database.resource_id(),
            rows: vec![row_keys(rows.iter().copied())],
            wait: Some(lock_wait(wait, Holding::DatabaseLocks)),
        };
        let checked = self.ask("check_locks", Ask::CheckLocks(request), wait).await;
        if let Err(error) = checked {
            local.roll_back().await?;
            return Err(BranchError::Coordinator(error));
        }
        local.commit().await?;
        self.world.observe(&Observation::CommittedRead { database, read: &read });
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
        rows: vec![row_keys(edits.iter().map(|edit| edit.row))],
        wait: Some(lock_wait(wait, holding)),
        application_data: Vec::new(),
        client_id: String::new(),
    }
}

fn row_keys(rows: impl Iterator<Item = RowId>) -> RowKeys {
    let keys = rows.map(|row| {
        let text = row.0.to_string();
        format!("{}:{text}", text.len()).into_bytes()
    });
    RowKeys { table: TABLE.to_owned(), mode: v1::LockMode::Exclusive.into(), keys: keys.collect() }
}

fn lock_wait(wait: Duration, holding: Holding) -> v1::LockWait {
    let timeout_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    v1::LockWait { timeout_ms, holding: holding.into() }
}

/// The number of an XID that a coordinator made.
pub(super) fn number_of(text: &str) -> Xid {
    XidText::parse(text).expect("a coordinator's XID has its text form").xid
}

fn locked(error: &Error) -> bool {
    let detail = error.rejection().map(handfast::Rejection::detail);
    matches!(detail, Some(RejectionDetail::RowLocked { .. }))
}

pub(super) fn unanswered(error: &Error) -> bool {
    matches!(error, Error::Unanswered { .. })
}
