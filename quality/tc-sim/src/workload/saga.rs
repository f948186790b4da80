//! Random sagas over the accounts of points: groups of steps that can be compensated, some of them
//! in child sagas, then perhaps a pivot and the steps after it.

use handfast_proto::v1::{SagaDefinition, SagaRetry, SagaStep, SagaStepKind};
use handfast_rm_core::fence::Operation;

use super::edit::Edit;
use super::points::PointsChange;
use crate::random::Random;

/// The work of a step, which is its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StepWork {
    change: PointsChange,
    /// Whether the step changes nothing.
    harmless: bool,
    /// Whether the service refuses the action after it has written.
    pub(crate) refuses: bool,
}

impl StepWork {
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let [harmless, refuses, change @ ..] = bytes else { return None };
        let change = PointsChange::from_bytes(change)?;
        Some(Self { change, harmless: *harmless == b'h', refuses: *refuses == b'r' })
    }

    pub(crate) fn edits(self, operation: Operation) -> Vec<Edit> {
        if self.harmless { Vec::new() } else { self.change.edits(operation) }
    }

    fn to_bytes(self) -> Vec<u8> {
        let marks =
            [if self.harmless { b'h' } else { b'-' }, if self.refuses { b'r' } else { b'-' }];
        [&marks[..], &self.change.to_bytes()].concat()
    }
}

/// Returns the id of the resource that runs the steps on a database.
pub(crate) fn saga_resource_id(database: usize) -> String {
    format!("steps-{database}")
}

/// Draws a valid saga.
pub(crate) fn draw(random: &mut Random, databases: usize, accounts: u32) -> SagaDefinition {
    let mut builder = DefinitionBuilder { random, databases, accounts, steps: 0 };
    let mut steps = Vec::new();
    let groups = builder.random.between(1, 3);
    for group in 0..groups {
        builder.add_group(&mut steps, number(group));
    }
    if builder.random.happens(600) {
        let after = builder.random.between(0, 2);
        steps.push(builder.step(number(groups), SagaStepKind::Pivot));
        for later in 1..=after {
            steps.push(builder.step(number(groups + later), SagaStepKind::Retriable));
        }
    }
    let timeout_ms = builder.random.happens(300).then(|| builder.random.between(2_000, 15_000));
    SagaDefinition { name: "points".to_owned(), timeout_ms, steps, output: None }
}

struct DefinitionBuilder<'a> {
    random: &'a mut Random,
    databases: usize,
    accounts: u32,
    steps: u32,
}

impl DefinitionBuilder<'_> {
    /// Adds one or two parallel steps. Each may be a child saga of two steps.
    fn add_group(&mut self, steps: &mut Vec<SagaStep>, group: u32) {
        let beside = if self.random.happens(300) { 2 } else { 1 };
        for _ in 0..beside {
            let part =
                if self.random.happens(250) { self.child(group) } else { self.step_before(group) };
            steps.push(part);
        }
    }

    fn child(&mut self, group: u32) -> SagaStep {
        let name = format!("child-{}", self.steps);
        let steps = vec![self.step_before(0), self.step_before(1)];
        let timeout_ms = self.random.happens(200).then(|| self.random.between(500, 6_000));
        let saga = SagaDefinition { name: "child".to_owned(), timeout_ms, steps, output: None };
        SagaStep {
            name,
            group,
            kind: SagaStepKind::Child.into(),
            child: Some(saga),
            ..SagaStep::default()
        }
    }

    /// Draws a step before the pivot: one that can be compensated, or one that need not be.
    fn step_before(&mut self, group: u32) -> SagaStep {
        let harmless = self.random.happens(200);
        let kind = if harmless { SagaStepKind::Harmless } else { SagaStepKind::Compensable };
        let mut step = self.step(group, kind);
        step.timeout_ms = self.random.happens(200).then(|| self.random.between(500, 6_000));
        if self.random.happens(200)
            && let Some(retry) = &mut step.retry
        {
            retry.attempts = Some(3);
        }
        step
    }

    fn step(&mut self, group: u32, kind: SagaStepKind) -> SagaStep {
        self.steps += 1;
        let account = u32::try_from(self.random.index(self.accounts as usize)).unwrap_or(0);
        let units = i64::try_from(self.random.between(1, 5)).unwrap_or(1);
        let refuses = kind != SagaStepKind::Retriable && self.random.happens(80);
        let harmless = kind == SagaStepKind::Harmless;
        let work = StepWork { change: PointsChange { account, units }, harmless, refuses };
        SagaStep {
            name: format!("step-{}", self.steps),
            group,
            kind: kind.into(),
            resource_id: saga_resource_id(self.random.index(self.databases)),
            action: "spend".to_owned(),
            input: work.to_bytes(),
            retry: Some(SagaRetry { base_ms: 50, factor: 2, cap_ms: 1_000, attempts: None }),
            ..SagaStep::default()
        }
    }
}

fn number(group: u64) -> u32 {
    u32::try_from(group).unwrap_or(u32::MAX)
}
