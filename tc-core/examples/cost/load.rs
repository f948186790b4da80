//! The load that the core is measured under: globals with branches on rows of their own.
//!
//! It reads no clock, so that its caller decides what is measured.

use std::collections::VecDeque;
use std::sync::Arc;

use handfast_core::{
    BranchId, Command, Coordinator, Correlation, DecidedBy, Decision, Effect, Epoch, Holding,
    Labels, Limits, LoanTerms, LockMode, LockWait, Mode, NewBranch, Outcome, PhaseTwoOutcome,
    Reply, ReplyWhen, Request, RowLock, Timestamp, VotingRounds, Xid,
};

/// A coordinator and the globals that are open in it, oldest first.
pub(crate) struct Load {
    coordinator: Coordinator,
    shape: Shape,
    names: [Arc<str>; 4],
    open: VecDeque<Xid>,
    requests: u64,
    rows: u64,
    out: Outcome,
}

/// The shape of each global.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) branches: u64,
    pub(crate) rows_per_branch: u64,
}

impl Load {
    pub(crate) fn new(shape: Shape, globals_max: usize) -> Self {
        let limits = Limits { globals_max, share_per_application: 100, ..Limits::default() };
        let coordinator = Coordinator::load(Epoch(1), "tc.example:7091".into(), limits, []);
        Self {
            coordinator: coordinator.expect("no records contradict each other"),
            shape,
            names: ["order-service", "place-order", "postgres:7012345678/shop/public", "item"]
                .map(Arc::from),
            open: VecDeque::new(),
            requests: 0,
            rows: 0,
            out: Outcome::default(),
        }
    }

    /// Begins a global and registers its branches, each on free rows.
    pub(crate) fn open_one(&mut self, see: &mut impl FnMut(&Outcome)) {
        let [application, name, ..] = self.names.clone();
        self.ask(Command::Begin {
            application,
            name,
            timeout_ms: None,
            labels: Labels::NONE,
            key: None,
            loan: LoanTerms::default(),
        });
        let Some(Effect::Reply { reply: Reply::Begun { xid, .. }, .. }) = self.out.effects.first()
        else {
            panic!("a global was not begun: {:?}", self.out.effects);
        };
        let xid = *xid;
        see(&self.out);
        for branch in 1..=self.shape.branches {
            let branch = self.branch(BranchId(branch));
            let wait = LockWait { timeout_ms: 0, holding: Holding::Nothing };
            self.ask(Command::RegisterBranch { xid, branch, wait });
            see(&self.out);
        }
        self.open.push_back(xid);
    }

    /// Commits the oldest open global, and its branches carry that out.
    pub(crate) fn end_one(&mut self, see: &mut impl FnMut(&Outcome)) {
        let xid = self.open.pop_front().expect("a global is open");
        let (decision, by, reply_when) = (Decision::Commit, DecidedBy::Client, ReplyWhen::Decided);
        let rounds = VotingRounds::PrepareOnly;
        self.ask(Command::End { xid, decision, rounds, by, reason: "".into(), reply_when });
        see(&self.out);
        for branch in 1..=self.shape.branches {
            let (branch, outcome) = (BranchId(branch), PhaseTwoOutcome::Done);
            self.ask(Command::FinishPhaseTwo { xid, branch, decision, outcome });
            see(&self.out);
        }
    }

    pub(crate) fn locks(&self) -> usize {
        self.coordinator.counts().locks
    }

    fn ask(&mut self, command: Command) {
        self.requests += 1;
        self.out.changes.clear();
        self.out.effects.clear();
        let request = Request { reply_to: Some(Correlation(self.requests)), command };
        // A thousand requests a millisecond.
        self.coordinator.decide(Timestamp(self.requests / 1_000), request, &mut self.out);
    }

    fn branch(&mut self, id: BranchId) -> NewBranch {
        let [process, _, resource, table] = self.names.clone();
        let first = self.rows;
        self.rows += self.shape.rows_per_branch;
        let row = |number: u64| RowLock {
            table: table.clone(),
            key: key(number),
            mode: LockMode::Exclusive,
        };
        let rows = (first..self.rows).map(row).collect();
        NewBranch {
            id,
            resource,
            mode: Mode::At,
            rows,
            application_data: Box::default(),
            registered_by: Some(process),
        }
    }
}

/// A canonical key of 20 bytes, made without what formatting costs.
fn key(mut number: u64) -> Box<[u8]> {
    let mut key = *b"17:00000000000000000";
    for digit in key[3..].iter_mut().rev() {
        *digit = b'0' + u8::try_from(number % 10).unwrap_or_default();
        number /= 10;
    }
    key.into()
}
