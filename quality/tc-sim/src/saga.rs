//! Random sagas over the accounts of points: groups that can be taken back, some of them children,
//! then perhaps a pivot and what follows it.

use handfast_proto::v1::{SagaDefinition, SagaRetry, SagaStep, SagaStepKind};
use handfast_rm_core::fence::Operation;

use crate::client::{Edit, saga_resource_of};
use crate::points::Points;
use crate::random::Random;

/// What a step does, which the saga hands to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StepWork {
    points: Points,
    /// It only looks.
    harmless: bool,
    /// The business says no, after it has written.
    pub(crate) refuses: bool,
}

impl StepWork {
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let [harmless, refuses, points @ ..] = bytes else { return None };
        let points = Points::from_bytes(points)?;
        Some(Self { points, harmless: *harmless == b'h', refuses: *refuses == b'r' })
    }

    pub(crate) fn edits(self, operation: Operation) -> Vec<Edit> {
        if self.harmless { Vec::new() } else { self.points.edits(operation) }
    }

    fn to_bytes(self) -> Vec<u8> {
        let marks =
            [if self.harmless { b'h' } else { b'-' }, if self.refuses { b'r' } else { b'-' }];
        [&marks[..], &self.points.to_bytes()].concat()
    }
}

/// A saga that may be started.
pub(crate) fn draw(random: &mut Random, databases: usize, accounts: u32) -> SagaDefinition {
    let mut author = Author { random, databases, accounts, steps: 0 };
    let mut steps = Vec::new();
    let groups = author.random.between(1, 3);
    for group in 0..groups {
        author.add_group(&mut steps, number(group));
    }
    if author.random.happens(600) {
        let after = author.random.between(0, 2);
        steps.push(author.step(number(groups), SagaStepKind::Pivot));
        for later in 1..=after {
            steps.push(author.step(number(groups + later), SagaStepKind::Retriable));
        }
    }
    let timeout_ms = author.random.happens(300).then(|| author.random.between(2_000, 15_000));
    SagaDefinition { name: "points".to_owned(), timeout_ms, steps, output: None }
}

struct Author<'a> {
    random: &'a mut Random,
    databases: usize,
    accounts: u32,
    steps: u32,
}

impl Author<'_> {
    /// One part or two beside each other; a part may be a child of two steps.
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

    /// A step that can be taken back, or need not be.
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
        let work = StepWork { points: Points { account, units }, harmless, refuses };
        SagaStep {
            name: format!("step-{}", self.steps),
            group,
            kind: kind.into(),
            resource_id: saga_resource_of(self.random.index(self.databases)),
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
