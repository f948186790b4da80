//! A saga as it is stored, which is also how it is kept in memory and shown.

use std::fmt;
use std::sync::Arc;

use super::event::Event;
use super::id::{Timestamp, Xid};
use super::label::Labels;
use super::request::Decision;
use super::saga_definition::{ChildRef, Retry, SagaDefinition, SagaPart, StepKind, StepRef};
use super::trace::RequestTrace;

/// A saga, with everything that is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SagaRecord {
    /// Its id, drawn from the same counter as those of globals.
    pub xid: Xid,
    /// The address part of its text form, as it was when it began.
    pub address: Arc<str>,
    /// The application that started it.
    pub application: Arc<str>,
    /// Made by the application: the same key is the same saga.
    pub key: Arc<str>,
    /// The definition of the saga.
    pub definition: Arc<SagaDefinition>,
    /// When it began.
    pub begun_at: Timestamp,
    /// When it is compensated if its pivot has not begun.
    pub deadline: Option<Timestamp>,
    /// Where it stands.
    pub state: SagaState,
    /// The last failure of the step that turned the saga back, if it had one. It is kept here,
    /// since a failure of the compensation replaces it in the step.
    pub cause_error: Option<Arc<str>>,
    /// Whether calls are held back by an operator.
    pub paused: bool,
    /// Where each step of the definition stands, in its order.
    pub steps: Vec<StepRecord>,
    /// Turns and operator actions, oldest first; bounded.
    pub events: Arc<[Event]>,
    /// The labels that it was started with.
    pub labels: Labels,
    /// Where its start stands in a trace.
    pub trace: Option<Box<RequestTrace>>,
}

/// Where a saga stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SagaState {
    /// Going forward.
    Running,
    /// Going back.
    Compensating(TurnCause),
    /// Every step is done, the last one at this time.
    Completed(Timestamp),
    /// Every step is compensated, the last one at this time.
    Compensated(TurnCause, Timestamp),
}

/// Why a saga is compensated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnCause {
    /// The step's action refused.
    Refused(StepRef),
    /// The step's action failed as often as it may.
    Exhausted(StepRef),
    /// The step took too long.
    StepTimeout(StepRef),
    /// The child took too long.
    ChildTimeout(ChildRef),
    /// The saga took too long.
    Timeout,
    /// Its application asked for it.
    Cancelled,
    /// An operator asked for it.
    Operator,
}

impl TurnCause {
    /// The step that was the cause, if one was.
    pub(crate) fn step(self) -> Option<StepRef> {
        match self {
            Self::Refused(step) | Self::Exhausted(step) | Self::StepTimeout(step) => Some(step),
            Self::ChildTimeout(_) | Self::Timeout | Self::Cancelled | Self::Operator => None,
        }
    }
}

/// Where a step stands, and what has happened to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepRecord {
    /// Where it stands.
    pub state: StepState,
    /// When its action was first due.
    pub started_at: Option<Timestamp>,
    /// When it was done or, after that, compensated.
    pub ended_at: Option<Timestamp>,
    /// Attempts that failed: of the action or, once that is due, of the compensation.
    pub attempts: u32,
    /// When the last attempt failed and why.
    pub last_failure: Option<(Timestamp, Arc<str>)>,
    /// The output of the action.
    pub output: Option<Arc<[u8]>>,
}

/// Where a step stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StepState {
    /// Not begun.
    #[default]
    Waiting,
    /// Its action is due, or its signal awaited.
    Running,
    /// As running, and an operator should look: the action refuses or keeps failing, and cannot be
    /// given up.
    RunningStuck,
    /// Its action is done.
    Done,
    /// Its action refused or was given up: what it did is not known.
    Failed,
    /// Its compensation is due.
    Compensating,
    /// As compensating, and an operator should look: it refuses or keeps failing.
    CompensatingStuck,
    /// It is compensated.
    Compensated,
}

/// How a saga stands, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SagaStatus {
    /// Going forward.
    Running,
    /// Every step is done.
    Completed,
    /// Going back.
    Compensating,
    /// Every step is compensated.
    Compensated,
    /// A step cannot go on, in its direction, without an operator.
    NeedsOperator,
}

/// The part of a phase-two call that only steps of sagas have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepCall {
    /// The application's name for this kind of saga.
    pub saga: Arc<str>,
    /// The application's key of the saga.
    pub key: Arc<str>,
    /// The step, behind the children that it is in.
    pub step: Arc<str>,
    /// The action to carry out, or to compensate.
    pub action: Arc<str>,
    /// How the step can end.
    pub kind: StepKind,
    /// The outputs that the step takes; for a compensation also its action's own, if it is known.
    pub outputs: Vec<StepOutput>,
    /// The rhythm of attempts.
    pub retry: Retry,
}

/// The output of a step or a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepOutput {
    /// Its own name.
    pub step: Arc<str>,
    /// Its output.
    pub output: Arc<[u8]>,
}

impl SagaRecord {
    /// How the saga stands.
    #[must_use]
    pub fn status(&self) -> SagaStatus {
        if self.steps.iter().any(StepRecord::is_stuck) {
            return SagaStatus::NeedsOperator;
        }
        match self.state {
            SagaState::Running => SagaStatus::Running,
            SagaState::Compensating(_) => SagaStatus::Compensating,
            SagaState::Completed(_) => SagaStatus::Completed,
            SagaState::Compensated(..) => SagaStatus::Compensated,
        }
    }

    /// When the saga ended, if it did.
    #[must_use]
    pub fn ended_at(&self) -> Option<Timestamp> {
        match self.state {
            SagaState::Completed(at) | SagaState::Compensated(_, at) => Some(at),
            SagaState::Running | SagaState::Compensating(_) => None,
        }
    }

    /// Returns why the saga is compensated, if it is, for operators.
    #[must_use]
    pub fn cause(&self) -> Option<String> {
        match self.state {
            SagaState::Compensating(cause) | SagaState::Compensated(cause, _) => {
                Some(self.cause_text(cause))
            }
            SagaState::Running | SagaState::Completed(_) => None,
        }
    }

    /// Returns the output of a part, if it gave one.
    #[must_use]
    pub fn output(&self, part: SagaPart) -> Option<&Arc<[u8]>> {
        let step = self.definition.source(part)?;
        self.steps.get(step.place())?.output.as_ref()
    }

    pub(crate) fn cause_text(&self, cause: TurnCause) -> String {
        let why = self.cause_error.as_ref().map_or(String::new(), |why| format!(": {why}"));
        let name = |step: StepRef| self.definition.path(SagaPart::Step(step));
        match cause {
            TurnCause::Refused(step) => format!("step {} refused{why}", name(step)),
            TurnCause::Exhausted(step) => format!("step {} failed too often{why}", name(step)),
            TurnCause::StepTimeout(step) => format!("step {} took too long{why}", name(step)),
            TurnCause::ChildTimeout(child) => {
                let name = self.definition.path(SagaPart::Child(child));
                format!("child saga {name} took too long")
            }
            TurnCause::Timeout => "timeout".to_owned(),
            TurnCause::Cancelled => "cancelled".to_owned(),
            TurnCause::Operator => "operator".to_owned(),
        }
    }
}

impl StepRecord {
    fn is_stuck(&self) -> bool {
        matches!(self.state, StepState::RunningStuck | StepState::CompensatingStuck)
    }
}

impl StepState {
    /// Returns the decision that a participant is to carry out.
    pub(crate) fn owes(self) -> Option<Decision> {
        match self {
            Self::Running | Self::RunningStuck => Some(Decision::Commit),
            Self::Compensating | Self::CompensatingStuck => Some(Decision::RollBack),
            Self::Waiting | Self::Done | Self::Failed | Self::Compensated => None,
        }
    }
}

impl fmt::Display for SagaStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Compensating => "compensating",
            Self::Compensated => "compensated",
            Self::NeedsOperator => "in need of an operator",
        })
    }
}

impl fmt::Display for StepState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::RunningStuck => "running, in need of an operator",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Compensating => "compensating",
            Self::CompensatingStuck => "compensating, in need of an operator",
            Self::Compensated => "compensated",
        })
    }
}
