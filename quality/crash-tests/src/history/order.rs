//! Finds whether one order of the operations explains all that they read.
//!
//! An operation comes before another if its element stands before the other's in a list, if the
//! other saw it, or if it read a list under locks and did not see the other. A cycle means that no
//! order explains them.

use std::collections::{BTreeMap, BTreeSet};

use super::{Element, List, Operation, Outcome, Reading};

type Arrows = BTreeMap<Element, BTreeSet<Element>>;

/// Returns the operations on cycles and between them, if there is a cycle.
pub(super) fn cycle(
    operations: &[Operation],
    last: &BTreeMap<List, Vec<Element>>,
) -> Option<Vec<Element>> {
    let mut arrows = Arrows::new();
    for elements in last.values() {
        // Neighbours are enough: the order goes on from one to the next.
        for pair in elements.windows(2) {
            add(&mut arrows, pair[0], pair[1]);
        }
    }
    // A read under locks counts only if the locks were held to the end.
    let readers = operations.iter().filter(|operation| operation.outcome == Outcome::Committed);
    for reader in readers {
        for read in reader.reads.iter().filter(|read| read.reading == Reading::Locked) {
            let elements = last.get(&read.list).map_or(&[][..], Vec::as_slice);
            // A read is taken for a beginning of the list. `check_read` reports one that is not.
            let seen = read.elements.len().min(elements.len());
            if let Some(before) = seen.checked_sub(1) {
                add(&mut arrows, elements[before], reader.element);
            }
            if let Some(after) = elements.get(seen) {
                add(&mut arrows, reader.element, *after);
            }
        }
    }
    let left = without_ends(without_ends(arrows, Direction::Forward), Direction::Backward);
    (!left.is_empty()).then(|| left.into_keys().collect())
}

fn add(arrows: &mut Arrows, from: Element, to: Element) {
    // An operation that reads a list and appends to it comes before and after itself.
    if from != to {
        arrows.entry(from).or_default().insert(to);
        arrows.entry(to).or_default();
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// Removes operations that no other comes after, or before, until there is none.
fn without_ends(arrows: Arrows, direction: Direction) -> Arrows {
    let mut forward = arrows;
    let mut backward = turned(&forward);
    if direction == Direction::Backward {
        std::mem::swap(&mut forward, &mut backward);
    }
    let ends = |arrows: &Arrows| -> Vec<Element> {
        arrows.iter().filter(|(_, to)| to.is_empty()).map(|(from, _)| *from).collect()
    };
    let mut due = ends(&forward);
    while let Some(end) = due.pop() {
        forward.remove(&end);
        for before in backward.remove(&end).unwrap_or_default() {
            let Some(left) = forward.get_mut(&before) else { continue };
            left.remove(&end);
            if left.is_empty() {
                due.push(before);
            }
        }
    }
    if direction == Direction::Backward { turned(&forward) } else { forward }
}

fn turned(arrows: &Arrows) -> Arrows {
    let mut turned: Arrows = arrows.keys().map(|from| (*from, BTreeSet::new())).collect();
    for (from, to) in arrows {
        for to in to {
            turned.entry(*to).or_default().insert(*from);
        }
    }
    turned
}
