//! XIDs that are lent: each begins one global, of the client that was lent it, and begins it again
//! only for that client.

#[expect(dead_code, reason = "only restarts are compared")]
mod support;

use std::sync::Arc;

use handfast_core::{
    Asker, BranchId, ClientId, Command, Coordinator, Correlation, DecidedBy, Decision, Effect,
    GlobalStatus, Holding, Labels, LentXid, Limits, LoanTerms, LockWait, Mode, NewBranch, Outcome,
    Rejection, Reply, ReplyWhen, Request, RollbackReason, Timestamp, VotingRounds, Xid, XidLoan,
};

use crate::support::Store;

const CLIENT: u64 = 7;
const OTHER: u64 = 8;
/// A unary call, or a client of Seata.
const NONE: u64 = 0;

struct World {
    limits: Limits,
    store: Store,
    coordinator: Coordinator,
    epoch: u64,
    now: u64,
}

impl World {
    fn new() -> Self {
        Self::with(Limits::default())
    }

    fn with(limits: Limits) -> Self {
        let store = Store::default();
        let coordinator = store.load(1, &limits).expect("nothing fits together");
        Self { limits, store, coordinator, epoch: 1, now: 0 }
    }

    fn ask(&mut self, client: u64, command: Command) -> Reply {
        let asker = Asker { client: ClientId(client), application: "shop".into() };
        let mut out = Outcome::default();
        let request = Request { reply_to: Some(Correlation(1)), command };
        self.coordinator.decide_for(asker, Timestamp(self.now), request, &mut out);
        out.check_early_replies().expect("DURABLE-FIRST");
        self.store.apply(&out.changes);
        self.coordinator.check_invariants().expect("they hold");
        let reply = out.effects.into_iter().find_map(|effect| match effect {
            Effect::Reply { reply, .. } => Some(reply),
            Effect::PhaseTwo(_) | Effect::Vote(_) | Effect::Hold { .. } | Effect::Alert(_) => None,
        });
        reply.unwrap_or(Reply::Reported)
    }

    fn begin(&mut self, client: u64, xid: Option<(Xid, &str)>, wants: u32) -> Reply {
        let xid = xid.map(|(xid, address)| LentXid { xid, address: address.into() });
        self.ask(
            client,
            Command::Begin {
                application: "shop".into(),
                name: "order".into(),
                timeout_ms: Some(5_000),
                labels: Labels::NONE,
                key: None,
                loan: LoanTerms { xid, wants },
            },
        )
    }

    /// Begins a global and gets this many XIDs lent.
    fn lend(&mut self, client: u64, count: u32) -> Vec<Xid> {
        let Reply::Begun { loan: Some(loan), .. } = self.begin(client, None, count) else {
            panic!("nothing is lent")
        };
        assert_eq!(loan.count, count);
        (0..u64::from(count)).map(|offset| Xid(loan.first.0 + offset)).collect()
    }

    fn begin_with(&mut self, client: u64, xid: Xid) -> Result<Option<GlobalStatus>, Rejection> {
        self.begin_as(client, xid, "tc")
    }

    fn begin_as(
        &mut self,
        client: u64,
        lent: Xid,
        address: &str,
    ) -> Result<Option<GlobalStatus>, Rejection> {
        let reply = self.begin(client, Some((lent, address)), 0);
        if let Reply::Rejected(rejection) = reply {
            return Err(rejection);
        }
        let Reply::Begun { xid, address: text, found, .. } = reply else { panic!("{reply:?}") };
        assert_eq!((xid, &*text), (lent, address));
        Ok(found)
    }

    fn register(&mut self, xid: Xid) -> Reply {
        let branch = NewBranch {
            id: BranchId(1),
            resource: "stock".into(),
            mode: Mode::At,
            rows: Vec::new(),
            application_data: Box::default(),
            registered_by: None,
        };
        let wait = LockWait { timeout_ms: 0, holding: Holding::Nothing };
        self.ask(CLIENT, Command::RegisterBranch { xid, branch, wait })
    }

    fn roll_back(&mut self, xid: Xid) -> Reply {
        let (decision, rounds) = (Decision::RollBack, VotingRounds::PrepareOnly);
        let (by, reason, reply_when) = (DecidedBy::Client, Arc::from(""), ReplyWhen::Decided);
        self.ask(CLIENT, Command::End { xid, decision, rounds, by, reason, reply_when })
    }

    /// Another coordinator leads.
    fn change_leader(&mut self) {
        self.epoch += 1;
        self.coordinator = self.store.load(self.epoch, &self.limits).expect("all fits together");
    }

    fn pass(&mut self, ms: u64) {
        let until = self.now + ms;
        while let Some(due) = self.coordinator.next_deadline().filter(|due| due.0 <= until) {
            self.now = self.now.max(due.0);
            self.ask(NONE, Command::Tick);
        }
        self.now = until;
    }
}

fn rolled_back() -> Option<GlobalStatus> {
    Some(GlobalStatus::RolledBack(RollbackReason::Requested))
}

#[test]
fn a_lent_xid_begins_a_global_for_its_client_alone() {
    let mut world = World::new();
    let lent = world.lend(CLIENT, 64);
    let drawn = world.lend(OTHER, 1)[0];
    assert!(lent.iter().all(|xid| *xid < drawn), "one counter draws both");
    for (client, xid) in [(OTHER, lent[0]), (NONE, lent[0]), (CLIENT, drawn)] {
        assert_eq!(world.begin_with(client, xid), Err(Rejection::XidNotLent(xid)));
    }
    let beyond = Xid(drawn.0 + 1);
    assert_eq!(world.begin_with(CLIENT, beyond), Err(Rejection::XidNotLent(beyond)));
    assert_eq!(world.begin_with(CLIENT, lent[63]), Ok(None));
    assert_eq!(world.begin_with(CLIENT, lent[0]), Ok(None), "in whatever order");
    let Reply::Begun { loan: Some(loan), .. } = world.begin(CLIENT, None, 1_000) else { panic!() };
    let Limits { timeout_ms_default, timeout_ms_max, .. } = world.limits;
    let first = loan.first;
    assert_eq!(loan, XidLoan { first, count: 64, timeout_ms_default, timeout_ms_max });
    assert!(matches!(world.begin(NONE, None, 9), Reply::Begun { loan: None, .. }));
}

#[test]
fn a_begin_that_comes_again_is_answered_alike() {
    let mut world = World::new();
    let xid = world.lend(CLIENT, 1)[0];
    assert_eq!(world.begin_with(CLIENT, xid), Ok(None));
    assert_eq!(world.begin_with(CLIENT, xid), Ok(None), "its reply may have been lost");
    assert_eq!(world.begin_with(OTHER, xid), Err(Rejection::XidNotLent(xid)));
    world.register(xid);
    assert_eq!(world.begin_with(CLIENT, xid), Ok(Some(GlobalStatus::Active)));
}

/// The global that has begun with it may have been decided, carried out and forgotten.
#[test]
fn an_xid_begins_no_second_global_under_its_leader() {
    let mut world = World::with(Limits { history_max: 1, ..Limits::default() });
    let lent = world.lend(CLIENT, 2);
    assert_eq!(world.begin_with(CLIENT, lent[0]), Ok(None));
    world.roll_back(lent[0]);
    assert_eq!(world.begin_with(CLIENT, lent[0]), Ok(rolled_back()));
    assert_eq!(world.begin_with(CLIENT, lent[1]), Ok(None));
    world.roll_back(lent[1]);
    assert_eq!(world.coordinator.status(lent[0]), GlobalStatus::Unknown, "it is forgotten");
    assert_eq!(world.begin_with(CLIENT, lent[0]), Err(Rejection::XidNotLent(lent[0])));
}

#[test]
fn a_refused_begin_leaves_its_xid_unused() {
    let mut world = World::with(Limits { globals_max: 2, ..Limits::default() });
    let lent = world.lend(CLIENT, 2);
    assert_eq!(world.begin_with(CLIENT, lent[0]), Ok(None));
    let refused = world.begin_with(CLIENT, lent[1]);
    assert!(matches!(refused, Err(Rejection::LimitReached { .. })), "{refused:?}");
    world.roll_back(lent[0]);
    assert_eq!(world.begin_with(CLIENT, lent[1]), Ok(None));
}

#[test]
fn no_more_is_lent_than_there_may_be_globals() {
    let mut world = World::with(Limits { globals_max: 3, ..Limits::default() });
    let Reply::Begun { loan: Some(loan), .. } = world.begin(CLIENT, None, 64) else { panic!() };
    assert_eq!(loan.count, 3);
    assert!(matches!(world.begin(OTHER, None, 64), Reply::Begun { loan: None, .. }));
}

/// The begin was on its way when the leader changed. Other processes have the XID with the address
/// of the leader that lent it.
#[test]
fn a_later_leader_begins_what_it_does_not_know() {
    let mut world = World::new();
    let lent = world.lend(CLIENT, 4);
    for xid in &lent[..3] {
        assert_eq!(world.begin_with(CLIENT, *xid), Ok(None));
    }
    world.register(lent[0]);
    world.roll_back(lent[1]);
    world.change_leader();
    assert_eq!(world.begin_as(CLIENT, lent[0], "tc"), Ok(Some(GlobalStatus::Active)));
    assert_eq!(world.begin_as(CLIENT, lent[1], "tc"), Ok(rolled_back()));
    assert_eq!(world.begin_as(CLIENT, lent[2], "earlier"), Ok(None), "it had no branch");
    assert_eq!(world.begin_as(CLIENT, lent[3], "earlier"), Ok(None), "it was not begun");
    assert_eq!(world.begin_as(CLIENT, lent[3], "earlier"), Ok(None), "it comes again");
    assert_eq!(world.begin_with(OTHER, lent[3]), Err(Rejection::XidNotLent(lent[3])));
    assert_eq!(world.begin_with(NONE, Xid(5)), Err(Rejection::XidNotLent(Xid(5))));
    let own = world.lend(CLIENT, 1)[0];
    assert_eq!(world.begin_as(CLIENT, own, "earlier"), Err(Rejection::XidNotLent(own)));
    let later = Xid(own.0 + (1 << 40));
    assert_eq!(world.begin_with(CLIENT, later), Err(Rejection::XidNotLent(later)));
}

/// The client takes the address of the XIDs that it is lent from the reply's XID.
#[test]
fn nothing_is_lent_behind_the_address_of_an_earlier_leader() {
    let mut world = World::new();
    let lent = world.lend(CLIENT, 2);
    world.change_leader();
    let reply = world.begin(CLIENT, Some((lent[0], "earlier")), 64);
    assert!(matches!(reply, Reply::Begun { loan: None, .. }), "{reply:?}");
    let reply = world.begin(CLIENT, Some((lent[1], "tc")), 64);
    let Reply::Begun { address, loan: Some(loan), .. } = reply else { panic!("{reply:?}") };
    assert_eq!(world.begin_as(CLIENT, loan.first, &address), Ok(None), "its own address");
}

/// A begin may have been delayed on an earlier connection.
#[test]
fn an_xid_begins_no_second_global_under_a_later_leader() {
    let mut world = World::with(Limits { history_max: 0, ..Limits::default() });
    let xid = world.lend(CLIENT, 1)[0];
    world.change_leader();
    assert_eq!(world.begin_with(CLIENT, xid), Ok(None));
    world.roll_back(xid);
    assert_eq!(world.coordinator.status(xid), GlobalStatus::Unknown, "it is forgotten");
    assert_eq!(world.begin_with(CLIENT, xid), Err(Rejection::XidNotLent(xid)));
}

/// A planned stop stores what is begun, and the process that has begun it begins it again.
#[test]
fn a_global_that_a_planned_stop_has_stored_is_known_to_the_next_leader() {
    let mut world = World::new();
    let xid = world.lend(CLIENT, 1)[0];
    assert_eq!(world.begin_with(CLIENT, xid), Ok(None));
    let mut out = Outcome::default();
    world.coordinator.store_begun(&mut out);
    world.store.apply(&out.changes);
    world.change_leader();
    assert_eq!(world.begin_with(CLIENT, xid), Ok(Some(GlobalStatus::Active)));
    assert_eq!(world.begin_with(CLIENT, xid), Ok(None), "it is that of the client again");
    assert!(matches!(world.register(xid), Reply::Registered { .. }));
}

#[test]
fn a_client_that_has_gone_gives_its_xids_back() {
    let mut world = World::new();
    let (lent, of_another) = (world.lend(CLIENT, 2), world.lend(OTHER, 1)[0]);
    let grace_ms = world.limits.client_grace_ms;
    world.ask(NONE, Command::ClientGone { client: ClientId(CLIENT) });
    world.pass(grace_ms - 1);
    world.ask(NONE, Command::ClientCame { client: ClientId(CLIENT) });
    world.pass(grace_ms);
    assert_eq!(world.begin_with(CLIENT, lent[0]), Ok(None), "it came back in time");
    world.ask(NONE, Command::ClientGone { client: ClientId(CLIENT) });
    world.pass(grace_ms);
    assert_eq!(world.begin_with(CLIENT, lent[1]), Err(Rejection::XidNotLent(lent[1])));
    assert_eq!(world.begin_with(OTHER, of_another), Ok(None));
}
