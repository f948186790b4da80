//! Sagas within a saga: a step that is a saga of its own.
//!
//! A child has no record and no state of its own. Its steps are steps of the saga that was started,
//! and so one record says how far all of them have come. It is a saga by its shape: its groups
//! count within it, all of them happen where the child stands among its parent's groups, and its
//! parent sees no output of its steps but the child's. Its steps can be compensated for as long as
//! the started saga can.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::sync::Arc;

use super::course::is_owed;
use crate::contract::{
    ChildRef, Limits, SagaDefinition, SagaFault, SagaPart, SagaRecord, SagaState, StepRef,
    StepState,
};

/// The position of a part in one of the sagas around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Level {
    /// The saga; `None` is the one that is started.
    pub(crate) within: Option<ChildRef>,
    /// The part itself, or the child that it is in.
    pub(crate) part: SagaPart,
    /// The group of that.
    pub(crate) group: u32,
}

impl SagaDefinition {
    /// All parts in their order, a child before its own.
    #[must_use]
    pub fn outline(&self) -> Vec<SagaPart> {
        let (mut seen, mut parts) = (BTreeSet::new(), Vec::new());
        for step in self.each_ref() {
            let mut around: Vec<_> = self.levels(SagaPart::Step(step)).collect();
            around.reverse();
            parts.extend(around.iter().map(|level| level.part).filter(|&part| seen.insert(part)));
        }
        parts
    }

    /// A part's name behind those of the children that it is in, such as `billing/charge`.
    #[must_use]
    pub fn path(&self, part: SagaPart) -> Arc<str> {
        let around: Vec<_> = self.levels(part).collect();
        match &*around {
            [level] => self.name_of(level.part),
            levels => {
                let names: Vec<_> = levels.iter().rev().map(|it| self.name_of(it.part)).collect();
                names.join("/").into()
            }
        }
    }

    /// A part's own name.
    pub(crate) fn name_of(&self, part: SagaPart) -> Arc<str> {
        let name = match part {
            SagaPart::Step(step) => self.steps.get(step.place()).map(|step| &step.name),
            SagaPart::Child(child) => self.children.get(child.place()).map(|child| &child.name),
        };
        name.cloned().unwrap_or_default()
    }

    /// Returns the positions of a part in the saga that it is in, in the one around that, and so
    /// on; the started saga comes last.
    pub(crate) fn levels(&self, part: SagaPart) -> impl Iterator<Item = Level> + '_ {
        let around = |level: &Level| level.within.and_then(|it| self.level(SagaPart::Child(it)));
        iter::successors(self.level(part), around)
    }

    /// Returns whether a step is in a child, however deep.
    pub(crate) fn is_within(&self, step: StepRef, child: ChildRef) -> bool {
        self.levels(SagaPart::Step(step)).any(|level| level.within == Some(child))
    }

    /// The step whose output is the part's: itself, or the one that gives the child's.
    #[must_use]
    pub fn source(&self, part: SagaPart) -> Option<StepRef> {
        let inner = |&part: &SagaPart| match part {
            SagaPart::Step(_) => None,
            SagaPart::Child(child) => self.children.get(child.place())?.output,
        };
        // A child's output is of its own (`check_output`), so that this goes inwards and ends.
        let chain = iter::successors(Some(part), inner).take(self.children.len() + 1);
        chain.last().and_then(|last| match last {
            SagaPart::Step(step) => Some(step),
            SagaPart::Child(_) => None,
        })
    }

    /// Returns whether one part comes before another, after it, or beside it.
    pub(crate) fn order(&self, one: SagaPart, other: SagaPart) -> Ordering {
        let meet = self.meet(one, other);
        meet.map_or(Ordering::Equal, |(one, other)| one.group.cmp(&other.group))
    }

    /// Where two parts stand in the innermost saga that has both.
    pub(super) fn meet(&self, one: SagaPart, other: SagaPart) -> Option<(Level, Level)> {
        let others: Vec<_> = self.levels(other).collect();
        self.levels(one).find_map(|level| {
            let other = others.iter().find(|other| other.within == level.within)?;
            Some((level, *other))
        })
    }

    /// Checks that the children form a tree, are not empty, and have names that differ.
    pub(super) fn check_children(&self, limits: &Limits) -> Result<(), SagaFault> {
        // Depths and paths, here and in later checks, follow the parents upwards. In a circle they
        // would never end.
        self.check_tree()?;
        let depth = |part| self.levels(part).count();
        for child in self.each_child() {
            if self.name_of(SagaPart::Child(child)).is_empty() {
                return Err(SagaFault::ChildUnnamed(child.0));
            }
            let (depth, max) = (depth(SagaPart::Child(child)), limits.saga_depth_max);
            if depth > max {
                return Err(SagaFault::TooDeep { depth, max });
            }
            if !self.each_ref().any(|step| self.is_within(step, child)) {
                return Err(SagaFault::ChildEmpty(self.path(SagaPart::Child(child))));
            }
            self.check_output(child)?;
            self.check_child_timeout(child)?;
        }
        self.check_names()
    }

    /// Checks that every part's parent exists, and that children come after their parents.
    pub(super) fn check_tree(&self) -> Result<(), SagaFault> {
        let is_there = |child: ChildRef| child.place() < self.children.len();
        let lost_step = self.steps.iter().find(|step| !step.parent.is_none_or(is_there));
        let lost_child = self.each_child().zip(&self.children);
        let mut lost_child =
            lost_child.filter(|(at, child)| child.parent.is_some_and(|it| it >= *at));
        match (lost_step, lost_child.next()) {
            (None, None) => Ok(()),
            (Some(step), _) => Err(SagaFault::Orphan(step.name.clone())),
            (None, Some((_, child))) => Err(SagaFault::Orphan(child.name.clone())),
        }
    }

    /// Checks that groups count from 0 without a gap, in each of the sagas.
    pub(super) fn check_groups(&self) -> Result<(), SagaFault> {
        let mut last: BTreeMap<Option<ChildRef>, u32> = BTreeMap::new();
        for step in self.each_ref() {
            for level in self.levels(SagaPart::Step(step)) {
                let before = last.insert(level.within, level.group);
                let follows = match before {
                    None => level.group == 0,
                    Some(before) => {
                        level.group == before || Some(level.group) == before.checked_add(1)
                    }
                };
                if !follows {
                    return Err(SagaFault::GroupOutOfOrder(self.path(level.part)));
                }
            }
        }
        Ok(())
    }

    /// Checks that a taken part is in the step's saga or one around it, before it, with output.
    pub(super) fn check_taken(&self, by: StepRef, taken: SagaPart) -> Result<(), SagaFault> {
        let name = || self.path(SagaPart::Step(by));
        let of = self.level(taken).ok_or_else(|| SagaFault::TakesLater(name()))?;
        let mut around = self.levels(SagaPart::Step(by));
        match around.find(|level| level.within == of.within) {
            None => Err(SagaFault::TakesHidden(name())),
            Some(level) if of.group >= level.group => Err(SagaFault::TakesLater(name())),
            Some(_) if self.source(taken).is_none() => {
                Err(SagaFault::NoOutput { step: name(), child: self.path(taken) })
            }
            Some(_) => Ok(()),
        }
    }

    pub(crate) fn each_child(&self) -> impl Iterator<Item = ChildRef> + use<> {
        (0..).map(ChildRef).take(self.children.len())
    }

    pub(super) fn each_ref(&self) -> impl Iterator<Item = StepRef> + use<> {
        (0..).map(StepRef).take(self.steps.len())
    }

    fn level(&self, part: SagaPart) -> Option<Level> {
        let (within, group) = match part {
            SagaPart::Step(step) => {
                self.steps.get(step.place()).map(|step| (step.parent, step.group))?
            }
            SagaPart::Child(child) => {
                self.children.get(child.place()).map(|child| (child.parent, child.group))?
            }
        };
        Some(Level { within, part, group })
    }

    fn check_output(&self, child: ChildRef) -> Result<(), SagaFault> {
        let Some(output) = self.children[child.place()].output else { return Ok(()) };
        let is_own = self.level(output).is_some_and(|level| level.within == Some(child));
        if is_own && self.source(output).is_some() {
            return Ok(());
        }
        Err(SagaFault::Output(self.path(SagaPart::Child(child))))
    }

    /// Checks that a child after the pivot, which is never given up, has no timeout.
    fn check_child_timeout(&self, child: ChildRef) -> Result<(), SagaFault> {
        let part = SagaPart::Child(child);
        let is_after = self.pivot().is_some_and(|pivot| self.order(pivot, part).is_lt());
        if is_after && self.children[child.place()].timeout_ms.is_some() {
            return Err(SagaFault::NeverGivenUp(self.path(part)));
        }
        Ok(())
    }

    fn check_names(&self) -> Result<(), SagaFault> {
        let mut names = BTreeSet::new();
        for part in self.outline() {
            let name = self.path(part);
            if !names.insert(name.clone()) {
                return Err(SagaFault::NamedTwice(name));
            }
        }
        Ok(())
    }
}

impl SagaRecord {
    /// Returns the state of a child, as that of one step which stands for all of its own. Once the
    /// saga has turned back, a child that was not finished counts as failed until its compensation
    /// begins.
    #[must_use]
    pub fn child_state(&self, child: ChildRef) -> StepState {
        let own = || self.each().filter(|(step, ..)| self.definition.is_within(*step, child));
        let any = |state| own().any(|(_, _, record)| record.state == state);
        let all = |state| own().all(|(_, _, record)| record.state == state);
        let owed = || own().any(|(_, definition, record)| is_owed(definition, record));
        let stuck = [StepState::RunningStuck, StepState::CompensatingStuck];
        if let Some(stuck) = stuck.into_iter().find(|&stuck| any(stuck)) {
            return stuck;
        }
        match self.state {
            _ if all(StepState::Waiting) => StepState::Waiting,
            _ if all(StepState::Done) => StepState::Done,
            SagaState::Running | SagaState::Completed(_) => StepState::Running,
            SagaState::Compensating(_) if any(StepState::Compensating) => StepState::Compensating,
            SagaState::Compensating(_) | SagaState::Compensated(..) => {
                let is_compensated = any(StepState::Compensated) && !owed();
                if is_compensated { StepState::Compensated } else { StepState::Failed }
            }
        }
    }
}
