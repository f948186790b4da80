//! The structure of a saga for drawing: groups of parts, some of which are children with groups of
//! their own.

use handfast_core::{ChildRef, SagaDefinition, SagaPart, StepKind, StepRef};

/// Groups run one after the other; the elements of a group run concurrently.
pub(super) type Groups = Vec<Vec<Element>>;

/// An element of a group.
#[derive(Clone)]
pub(super) enum Element {
    Step(StepRef),
    Child(ChildRef, Groups),
}

impl Element {
    pub(super) fn part(&self) -> SagaPart {
        match self {
            Self::Step(step) => SagaPart::Step(*step),
            Self::Child(child, _) => SagaPart::Child(*child),
        }
    }
}

/// Returns the groups of the whole saga.
pub(super) fn forwards(saga: &SagaDefinition) -> Groups {
    groups(saga, None, &saga.outline())
}

/// Returns the steps whose compensations are called, in their order.
pub(super) fn backwards(saga: &SagaDefinition) -> Groups {
    reversed(saga, forwards(saga))
}

/// Returns the first steps of an element.
pub(super) fn entries(element: &Element) -> Vec<StepRef> {
    ends(element, |groups| groups.first(), entries)
}

/// Returns the last steps of an element.
pub(super) fn exits(element: &Element) -> Vec<StepRef> {
    ends(element, |groups| groups.last(), exits)
}

fn groups(saga: &SagaDefinition, within: Option<ChildRef>, outline: &[SagaPart]) -> Groups {
    let mut groups = Groups::new();
    for &part in outline {
        let (parent, group) = place(saga, part);
        if parent != within {
            continue;
        }
        let element = match part {
            SagaPart::Step(step) => Element::Step(step),
            SagaPart::Child(child) => {
                Element::Child(child, self::groups(saga, Some(child), outline))
            }
        };
        match groups.get_mut(group as usize) {
            Some(beside) => beside.push(element),
            None => groups.push(vec![element]),
        }
    }
    groups
}

fn place(saga: &SagaDefinition, part: SagaPart) -> (Option<ChildRef>, u32) {
    match part {
        SagaPart::Step(step) => {
            let step = &saga.steps[step.0 as usize];
            (step.parent, step.group)
        }
        SagaPart::Child(child) => {
            let child = &saga.children[child.0 as usize];
            (child.parent, child.group)
        }
    }
}

fn reversed(saga: &SagaDefinition, groups: Groups) -> Groups {
    let compensated = |element| match element {
        Element::Step(step) => {
            let kind = saga.steps[step.0 as usize].kind;
            (kind == StepKind::Compensable).then_some(Element::Step(step))
        }
        Element::Child(child, groups) => {
            let groups = reversed(saga, groups);
            (!groups.is_empty()).then_some(Element::Child(child, groups))
        }
    };
    let groups = groups.into_iter().rev();
    let groups = groups.map(|group| group.into_iter().filter_map(compensated).collect::<Vec<_>>());
    groups.filter(|group| !group.is_empty()).collect()
}

fn ends(
    element: &Element,
    end: fn(&[Vec<Element>]) -> Option<&Vec<Element>>,
    inner: fn(&Element) -> Vec<StepRef>,
) -> Vec<StepRef> {
    match element {
        Element::Step(step) => vec![*step],
        Element::Child(_, groups) => end(groups).into_iter().flatten().flat_map(inner).collect(),
    }
}
