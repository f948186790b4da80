//! The requests of the model's clients: each global registers its branches and asks for a decision,
//! in any order, since messages may overtake each other.

use handfast_core::{
    BranchId, Command, Correlation, DecidedBy, Decision, Holding, LockMode, LockWait, Mode,
    NewBranch, ReplyWhen, Request, RowLock, VotingRounds, Xid,
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
}

/// The rows of one branch.
#[derive(Clone, Debug)]
pub(crate) struct BranchPlan {
    pub(crate) rows: Vec<usize>,
}

/// One of the requests of a global.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Ask {
    Register(usize),
    End(Decision),
}

impl GlobalPlan {
    pub(crate) fn asks(&self) -> impl Iterator<Item = Ask> {
        let ends = self.ends.iter().copied().map(Ask::End);
        (0..self.branches.len()).map(Ask::Register).chain(ends)
    }

    pub(crate) fn request(&self, xid: Xid, ask: Ask, reply_to: Correlation) -> Request {
        let command = match ask {
            Ask::Register(branch) => self.register(xid, branch),
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
        let branch = NewBranch {
            id: branch_id(branch),
            resource: RESOURCE.into(),
            mode: Mode::At,
            rows: self.branches[branch].rows.iter().map(|&row| row_lock(row)).collect(),
            application_data: Box::default(),
            registered_by: None,
        };
        let wait = LockWait { timeout_ms: WAIT_MS, holding: self.holding };
        Command::RegisterBranch { xid, branch, wait }
    }
}

pub(crate) fn branch_id(branch: usize) -> BranchId {
    BranchId(branch as u64 + 1)
}

fn row_lock(row: usize) -> RowLock {
    let key = format!("1:{row}").into_bytes().into();
    RowLock { table: TABLE.into(), key, mode: LockMode::Exclusive }
}
