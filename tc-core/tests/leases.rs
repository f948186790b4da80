//! Named locks under random requests: whatever is asked in whatever order, the invariants hold,
//! no request waits for a free lock, fencing tokens grow from holder to holder, and a restart
//! changes nothing but the queues.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use handfast_core::{
    Command, Coordinator, Correlation, DecidedBy, Decision, Effect, FencingToken, Labels, Limits,
    LoanTerms, LockShare, LockToken, NewLease, Outcome, PageBounds, Reply, ReplyWhen, Request,
    Timestamp, VotingRounds, Xid,
};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::support::{Store, recorded};

const NAMES: [&str; 3] = ["one", "two", "three"];
const TOKENS: u64 = 6;

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn locks_by_name_keep_their_promises(steps in vec(step(), 1..60)) {
        let mut world = World::new();
        for step in steps {
            world.take(step);
            world.check();
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Acquire { token: u64, share: LockShare, is_owned: bool, wait_ms: u64, delay_ms: u64 },
    Renew { token: u64 },
    Release { token: u64, refuses_late: bool },
    Break { name: usize },
    Forget { back: u64 },
    End { decision: Decision },
    Pass { ms: u64 },
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let token = 0..TOKENS;
    let share = prop_oneof![
        3 => Just(LockShare::All),
        2 => Just(LockShare::Part { of: u32::MAX }),
        1 => Just(LockShare::Part { of: 2 })
    ];
    let terms = (prop_oneof![Just(0), Just(300)], prop_oneof![4 => Just(0_u64), 1 => Just(30)]);
    let decision = prop_oneof![Just(Decision::Commit), Just(Decision::RollBack)];
    prop_oneof![
        8 => (token.clone(), share, any::<bool>(), terms).prop_map(
            |(token, share, is_owned, (wait_ms, delay_ms))| {
                Step::Acquire { token, share, is_owned, wait_ms, delay_ms }
            }
        ),
        2 => token.clone().prop_map(|token| Step::Renew { token }),
        5 => (token, any::<bool>())
            .prop_map(|(token, refuses_late)| Step::Release { token, refuses_late }),
        1 => (0..NAMES.len()).prop_map(|name| Step::Break { name }),
        1 => (1..6_u64).prop_map(|back| Step::Forget { back }),
        1 => decision.prop_map(|decision| Step::End { decision }),
        3 => (1..80_u64).prop_map(|ms| Step::Pass { ms }),
        1 => Just(Step::Restart),
    ]
}

struct World {
    coordinator: Coordinator,
    store: Store,
    epoch: u64,
    now: Timestamp,
    correlation: u64,
    global: Option<Xid>,
    /// How often each token was let go: it is never used again.
    lives: BTreeMap<u64, u64>,
    asked: BTreeMap<Correlation, NewLease>,
    /// The last fence that was given for each lock, and to each acquisition.
    fences: BTreeMap<Arc<str>, FencingToken>,
    granted: BTreeMap<LockToken, FencingToken>,
}

impl World {
    fn new() -> Self {
        let store = Store::default();
        let coordinator = store.load(1, &Limits::default()).expect("no records fit together");
        Self {
            coordinator,
            store,
            epoch: 1,
            now: Timestamp(1_000),
            correlation: 0,
            global: None,
            lives: BTreeMap::new(),
            asked: BTreeMap::new(),
            fences: BTreeMap::new(),
            granted: BTreeMap::new(),
        }
    }

    fn ask(&mut self, command: Command) {
        self.correlation += 1;
        let to = Correlation(self.correlation);
        if let Command::AcquireLock(wanted) = &command {
            self.asked.insert(to, (**wanted).clone());
        }
        let reply_to = (!matches!(command, Command::Tick | Command::Forget { .. })).then_some(to);
        let mut out = Outcome::default();
        self.coordinator.decide(self.now, Request { reply_to, command }, &mut out);
        self.store.apply(&out.changes);
        for effect in out.effects {
            let Effect::Reply { to, reply, .. } = effect else { continue };
            if let Reply::LockGranted { fence, .. } = reply {
                self.granted(to, fence);
            } else if let Reply::Begun { xid, .. } = reply {
                self.global = Some(xid);
            }
        }
    }

    /// The fence of a lease that was not there before is not below any before it, and a writer's is
    /// larger, unless it is that of its own global.
    fn granted(&mut self, to: Correlation, fence: FencingToken) {
        let wanted = &self.asked[&to];
        if self.granted.insert(wanted.token, fence) == Some(fence) {
            return;
        }
        let last = self.fences.insert(wanted.name.clone(), fence);
        assert!(last <= Some(fence), "{}: {last:?}, then {fence:?}", wanted.name);
        let is_stranger = wanted.share == LockShare::All && wanted.xid.is_none();
        assert!(!is_stranger || last < Some(fence), "{} has an old fence", wanted.name);
    }

    /// Each token is of one lock, and drawn anew when it was let go.
    fn token(&self, token: u64) -> (usize, LockToken) {
        let life = self.lives.get(&token).copied().unwrap_or_default();
        let name = usize::try_from(token).expect("it is small") % NAMES.len();
        (name, LockToken { client: [7; 16], number: life * TOKENS + token })
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Acquire { token, share, is_owned, wait_ms, delay_ms } => {
                if is_owned && self.global.is_none() {
                    let (application, name) = (Arc::from("shop"), Arc::from("edit"));
                    self.ask(Command::Begin {
                        application,
                        name,
                        timeout_ms: None,
                        labels: Labels::NONE,
                        key: None,
                        loan: LoanTerms::default(),
                    });
                }
                let (name, token) = self.token(token);
                self.ask(Command::AcquireLock(Box::new(NewLease {
                    name: NAMES[name].into(),
                    token,
                    share,
                    xid: self.global.filter(|_| is_owned),
                    label: "test".into(),
                    lease_ms: 100,
                    delay_ms,
                    hold_ms_max: None,
                    wait_ms,
                })));
            }
            Step::Renew { token } => {
                let tokens = vec![self.token(token).1];
                self.ask(Command::RenewLocks { tokens, lease_ms: 100 });
            }
            Step::Release { token: number, refuses_late } => {
                let (name, token) = self.token(number);
                *self.lives.entry(number).or_default() += 1;
                self.ask(Command::ReleaseLock { name: NAMES[name].into(), token, refuses_late });
            }
            Step::Break { name } => {
                self.ask(Command::BreakLock { name: NAMES[name].into(), token: None });
            }
            Step::Forget { back } => {
                let waiting = Correlation(self.correlation.saturating_sub(back));
                self.ask(Command::Forget { waiting });
            }
            Step::End { decision } => {
                let Some(xid) = self.global.take() else { return };
                let (rounds, by) = (VotingRounds::PrepareOnly, DecidedBy::Client);
                let (reason, reply_when) = ("".into(), ReplyWhen::Decided);
                self.ask(Command::End { xid, decision, rounds, by, reason, reply_when });
            }
            Step::Pass { ms } => {
                self.now = self.now.after_ms(ms);
                self.ask(Command::Tick);
            }
            Step::Restart => {
                self.epoch += 1;
                let loaded = self.store.load(self.epoch, &Limits::default());
                self.coordinator = loaded.expect("RECORDED");
                // Without a lease or branch a global is stored nowhere.
                let is_known = |xid: &Xid| self.coordinator.global(*xid).is_some();
                self.global = self.global.filter(is_known);
            }
        }
    }

    fn check(&self) {
        self.coordinator.check_invariants().expect("the invariants hold");
        for lock in self.coordinator.named_locks(None, PageBounds::NONE).items {
            assert!(lock.waiting == 0 || !lock.held.is_empty(), "no client holds {lock:?}");
        }
        let loaded = self.store.load(self.epoch + 1, &Limits::default()).expect("RECORDED");
        assert_eq!(recorded(&self.coordinator).3, recorded(&loaded).3, "RECORDED");
    }
}
