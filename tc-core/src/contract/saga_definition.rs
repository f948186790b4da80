//! The definition of a saga, and the faults that a definition can have.

use std::sync::Arc;

use super::id::BranchId;

/// A saga as its author wrote it. It never changes once the saga is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SagaDefinition {
    /// The application's name for this kind of saga.
    pub name: Arc<str>,
    /// If the pivot has not begun after this time, the saga is compensated. `None`: only its steps
    /// have timeouts.
    pub timeout_ms: Option<u64>,
    /// The steps that are carried out, in their order, with those of its children.
    pub steps: Vec<StepDefinition>,
    /// The steps that are sagas of their own.
    pub children: Vec<ChildDefinition>,
}

/// One step of a saga.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepDefinition {
    /// Unique among the steps of its parent.
    pub name: Arc<str>,
    /// The child that it is a step of. `None`: of the saga that is started.
    pub parent: Option<ChildRef>,
    /// Steps of one group run beside each other; groups run one after the other, from 0.
    pub group: u32,
    /// How the step can end.
    pub kind: StepKind,
    /// The resource that must carry it out. For a signal: empty.
    pub resource: Arc<str>,
    /// The action that the resource is asked for. For a signal: empty.
    pub action: Arc<str>,
    /// Handed to action and compensation.
    pub input: Arc<[u8]>,
    /// The parts before it, in its own saga or in one around it, whose outputs are handed over too.
    pub takes: Vec<SagaPart>,
    /// How often and in which rhythm the action is tried.
    pub retry: Retry,
    /// If the step has not ended after this time, it is given up and the saga is compensated.
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

/// How a step can end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StepKind {
    /// Its compensation undoes its action.
    Compensable,
    /// Its action has no effect that would have to be compensated.
    Harmless,
    /// The point of no return: once its action is done the saga only goes forward. It may refuse,
    /// and is called until it is done or has refused.
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
    /// The factor by which each further pause is longer.
    pub factor: u32,
    /// The longest pause.
    pub cap_ms: u64,
    /// After this many failed attempts the action is given up. `None`: never.
    pub attempts: Option<u32>,
}

impl Retry {
    /// Doubling from 100 ms to 30 s, forever.
    pub const DEFAULT: Self = Self { base_ms: 100, factor: 2, cap_ms: 30_000, attempts: None };

    /// Returns the full pause after this many failures.
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

/// A fault of a definition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SagaFault {
    /// There is nothing to do.
    #[error("it has no step")]
    NoStep,
    /// Too many steps (BOUNDED).
    #[error("it has {count} steps: at most {max} are allowed")]
    TooManySteps {
        /// How many it has.
        count: usize,
        /// How many it may have.
        max: usize,
    },
    /// Too many bytes of names and inputs (BOUNDED).
    #[error("its names and inputs have {bytes} bytes: at most {max} are allowed")]
    TooLarge {
        /// How many it has.
        bytes: usize,
        /// How many it may have.
        max: usize,
    },
    /// Children nested too deeply (BOUNDED).
    #[error("its children are {depth} deep: at most {max} are allowed")]
    TooDeep {
        /// How deep they are.
        depth: usize,
        /// How deep they may be.
        max: usize,
    },
    /// A step without a name.
    #[error("step {0} has no name")]
    Unnamed(u32),
    /// A child without a name.
    #[error("child saga {0} has no name")]
    ChildUnnamed(u32),
    /// A child with nothing to do.
    #[error("child saga {0} has no step")]
    ChildEmpty(Arc<str>),
    /// A part of a saga that is not there.
    #[error("step {0} is of a child saga that does not come before it")]
    Orphan(Arc<str>),
    /// A child that calls a participant, or a step of another kind that has a saga.
    #[error("step {0}: a child has a saga, and no resource, action, input, retry or timeout")]
    Child(Arc<str>),
    /// An output that the child's steps do not give.
    #[error("child saga {0}: its output is of no step of its own that gives one")]
    Output(Arc<str>),
    /// Two steps of one name: outputs and signals could not be distinguished.
    #[error("two steps are named {0}")]
    NamedTwice(Arc<str>),
    /// Groups count from 0 without a gap.
    #[error("step {0} is in a group that does not follow on the one before it")]
    GroupOutOfOrder(Arc<str>),
    /// A step that calls no participant, or a signal that calls one.
    #[error("step {0}: an action needs a resource and a name, and a signal has neither")]
    Address(Arc<str>),
    /// There is one point of no return, and nothing runs beside it.
    #[error("step {0}: there is one pivot at most, and it is alone in its group")]
    Pivot(Arc<str>),
    /// A step after the pivot that is neither retriable nor a signal: it could not be compensated.
    #[error("step {0} comes after the pivot: it must be retriable, or a signal")]
    AfterPivot(Arc<str>),
    /// The same for a step of the parent that comes after a child with the pivot.
    #[error("child saga {child} has the pivot, so step {step} must be retriable, or a signal")]
    ChildPivot {
        /// The child.
        child: Arc<str>,
        /// The step of its parent.
        step: Arc<str>,
    },
    /// A retriable step before the pivot, where it could be given up and nothing would undo it.
    #[error("step {0} is retriable: it must come after a pivot")]
    RetriableBeforePivot(Arc<str>),
    /// A pivot and what comes after it is never given up.
    #[error("step {0} is never given up: leave out its timeout and its attempts")]
    NeverGivenUp(Arc<str>),
    /// An output that is not there when the step begins.
    #[error("step {0} takes the output of a step that does not come before it")]
    TakesLater(Arc<str>),
    /// The output of a step within a child, which only the child's own steps may take.
    #[error("step {0} takes the output of a step of a child saga: only the child's own is seen")]
    TakesHidden(Arc<str>),
    /// An output that a child does not have.
    #[error("step {step} takes the output of child saga {child}, which has none")]
    NoOutput {
        /// The step that takes it.
        step: Arc<str>,
        /// The child that should give it.
        child: Arc<str>,
    },
    /// An output that would be handed over more than once (BOUNDED).
    #[error("step {0} takes the output of the same step twice")]
    TakesTwice(Arc<str>),
    /// A retry policy that makes no sense.
    #[error("step {0}: at least one attempt, a factor of at least 1, and no pause above the cap")]
    Retry(Arc<str>),
}

/// The place of a child among a saga's children, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChildRef(pub u32);

/// A step that is a saga of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildDefinition {
    /// The step's name.
    pub name: Arc<str>,
    /// The application's name for this kind of saga.
    pub saga: Arc<str>,
    /// The child that it is a step of, which comes before it. `None`: of the saga that is started.
    pub parent: Option<ChildRef>,
    /// Its group among its parent's.
    pub group: u32,
    /// If the pivot has not begun this long after the child's first step, the whole saga is
    /// compensated. `None`: only its steps have timeouts.
    pub timeout_ms: Option<u64>,
    /// The part of the child that gives its output.
    pub output: Option<SagaPart>,
}

/// A part of a saga.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SagaPart {
    /// A step that a participant carries out.
    Step(StepRef),
    /// A step that is a saga of its own.
    Child(ChildRef),
}

impl ChildRef {
    pub(crate) fn place(self) -> usize {
        self.0 as usize
    }
}
