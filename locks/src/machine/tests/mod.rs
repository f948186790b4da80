//! Clients, a table of locks and a bad network on virtual time, from one seed.
//!
//! Messages are lost, doubled, late and overtake one another; replies come after their time-out;
//! clients are paused for longer than a lease, and die; locks are freed behind their holders'
//! backs. After each step the judge counts who believes to hold each lock: he goes by the fences
//! and by what a guard would say, never by the machines' state. Then the faults stop, and all must
//! come to an end. That he sees what he should is shown by the mutations `locks-*`.

mod patience;
mod plan;

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use super::*;
use crate::backend::{Place, WAITER_ALIVE};
use crate::memory::Table;
use crate::name::Token;

use self::plan::{Call, Dice, Planned, Request, Step};

const SEEDS: u64 = 500;
const CLIENTS: usize = 4;
const NAMES: [&str; 2] = ["a", "b"];
const LEASE: Duration = Duration::from_secs(3);
/// What the shell waits for an answer.
const CALL_MAX: Duration = Duration::from_secs(1);
const FAULTS_END: Moment = Moment::at(Duration::from_secs(60));
/// Whoever waits then has been served by now: queues are long, and some hold for seconds.
const ALL_END: Moment = Moment::at(Duration::from_secs(1200));
/// Every second client's limit to holding.
const HOLD_MAX: Duration = Duration::from_secs(4);

struct Client {
    id: u128,
    machine: Machine,
    paused_until: Moment,
    /// Calls that are not answered yet.
    calls: Vec<u64>,
    guards: BTreeMap<u64, Belief>,
    names: BTreeMap<u64, (usize, Share)>,
}

/// What a guard knows.
#[derive(Debug)]
struct Belief {
    until: Until,
    is_lost: bool,
    share: Share,
    granted_at: Moment,
}

impl Belief {
    fn is_held(&self, now: Moment) -> bool {
        !self.is_lost && now < self.until.deadline
    }
}

struct World {
    now: Moment,
    dice: Dice,
    plan: BinaryHeap<Planned>,
    last: u64,
    table: Table,
    clients: Vec<Client>,
    /// Acquisitions that lost their lock at the table without having asked for it, and when; none
    /// for one that took it again by a copy of its request.
    seized: BTreeMap<Token, Option<Moment>>,
    /// Acquisitions of which the machine said that nothing is left.
    ended: BTreeSet<Token>,
    /// The largest fence that any guard has had, by name.
    fences: [i64; NAMES.len()],
    grants: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            now: Moment::at(Duration::ZERO),
            dice: Dice(seed),
            plan: BinaryHeap::new(),
            last: 0,
            table: Table::default(),
            clients: Vec::new(),
            seized: BTreeMap::new(),
            ended: BTreeSet::new(),
            fences: [0; NAMES.len()],
            grants: 0,
        };
        for _ in 0..CLIENTS {
            let client = world.client();
            world.clients.push(client);
        }
        world.after(Duration::ZERO, Step::Begin);
        world
    }

    fn client(&mut self) -> Client {
        let id = u128::from(self.next());
        let label = format!("client {id}").into();
        let hold_max = has_limit(id).then_some(HOLD_MAX);
        let machine = Machine::new(Settings { client: id, label, lease: LEASE, hold_max });
        let (paused_until, calls) = (self.now, Vec::new());
        Client { id, machine, paused_until, calls, guards: BTreeMap::new(), names: BTreeMap::new() }
    }

    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn has_faults(&self) -> bool {
        self.now < FAULTS_END
    }

    fn after(&mut self, delay: Duration, step: Step) {
        let number = self.next();
        self.plan.push(Planned(self.now + delay, number, step));
    }

    /// How long a message takes: mostly a little, sometimes longer than a lease.
    fn delay(&mut self) -> Duration {
        let is_slow = self.has_faults() && self.dice.percent(5);
        self.dice.milliseconds(if is_slow { 5_000 } else { 50 })
    }

    fn run(&mut self) {
        while let Some(Planned(at, _, step)) = self.plan.pop() {
            self.now = at;
            assert!(at < ALL_END, "it does not end");
            self.step(step);
            self.judge();
        }
        for client in &self.clients {
            assert!(client.machine.is_idle(), "left over: {:?}", client.machine);
        }
        self.nothing_is_left();
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Arrive { to, request, is_copy } => self.arrive(to, &request, is_copy),
            Step::Deliver { client, call, event } => self.deliver(client, call, event),
            Step::Timer { client } => {
                let now = self.now;
                let is_due = |it: &&Client| it.machine.next_deadline().is_some_and(|at| at <= now);
                if self.clients.iter().find(|it| it.id == client).filter(is_due).is_some() {
                    self.deliver(client, None, Event::Tick);
                }
            }
            Step::Begin => self.begin(),
            Step::Drop { client, number } => self.drop_guard(client, number),
            Step::Downgrade { client, number } => self.downgrade(client, number),
            Step::Seize { which } => self.seize(which),
        }
    }

    /// From the moment when a writer wants that he is a reader.
    fn downgrade(&mut self, client: u128, number: u64) {
        let Some(at) = self.clients.iter().position(|it| it.id == client) else { return };
        if self.now < self.clients[at].paused_until {
            return;
        }
        let Some(belief) = self.clients[at].guards.get_mut(&number) else { return };
        belief.share = Share::READ;
        self.deliver(client, None, Event::Downgrade { number });
    }

    /// The table forgets a holder, as after a forced release or a fail-over that lost him.
    fn seize(&mut self, which: usize) {
        let name = LockName::new(NAMES[which]).unwrap();
        let Some(token) = self.table.holder(self.now, &name) else { return };
        let leave = Leave { hold: Hold { name, token }, is_doubtful: false, is_alone: true };
        // Nobody is woken: whoever waits looks by himself.
        let (left, _) = self.table.leave(self.now, &leave);
        assert_eq!(left, Left::Freed);
        self.seized.insert(token, Some(self.now));
    }

    /// A client that is paused drops nothing before it goes on.
    fn drop_guard(&mut self, client: u128, number: u64) {
        let Some(at) = self.clients.iter().position(|it| it.id == client) else { return };
        let pause = self.clients[at].paused_until.left(self.now);
        if pause.is_zero() {
            self.clients[at].guards.remove(&number);
            self.deliver(client, None, Event::LetGo { number });
        } else {
            self.after(pause, Step::Drop { client, number });
        }
    }

    /// Somebody wants a lock, for some time; or a client is paused, or dies.
    fn begin(&mut self) {
        if !self.has_faults() {
            return;
        }
        let pause = self.dice.milliseconds(400);
        self.after(pause, Step::Begin);
        let at = usize::try_from(self.dice.below(CLIENTS as u64)).unwrap();
        match self.dice.below(100) {
            0..2 => self.clients[at] = self.client(),
            2..5 => self.clients[at].paused_until = self.now + self.dice.milliseconds(8_000),
            5..7 => {
                let which = usize::try_from(self.dice.below(NAMES.len() as u64)).unwrap();
                let delay = self.dice.milliseconds(2_000);
                self.after(delay, Step::Seize { which });
            }
            _ => {
                let number = self.next();
                let which = usize::try_from(self.dice.below(NAMES.len() as u64)).unwrap();
                let patience = match self.dice.below(3) {
                    0 => Patience::None,
                    1 => Patience::Until(self.now + self.dice.milliseconds(3_000)),
                    _ => Patience::Endless,
                };
                let client = self.clients[at].id;
                let share = if self.dice.percent(40) { Share::READ } else { Share::All };
                self.clients[at].names.insert(number, (which, share));
                let name = LockName::new(NAMES[which]).unwrap();
                self.deliver(client, None, Event::Ask { number, name, share, patience });
                if self.dice.percent(10) {
                    // The future is dropped at some await.
                    let delay = self.dice.milliseconds(2_000);
                    self.after(delay, Step::Drop { client, number });
                }
            }
        }
    }

    fn arrive(&mut self, to: Call, request: &Request, is_copy: bool) {
        let event = match request {
            Request::Ask(ask) => {
                let (answer, next) = self.table.ask(self.now, ask);
                self.wake(next);
                if matches!(answer, Answer::Granted { .. }) {
                    // A copy that the network made is nothing that a client could know of.
                    let has_ended = !is_copy && self.ended.contains(&ask.token);
                    assert!(!has_ended, "taken after its end: {ask:?}");
                    self.seized.entry(ask.token).and_modify(|at| *at = None);
                }
                Event::Answered { number: ask.token.number, answer: Ok(answer) }
            }
            Request::Renew(numbers, holds) => {
                let answer = Ok(self.table.renew(self.now, holds, LEASE));
                Event::Renewed { numbers: numbers.clone(), answer }
            }
            Request::Leave(leave) => {
                let (left, next) = self.table.leave(self.now, leave);
                self.wake(next);
                Event::Left { number: leave.hold.token.number, answer: Ok(left) }
            }
        };
        if is_copy || (self.has_faults() && self.dice.percent(5)) {
            return;
        }
        let delay = self.delay();
        self.after(delay, Step::Deliver { client: to.client, call: Some(to.id), event });
    }

    fn wake(&mut self, next: Option<Token>) {
        if let Some(next) = next.filter(|_| !(self.has_faults() && self.dice.percent(10))) {
            let (delay, event) = (self.delay(), Event::Woken(Wake::One(next)));
            self.after(delay, Step::Deliver { client: next.client, call: None, event });
        }
    }

    fn deliver(&mut self, client: u128, call: Option<u64>, event: Event) {
        let Some(at) = self.clients.iter().position(|it| it.id == client) else { return };
        let now = self.now;
        if now < self.clients[at].paused_until {
            let delay = self.clients[at].paused_until.left(now);
            self.after(delay, Step::Deliver { client, call, event });
            return;
        }
        if let Some(call) = call {
            // Either the answer or the time-out counts, whichever comes first.
            let Some(open) = self.clients[at].calls.iter().position(|it| *it == call) else {
                return;
            };
            self.clients[at].calls.swap_remove(open);
        }
        let mut effects = Vec::new();
        self.clients[at].machine.decide(now, event, &mut effects);
        for effect in effects {
            self.carry_out(at, effect);
        }
        if let Some(deadline) = self.clients[at].machine.next_deadline() {
            self.after(deadline.left(now), Step::Timer { client });
        }
    }

    fn carry_out(&mut self, at: usize, effect: Effect) {
        let client = self.clients[at].id;
        match effect {
            Effect::Ask(ask) => self.send(at, Request::Ask(ask)),
            Effect::Renew { numbers, holds } => self.send(at, Request::Renew(numbers, holds)),
            Effect::Leave(leave) => self.send(at, Request::Leave(leave)),
            Effect::Granted { number, fence, until } => self.granted(at, number, fence, until),
            Effect::Extended { number, until } => {
                if let Some(belief) = self.clients[at].guards.get_mut(&number) {
                    assert!(!belief.is_lost, "what was lost came back");
                    assert!(self.now < belief.until.deadline, "what had ended came back");
                    belief.until = until;
                }
            }
            Effect::Downgraded { .. } => {}
            Effect::Lost { number, .. } => {
                if let Some(belief) = self.clients[at].guards.get_mut(&number) {
                    belief.is_lost = true;
                }
            }
            Effect::Refused { number, .. } => self.no_guard(at, number),
            Effect::Ended { number, outcome } => {
                self.no_guard(at, number);
                if outcome.is_ok() {
                    self.ended.insert(Token { client, number });
                }
            }
        }
    }

    fn granted(&mut self, at: usize, number: u64, fence: Fence, until: Until) {
        let client = self.clients[at].id;
        let (which, share) = self.clients[at].names[&number];
        if !self.seized.contains_key(&Token { client, number }) {
            let last = self.fences[which];
            // Readers beside one another have the same.
            let grows = fence.number() > last || (share == Share::READ && fence.number() == last);
            assert!(grows, "the fence went back");
            self.fences[which] = fence.number();
        }
        self.grants += 1;
        let belief = Belief { until, is_lost: false, share, granted_at: self.now };
        self.clients[at].guards.insert(number, belief);
        let limit = if self.dice.percent(20) { 12_000 } else { 300 };
        let delay = self.dice.milliseconds(limit);
        self.after(delay, Step::Drop { client, number });
        if share == Share::All && self.dice.percent(20) {
            let delay = self.dice.milliseconds(200);
            self.after(delay, Step::Downgrade { client, number });
        }
    }

    fn no_guard(&self, at: usize, number: u64) {
        let was_granted = self.clients[at].guards.contains_key(&number);
        assert!(!was_granted, "refused or ended under a guard");
    }

    fn send(&mut self, at: usize, request: Request) {
        let call = Call { client: self.clients[at].id, id: self.next() };
        self.clients[at].calls.push(call.id);
        let (client, event) = (call.client, request.failed());
        self.after(CALL_MAX, Step::Deliver { client, call: Some(call.id), event });
        if self.has_faults() && self.dice.percent(5) {
            return;
        }
        if self.has_faults() && self.dice.percent(5) {
            let (delay, copy) = (self.delay(), request.clone());
            self.after(delay, Step::Arrive { to: call, request: copy, is_copy: true });
        }
        let delay = self.delay();
        self.after(delay, Step::Arrive { to: call, request, is_copy: false });
    }

    /// At most one writer or some readers of each lock say that it is held, of those whose lock was
    /// not seized; and nobody goes on believing for ever.
    fn judge(&self) {
        let [mut writers, mut readers] = [[0; NAMES.len()]; 2];
        for client in &self.clients {
            for (number, belief) in client.guards.iter().filter(|(_, it)| it.is_held(self.now)) {
                let token = Token { client: client.id, number: *number };
                let limit = belief.granted_at + HOLD_MAX;
                assert!(!has_limit(client.id) || self.now < limit, "held for too long: {token}");
                match self.seized.get(&token) {
                    // No renewal that comes after the seizure is answered with yes.
                    Some(Some(at)) => assert!(self.now < *at + LEASE, "never told: {token}"),
                    Some(None) => {}
                    None => {
                        let of =
                            if belief.share == Share::All { &mut writers } else { &mut readers };
                        of[client.names[number].0] += 1;
                    }
                }
            }
        }
        for (writers, readers) in writers.into_iter().zip(readers) {
            let is_possible = writers == 0 || (writers == 1 && readers == 0);
            assert!(is_possible, "{writers} and {readers} hold at {:?}", self.now);
        }
    }

    /// Whoever comes afterwards finds every lock free.
    fn nothing_is_left(&mut self) {
        let late = self.now + LEASE.max(WAITER_ALIVE);
        for name in NAMES {
            let token = Token { client: 0, number: 0 };
            let (name, label) = (LockName::new(name).unwrap(), "".into());
            let (share, place, lease) = (Share::All, Place::None, LEASE);
            let ask = Ask { name, token, share, lease, label, place };
            let (answer, _) = self.table.ask(late, &ask);
            assert!(matches!(answer, Answer::Granted { .. }), "{answer:?}");
        }
    }
}

fn has_limit(client: u128) -> bool {
    client.is_multiple_of(2)
}

#[test]
fn one_guard_at_a_time_whatever_the_network_does() {
    let mut grants = 0;
    for seed in 0..SEEDS {
        let ran = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            world.run();
            world.grants
        });
        match ran {
            Ok(granted) => grants += granted,
            Err(panic) => {
                println!("seed {seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    assert!(grants > SEEDS * 20, "only {grants} locks were ever held");
}

#[test]
fn the_same_seed_is_the_same_run() {
    let run = |seed| {
        let mut world = World::new(seed);
        world.run();
        (world.now, world.last, world.grants, world.fences)
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

/// Many locks cost few requests.
#[test]
fn leases_are_renewed_in_batches() {
    let start = Moment::at(Duration::from_secs(1));
    let (mut machine, mut out) = (holding(250, start), Vec::new());
    machine.decide(machine.next_deadline().unwrap(), Event::Tick, &mut out);
    assert_eq!(renewed(&out), [100, 100, 50]);
    assert!(machine.next_deadline().unwrap() > start + LEASE / 2);
}

/// One of them may be what the others failed for.
#[test]
fn what_could_not_be_renewed_together_is_renewed_alone_until_it_is() {
    let start = Moment::at(Duration::from_secs(1));
    let (mut machine, mut out) = (holding(3, start), Vec::new());
    let tick = |machine: &mut Machine, out: &mut Vec<Effect>| {
        let now = machine.next_deadline().unwrap();
        machine.decide(now, Event::Tick, out);
        now
    };
    let now = tick(&mut machine, &mut out);
    assert_eq!(renewed(&out), [3]);
    let answer = Err(BackendError::unanswered());
    machine.decide(now, Event::Renewed { numbers: vec![0, 1, 2], answer }, &mut out);
    out.clear();
    let now = tick(&mut machine, &mut out);
    assert_eq!(renewed(&out), [1, 1, 1]);
    for number in 0..3 {
        machine.decide(
            now,
            Event::Renewed { numbers: vec![number], answer: Ok(vec![true]) },
            &mut out,
        );
    }
    out.clear();
    tick(&mut machine, &mut out);
    assert_eq!(renewed(&out), [3]);
}

/// A machine that holds so many locks, not all since the same moment: whoever is due a little later
/// rides along.
fn holding(locks: u64, start: Moment) -> Machine {
    let (mut machine, mut out) = (machine(), Vec::new());
    for number in 0..locks {
        let name = LockName::new(format!("lock {number}")).unwrap();
        let now = start + Duration::from_micros(500 * number);
        let (share, patience) = (Share::All, Patience::None);
        machine.decide(now, Event::Ask { number, name, share, patience }, &mut out);
        let answer = Ok(Answer::granted(Fence::new(1)));
        machine.decide(now, Event::Answered { number, answer }, &mut out);
    }
    machine
}

/// How many leases each request renews.
fn renewed(effects: &[Effect]) -> Vec<usize> {
    let size = |effect: &Effect| {
        let Effect::Renew { holds, .. } = effect else { panic!("{effect:?}") };
        holds.len()
    };
    effects.iter().map(size).collect()
}

/// A backend is told whether probably nobody waits behind a lock that is let go.
#[test]
fn whoever_has_waited_or_holds_a_part_is_not_alone() {
    let busy = || Answer::Busy { holder: None, look_again: Duration::ZERO };
    let granted = || Answer::granted(Fence::new(1));
    for (share, answers, expected) in [
        (Share::All, vec![granted()], true),
        (Share::All, vec![busy(), granted()], false),
        (Share::READ, vec![granted()], false),
    ] {
        let (mut machine, mut out) = (machine(), Vec::new());
        let (now, name) = (Moment::at(Duration::ZERO), LockName::new("a").unwrap());
        let ask = Event::Ask { number: 1, name, share, patience: Patience::Endless };
        machine.decide(now, ask, &mut out);
        for answer in answers {
            let answered = Event::Answered { number: 1, answer: Ok(answer) };
            machine.decide(now, answered, &mut out);
            machine.decide(now, Event::Tick, &mut out);
        }
        machine.decide(now, Event::LetGo { number: 1 }, &mut out);
        let Some(Effect::Leave(leave)) = out.last() else { panic!("{out:?}") };
        assert_eq!(leave.is_alone, expected, "{share:?}");
    }
}

fn machine() -> Machine {
    Machine::new(Settings { client: 1, label: "".into(), lease: LEASE, hold_max: None })
}
