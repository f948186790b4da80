//! Which plays there are. Each play shows what else can happen in it.

use std::collections::{BTreeSet, VecDeque};

use handfast_proto::v1::{Decision, SagaStepKind};

use super::SagaEnd;
use super::play::Played;
use crate::fault::Fault;
use crate::gate::Death;
use crate::traffic::StepSeen;

/// Something that happens in a play.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PlayFault {
    StepRefuses(String),
    ActionDoubled(String),
    CompensationDoubled(String),
    ActionUncommitted(String),
    CompensationUncommitted(String),
    DiesBefore(usize),
    DiesAfter(usize),
}

/// A play, by what happens in it.
#[derive(Clone, Debug, Default)]
pub(super) struct PlannedPlay {
    pub(super) faults: Vec<PlayFault>,
}

/// The plays to come.
#[derive(Debug)]
pub(super) struct Plays {
    waiting: VecDeque<PlannedPlay>,
    taken: usize,
    /// Compensations that are repeated in a play.
    repeated: BTreeSet<String>,
}

impl PlayFault {
    pub(super) fn fault(&self) -> Fault {
        match self {
            Self::StepRefuses(step) => Fault::refused_step(step),
            Self::ActionDoubled(step) => Fault::doubled_action(step),
            Self::CompensationDoubled(step) => Fault::doubled_compensation(step),
            Self::ActionUncommitted(step) => Fault::uncommitted_action(step),
            Self::CompensationUncommitted(step) => Fault::uncommitted_compensation(step),
            Self::DiesBefore(write) => Fault::coordinator_dies(Death::BeforeWrite(*write)),
            Self::DiesAfter(write) => Fault::coordinator_dies(Death::AfterWrite(*write)),
        }
    }
}

impl PlannedPlay {
    /// Returns the name of the play.
    pub(super) fn name(&self) -> String {
        if self.faults.is_empty() {
            return "no fault".to_owned();
        }
        let names: Vec<String> = self.faults.iter().map(|it| it.fault().to_string()).collect();
        names.join("; ")
    }

    /// Returns how the saga has to end.
    pub(super) fn end(&self) -> SagaEnd {
        let is_refused = self.faults.iter().any(|fault| matches!(fault, PlayFault::StepRefuses(_)));
        if is_refused { SagaEnd::Compensated } else { SagaEnd::Completed }
    }

    fn with(&self, fault: PlayFault) -> Self {
        let mut faults = self.faults.clone();
        faults.push(fault);
        Self { faults }
    }
}

impl Plays {
    /// Returns the play without a fault.
    pub(super) fn first() -> Self {
        let waiting = VecDeque::from([PlannedPlay::default()]);
        Self { waiting, taken: 0, repeated: BTreeSet::new() }
    }

    pub(super) fn next(&mut self) -> Option<PlannedPlay> {
        self.taken += 1;
        self.waiting.pop_front()
    }

    /// Returns how many plays there are, those to come included.
    pub(super) fn count(&self) -> usize {
        self.taken + self.waiting.len()
    }

    /// Drops the plays to come.
    pub(super) fn end(&mut self) {
        self.waiting.clear();
    }

    /// Adds the plays that a play has shown.
    pub(super) fn follow(&mut self, planned: &PlannedPlay, played: &Played) {
        match planned.faults.as_slice() {
            [] => {
                self.add(planned, played.steps.iter().filter_map(refusal));
                let actions = || played.steps.iter().filter(|it| it.decision == Decision::Commit);
                self.add(planned, actions().map(|it| PlayFault::ActionDoubled(it.step.clone())));
                self.add(
                    planned,
                    actions().map(|it| PlayFault::ActionUncommitted(it.step.clone())),
                );
                self.add_deaths(planned, played.writes);
            }
            [PlayFault::StepRefuses(refused)] => {
                // Of the step that refused there is nothing to compensate.
                let is_done =
                    |it: &&StepSeen| it.decision == Decision::RollBack && it.step != *refused;
                let compensated = played.steps.iter().filter(is_done);
                let fresh = compensated.filter(|it| self.repeated.insert(it.step.clone()));
                let faults: Vec<PlayFault> = fresh.flat_map(repeated_compensation).collect();
                self.add(planned, faults.into_iter());
                self.add_deaths(planned, played.writes);
            }
            // Two faults at a time, one of them the refusal.
            [_, ..] => {}
        }
    }

    fn add_deaths(&mut self, planned: &PlannedPlay, writes: usize) {
        self.add(planned, (1..=writes).map(PlayFault::DiesBefore));
        self.add(planned, (1..=writes).map(PlayFault::DiesAfter));
    }

    fn add(&mut self, planned: &PlannedPlay, faults: impl Iterator<Item = PlayFault>) {
        self.waiting.extend(faults.map(|fault| planned.with(fault)));
    }
}

fn refusal(seen: &StepSeen) -> Option<PlayFault> {
    let may_refuse = match seen.kind {
        SagaStepKind::Compensable | SagaStepKind::Harmless | SagaStepKind::Pivot => true,
        SagaStepKind::Retriable
        | SagaStepKind::Signal
        | SagaStepKind::Child
        | SagaStepKind::Unspecified => false,
    };
    let is_action = seen.decision == Decision::Commit;
    (may_refuse && is_action).then(|| PlayFault::StepRefuses(seen.step.clone()))
}

fn repeated_compensation(seen: &StepSeen) -> [PlayFault; 2] {
    let step = || seen.step.clone();
    [PlayFault::CompensationDoubled(step()), PlayFault::CompensationUncommitted(step())]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(step: &str, kind: SagaStepKind, decision: Decision) -> StepSeen {
        StepSeen { step: step.to_owned(), kind, decision }
    }

    fn names(plays: &mut Plays) -> Vec<String> {
        std::iter::from_fn(|| plays.next()).map(|planned| planned.name()).collect()
    }

    #[test]
    fn a_retriable_step_is_not_refused() {
        let mut plays = Plays::first();
        let first = plays.next().unwrap();
        let steps = vec![
            seen("take", SagaStepKind::Compensable, Decision::Commit),
            seen("ship", SagaStepKind::Retriable, Decision::Commit),
        ];
        plays.follow(&first, &Played { steps, writes: 1, is_vacuous: false });
        let expected = [
            "step take refuses",
            "action take is doubled",
            "action ship is doubled",
            "the COMMIT of action take fails once",
            "the COMMIT of action ship fails once",
            "the coordinator dies: BeforeWrite(1)",
            "the coordinator dies: AfterWrite(1)",
        ];
        assert_eq!(names(&mut plays), expected);
    }

    #[test]
    fn each_compensation_is_repeated_once() {
        let mut plays = Plays::first();
        let steps = vec![seen("take", SagaStepKind::Compensable, Decision::RollBack)];
        let refused =
            |step: &str| PlannedPlay { faults: vec![PlayFault::StepRefuses(step.to_owned())] };
        drop(plays.next());
        plays.follow(
            &refused("pay"),
            &Played { steps: steps.clone(), writes: 0, is_vacuous: false },
        );
        plays.follow(&refused("ship"), &Played { steps, writes: 0, is_vacuous: false });
        let expected = [
            "step pay refuses; compensation take is doubled",
            "step pay refuses; the COMMIT of compensation take fails once",
        ];
        assert_eq!(names(&mut plays), expected);
    }
}
