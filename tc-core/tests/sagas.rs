//! Random sagas, random answers, restarts: whatever happens, a saga ends all done or all taken
//! back, in the reverse order, and never goes back after its pivot.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;

use handfast_core::{
    ChildDefinition, ChildRef, Command, Coordinator, Correlation, DecidedBy, Decision, Effect,
    Labels, Limits, OperatorAction, Outcome, PhaseTwoCall, PhaseTwoOutcome, Reply, Request,
    Resolution, Retry, SagaDefinition, SagaPart, SagaRecord, SagaState, SagaStatus, StepDefinition,
    StepKind, StepRef, StepState, Timestamp, Xid,
};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::support::{Store, recorded};

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// After every move the invariants hold; when participants answer and people help, it ends.
    #[test]
    fn a_saga_ends_all_done_or_all_compensated(
        definition in definition(),
        moves in vec(a_move(), 0..60),
    ) {
        let mut world = World::start(definition);
        moves.into_iter().for_each(|a_move| world.step(a_move));
        world.heal();
        world.check_the_end();
    }

    /// PURE: the same moves lead to the same records.
    #[test]
    fn same_inputs_same_records(definition in definition(), moves in vec(a_move(), 0..60)) {
        let run = || {
            let mut world = World::start(definition.clone());
            moves.iter().cloned().for_each(|a_move| world.step(a_move));
            world.store.records
        };
        prop_assert_eq!(run(), run());
    }
}

#[derive(Clone, Debug)]
enum Move {
    /// Answers one of the calls that were ever made: many are echoes.
    Answer {
        call: usize,
        how: How,
    },
    Signal {
        step: u32,
    },
    Cancel(DecidedBy),
    Operate(OperatorAction),
    Pass {
        ms: u64,
    },
    Restart,
}

#[derive(Clone, Copy, Debug)]
enum How {
    Done,
    Gives,
    Retry,
    Refuse,
}

fn a_move() -> impl Strategy<Value = Move> {
    let how = prop_oneof![
        3 => Just(How::Done),
        3 => Just(How::Gives),
        2 => Just(How::Retry),
        1 => Just(How::Refuse),
    ];
    let action = prop_oneof![
        Just(OperatorAction::Retry),
        Just(OperatorAction::Pause),
        Just(OperatorAction::Resume),
        (0..6_u32).prop_map(|step| OperatorAction::Resolve {
            branch: StepRef(step).branch(),
            resolution: Resolution::AcceptCurrent,
        }),
    ];
    prop_oneof![
        20 => (0..12_usize, how).prop_map(|(call, how)| Move::Answer { call, how }),
        2 => (0..6_u32).prop_map(|step| Move::Signal { step }),
        1 => prop_oneof![Just(DecidedBy::Client), Just(DecidedBy::Operator)]
            .prop_map(Move::Cancel),
        2 => action.prop_map(Move::Operate),
        3 => (0..60_u64).prop_map(|ms| Move::Pass { ms }),
        2 => Just(Move::Restart),
    ]
}

/// Up to five groups, perhaps with a pivot; what must not have a timeout has none. What stands in
/// the groups may be children, and so may what follows on them.
fn definition() -> impl Strategy<Value = SagaDefinition> {
    let before = vec(vec(part(), 1..3), 0..3);
    let after = vec(any::<bool>(), 0..3);
    let timeout_ms = proptest::option::of(50..400_u64);
    let ends = (any::<bool>(), any::<bool>());
    (before, ends, after, timeout_ms).prop_map(|(before, ends, after, timeout_ms)| {
        let (pivot, ends_in_child) = ends;
        let mut saga =
            SagaDefinition { name: "random".into(), timeout_ms, steps: vec![], children: vec![] };
        let mut group = 0;
        add_all(&mut saga, None, &mut group, before);
        if pivot || saga.steps.is_empty() {
            let child = ends_in_child.then(|| add_child(&mut saga, None, group, None));
            let mut group = if ends_in_child { 0 } else { group };
            add_step(&mut saga, child, group, StepKind::Pivot);
            for waits in after {
                group += 1;
                let kind = if waits { StepKind::Signal } else { StepKind::Retriable };
                add_step(&mut saga, child, group, kind);
            }
        }
        saga
    })
}

/// The members of a group.
#[derive(Clone, Debug)]
enum Part {
    Step { kind: u8, timed: bool, attempts: u32 },
    Child { timed: bool, groups: Vec<Vec<Part>> },
}

fn part() -> impl Strategy<Value = Part> {
    let step = (0..3_u8, any::<bool>(), 0..4_u32).prop_map(|(kind, timed, attempts)| Part::Step {
        kind,
        timed,
        attempts,
    });
    step.prop_recursive(2, 8, 2, |part| {
        (any::<bool>(), vec(vec(part, 1..3), 1..3))
            .prop_map(|(timed, groups)| Part::Child { timed, groups })
    })
}

fn add_all(
    saga: &mut SagaDefinition,
    parent: Option<ChildRef>,
    group: &mut u32,
    groups: Vec<Vec<Part>>,
) {
    for beside in groups {
        for part in beside {
            match part {
                Part::Step { kind, timed, attempts } => {
                    let kinds = [StepKind::Compensable, StepKind::Harmless, StepKind::Signal];
                    let step = add_step(saga, parent, *group, kinds[kind as usize]);
                    step.timeout_ms = timed.then_some(100);
                    step.retry.attempts = Some(attempts).filter(|&attempts| attempts > 0);
                }
                Part::Child { timed, groups } => {
                    let timeout_ms = timed.then_some(150);
                    let child = add_child(saga, parent, *group, timeout_ms);
                    add_all(saga, Some(child), &mut 0, groups);
                }
            }
        }
        *group += 1;
    }
}

fn add_child(
    saga: &mut SagaDefinition,
    parent: Option<ChildRef>,
    group: u32,
    timeout_ms: Option<u64>,
) -> ChildRef {
    let place = saga.children.len();
    let name: Arc<str> = format!("child-{place}").into();
    let child =
        ChildDefinition { saga: name.clone(), name, parent, group, timeout_ms, output: None };
    saga.children.push(child);
    ChildRef(u32::try_from(place).unwrap())
}

fn add_step(
    saga: &mut SagaDefinition,
    parent: Option<ChildRef>,
    group: u32,
    kind: StepKind,
) -> &mut StepDefinition {
    let place = saga.steps.len();
    saga.steps.push(StepDefinition { parent, ..step(place, group, kind) });
    saga.steps.last_mut().unwrap()
}

/// The groups on the way from the saga that is started to a step.
fn groups(saga: &SagaDefinition, step: u32) -> Vec<(Option<ChildRef>, u32)> {
    let step = &saga.steps[step as usize];
    let mut groups = vec![(step.parent, step.group)];
    while let Some(child) = groups[0].0 {
        let child = &saga.children[child.0 as usize];
        groups.insert(0, (child.parent, child.group));
    }
    groups
}

/// Whether one step comes before the other, in the saga where their ways part.
fn comes_before(saga: &SagaDefinition, one: u32, other: u32) -> bool {
    let (one, other) = (groups(saga, one), groups(saga, other));
    let parting = one.iter().zip(&other).find(|(one, other)| one != other);
    parting.is_some_and(|(one, other)| one.0 == other.0 && one.1 < other.1)
}

fn step(place: usize, group: u32, kind: StepKind) -> StepDefinition {
    let address: Arc<str> = if kind == StepKind::Signal { "".into() } else { "a".into() };
    StepDefinition {
        name: place.to_string().into(),
        parent: None,
        group,
        kind,
        resource: address.clone(),
        action: address,
        input: Arc::default(),
        takes: Vec::new(),
        retry: Retry::DEFAULT,
        timeout_ms: None,
    }
}

struct World {
    coordinator: Coordinator,
    store: Store,
    limits: Limits,
    now: u64,
    epoch: u64,
    xid: Xid,
    /// Every call ever made, latest last.
    calls: Vec<PhaseTwoCall>,
    /// Steps whose compensation was called, in that order.
    compensated: Vec<u32>,
}

impl World {
    fn start(definition: SagaDefinition) -> Self {
        let limits = Limits { step_attempts_told: 2, saga_steps_max: 1_000, ..Limits::default() };
        let store = Store::default();
        let coordinator = store.load(1, &limits).unwrap();
        let (calls, compensated) = (Vec::new(), Vec::new());
        let mut world =
            Self { coordinator, store, limits, now: 0, epoch: 1, xid: Xid(0), calls, compensated };
        let definition = Arc::new(definition);
        let (application, key, labels) = ("shop".into(), "k".into(), Labels::NONE);
        let start = Command::StartSaga { application, key, definition, labels };
        let reply = world.ask(start).pop();
        assert!(matches!(reply, Some(Reply::Saga(_))), "a generated saga is valid: {reply:?}");
        world
    }

    fn ask(&mut self, command: Command) -> Vec<Reply> {
        let before = self.coordinator.saga(self.xid).cloned();
        let mut out = Outcome::default();
        let request = Request { reply_to: Some(Correlation(1)), command };
        self.coordinator.decide(Timestamp(self.now), request, &mut out);
        self.store.apply(&out.changes);
        self.xid = self.coordinator.sagas(None).next().map_or(Xid(0), |saga| saga.xid);
        self.check(before.as_ref());
        let mut replies = Vec::new();
        for effect in out.effects {
            match effect {
                Effect::PhaseTwo(call) => self.called(call),
                Effect::Reply { reply, .. } => replies.push(reply),
                Effect::Vote(_) | Effect::Hold { .. } | Effect::Alert(_) => {}
            }
        }
        replies
    }

    /// A call that leaves is stored: the step is under way in the records.
    fn called(&mut self, call: PhaseTwoCall) {
        let step = u32::try_from(call.branch.0 - 1).unwrap();
        let state = self.saga().steps[step as usize].state;
        let stored = match call.decision {
            Decision::Commit => [StepState::Running, StepState::RunningStuck],
            Decision::RollBack => [StepState::Compensating, StepState::CompensatingStuck],
        };
        assert!(stored.contains(&state), "DURABLE-FIRST: {step} is {state}");
        if call.decision == Decision::Commit {
            let saga = self.saga();
            let before = (0..)
                .zip(&saga.steps)
                .filter(|&(other, _)| comes_before(&saga.definition, other, step));
            let all_done = before.into_iter().all(|(_, it)| it.state == StepState::Done);
            assert!(all_done, "{step} begins when all before it is done");
        }
        if call.decision == Decision::RollBack && !self.compensated.contains(&step) {
            self.compensated.push(step);
        }
        self.calls.push(call);
    }

    fn check(&self, before: Option<&SagaRecord>) {
        self.coordinator.check_invariants().unwrap();
        let loaded = self.store.load(self.epoch + 1, &self.limits).unwrap();
        assert_eq!(recorded(&self.coordinator), recorded(&loaded), "RECORDED");
        let Some(before) = before else { return };
        let pivot = before.definition.steps.iter().position(|it| it.kind == StepKind::Pivot);
        if pivot.is_some_and(|at| before.steps[at].state == StepState::Done) {
            let forward = matches!(self.saga().state, SagaState::Running | SagaState::Completed(_));
            assert!(forward, "a saga never goes back after its pivot");
        }
        if before.ended_at().is_some() {
            assert_eq!(before, self.saga(), "what has ended does not change");
        }
    }

    fn step(&mut self, a_move: Move) {
        let xid = self.xid;
        match a_move {
            Move::Answer { call, how } => {
                let Some(at) = self.calls.len().checked_sub(1 + call) else { return };
                self.answer(at, how);
            }
            Move::Signal { step } => {
                let signal = self.saga().definition.path(SagaPart::Step(StepRef(step)));
                let payload = Arc::default();
                self.ask(Command::SignalSaga { xid, signal, payload, operator: None });
            }
            Move::Cancel(by) => {
                self.ask(Command::CancelSaga { xid, by, reason: "".into() });
            }
            Move::Operate(action) => {
                self.ask(Command::Operate { xid, action, operator: "alice".into() });
            }
            Move::Pass { ms } => {
                self.now += ms;
                self.ask(Command::Tick);
            }
            Move::Restart => self.restart(),
        }
    }

    fn answer(&mut self, at: usize, how: How) {
        let PhaseTwoCall { xid, branch, decision, .. } = self.calls[at];
        let outcome = match how {
            How::Done => PhaseTwoOutcome::Done,
            How::Gives => PhaseTwoOutcome::Output { output: b"given".as_slice().into() },
            How::Retry => PhaseTwoOutcome::Retryable { error: "away".into() },
            How::Refuse => PhaseTwoOutcome::Refused { error: "no".into(), rows: Arc::default() },
        };
        self.ask(Command::FinishPhaseTwo { xid, branch, decision, outcome });
    }

    fn restart(&mut self) {
        self.epoch += 1;
        self.coordinator = self.store.load(self.epoch, &self.limits).unwrap();
        let mut out = Outcome::default();
        self.coordinator.owed(&mut out);
        assert!(out.changes.is_empty());
        for effect in out.effects {
            if let Effect::PhaseTwo(call) = effect {
                self.called(call);
            }
        }
    }

    /// All participants and operators answer well from here on.
    fn heal(&mut self) {
        self.step(Move::Operate(OperatorAction::Resume));
        self.step(Move::Restart);
        for _ in 0..100 {
            if self.saga().ended_at().is_some() {
                return;
            }
            let steps = u32::try_from(self.saga().steps.len()).unwrap();
            (0..steps).for_each(|step| self.step(Move::Signal { step }));
            let owed: BTreeSet<usize> = (0..self.calls.len()).collect();
            owed.into_iter().for_each(|at| self.answer(at, How::Done));
        }
        panic!("it does not end: {:?}", self.saga());
    }

    fn check_the_end(&self) {
        let saga = self.saga();
        let kinds = saga.definition.steps.iter().zip(&saga.steps);
        match saga.status() {
            SagaStatus::Completed => {
                assert!(saga.steps.iter().all(|step| step.state == StepState::Done));
                assert!(self.compensated.is_empty(), "all done, and nothing compensated");
            }
            SagaStatus::Compensated => {
                for (definition, step) in kinds {
                    let happened = definition.kind == StepKind::Compensable
                        && step.state != StepState::Waiting;
                    let expected = if happened { StepState::Compensated } else { step.state };
                    assert_eq!(step.state, expected, "all compensated");
                }
                let pairs = self.compensated.iter().zip(1..).flat_map(|(&first, rest)| {
                    self.compensated[rest..].iter().map(move |&second| (first, second))
                });
                for (first, second) in pairs {
                    let in_order = comes_before(&saga.definition, first, second);
                    assert!(!in_order, "the reverse order: {:?}", self.compensated);
                }
            }
            SagaStatus::Running | SagaStatus::Compensating | SagaStatus::NeedsOperator => {
                panic!("not an end: {}", saga.status())
            }
        }
    }

    fn saga(&self) -> &SagaRecord {
        self.coordinator.saga(self.xid).expect("it is remembered")
    }
}
