//! One client against all: of what is bounded each connection and each application has a share, and
//! what a client has begun that no branch has joined goes when it has gone.

#[expect(dead_code, reason = "only restarts are compared")]
mod support;

use std::sync::Arc;

use handfast_core::{
    Asker, BranchId, ClientId, Command, Coordinator, Correlation, DecidedBy, Decision, Effect,
    GlobalStatus, Holding, Labels, Limits, LoanTerms, LockMode, LockShare, LockToken, LockWait,
    Mode, NewBranch, NewLease, Outcome, PhaseTwoOutcome, Rejection, Reply, ReplyWhen, Request,
    Retry, RowLock, SagaDefinition, ShareOf, StepDefinition, StepKind, Timestamp, VoteRequest,
    VotingRounds, Xid,
};

use crate::support::Store;

const GRACE_MS: u64 = 60_000;
/// The share of one application, of a limit of ten.
const OF_A_CONNECTION: usize = 6;
const OF_AN_APPLICATION: usize = 8;

/// A coordinator that has ten of everything.
struct World {
    limits: Limits,
    store: Store,
    coordinator: Coordinator,
    epoch: u64,
    now: u64,
    asked: u64,
}

impl World {
    fn new() -> Self {
        let limits = Limits {
            globals_max: 10,
            locks_max: 10,
            waiters_max: 10,
            sagas_max: 10,
            leases_max: 10,
            ..Limits::default()
        };
        let store = Store::default();
        let coordinator = store.load(1, &limits).expect("nothing fits together");
        Self { limits, store, coordinator, epoch: 1, now: 0, asked: 0 }
    }

    /// `None`: it waits.
    fn ask(&mut self, (client, application): (u64, &str), command: Command) -> Option<Reply> {
        self.asked += 1;
        let to = Correlation(self.asked);
        let asker = Asker { client: ClientId(client), application: application.into() };
        let mut out = Outcome::default();
        let request = Request { reply_to: Some(to), command };
        self.coordinator.decide_for(asker, Timestamp(self.now), request, &mut out);
        self.store.apply(&out.changes);
        self.coordinator.check_invariants().expect("they hold");
        out.effects.into_iter().find_map(|effect| match effect {
            Effect::Reply { to: of, reply, .. } if of == to => Some(reply),
            Effect::Reply { .. }
            | Effect::PhaseTwo(_)
            | Effect::Vote(_)
            | Effect::Hold { .. }
            | Effect::Alert(_) => None,
        })
    }

    fn tell(&mut self, command: Command) {
        self.ask((0, ""), command);
    }

    fn restart(&mut self) {
        self.epoch += 1;
        self.coordinator = self.store.load(self.epoch, &self.limits).expect("all fits together");
        self.coordinator.check_invariants().expect("they hold");
    }

    fn pass(&mut self, ms: u64) {
        let until = self.now + ms;
        while let Some(due) = self.coordinator.next_deadline().filter(|due| due.0 <= until) {
            self.now = self.now.max(due.0);
            self.tell(Command::Tick);
        }
        self.now = until;
    }

    fn begin(&mut self, who: (u64, &str)) -> Result<Xid, Rejection> {
        self.begin_under(who, None)
    }

    fn begin_under(&mut self, who: (u64, &str), key: Option<&str>) -> Result<Xid, Rejection> {
        let timeout_ms = Some(24 * 60 * 60 * 1_000);
        let (application, name) = (who.1.into(), "order".into());
        let (labels, key) = (Labels::NONE, key.map(Into::into));
        match self.ask(
            who,
            Command::Begin {
                application,
                name,
                timeout_ms,
                labels,
                key,
                loan: LoanTerms::default(),
            },
        ) {
            Some(Reply::Begun { xid, .. }) => Ok(xid),
            Some(Reply::Rejected(why)) => Err(why),
            other => panic!("{other:?}"),
        }
    }

    fn register(&mut self, who: (u64, &str), xid: Xid, branch: u64, rows: &[u8]) -> Option<Reply> {
        let row = |key: &u8| RowLock {
            table: "item".into(),
            key: [*key].into(),
            mode: LockMode::Exclusive,
        };
        let branch = NewBranch {
            id: BranchId(branch),
            resource: "orders".into(),
            mode: Mode::At,
            rows: rows.iter().map(row).collect(),
            application_data: Box::default(),
            registered_by: None,
        };
        let wait = LockWait { timeout_ms: 3_600_000, holding: Holding::Nothing };
        self.ask(who, Command::RegisterBranch { xid, branch, wait })
    }

    fn acquire(&mut self, who: (u64, &str), name: &str, wait_ms: u64) -> Option<Reply> {
        let token = LockToken { client: [7; 16], number: self.asked + 1 };
        let wanted = NewLease {
            name: name.into(),
            token,
            share: LockShare::All,
            xid: None,
            label: "".into(),
            lease_ms: 3_600_000,
            delay_ms: 0,
            hold_ms_max: None,
            wait_ms,
        };
        self.ask(who, Command::AcquireLock(Box::new(wanted)))
    }

    fn saga(&mut self, who: (u64, &str), key: usize) -> Option<Reply> {
        let step = StepDefinition {
            name: "pay".into(),
            parent: None,
            group: 0,
            kind: StepKind::Compensable,
            resource: "payments".into(),
            action: "pay".into(),
            input: Arc::default(),
            takes: Vec::new(),
            retry: Retry::DEFAULT,
            timeout_ms: None,
        };
        let (name, steps) = ("order".into(), vec![step]);
        let definition = SagaDefinition { name, timeout_ms: None, steps, children: Vec::new() };
        let (application, key) = (who.1.into(), format!("{}/{key}", who.0).into());
        let (definition, labels) = (Arc::new(definition), Labels::NONE);
        self.ask(who, Command::StartSaga { application, key, definition, labels })
    }

    /// How often it is granted before the share is used up, and whose share that is.
    fn until_refused(
        &mut self,
        mut ask: impl FnMut(&mut Self, usize) -> Option<Reply>,
    ) -> (usize, ShareOf) {
        for granted in 0..=10 {
            let reply = ask(self, granted);
            if matches!(reply, Some(Reply::Rejected(_))) {
                return (granted, share_of(reply));
            }
        }
        panic!("nothing is refused")
    }
}

const GREEDY: (u64, &str) = (1, "greedy");
const ITS_OTHER: (u64, &str) = (2, "greedy");
const HONEST: (u64, &str) = (3, "honest");

/// For each kind: a connection has six of ten, its application two more, and there is room for the
/// honest one.
fn assert_shares(mut ask: impl FnMut(&mut World, (u64, &str), usize) -> Option<Reply>) -> World {
    let mut world = World::new();
    let first = world.until_refused(|world, at| ask(world, GREEDY, at));
    assert_eq!(first, (OF_A_CONNECTION, ShareOf::Connection));
    let (granted, of) = world.until_refused(|world, at| ask(world, ITS_OTHER, at));
    assert_eq!(granted + OF_A_CONNECTION, OF_AN_APPLICATION);
    assert_eq!(of, ShareOf::Application(GREEDY.1.into()));
    let honest = ask(&mut world, HONEST, 0);
    assert!(!matches!(honest, Some(Reply::Rejected(_))), "{honest:?}");
    world
}

#[test]
fn begun_globals_are_shared() {
    let begin = |world: &mut World, who: (u64, &str), _| {
        Some(world.begin(who).map_or_else(Reply::Rejected, |_| Reply::Reported))
    };
    let mut world = assert_shares(begin);
    let message = world.begin(GREEDY).expect_err("its share is used up").to_string();
    assert_eq!(
        message,
        "share reached: this connection has 6 unfinished globals, as many as one may: end some, or \
         raise limits.share_per_connection"
    );
}

#[test]
fn leases_are_shared_also_after_a_restart() {
    let mut world =
        assert_shares(|world, who, at| world.acquire(who, &format!("{}/{at}", who.0), 0));
    world.restart();
    let of = share_of(world.acquire(GREEDY, "another", 0));
    assert_eq!(of, ShareOf::Application(GREEDY.1.into()), "connections are not stored");
    assert!(matches!(world.acquire(HONEST, "its", 0), Some(Reply::LockGranted { .. })));
}

#[test]
fn sagas_are_shared_also_after_a_restart() {
    let mut world = assert_shares(World::saga);
    world.restart();
    assert_eq!(share_of(world.saga(GREEDY, 99)), ShareOf::Application(GREEDY.1.into()));
}

#[test]
fn waiting_requests_count_for_their_shares() {
    let mut held = false;
    assert_shares(|world, who, _| {
        if !std::mem::replace(&mut held, true) {
            world.acquire((9, "holder"), "hot", 0);
        }
        world.acquire(who, "hot", 1_000_000)
    });
}

/// Regression: a commit that waited on for the end counted for the sender of the last vote.
#[test]
fn commits_that_wait_on_after_the_votes_count_for_their_senders() {
    let mut world = World::new();
    let xid = world.begin(HONEST).expect("there is room");
    world.join(HONEST, xid, 1);
    for _ in 0..OF_A_CONNECTION {
        assert_eq!(world.commit(GREEDY, xid), None, "it waits for the vote");
    }
    let (branch, question, outcome) = (BranchId(1), VoteRequest::Prepare, PhaseTwoOutcome::Done);
    world.tell(Command::Vote { xid, branch, question, outcome });
    let one_more = world.commit(GREEDY, xid);
    assert_eq!(one_more, Some(Reply::Ended(GlobalStatus::Committing)), "there is no room to wait");
    assert_eq!(world.commit(HONEST, xid), None);
}

/// They are those of the client that began the global, whatever process registers its branches, and
/// those that are waited for count with those that are held.
#[test]
fn rows_are_shared_also_after_a_restart() {
    let mut world = World::new();
    let rm = (8, "stock");
    let (first, second) =
        (world.begin(GREEDY).expect("room"), world.begin(ITS_OTHER).expect("room"));
    let honest = world.begin(HONEST).expect("room");
    let mut row = 0;
    let mut one_more = |world: &mut World, xid: Xid| {
        row += 1;
        world.register(rm, xid, u64::from(row), &[row])
    };
    let held = world.until_refused(|world, _| one_more(world, first));
    assert_eq!(held, (OF_A_CONNECTION, ShareOf::Connection));
    let granted = one_more(&mut world, second);
    assert!(matches!(granted, Some(Reply::Registered { .. })), "{granted:?}");
    assert_eq!(world.register(rm, second, 77, &[1]), None, "it waits for a row, which counts");
    let refused = one_more(&mut world, second);
    assert_eq!(share_of(refused), ShareOf::Application(GREEDY.1.into()));
    let granted = one_more(&mut world, honest);
    assert!(matches!(granted, Some(Reply::Registered { .. })), "{granted:?}");
    world.restart();
    assert!(matches!(one_more(&mut world, second), Some(Reply::Registered { .. })), "one waited");
    let refused = one_more(&mut world, first);
    assert_eq!(share_of(refused), ShareOf::Application(GREEDY.1.into()));
}

fn share_of(refused: Option<Reply>) -> ShareOf {
    match refused {
        Some(Reply::Rejected(Rejection::ShareReached { of, .. })) => of,
        other => panic!("{other:?}"),
    }
}

/// A million begins that are never ended kept their places for a day.
/// A process that begins again what one before it began must not lose it to the grace of that one.
#[test]
fn a_global_that_is_begun_again_belongs_to_its_new_client() {
    let mut world = World::new();
    let xid = world.begin_under(GREEDY, Some("order-42")).expect("there is room");
    world.tell(Command::ClientGone { client: ClientId(GREEDY.0) });
    assert_eq!(world.begin_under(ITS_OTHER, Some("order-42")), Ok(xid));
    world.pass(2 * world.limits.client_grace_ms);
    assert_eq!(world.coordinator.status(xid), GlobalStatus::Active);
    world.tell(Command::ClientGone { client: ClientId(ITS_OTHER.0) });
    world.pass(2 * world.limits.client_grace_ms);
    assert_eq!(world.coordinator.status(xid), GlobalStatus::Unknown);
    let another = world.begin_under(GREEDY, Some("order-42")).expect("there is room");
    assert_ne!(another, xid);
}

/// A begin that is sent again by its own client before anything was done is no attempt of another.
#[test]
fn a_begin_says_how_the_global_of_its_key_stands() {
    let mut world = World::new();
    let found = |world: &mut World, who: (u64, &str)| {
        let (application, name, labels) = (who.1.into(), "order".into(), Labels::NONE);
        let key = Some("order-42".into());
        let begin = Command::Begin {
            application,
            name,
            timeout_ms: None,
            labels,
            key,
            loan: LoanTerms::default(),
        };
        let Some(Reply::Begun { xid, found, .. }) = world.ask(who, begin) else { panic!("begun") };
        (xid, found)
    };
    let (xid, begun) = found(&mut world, GREEDY);
    assert_eq!(begun, None);
    assert_eq!(found(&mut world, GREEDY), (xid, None), "its reply may have been lost");
    world.register(GREEDY, xid, 1, &[1]);
    let active = (xid, Some(GlobalStatus::Active));
    assert_eq!(found(&mut world, GREEDY), active, "it knows of the global");
    assert_eq!(found(&mut world, ITS_OTHER), active);
}

#[test]
fn globals_of_a_departed_client_end_after_a_grace() {
    let mut world = World::new();
    let client = ClientId(GREEDY.0);
    let idle = world.begin(GREEDY).expect("there is room");
    let taken_part_in = world.begin(GREEDY).expect("there is room");
    world.register(GREEDY, taken_part_in, 1, &[1]);
    let waited_for = world.begin(GREEDY).expect("there is room");
    assert_eq!(world.register(GREEDY, waited_for, 1, &[1]), None, "the row is taken");
    let of_another = world.begin(ITS_OTHER).expect("there is room");
    world.tell(Command::ClientGone { client });
    world.pass(GRACE_MS - 1);
    assert_eq!(world.status(idle), GlobalStatus::Active);
    world.pass(1);
    assert_eq!(world.status(idle), GlobalStatus::Unknown, "as after a restart");
    assert!(matches!(world.status(waited_for), GlobalStatus::RolledBack(_)));
    assert_eq!(world.status(taken_part_in), GlobalStatus::Active);
    assert_eq!(world.status(of_another), GlobalStatus::Active);
    assert_eq!(world.coordinator.counts().active, 2);
}

#[test]
fn a_client_that_comes_back_finds_what_it_has_begun() {
    let mut world = World::new();
    let client = ClientId(GREEDY.0);
    let xid = world.begin(GREEDY).expect("there is room");
    for _ in 0..3 {
        world.tell(Command::ClientGone { client });
        world.pass(GRACE_MS - 1);
        world.tell(Command::ClientCame { client });
        world.pass(GRACE_MS);
    }
    assert_eq!(world.status(xid), GlobalStatus::Active);
    let (decision, rounds) = (Decision::Commit, VotingRounds::PrepareOnly);
    let (by, reason, reply_when) = (DecidedBy::Client, "".into(), ReplyWhen::Decided);
    world.ask(GREEDY, Command::End { xid, decision, rounds, by, reason, reply_when });
    assert_eq!(world.status(xid), GlobalStatus::Committed);
}

impl World {
    fn status(&self, xid: Xid) -> GlobalStatus {
        self.coordinator.status(xid)
    }

    /// Registers a participant that is asked to prepare.
    fn join(&mut self, who: (u64, &str), xid: Xid, branch: u64) {
        let branch = NewBranch {
            id: BranchId(branch),
            resource: "archive".into(),
            mode: Mode::TwoPhase,
            rows: Vec::new(),
            application_data: Box::default(),
            registered_by: None,
        };
        let wait = LockWait { timeout_ms: 0, holding: Holding::Nothing };
        let joined = self.ask(who, Command::RegisterBranch { xid, branch, wait });
        assert!(matches!(joined, Some(Reply::Registered { .. })), "{joined:?}");
    }

    /// Asks for the commit, to be answered when the global is finished.
    fn commit(&mut self, who: (u64, &str), xid: Xid) -> Option<Reply> {
        let (decision, rounds) = (Decision::Commit, VotingRounds::PrepareOnly);
        let (by, reason, reply_when) = (DecidedBy::Client, "".into(), ReplyWhen::Finished);
        self.ask(who, Command::End { xid, decision, rounds, by, reason, reply_when })
    }
}
