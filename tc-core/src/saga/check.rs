//! Checks of a saga's definition: it can be carried out, and always ends.

use super::child::Level;
use crate::contract::{
    ChildDefinition, Limits, Retry, SagaDefinition, SagaFault, SagaPart, StepDefinition, StepKind,
    StepRef,
};

impl SagaDefinition {
    /// Checks that the saga can be carried out and always ends.
    ///
    /// ```
    /// use handfast_core::{Limits, SagaDefinition, SagaFault};
    ///
    /// let nothing = SagaDefinition {
    ///     name: "rest".into(),
    ///     timeout_ms: None,
    ///     steps: Vec::new(),
    ///     children: Vec::new(),
    /// };
    /// assert_eq!(nothing.check(&Limits::default()), Err(SagaFault::NoStep));
    /// ```
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self, limits: &Limits) -> Result<(), SagaFault> {
        let (count, bytes) = (self.steps.len() + self.children.len(), self.bytes());
        if self.steps.is_empty() {
            return Err(SagaFault::NoStep);
        }
        if count > limits.saga_steps_max {
            return Err(SagaFault::TooManySteps { count, max: limits.saga_steps_max });
        }
        if bytes > limits.saga_bytes_max {
            return Err(SagaFault::TooLarge { bytes, max: limits.saga_bytes_max });
        }
        let unnamed = self.each_ref().zip(&self.steps).find(|(_, step)| step.name.is_empty());
        if let Some((step, _)) = unnamed {
            return Err(SagaFault::Unnamed(step.0));
        }
        self.check_children(limits)?;
        self.check_groups()?;
        self.each_ref().zip(&self.steps).try_for_each(|(at, step)| self.check_step(at, step))
    }

    /// The step that is the point of no return.
    pub(crate) fn pivot(&self) -> Option<SagaPart> {
        let is_pivot = |step: &StepRef| self.steps[step.place()].kind == StepKind::Pivot;
        self.each_ref().find(is_pivot).map(SagaPart::Step)
    }

    fn bytes(&self) -> usize {
        let of_step = |step: &StepDefinition| {
            step.name.len() + step.resource.len() + step.action.len() + step.input.len()
        };
        let of_child = |child: &ChildDefinition| child.name.len() + child.saga.len();
        let of_children = self.children.iter().map(of_child).sum::<usize>();
        self.name.len() + self.steps.iter().map(of_step).sum::<usize>() + of_children
    }

    fn check_step(&self, at: StepRef, step: &StepDefinition) -> Result<(), SagaFault> {
        let name = || self.path(SagaPart::Step(at));
        let is_signal = step.kind == StepKind::Signal;
        if is_signal != step.resource.is_empty() || is_signal != step.action.is_empty() {
            return Err(SagaFault::Address(name()));
        }
        if self.takes_twice(step) {
            return Err(SagaFault::TakesTwice(name()));
        }
        step.takes.iter().try_for_each(|&taken| self.check_taken(at, taken))?;
        let Retry { base_ms, factor, cap_ms, attempts } = step.retry;
        if factor == 0 || base_ms > cap_ms || attempts == Some(0) {
            return Err(SagaFault::Retry(name()));
        }
        self.check_pivot(SagaPart::Step(at), step)
    }

    fn takes_twice(&self, step: &StepDefinition) -> bool {
        let takes = &step.takes;
        // Counted first, so that a list of any length is looked through quickly.
        takes.len() > self.steps.len() + self.children.len()
            || takes.iter().enumerate().any(|(at, taken)| takes[..at].contains(taken))
    }

    fn check_pivot(&self, at: SagaPart, step: &StepDefinition) -> Result<(), SagaFault> {
        let name = self.path(at);
        let pivot = self.pivot();
        let is_after = pivot.is_some_and(|pivot| self.order(pivot, at).is_lt());
        let can_be_given_up = step.timeout_ms.is_some() || step.retry.attempts.is_some();
        let beside = |other: &SagaPart| self.order(*other, at).is_eq();
        match step.kind {
            StepKind::Pivot if pivot.is_some_and(|pivot| pivot != at) => {
                Err(SagaFault::Pivot(name))
            }
            StepKind::Pivot if self.each_ref().map(SagaPart::Step).filter(beside).count() > 1 => {
                Err(SagaFault::Pivot(name))
            }
            StepKind::Compensable | StepKind::Harmless if is_after => {
                Err(self.after_pivot(pivot, at))
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

    /// Names the child that has the pivot: a reader sees the step and the child side by side.
    fn after_pivot(&self, pivot: Option<SagaPart>, at: SagaPart) -> SagaFault {
        let step = self.path(at);
        match pivot.and_then(|pivot| self.meet(pivot, at)) {
            Some((Level { part: child @ SagaPart::Child(_), .. }, _)) => {
                SagaFault::ChildPivot { child: self.path(child), step }
            }
            Some(_) | None => SagaFault::AfterPivot(step),
        }
    }
}
