//! What a saga is made of, and which sagas cannot be.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::{BranchId, Limits};

/// A saga as its author wrote it. It never changes once the saga is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SagaDefinition {
    /// What the application calls this kind of saga.
    pub name: Arc<str>,
    /// After this long before its pivot, the saga is taken back. `None`: only its steps have times.
    pub timeout_ms: Option<u64>,
    /// The steps, by group.
    pub steps: Vec<StepDefinition>,
}

/// One step of a saga.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepDefinition {
    /// Unique within the saga.
    pub name: Arc<str>,
    /// Steps of one group run beside each other; groups run one after the other, from 0.
    pub group: u32,
    /// What can become of the step.
    pub kind: StepKind,
    /// The resource that must carry it out. For a signal: empty.
    pub resource: Arc<str>,
    /// What the resource is asked to do. For a signal: empty.
    pub action: Arc<str>,
    /// Handed to action and compensation.
    pub input: Arc<[u8]>,
    /// Steps of earlier groups whose outputs are handed over too.
    pub takes: Vec<StepRef>,
    /// How often and in which rhythm the action is tried.
    pub retry: Retry,
    /// After this long without an end, the step is given up and the saga is taken back.
    pub timeout_ms: Option<u64>,
}

/// The place of a step in its saga, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepRef(pub u32);

impl StepRef {
    /// The branch under which the step is called; branches count from 1.
    #[must_use]
    pub fn branch(self) -> BranchId {
        BranchId(u64::from(self.0) + 1)
    }

    pub(crate) fn of_branch(branch: BranchId) -> Option<Self> {
        u32::try_from(branch.0.checked_sub(1)?).ok().map(Self)
    }

    pub(crate) fn place(self) -> usize {
        self.0 as usize
    }
}

/// What can become of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StepKind {
    /// Its compensation takes back what its action did.
    Compensable,
    /// Its action leaves nothing that would have to be taken back.
    Harmless,
    /// The point of no return: once its action is done the saga only goes forward. It may refuse,
    /// and it is asked until it has said the one or the other.
    Pivot,
    /// Comes after the pivot: its action is tried until it is done.
    Retriable,
    /// Waits for a signal of the step's name.
    Signal,
}

/// The rhythm of attempts. The jitter is the dispatcher's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// The pause after the first failed attempt.
    pub base_ms: u64,
    /// By how much each further pause is longer.
    pub factor: u32,
    /// The longest pause.
    pub cap_ms: u64,
    /// After so many failed attempts the action is given up. `None`: never.
    pub attempts: Option<u32>,
}

impl Retry {
    /// Doubling from 100 ms to 30 s, for ever.
    pub const DEFAULT: Self = Self { base_ms: 100, factor: 2, cap_ms: 30_000, attempts: None };

    /// The full pause after so many failures.
    #[must_use]
    pub fn pause_ms(&self, failures: u32) -> u64 {
        let factor = u64::from(self.factor).saturating_pow(failures.saturating_sub(1));
        self.base_ms.saturating_mul(factor).min(self.cap_ms)
    }
}

impl Default for Retry {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// What is wrong with a definition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SagaFault {
    /// There is nothing to do.
    #[error("it has no step")]
    NoStep,
    /// BOUNDED.
    #[error("it has {count} steps: at most {max} are allowed")]
    TooManySteps {
        /// How many it has.
        count: usize,
        /// How many it may have.
        max: usize,
    },
    /// BOUNDED.
    #[error("its names and inputs have {bytes} bytes: at most {max} are allowed")]
    TooLarge {
        /// How many it has.
        bytes: usize,
        /// How many it may have.
        max: usize,
    },
    /// A step without a name.
    #[error("step {0} has no name")]
    Unnamed(u32),
    /// Two steps of one name: outputs and signals could not be told apart.
    #[error("two steps are named {0}")]
    NamedTwice(Arc<str>),
    /// Groups count from 0 without a gap.
    #[error("step {0} is in a group that does not follow on the one before it")]
    GroupOutOfOrder(Arc<str>),
    /// A step that calls nobody, or a signal that calls somebody.
    #[error("step {0}: an action needs a resource and a name, and a signal has neither")]
    Address(Arc<str>),
    /// There is one point of no return, and nothing runs beside it.
    #[error("step {0}: there is one pivot at most, and it is alone in its group")]
    Pivot(Arc<str>),
    /// What comes after the pivot can never be taken back.
    #[error("step {0} comes after the pivot: it must be retriable, or a signal")]
    AfterPivot(Arc<str>),
    /// Before the pivot it could be given up, and then nothing would take it back.
    #[error("step {0} is retriable: it must come after a pivot")]
    RetriableBeforePivot(Arc<str>),
    /// A pivot and what comes after it is never given up.
    #[error("step {0} is never given up: leave out its timeout and its attempts")]
    NeverGivenUp(Arc<str>),
    /// An output that is not there when the step begins.
    #[error("step {0} takes the output of a step that does not come before it")]
    TakesLater(Arc<str>),
    /// Attempts that make no sense.
    #[error("step {0}: at least one attempt, a factor of at least 1, and no pause above the cap")]
    Retry(Arc<str>),
}

impl SagaDefinition {
    /// Checks that the saga can be carried out and always ends.
    ///
    /// ```
    /// use handfast_core::{Limits, SagaDefinition, SagaFault};
    ///
    /// let nothing = SagaDefinition { name: "rest".into(), timeout_ms: None, steps: Vec::new() };
    /// assert_eq!(nothing.check(&Limits::default()), Err(SagaFault::NoStep));
    /// ```
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self, limits: &Limits) -> Result<(), SagaFault> {
        let (count, bytes) = (self.steps.len(), self.bytes());
        if count == 0 {
            return Err(SagaFault::NoStep);
        }
        if count > limits.saga_steps_max {
            return Err(SagaFault::TooManySteps { count, max: limits.saga_steps_max });
        }
        if bytes > limits.saga_bytes_max {
            return Err(SagaFault::TooLarge { bytes, max: limits.saga_bytes_max });
        }
        self.check_order()?;
        self.steps.iter().try_for_each(|step| self.check_step(step))
    }

    /// The step that is the point of no return.
    pub(crate) fn pivot(&self) -> Option<usize> {
        self.steps.iter().position(|step| step.kind == StepKind::Pivot)
    }

    fn bytes(&self) -> usize {
        let of_step = |step: &StepDefinition| {
            step.name.len() + step.resource.len() + step.action.len() + step.input.len()
        };
        self.name.len() + self.steps.iter().map(of_step).sum::<usize>()
    }

    /// Names, and the groups' numbers.
    fn check_order(&self) -> Result<(), SagaFault> {
        let (mut names, mut group) = (BTreeSet::new(), 0);
        for (place, step) in (0..).zip(&self.steps) {
            if step.name.is_empty() {
                return Err(SagaFault::Unnamed(place));
            }
            if !names.insert(&step.name) {
                return Err(SagaFault::NamedTwice(step.name.clone()));
            }
            let follows = step.group == group || (place > 0 && step.group == group + 1);
            if !follows {
                return Err(SagaFault::GroupOutOfOrder(step.name.clone()));
            }
            group = step.group;
        }
        Ok(())
    }

    fn check_step(&self, step: &StepDefinition) -> Result<(), SagaFault> {
        let name = || step.name.clone();
        let is_signal = step.kind == StepKind::Signal;
        if is_signal != step.resource.is_empty() || is_signal != step.action.is_empty() {
            return Err(SagaFault::Address(name()));
        }
        let comes_before = |taken: &StepRef| {
            self.steps.get(taken.place()).is_some_and(|taken| taken.group < step.group)
        };
        if !step.takes.iter().all(comes_before) {
            return Err(SagaFault::TakesLater(name()));
        }
        let Retry { base_ms, factor, cap_ms, attempts } = step.retry;
        if factor == 0 || base_ms > cap_ms || attempts == Some(0) {
            return Err(SagaFault::Retry(name()));
        }
        self.check_pivot(step)
    }

    fn check_pivot(&self, step: &StepDefinition) -> Result<(), SagaFault> {
        let name = step.name.clone();
        let pivot = self.pivot().map(|place| &self.steps[place]);
        let is_after = pivot.is_some_and(|pivot| pivot.group < step.group);
        let can_be_given_up = step.timeout_ms.is_some() || step.retry.attempts.is_some();
        let beside = |other: &&StepDefinition| other.group == step.group;
        match step.kind {
            StepKind::Pivot if pivot.is_some_and(|pivot| pivot.name != name) => {
                Err(SagaFault::Pivot(name))
            }
            StepKind::Pivot if self.steps.iter().filter(beside).count() > 1 => {
                Err(SagaFault::Pivot(name))
            }
            StepKind::Compensable | StepKind::Harmless if is_after => {
                Err(SagaFault::AfterPivot(name))
            }
            StepKind::Retriable if !is_after => Err(SagaFault::RetriableBeforePivot(name)),
            StepKind::Pivot | StepKind::Retriable if can_be_given_up => {
                Err(SagaFault::NeverGivenUp(name))
            }
            StepKind::Signal if is_after && can_be_given_up => Err(SagaFault::NeverGivenUp(name)),
            StepKind::Compensable
            | StepKind::Harmless
            | StepKind::Pivot
            | StepKind::Retriable
            | StepKind::Signal => Ok(()),
        }
    }
}
