//! The JSON form of a saga's definition, read by the client library and the command line.
//! `docs/saga.md` describes it.
//!
//! It only parses. The coordinator checks the definition and refuses an impossible saga.

use std::fmt;

use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use crate::saga_names::{StepInputs, place_of};
use crate::v1;

/// The stable code of [`SagaJsonError`], listed in `docs/errors.md`.
pub const CODE: &str = "HF-SAGA-JSON";

/// Why a text is not the definition of a saga.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SagaJsonError {
    /// The text is not JSON, or not of this form. The message says where.
    #[error(transparent)]
    Form(#[from] serde_json::Error),
    /// A step takes the output of an unknown step.
    #[error("step {step} takes from {taken}, which is none")]
    TakesFromNone {
        /// The step that takes it.
        step: String,
        /// The unknown name.
        taken: String,
    },
    /// A saga's output is that of an unknown step.
    #[error("saga {saga} gives the output of {output}, which is none of its steps")]
    GivesFromNone {
        /// The saga.
        saga: String,
        /// The unknown name.
        output: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Saga {
    name: String,
    timeout_ms: Option<u64>,
    steps: Vec<Group>,
    output: Option<String>,
}

/// One step, or several that run concurrently.
struct Group(Vec<Step>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    name: String,
    kind: Kind,
    #[serde(default)]
    resource: String,
    #[serde(default)]
    action: String,
    input: Option<serde_json::Value>,
    #[serde(default)]
    takes: Vec<String>,
    retry: Option<Retry>,
    timeout_ms: Option<u64>,
    saga: Option<Saga>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Compensable,
    Harmless,
    Pivot,
    Retriable,
    Signal,
    Child,
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Retry {
    base_ms: u64,
    factor: u32,
    cap_ms: u64,
    attempts: Option<u32>,
}

/// Reads a saga's definition.
///
/// # Errors
/// The problem of the text, with line and column.
pub fn definition(json: &str) -> Result<v1::SagaDefinition, SagaJsonError> {
    let saga: Saga = serde_json::from_str(json)?;
    saga.into_wire(&[])
}

impl Saga {
    /// Converts to the message. `outer` are the names of the outputs that a child takes.
    fn into_wire(self, outer: &[String]) -> Result<v1::SagaDefinition, SagaJsonError> {
        let all = self.steps.iter().flat_map(|group| &group.0);
        let names: Vec<String> = all.map(|step| step.name.clone()).collect();
        let output = self.output.map(|output| {
            let place = place_of(&output, &names);
            place.ok_or(SagaJsonError::GivesFromNone { saga: self.name.clone(), output })
        });
        let groups = (0..).zip(self.steps);
        let steps = groups.flat_map(|(at, group)| group.0.into_iter().map(move |step| (at, step)));
        let steps = steps.map(|(group, step)| step.into_wire(group, &names, outer));
        Ok(v1::SagaDefinition {
            output: output.transpose()?,
            timeout_ms: self.timeout_ms,
            steps: steps.collect::<Result<_, _>>()?,
            name: self.name,
        })
    }
}

impl Step {
    fn into_wire(
        self,
        group: u32,
        names: &[String],
        outer: &[String],
    ) -> Result<v1::SagaStep, SagaJsonError> {
        let step = self.name.clone();
        let taken = StepInputs::find(self.takes, names, outer)
            .map_err(|taken| SagaJsonError::TakesFromNone { step, taken })?;
        let child = self.saga.map(|saga| saga.into_wire(&taken.names)).transpose()?;
        let input = self.input.as_ref().map(serde_json::to_vec).transpose()?;
        Ok(v1::SagaStep {
            takes: taken.own,
            takes_outer: taken.outer,
            child,
            group,
            kind: v1::SagaStepKind::from(self.kind).into(),
            name: self.name,
            resource_id: self.resource,
            action: self.action,
            input: input.unwrap_or_default(),
            retry: self.retry.map(v1::SagaRetry::from),
            timeout_ms: self.timeout_ms,
        })
    }
}

impl Default for Retry {
    fn default() -> Self {
        Self { base_ms: 100, factor: 2, cap_ms: 30_000, attempts: None }
    }
}

impl From<Retry> for v1::SagaRetry {
    fn from(Retry { base_ms, factor, cap_ms, attempts }: Retry) -> Self {
        Self { base_ms, factor, cap_ms, attempts }
    }
}

impl From<Kind> for v1::SagaStepKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Compensable => Self::Compensable,
            Kind::Harmless => Self::Harmless,
            Kind::Pivot => Self::Pivot,
            Kind::Retriable => Self::Retriable,
            Kind::Signal => Self::Signal,
            Kind::Child => Self::Child,
        }
    }
}

impl<'de> Deserialize<'de> for Group {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OneOrMore)
    }
}

struct OneOrMore;

impl<'de> Visitor<'de> for OneOrMore {
    type Value = Group;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a step, or a list of steps that run beside each other")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Group, A::Error> {
        Ok(Group(vec![Step::deserialize(MapAccessDeserializer::new(map))?]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, steps: A) -> Result<Group, A::Error> {
        let steps = Vec::deserialize(SeqAccessDeserializer::new(steps))?;
        if steps.is_empty() { Err(A::Error::invalid_length(0, &self)) } else { Ok(Group(steps)) }
    }
}
