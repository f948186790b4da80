//! The requests that the coordinator decides.
//!
//! The shell has already checked sizes and turned wire messages into these types; the core still
//! answers every value of them (TOTAL).

use std::sync::Arc;

use super::asker::ClientId;
use super::id::{BranchId, Correlation, Xid};
use super::label::Labels;
use super::loan::LoanTerms;
use super::named_lock::{LockToken, NewLease};
use super::refused_rows::RefusedRows;
use super::row_lock::RowLock;
use super::saga_definition::SagaDefinition;
use super::trace::TracedCommand;

/// One request and where its reply goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// `None` where no reply is awaited, such as for the phase-two outcomes on a stream.
    /// [`Command::Tick`], [`Command::Forget`] and the notices about clients have none.
    pub reply_to: Option<Correlation>,
    /// The request itself.
    pub command: Command,
}

/// The requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Begins a global. Writes nothing: until its first branch a global need not survive.
    Begin {
        /// The application, as operators know it.
        application: Arc<str>,
        /// The application's name for this kind of transaction.
        name: Arc<str>,
        /// If the global is undecided after this time, it is rolled back. `None` takes the default.
        timeout_ms: Option<u64>,
        /// The names and values that the application calls it by, for operators.
        labels: Labels,
        /// Made by the caller. A second begin of the application with the same key finds the
        /// global, as long as it is unfinished or remembered (idempotent).
        key: Option<Arc<str>>,
        /// The XIDs that are lent to the sender, or that it would like to be lent.
        loan: LoanTerms,
    },
    /// Makes sure that a branch exists and holds the rows named (idempotent, monotone).
    RegisterBranch {
        /// The global that the branch belongs to.
        xid: Xid,
        /// The branch.
        branch: NewBranch,
        /// How to wait when a row is locked by another global.
        wait: LockWait,
    },
    /// As `RegisterBranch`, for a branch after which none joins, and whose local commit decides the
    /// global. The reply says whether it does: not where participants vote, where the global can
    /// only be rolled back, or where another branch has joined since.
    RegisterLastBranch {
        /// The global that the branch belongs to.
        xid: Xid,
        /// The branch.
        branch: NewBranch,
        /// How to wait when a row is locked by another global.
        wait: LockWait,
        /// Whether a crash may take the branch from the coordinator: its rows are locked in its
        /// database from before the request until its local transaction ends, and it holds neither
        /// an event nor a guarded row.
        may_be_lost: bool,
    },
    /// Phase one of a branch ended, or phase two is to be given other data.
    ReportBranch {
        /// The global.
        xid: Xid,
        /// The branch.
        branch: BranchId,
        /// How phase one ended; `None` where it goes on.
        outcome: Option<PhaseOneOutcome>,
        /// Takes the place of the data that the branch was registered with, unless it is empty.
        application_data: Box<[u8]>,
    },
    /// An attempt at the try of a branch, which the coordinator calls, has failed. For operators
    /// alone: no decision depends on it.
    NoteFailedTry {
        /// The global.
        xid: Xid,
        /// The branch.
        branch: BranchId,
        /// The number of the attempt, from 1.
        attempt: u32,
        /// The error.
        error: Arc<str>,
    },
    /// Waits until no other global holds the rows in a mode that conflicts; takes nothing.
    CheckLocks {
        /// The asking global, whose own locks are no conflict.
        xid: Option<Xid>,
        /// The resource that the rows belong to.
        resource: Arc<str>,
        /// The rows.
        rows: Vec<RowLock>,
        /// How to wait when a row is locked by another global.
        wait: LockWait,
    },
    /// A statement or an undo of a global takes long, probably because it waits for locks of its
    /// database. Requests that hold locks there and wait for the global are refused.
    ReportDatabaseWait {
        /// The global.
        xid: Xid,
        /// The resource that the database is.
        resource: Arc<str>,
    },
    /// Decides a global.
    End {
        /// The global.
        xid: Xid,
        /// The decision.
        decision: Decision,
        /// The questions that a commit asks participants that have not prepared.
        rounds: VotingRounds,
        /// The side that decides.
        by: DecidedBy,
        /// Why, for operators. The shell has bounded its length.
        reason: Arc<str>,
        /// When to reply.
        reply_when: ReplyWhen,
    },
    /// Asks how a global stands.
    GetStatus {
        /// The global.
        xid: Xid,
    },
    /// An RM carried out, or failed to carry out, phase two of a branch.
    FinishPhaseTwo {
        /// The global.
        xid: Xid,
        /// The branch.
        branch: BranchId,
        /// The decision that the RM was asked to carry out.
        decision: Decision,
        /// How it ended.
        outcome: PhaseTwoOutcome,
    },
    /// A participant answers what it was asked before a commit.
    Vote {
        /// The global.
        xid: Xid,
        /// The branch.
        branch: BranchId,
        /// The question that it answers.
        question: VoteRequest,
        /// Done: yes, or prepared. Refused: no, and nothing is held.
        outcome: PhaseTwoOutcome,
    },
    /// The requester of a waiting request is gone: its place in the queues is given up.
    Forget {
        /// The request that is no longer waited for.
        waiting: Correlation,
    },
    /// Lets time pass: expires globals and waiters, prunes the history.
    Tick,
    /// No connection of the client is left. Unless it comes back, its globals without a branch end
    /// after a grace.
    ClientGone {
        /// The client.
        client: ClientId,
    },
    /// The client has a connection.
    ClientCame {
        /// The client.
        client: ClientId,
    },
    /// Starts a saga, or finds the one that was started under the same key (idempotent).
    StartSaga {
        /// The application, as operators know it.
        application: Arc<str>,
        /// Made by the application, unique among the sagas that are remembered.
        key: Arc<str>,
        /// The definition of the saga.
        definition: Arc<SagaDefinition>,
        /// The names and values that the application calls it by, for operators.
        labels: Labels,
    },
    /// Asks how a saga stands, now or when it has ended.
    GetSaga {
        /// The saga.
        xid: Xid,
        /// When to reply: `Finished` also replies when an operator is needed.
        reply_when: ReplyWhen,
    },
    /// Ends a step that waits for a signal. One that comes before its step's turn is kept.
    SignalSaga {
        /// The saga.
        xid: Xid,
        /// The step.
        signal: Arc<str>,
        /// The step's output.
        payload: Arc<[u8]>,
        /// The operator that gives the signal, for the timeline; `None` for an application.
        operator: Option<Arc<str>>,
    },
    /// Compensates a saga, if its pivot has not begun.
    CancelSaga {
        /// The saga.
        xid: Xid,
        /// The side that asks.
        by: DecidedBy,
        /// Why, for operators. The shell has bounded its length.
        reason: Arc<str>,
    },
    /// An operator's action on a global or a saga.
    Operate {
        /// The global or saga.
        xid: Xid,
        /// The action.
        action: OperatorAction,
        /// The operator's name, for the timeline.
        operator: Arc<str>,
    },
    /// Takes a lease of a named lock, or finds the one of this acquisition (idempotent). The reply
    /// to a request that waits is the grant.
    AcquireLock(Box<NewLease>),
    /// Renews leases. The reply says of each whether it was renewed.
    RenewLocks {
        /// The acquisitions.
        tokens: Vec<LockToken>,
        /// How long they last from here on.
        lease_ms: u64,
    },
    /// Ends an acquisition: releases the lock, or the place in its queue.
    ReleaseLock {
        /// The name of the lock.
        name: Arc<str>,
        /// The acquisition.
        token: LockToken,
        /// Whether a request of this acquisition may still arrive, and is to be refused then.
        refuses_late: bool,
    },
    /// Asks for a holder of a named lock.
    FindLock {
        /// The name of the lock.
        name: Arc<str>,
    },
    /// An operator ends leases of a named lock, whatever their holders do.
    BreakLock {
        /// The name of the lock.
        name: Arc<str>,
        /// Only that acquisition's.
        token: Option<LockToken>,
    },
    /// A request that stands in a trace, decided as it is without.
    Traced(Box<TracedCommand>),
}

/// A branch to be registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewBranch {
    /// Made by the client.
    pub id: BranchId,
    /// The resource that the branch runs on.
    pub resource: Arc<str>,
    /// The mode of the branch.
    pub mode: Mode,
    /// The rows whose global locks the branch must hold.
    pub rows: Vec<RowLock>,
    /// Handed back in phase two, unless a report brings other data.
    pub application_data: Box<[u8]>,
    /// The process that registers it, which is asked first in phase two. It may be known for longer
    /// than any of its connections. The shell has bounded its length.
    pub registered_by: Option<Arc<str>>,
}

/// How a branch takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Images and undo log.
    At,
    /// Try, confirm, cancel.
    Tcc,
    /// Two-phase commit of the resource itself.
    Xa,
    /// Actions and compensations.
    Saga,
    /// A participant that the coordinator asks to prepare when the global is to be committed.
    TwoPhase,
}

/// The question that a participant is asked before a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VoteRequest {
    /// Could it prepare? Nothing is held for a yes.
    CanCommit,
    /// To make sure that it can commit and can roll back, whatever happens.
    Prepare,
    /// Has the branch that decides the global committed locally? A no means that it never will.
    Settle,
}

/// The rounds of questions before a commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VotingRounds {
    /// All are asked to prepare.
    #[default]
    PrepareOnly,
    /// Before that, all are asked whether they could: most refusals come before a participant
    /// holds a lock.
    CanCommitFirst,
}

/// How to wait when a row is locked by another global.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockWait {
    /// How long to wait in the queue; 0 refuses at once.
    pub timeout_ms: u64,
    /// The locks that the requester holds meanwhile.
    pub holding: Holding,
}

/// The locks that a waiting requester holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holding {
    /// Row locks of an open local transaction, which a rollback may need: such a waiter is refused
    /// at once when a holder of a wanted row is rolling back, or begins to.
    DatabaseLocks,
    /// Nothing.
    Nothing,
}

/// How phase one of a branch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PhaseOneOutcome {
    /// Locally committed.
    Done,
    /// Locally rolled back for certain: the branch and its locks go.
    Failed,
    /// The local commit had no answer: the global can only be rolled back.
    Unknown,
}

/// The decision of a global, taken once (DECIDED-ONCE).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Decision {
    /// Everything happens.
    Commit,
    /// Nothing happens.
    RollBack,
}

/// The side that asks for a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecidedBy {
    /// The TM.
    Client,
    /// An operator.
    Operator,
}

/// When a decision is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyWhen {
    /// As soon as it is durable.
    Decided,
    /// When every branch is finished, or an operator is needed.
    Finished,
    /// When a client that goes on finds the decision in effect: as `Finished`, but a commit of
    /// branches of AT alone, which committed in phase one, is answered as committed as soon as it
    /// is durable.
    Effective,
}

/// The answer of an RM to a phase-two call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PhaseTwoOutcome {
    /// Carried out, now or before.
    Done,
    /// Done, by a step of a saga that has an output.
    Output {
        /// The output that later steps can take. The shell has bounded its length.
        output: Arc<[u8]>,
    },
    /// Not this time.
    Retryable {
        /// Why. The shell has bounded its length.
        error: Arc<str>,
    },
    /// Cannot be rolled back without an operator.
    Refused {
        /// Why.
        error: Arc<str>,
        /// The rows of the branch. The shell has bounded their number.
        rows: Arc<RefusedRows>,
    },
}

/// An operator's action on a global.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorAction {
    /// Try phase two of every unfinished branch at once.
    Retry,
    /// Stop trying phase two until resumed.
    Pause,
    /// Try again.
    Resume,
    /// End a refused branch.
    Resolve {
        /// The branch.
        branch: BranchId,
        /// How.
        resolution: Resolution,
    },
}

/// How an operator ends a dirty write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Put back the rows that are as the branch left them, and leave those that are not.
    RestoreClean,
    /// Leave every row as it is and drop the undo log.
    AcceptCurrent,
    /// Write the before image over whatever is there.
    ForceBefore,
}
