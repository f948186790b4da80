//! The builder of sagas. The coordinator checks the definition when the saga is started.

use std::collections::BTreeMap;
use std::time::Duration;

use handfast_proto::saga_names::{StepInputs, place_of};
use handfast_proto::{saga_json, v1};
use serde::Serialize;

use crate::error::Error;

/// The definition of a saga: steps in their order.
///
/// ```
/// use std::time::Duration;
///
/// use handfast::saga::{Saga, SagaStep};
///
/// let saga = Saga::new("place-order")
///     .timeout(Duration::from_secs(60))
///     .label("order", "42")
///     .step(SagaStep::compensable("reserve", "stock", "reserve").input(&(7, 2)))
///     .step(SagaStep::pivot("pay", "account", "debit").input(&("alice", 30)).takes("reserve"))
///     .together([
///         SagaStep::retriable("ship", "warehouse", "ship"),
///         SagaStep::retriable("thank", "mail", "send"),
///     ]);
/// # drop(saga);
/// ```
#[derive(Clone, Debug)]
#[must_use = "a saga does nothing until it is started"]
pub struct Saga {
    name: String,
    timeout: Option<Duration>,
    groups: Vec<Vec<SagaStep>>,
    output: Option<String>,
    labels: BTreeMap<String, String>,
}

/// A step of a saga: the resource and action that it calls, its kind and its settings.
#[derive(Clone, Debug)]
#[must_use = "a step does nothing until it is part of a saga"]
pub struct SagaStep {
    wire: v1::SagaStep,
    takes: Vec<String>,
    /// The saga that a child step consists of.
    child: Option<Saga>,
    /// The reason why the input could not be written as JSON.
    fault: Option<String>,
}

impl Saga {
    /// Creates a saga without steps. Operators see it under `name`, such as `place-order`.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            timeout: None,
            groups: Vec::new(),
            output: None,
            labels: BTreeMap::new(),
        }
    }

    /// Reads a saga from JSON. `docs/saga.md` describes the form, and `handfast saga explain` draws
    /// it.
    ///
    /// ```
    /// let json = r#"{
    ///     "name": "place-order",
    ///     "steps": [
    ///         {"name": "take", "kind": "compensable", "resource": "stock", "action": "take"},
    ///         {"name": "pay", "kind": "pivot", "resource": "account", "action": "debit"}
    ///     ]
    /// }"#;
    /// let saga = handfast::saga::Saga::from_json(json)?;
    /// # drop(saga);
    /// # Ok::<(), handfast::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::SagaJson`] names the fault and its place. Faults that only the coordinator can see
    /// are refused when the saga is started.
    pub fn from_json(json: &str) -> Result<Self, Error> {
        let wire = saga_json::definition(json)
            .map_err(|error| Error::SagaJson { reason: error.to_string() })?;
        let place = wire.output.and_then(|place| usize::try_from(place).ok());
        let output = place.and_then(|place| wire.steps.get(place)).map(|step| step.name.clone());
        let mut groups: Vec<Vec<SagaStep>> = Vec::new();
        for step in wire.steps {
            let group = step.group;
            let step = SagaStep { wire: step, takes: Vec::new(), child: None, fault: None };
            match groups.last_mut() {
                Some(last) if last.iter().any(|it| it.wire.group == group) => last.push(step),
                Some(_) | None => groups.push(vec![step]),
            }
        }
        let timeout = wire.timeout_ms.map(Duration::from_millis);
        Ok(Self { name: wire.name, timeout, groups, output, labels: BTreeMap::new() })
    }

    /// Adds a label: what the application calls this saga by. Operators find it by its label, with
    /// `handfast saga ls --label order=42`. A second value of one name takes the place of the
    /// first. A saga that is started again keeps the labels of the first time, and a child has none
    /// of its own.
    ///
    /// A saga has at most 16 labels. A name has 1 to 64 bytes and no `=`, a value at most 256
    /// bytes: the coordinator refuses to start a saga with others (`HF-TC-TOO-LARGE`,
    /// `HF-TC-BAD-REQUEST`). Labels are stored and shown in clear text: personal data does not
    /// belong there.
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(name.into(), value.into());
        self
    }

    /// Sets after how long the saga is compensated if its pivot is not done. Default: never. A
    /// child's time begins with its first step.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Adds a step, which runs after those before it.
    pub fn step(self, step: SagaStep) -> Self {
        self.together([step])
    }

    /// Adds steps that run in parallel, after those before them.
    pub fn together(mut self, steps: impl IntoIterator<Item = SagaStep>) -> Self {
        self.groups.push(steps.into_iter().collect());
        self
    }

    /// Makes the output of this step the output of the saga, if the saga is a
    /// [child](SagaStep::child) of another one. A saga of its own reports the outputs of all its
    /// steps.
    pub fn output(mut self, step: impl Into<String>) -> Self {
        self.output = Some(step.into());
        self
    }

    pub(super) fn into_wire(self) -> Result<v1::SagaDefinition, Error> {
        self.into_wire_within(&[])
    }

    /// Takes the labels out, which belong to the start and not to the definition.
    pub(super) fn take_labels(&mut self) -> BTreeMap<String, String> {
        std::mem::take(&mut self.labels)
    }

    /// Converts the saga. `outer` holds the names that a child takes from its parent.
    fn into_wire_within(self, outer: &[String]) -> Result<v1::SagaDefinition, Error> {
        if let Some(label) = self.labels.keys().next() {
            let whose = format!("saga {} has the label {label}", self.name);
            return Err(wrong(format!("{whose}: only the saga that is started has labels")));
        }
        let steps: Vec<(u32, SagaStep)> = (0..)
            .zip(self.groups)
            .flat_map(|(at, group)| group.into_iter().map(move |it| (at, it)))
            .collect();
        let names: Vec<String> = steps.iter().map(|(_, step)| step.wire.name.clone()).collect();
        let output = self.output.map(|output| {
            let none = || wrong(format!("saga {} gives {output}, which is none", self.name));
            place_of(&output, &names).ok_or_else(none)
        });
        let steps = steps.into_iter().map(|(group, step)| step.into_wire(group, &names, outer));
        Ok(v1::SagaDefinition {
            output: output.transpose()?,
            name: self.name,
            timeout_ms: self.timeout.map(millis),
            steps: steps.collect::<Result<_, _>>()?,
        })
    }
}

impl SagaStep {
    /// Creates a step whose compensation undoes the work of its action.
    pub fn compensable(
        name: impl Into<String>,
        resource: impl Into<String>,
        action: impl Into<String>,
    ) -> Self {
        Self::new(v1::SagaStepKind::Compensable, name, resource, action)
    }

    /// Creates a step that leaves nothing to undo, such as a read or a check.
    pub fn harmless(
        name: impl Into<String>,
        resource: impl Into<String>,
        action: impl Into<String>,
    ) -> Self {
        Self::new(v1::SagaStepKind::Harmless, name, resource, action)
    }

    /// Creates the step that is the point of no return: once its action is done, the saga only goes
    /// forward. The action may refuse, and the saga is then compensated. It is tried until it is
    /// done or refuses.
    pub fn pivot(
        name: impl Into<String>,
        resource: impl Into<String>,
        action: impl Into<String>,
    ) -> Self {
        Self::new(v1::SagaStepKind::Pivot, name, resource, action)
    }

    /// Creates a step after the pivot, whose action is tried until it is done.
    pub fn retriable(
        name: impl Into<String>,
        resource: impl Into<String>,
        action: impl Into<String>,
    ) -> Self {
        Self::new(v1::SagaStepKind::Retriable, name, resource, action)
    }

    /// Creates a step that waits for a signal of its name, such as an approval. See
    /// [`StartedSaga::signal`](super::StartedSaga::signal).
    pub fn signal(name: impl Into<String>) -> Self {
        Self::new(v1::SagaStepKind::Signal, name, "", "")
    }

    /// Creates a step that is a saga of its own. The child's steps run, and are compensated, in the
    /// place of this step. This saga sees only the child's [output](Saga::output), not those of the
    /// child's steps. The outputs that this step [takes](Self::takes) are available to the child's
    /// steps that take them by name.
    ///
    /// ```
    /// use handfast::saga::{Saga, SagaStep};
    ///
    /// let billing = Saga::new("invoice")
    ///     .step(SagaStep::harmless("quote", "account", "quote").takes("reserve"))
    ///     .step(SagaStep::compensable("charge", "account", "charge").takes("quote"))
    ///     .output("charge");
    /// let saga = Saga::new("place-order")
    ///     .step(SagaStep::compensable("reserve", "stock", "reserve").input(&(7, 2)))
    ///     .step(SagaStep::child("billing", billing).takes("reserve"))
    ///     .step(SagaStep::compensable("ship", "warehouse", "ship").takes("billing"));
    /// # drop(saga);
    /// ```
    ///
    /// Other settings belong to the child's own steps: an input, attempts, pauses or a timeout on
    /// this step are refused when the saga is started.
    pub fn child(name: impl Into<String>, saga: Saga) -> Self {
        let step = Self::new(v1::SagaStepKind::Child, name, "", "");
        Self { child: Some(saga), ..step }
    }

    fn new(
        kind: v1::SagaStepKind,
        name: impl Into<String>,
        resource: impl Into<String>,
        action: impl Into<String>,
    ) -> Self {
        let wire = v1::SagaStep {
            name: name.into(),
            kind: kind.into(),
            resource_id: resource.into(),
            action: action.into(),
            ..v1::SagaStep::default()
        };
        Self { wire, takes: Vec::new(), child: None, fault: None }
    }

    /// Sets the input of action and compensation, at most 64 KiB as JSON. The same key must start
    /// the same saga again, so the input must not hold random values or the time of day.
    pub fn input(mut self, input: &impl Serialize) -> Self {
        match serde_json::to_vec(input) {
            Ok(json) => self.wire.input = json,
            Err(error) => self.fault = Some(error.to_string()),
        }
        self
    }

    /// Passes the output of a step of an earlier group to this step as well. In a child it may also
    /// be an output that the child takes.
    pub fn takes(mut self, step: impl Into<String>) -> Self {
        self.takes.push(step.into());
        self
    }

    /// Sets after how many failed attempts the action is given up and the saga compensated.
    /// Default: never. A refusal is not a failed attempt: it ends the step at once.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.retry().attempts = Some(attempts);
        self
    }

    /// Sets the pauses between attempts: the first is `base`, each further one `factor` times as
    /// long, up to `cap`. Each is shortened at random by up to a half. Default: 100 ms, doubling,
    /// up to 30 s.
    pub fn pauses(mut self, base: Duration, factor: u32, cap: Duration) -> Self {
        let retry = self.retry();
        (retry.base_ms, retry.factor, retry.cap_ms) = (millis(base), factor, millis(cap));
        self
    }

    /// Sets after how long an unfinished step is given up and the saga compensated. Default: never.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.wire.timeout_ms = Some(millis(timeout));
        self
    }

    fn retry(&mut self) -> &mut v1::SagaRetry {
        let default = v1::SagaRetry { base_ms: 100, factor: 2, cap_ms: 30_000, attempts: None };
        self.wire.retry.get_or_insert(default)
    }

    fn into_wire(
        self,
        group: u32,
        names: &[String],
        outer: &[String],
    ) -> Result<v1::SagaStep, Error> {
        let Self { mut wire, takes, child, fault } = self;
        if let Some(fault) = fault {
            return Err(wrong(format!("input of step {}: {fault}", wire.name)));
        }
        let mut taken = StepInputs::find(takes, names, outer).map_err(|taken| {
            wrong(format!("step {} takes from {taken}, which is none", wire.name))
        })?;
        if let Some(child) = child {
            wire.child = Some(child.into_wire_within(&taken.names)?);
        }
        wire.takes.append(&mut taken.own);
        wire.takes_outer.append(&mut taken.outer);
        Ok(v1::SagaStep { group, ..wire })
    }
}

fn wrong(reason: String) -> Error {
    Error::Configuration { setting: "saga", reason }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_and_builder_make_the_same_children() {
        let json = r#"{"name": "s", "steps": [
            {"name": "a", "kind": "compensable", "resource": "r", "action": "x"},
            {"name": "b", "kind": "child", "takes": ["a"], "saga": {
                "name": "inner", "timeout_ms": 7, "output": "d", "steps": [
                    {"name": "c", "kind": "harmless", "resource": "r", "action": "y",
                     "takes": ["a"]},
                    {"name": "d", "kind": "compensable", "resource": "r", "action": "z",
                     "takes": ["a", "c"]}
                ]
            }},
            {"name": "e", "kind": "compensable", "resource": "r", "action": "y", "takes": ["b"]}
        ]}"#;
        let inner = Saga::new("inner")
            .timeout(Duration::from_millis(7))
            .step(SagaStep::harmless("c", "r", "y").takes("a"))
            .step(SagaStep::compensable("d", "r", "z").takes("a").takes("c"))
            .output("d");
        let built = Saga::new("s")
            .step(SagaStep::compensable("a", "r", "x"))
            .step(SagaStep::child("b", inner).takes("a"))
            .step(SagaStep::compensable("e", "r", "y").takes("b"));
        let wire = built.into_wire().unwrap();
        assert_eq!(Saga::from_json(json).unwrap().into_wire().unwrap(), wire);
        let steps = &wire.steps[1].child.as_ref().unwrap().steps;
        assert_eq!((&*steps[1].takes, &*steps[1].takes_outer), ([0].as_slice(), [0].as_slice()));
        // The child's steps cannot take an output that the child does not take.
        let hidden = Saga::new("s")
            .step(SagaStep::compensable("a", "r", "x"))
            .step(SagaStep::child("b", Saga::new("i").step(SagaStep::signal("c").takes("a"))));
        let refused = hidden.into_wire().unwrap_err();
        assert!(refused.to_string().contains("step c takes from a, which is none"), "{refused}");
        let labelled = Saga::new("i").step(SagaStep::signal("c")).label("order", "42");
        let refused = Saga::new("s").step(SagaStep::child("b", labelled)).into_wire().unwrap_err();
        assert!(refused.to_string().contains("saga i has the label order"), "{refused}");
        let refused = Saga::new("s").step(SagaStep::signal("a")).output("b").into_wire();
        assert!(refused.unwrap_err().to_string().contains("saga s gives b, which is none"));
    }

    #[test]
    fn json_and_builder_make_the_same_saga() {
        let json = r#"{"name": "s", "timeout_ms": 9, "steps": [
            {"name": "a", "kind": "compensable", "resource": "r", "action": "x", "input": [7, 2],
             "retry": {"attempts": 3}, "timeout_ms": 5},
            [{"name": "b", "kind": "harmless", "resource": "r", "action": "y", "takes": ["a"]},
             {"name": "c", "kind": "signal"}]
        ]}"#;
        let first = SagaStep::compensable("a", "r", "x").input(&(7, 2)).attempts(3);
        let built = Saga::new("s")
            .timeout(Duration::from_millis(9))
            .step(first.timeout(Duration::from_millis(5)))
            .together([SagaStep::harmless("b", "r", "y").takes("a"), SagaStep::signal("c")]);
        let read = Saga::from_json(json).unwrap();
        assert_eq!(read.into_wire().unwrap(), built.into_wire().unwrap());
        let refused = Saga::from_json(r#"{"name": "s", "steps": [{"name": "a"}]}"#).unwrap_err();
        assert_eq!(refused.code(), "HF-SAGA-JSON");
        assert!(refused.to_string().contains("missing field `kind`"), "{refused}");
    }
}
