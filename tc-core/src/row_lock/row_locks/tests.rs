//! The work for requests that cannot be granted is in proportion to their number.

use std::cell::Cell;
use std::sync::Arc;

use crate::contract::{
    BranchId, Command, Correlation, DecidedBy, Decision, Effect, Epoch, Holding, Labels, Limits,
    LoanTerms, LockMode, LockWait, Mode, NewBranch, Outcome, Rejection, Reply, ReplyWhen, Request,
    RowLock, Timestamp, VotingRounds, Xid,
};
use crate::coordinator::Coordinator;

const MANY: u32 = 200;

thread_local! {
    static LOOKS: Cell<u32> = const { Cell::new(0) };
}

/// A row of a request is looked at.
pub(crate) fn count_a_look() {
    LOOKS.set(LOOKS.get() + 1);
}

// Each request that ran out of time caused all others for the same holder to be examined.
#[test]
fn waiters_for_an_exclusive_holder_are_not_looked_at() {
    let mut desk = Requester::new();
    let holder = desk.begin();
    desk.register(holder, 1, &["r"], LockMode::Exclusive, 0);
    for _ in 0..MANY {
        desk.ask(Command::CheckLocks {
            xid: None,
            resource: "orders".into(),
            rows: rows(&["r"], LockMode::Shared),
            wait: LockWait { timeout_ms: 10, holding: Holding::Nothing },
        });
    }
    assert!(desk.looks_at_tick(10) <= 2 * MANY);
    assert_eq!((desk.refused, desk.granted), (MANY, 0));
}

// The same behind a global that shares the row and waits to have it for itself.
#[test]
fn waiters_for_an_upgrade_are_not_looked_at() {
    let mut desk = Requester::new();
    let (one, other) = (desk.begin(), desk.begin());
    desk.register(one, 1, &["r"], LockMode::Shared, 0);
    desk.register(other, 1, &["r"], LockMode::Shared, 0);
    desk.register(other, 2, &["r"], LockMode::Exclusive, 5_000);
    for _ in 0..MANY {
        let xid = desk.begin();
        desk.register(xid, 1, &["r"], LockMode::Shared, 10);
    }
    assert!(desk.looks_at_tick(10) <= 2 * MANY);
    assert_eq!((desk.refused, desk.granted), (MANY, 0));
    let last = desk.begin();
    desk.register(last, 1, &["r"], LockMode::Shared, 5_000);
    desk.commit(one);
    assert_eq!(desk.granted, 1, "the upgrade");
    desk.commit(other);
    assert_eq!(desk.granted, 2);
}

// It was looked at once for each of its rows, and each time at all of them.
#[test]
fn a_request_for_many_rows_is_looked_at_where_it_was_blocked() {
    let mut desk = Requester::new();
    let xids = [desk.begin(), desk.begin(), desk.begin()];
    desk.register(xids[0], 1, &["z"], LockMode::Exclusive, 0);
    let names: Vec<String> = (0..MANY).map(|row| format!("r{row:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).chain(["z"]).collect();
    desk.register(xids[1], 1, &names, LockMode::Exclusive, 10);
    desk.register(xids[2], 1, &names, LockMode::Exclusive, 5_000);
    assert!(desk.looks_at_tick(10) <= 2 * MANY);
    assert_eq!((desk.refused, desk.granted), (1, 0));
    desk.commit(xids[0]);
    assert_eq!(desk.granted, 1);
}

/// Asks the coordinator, and counts how the waiting requests ended.
struct Requester {
    coordinator: Coordinator,
    now: Timestamp,
    asked: u64,
    granted: u32,
    refused: u32,
}

impl Requester {
    fn new() -> Self {
        let coordinator = Coordinator::load(Epoch(1), "tc".into(), Limits::default(), []);
        let coordinator = coordinator.expect("no records do not contradict");
        Self { coordinator, now: Timestamp(0), asked: 0, granted: 0, refused: 0 }
    }

    fn ask(&mut self, command: Command) -> Option<Reply> {
        self.asked += 1;
        let asked = Correlation(self.asked);
        let mut out = Outcome::default();
        self.coordinator.decide(self.now, Request { reply_to: Some(asked), command }, &mut out);
        let mut answer = None;
        for effect in out.effects {
            let Effect::Reply { to, reply, .. } = effect else { continue };
            if to == asked {
                answer = Some(reply);
                continue;
            }
            let is_refused = matches!(reply, Reply::Rejected(Rejection::RowLocked { .. }));
            self.refused += u32::from(is_refused);
            self.granted += u32::from(matches!(reply, Reply::Registered { .. }));
        }
        self.coordinator.check_invariants().expect("the invariants hold");
        answer
    }

    fn begin(&mut self) -> Xid {
        let (application, name): (Arc<str>, Arc<str>) = ("shop".into(), "order".into());
        match self.ask(Command::Begin {
            application,
            name,
            timeout_ms: None,
            labels: Labels::NONE,
            key: None,
            loan: LoanTerms::default(),
        }) {
            Some(Reply::Begun { xid, .. }) => xid,
            other => panic!("not begun: {other:?}"),
        }
    }

    fn register(&mut self, xid: Xid, id: u64, keys: &[&str], mode: LockMode, timeout_ms: u64) {
        let branch = NewBranch {
            id: BranchId(id),
            resource: "orders".into(),
            mode: Mode::At,
            rows: rows(keys, mode),
            application_data: [].into(),
            registered_by: None,
        };
        let wait = LockWait { timeout_ms, holding: Holding::Nothing };
        let answer = self.ask(Command::RegisterBranch { xid, branch, wait });
        assert_eq!(answer.is_some(), timeout_ms == 0, "{answer:?}");
    }

    fn commit(&mut self, xid: Xid) {
        self.ask(Command::End {
            xid,
            decision: Decision::Commit,
            rounds: VotingRounds::PrepareOnly,
            by: DecidedBy::Client,
            reason: "".into(),
            reply_when: ReplyWhen::Decided,
        });
    }

    fn looks_at_tick(&mut self, now: u64) -> u32 {
        LOOKS.set(0);
        self.now = Timestamp(now);
        self.ask(Command::Tick);
        LOOKS.get()
    }
}

fn rows(keys: &[&str], mode: LockMode) -> Vec<RowLock> {
    let row = |key: &&str| RowLock { table: "item".into(), key: key.as_bytes().into(), mode };
    keys.iter().map(row).collect()
}
