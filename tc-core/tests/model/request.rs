//! The requests of the model's clients: each global registers its branches and asks for a decision,
//! in any order, since messages may overtake each other.

use handfast_core::{
    BranchId, Command, Correlation, DecidedBy, Decision, Holding, LockMode, LockWait, Mode,
    NewBranch, PhaseOneOutcome, ReplyWhen, Request, RowLock, VotingRounds, Xid,
};

/// Long enough for the waits that end by being granted, shorter than the globals' timeout.
const WAIT_MS: u64 = 100;
const TABLE: &str = "item";
const RESOURCE: &str = "stock";

/// The plan of one global.
#[derive(Clone, Debug)]
pub(crate) struct GlobalPlan {
    pub(crate) branches: Vec<BranchPlan>,
    /// The decisions that are asked for; of two, only one can be had.
    pub(crate) ends: Vec<Decision>,
    pub(crate) holding: Holding,
    /// Whether the last branch decides by its local commit, and reports it.
    pub(crate) last_decides: bool,
    /// Whether the rows of that branch are locked in its database before it is registered.
    pub(crate) may_be_lost: bool,
}

/// The rows of one branch.
#[derive(Clone, Debug)]
pub(crate) struct BranchPlan {
    pub(crate) rows: Vec<usize>,
    pub(crate) mode: LockMode,
}

/// One of the requests of a global.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Ask {
    Register(usize),
    /// The report of the last branch that it has committed.
    Report,
    End(Decision),
}

impl GlobalPlan {
    pub(crate) fn asks(&self) -> impl Iterator<Item = Ask> {
        let ends = self.ends.iter().copied().map(Ask::End);
        let report = self.last_decides.then_some(Ask::Report);
        (0..self.branches.len()).map(Ask::Register).chain(report).chain(ends)
    }

    /// The branch that decides.
    pub(crate) fn last_branch(&self) -> Option<BranchId> {
        self.last_decides.then(|| branch_id(self.branches.len() - 1))
    }

    pub(crate) fn request(&self, xid: Xid, ask: Ask, reply_to: Correlation) -> Request {
        let command = match ask {
            Ask::Register(branch) => self.register(xid, branch),
            Ask::Report => Command::ReportBranch {
                xid,
                branch: self.last_branch().expect("only the last branch reports"),
                outcome: Some(PhaseOneOutcome::Done),
                application_data: Box::default(),
            },
            Ask::End(decision) => Command::End {
                xid,
                decision,
                rounds: VotingRounds::PrepareOnly,
                by: DecidedBy::Client,
                reason: "".into(),
                reply_when: ReplyWhen::Decided,
            },
        };
        Request { reply_to: Some(reply_to), command }
    }

    fn register(&self, xid: Xid, branch: usize) -> Command {
        let id = branch_id(branch);
        let branch = NewBranch {
            id,
            resource: RESOURCE.into(),
            mode: Mode::At,
            rows: self.branches[branch].row_locks(),
            application_data: Box::default(),
            registered_by: None,
        };
        let wait = LockWait { timeout_ms: WAIT_MS, holding: self.holding };
        if self.last_branch() == Some(id) {
            let may_be_lost = self.may_be_lost;
            Command::RegisterLastBranch { xid, branch, wait, may_be_lost }
        } else {
            Command::RegisterBranch { xid, branch, wait }
        }
    }
}

pub(crate) fn branch_id(branch: usize) -> BranchId {
    BranchId(branch as u64 + 1)
}

impl BranchPlan {
    pub(crate) fn row_locks(&self) -> Vec<RowLock> {
        let key = |row: &usize| format!("1:{row}").into_bytes().into();
        let lock = |row| RowLock { table: TABLE.into(), key: key(row), mode: self.mode };
        self.rows.iter().map(lock).collect()
    }

    /// Whether a row that the other one wants keeps this one waiting.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        let is_shared = self.mode == other.mode && self.mode != LockMode::Exclusive;
        !is_shared && self.rows.iter().any(|row| other.rows.contains(row))
    }
}
