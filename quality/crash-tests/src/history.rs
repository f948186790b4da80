//! The operations on lists as the services reported them, and a judge of their consistency.
//!
//! Every operation appends its own number to some lists and reads others. A list keeps the order of
//! its appends, so that what was read, and what is there in the end, tells which operation saw
//! which: lost, dirty, torn, doubled and stale effects become visible, and so does any order of
//! operations that no serial run could have. Pure: no process, no database.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

mod order;

#[cfg(test)]
mod tests;

/// A list: which database it is in, and its number there.
pub type List = (usize, i64);

/// An operation's number, which is the element that it appends.
pub type Element = u64;

/// The end of an operation, as far as the service that ran it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The commit was acknowledged.
    Committed,
    /// The answer was that nothing of it stays.
    RolledBack,
    /// No end was reported: a timeout, or the process died.
    Unknown,
}

/// The kind of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reading {
    /// Under a global lock that is held until the end of the global.
    Locked,
    /// Globally committed, holding nothing afterwards.
    Committed,
}

/// A list as an operation found it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Read {
    /// The list.
    pub list: List,
    /// How.
    pub reading: Reading,
    /// Its content.
    pub elements: Vec<Element>,
}

/// One operation. Times are of one clock that all processes share.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Its number.
    pub element: Element,
    /// Before anything was asked for.
    pub began: u64,
    /// A time after its end was known, if the end was reported.
    pub ended: Option<u64>,
    /// Its end.
    pub outcome: Outcome,
    /// The lists that it appends to.
    pub appends: BTreeSet<List>,
    /// The lists that it read, before its own appends.
    pub reads: Vec<Read>,
}

/// Something that must not happen.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Anomaly {
    /// A commit was acknowledged and its effect is not there in the end.
    Lost { element: Element, list: List },
    /// An operation that was rolled back left an effect.
    Undead { element: Element, list: List },
    /// Some of an operation's effects are there in the end and others are not.
    Torn { element: Element, missing: List },
    /// An effect happened more than once.
    Doubled { element: Element, list: List },
    /// An element that no operation appends there.
    Foreign { element: Element, list: List },
    /// A committed read saw what was rolled back in the end.
    DirtyRead { reader: Element, element: Element, list: List },
    /// A read under locks saw one effect of an operation and missed another.
    TornRead { reader: Element, element: Element, missing: List },
    /// A read does not see what was acknowledged before it began.
    StaleRead { reader: Element, element: Element, list: List },
    /// A read is not the beginning of what the list came to.
    ReadOutOfOrder { reader: Element, list: List },
    /// No serial run could have this outcome: in a cycle, each operation must precede the next.
    Cycle { elements: Vec<Element> },
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// Judges a history by the lists as they were in the end, when nothing was under way any more.
#[must_use]
pub fn judge(operations: &[Operation], last: &BTreeMap<List, Vec<Element>>) -> Vec<Anomaly> {
    let judge = Judge::new(operations, last);
    let mut found = Vec::new();
    for (list, elements) in last {
        judge.check_list(*list, elements, &mut found);
    }
    for operation in operations {
        judge.check_effects(operation, &mut found);
        // An operation not known to have committed may have read a state in between.
        if operation.outcome == Outcome::Committed {
            for read in &operation.reads {
                judge.check_read(operation, read, &mut found);
            }
            judge.check_torn_reads(operation, &mut found);
        }
    }
    found.extend(order::cycle(operations, last).map(|elements| Anomaly::Cycle { elements }));
    found.sort();
    found.dedup();
    found
}

struct Judge<'h> {
    operations: BTreeMap<Element, &'h Operation>,
    last: &'h BTreeMap<List, Vec<Element>>,
}

impl<'h> Judge<'h> {
    fn new(operations: &'h [Operation], last: &'h BTreeMap<List, Vec<Element>>) -> Self {
        let operations = operations.iter().map(|operation| (operation.element, operation));
        Self { operations: operations.collect(), last }
    }

    fn check_list(&self, list: List, elements: &[Element], found: &mut Vec<Anomaly>) {
        let mut seen = BTreeSet::new();
        for &element in elements {
            if !seen.insert(element) {
                found.push(Anomaly::Doubled { element, list });
            }
            let by = self.operations.get(&element);
            if by.is_none_or(|by| !by.appends.contains(&list)) {
                found.push(Anomaly::Foreign { element, list });
            }
        }
    }

    fn check_effects(&self, operation: &Operation, found: &mut Vec<Anomaly>) {
        let element = operation.element;
        let there = |list: &List| self.list(*list).contains(&element);
        let any = operation.appends.iter().any(there);
        for &list in &operation.appends {
            match (operation.outcome, there(&list)) {
                (Outcome::Committed, false) => found.push(Anomaly::Lost { element, list }),
                (Outcome::RolledBack, true) => found.push(Anomaly::Undead { element, list }),
                (Outcome::Unknown, false) if any => {
                    found.push(Anomaly::Torn { element, missing: list });
                }
                _ => {}
            }
        }
    }

    fn check_read(&self, reader: &Operation, read: &Read, found: &mut Vec<Anomaly>) {
        let (list, last) = (read.list, self.list(read.list));
        for element in read.elements.iter().filter(|element| !last.contains(element)) {
            let (reader, element) = (reader.element, *element);
            found.push(Anomaly::DirtyRead { reader, element, list });
        }
        if !last.starts_with(&read.elements) {
            found.push(Anomaly::ReadOutOfOrder { reader: reader.element, list });
        }
        let seen: BTreeSet<Element> = read.elements.iter().copied().collect();
        for element in last.iter().filter(|element| !seen.contains(element)) {
            let by = self.operations.get(element);
            if by.and_then(|by| by.ended).is_some_and(|ended| ended < reader.began) {
                let (reader, element) = (reader.element, *element);
                found.push(Anomaly::StaleRead { reader, element, list });
            }
        }
    }

    fn check_torn_reads(&self, reader: &Operation, found: &mut Vec<Anomaly>) {
        let locked = || reader.reads.iter().filter(|read| read.reading == Reading::Locked);
        for element in locked().flat_map(|read| &read.elements) {
            let Some(by) = self.operations.get(element) else { continue };
            for other in locked().filter(|other| by.appends.contains(&other.list)) {
                if !other.elements.contains(element) {
                    let (reader, element, missing) = (reader.element, *element, other.list);
                    found.push(Anomaly::TornRead { reader, element, missing });
                }
            }
        }
    }

    fn list(&self, list: List) -> &'h [Element] {
        self.last.get(&list).map_or(&[], Vec::as_slice)
    }
}
