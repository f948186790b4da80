//! Definitions of sagas, from wire messages to the core's type.
//!
//! On the wire a child is a saga within its step; the core has one list of all steps and one of all
//! children. Sizes of names are checked here; the core refuses an impossible saga.

use handfast_core::{
    ChildDefinition, ChildRef, Retry, SagaDefinition, SagaFault, SagaPart, StepDefinition,
    StepKind, StepRef,
};
use handfast_proto::v1 as wire;

use super::bounds::{BadRequest, at_most_bytes};
use super::decoder::Decoder;
use super::from_wire::{missing, present};

/// An index that no part has; the core refuses a saga that refers to it.
const NOWHERE: SagaPart = SagaPart::Step(StepRef(u32::MAX));

impl Decoder {
    /// Converts a definition, and checks its sizes.
    pub(crate) fn definition(
        &self,
        wire: wire::SagaDefinition,
    ) -> Result<SagaDefinition, BadRequest> {
        self.name("saga name", &wire.name)?;
        let name = present("saga name", wire.name)?.into();
        let mut parts = Parts { decoder: self, steps: Vec::new(), children: Vec::new() };
        parts.add_all(wire.steps, None, &[])?;
        let Parts { steps, children, .. } = parts;
        Ok(SagaDefinition { name, timeout_ms: wire.timeout_ms, steps, children })
    }
}

/// A definition as far as it has been read.
struct Parts<'a> {
    decoder: &'a Decoder,
    steps: Vec<StepDefinition>,
    children: Vec<ChildDefinition>,
}

impl Parts<'_> {
    /// Adds the steps of one saga; `outer` are the outputs that it takes, as a child. Returns the
    /// part that each step has become. The recursion ends, since prost limits the nesting of
    /// messages.
    fn add_all(
        &mut self,
        steps: Vec<wire::SagaStep>,
        parent: Option<ChildRef>,
        outer: &[SagaPart],
    ) -> Result<Vec<SagaPart>, BadRequest> {
        // Known before the steps are read: the core judges which others a step may name.
        let parts = self.places(&steps);
        for mut step in steps {
            let taken = places(&step.takes, &parts).chain(places(&step.takes_outer, outer));
            let taken: Vec<SagaPart> = taken.collect();
            match step.child.take() {
                Some(saga) => self.add_child(step, saga, parent, &taken)?,
                None => {
                    let step = self.step(step, parent, taken)?;
                    self.steps.push(step);
                }
            }
        }
        Ok(parts)
    }

    fn add_child(
        &mut self,
        step: wire::SagaStep,
        saga: wire::SagaDefinition,
        parent: Option<ChildRef>,
        taken: &[SagaPart],
    ) -> Result<(), BadRequest> {
        self.decoder.name("step name", &step.name)?;
        self.decoder.name("saga name", &saga.name)?;
        let says_more = !step.resource_id.is_empty() || !step.action.is_empty();
        let says_more = says_more || !step.input.is_empty() || step.timeout_ms.is_some();
        if step.kind() != wire::SagaStepKind::Child || says_more || step.retry.is_some() {
            return Err(BadRequest::Saga(SagaFault::Child(step.name.into())));
        }
        let place = self.children.len();
        self.children.push(ChildDefinition {
            name: step.name.into(),
            saga: present("saga name", saga.name)?.into(),
            parent,
            group: step.group,
            timeout_ms: saga.timeout_ms,
            output: None,
        });
        let parts = self.add_all(saga.steps, Some(ChildRef(number(place))), taken)?;
        self.children[place].output = saga.output.map(|place| part(place, &parts));
        Ok(())
    }

    fn step(
        &self,
        wire: wire::SagaStep,
        parent: Option<ChildRef>,
        takes: Vec<SagaPart>,
    ) -> Result<StepDefinition, BadRequest> {
        self.decoder.name("step name", &wire.name)?;
        self.decoder.name("resource_id", &wire.resource_id)?;
        self.decoder.name("action", &wire.action)?;
        at_most_bytes("input", wire.input.len(), self.decoder.bounds.application_data_bytes_max)?;
        let retry = wire.retry.map_or(Retry::DEFAULT, |retry| Retry {
            base_ms: retry.base_ms,
            factor: retry.factor,
            cap_ms: retry.cap_ms,
            attempts: retry.attempts,
        });
        Ok(StepDefinition {
            kind: kind(&wire)?,
            name: wire.name.into(),
            parent,
            group: wire.group,
            resource: wire.resource_id.into(),
            action: wire.action.into(),
            input: wire.input.into(),
            takes,
            retry,
            timeout_ms: wire.timeout_ms,
        })
    }

    /// Returns the parts that these steps will become, each behind everything within the steps
    /// before it.
    fn places(&self, steps: &[wire::SagaStep]) -> Vec<SagaPart> {
        let (mut before_steps, mut before_children) = (self.steps.len(), self.children.len());
        let place = |step: &wire::SagaStep| {
            let part = match step.child {
                Some(_) => SagaPart::Child(ChildRef(number(before_children))),
                None => SagaPart::Step(StepRef(number(before_steps))),
            };
            let (steps, children) = count(step);
            (before_steps, before_children) = (before_steps + steps, before_children + children);
            part
        };
        steps.iter().map(place).collect()
    }
}

/// Counts the steps and children that a step becomes.
fn count(step: &wire::SagaStep) -> (usize, usize) {
    let Some(saga) = &step.child else { return (1, 0) };
    saga.steps.iter().map(count).fold((0, 1), |sum, it| (sum.0 + it.0, sum.1 + it.1))
}

fn places(places: &[u32], parts: &[SagaPart]) -> impl Iterator<Item = SagaPart> {
    places.iter().map(|&place| part(place, parts))
}

fn part(place: u32, parts: &[SagaPart]) -> SagaPart {
    parts.get(place as usize).copied().unwrap_or(NOWHERE)
}

/// Converts an index. A message has too few bytes, and so too few parts, to overflow it.
fn number(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}

fn kind(step: &wire::SagaStep) -> Result<StepKind, BadRequest> {
    match step.kind() {
        wire::SagaStepKind::Compensable => Ok(StepKind::Compensable),
        wire::SagaStepKind::Harmless => Ok(StepKind::Harmless),
        wire::SagaStepKind::Pivot => Ok(StepKind::Pivot),
        wire::SagaStepKind::Retriable => Ok(StepKind::Retriable),
        wire::SagaStepKind::Signal => Ok(StepKind::Signal),
        wire::SagaStepKind::Child => {
            Err(BadRequest::Saga(SagaFault::Child(step.name.as_str().into())))
        }
        wire::SagaStepKind::Unspecified => Err(missing("step kind")),
    }
}
