//! Parts that many records have in common: one shared copy for records that are decoded after each
//! other, so that millions of them do not each allocate their own.
//!
//! A copy is shared by some hundreds of records and not by all. One thread decodes records while
//! another one makes a coordinator of those before them, and a count of owners that two processors
//! change in turns takes longer than an allocation.

use std::sync::Arc;

use handfast_core::{Event, FinishedBranch};

/// Distinct texts that are looked through (BOUNDED). Records of one kind of globals have six.
const TEXTS_MAX: usize = 16;
/// Texts that are given out before new copies are made.
const USES_MAX: usize = 2_048;

#[derive(Debug, Default)]
pub(super) struct Recurring {
    texts: Vec<Arc<str>>,
    uses: usize,
    no_events: Arc<[Event]>,
    no_branches: Arc<[FinishedBranch]>,
}

impl Recurring {
    /// Returns a shared copy of a text.
    pub(super) fn text(&mut self, text: &str) -> Arc<str> {
        self.uses += 1;
        if self.uses > USES_MAX {
            self.forget();
        }
        if let Some(known) = self.texts.iter().find(|known| &***known == text) {
            return Arc::clone(known);
        }
        let shared: Arc<str> = text.into();
        if self.texts.len() < TEXTS_MAX {
            self.texts.push(Arc::clone(&shared));
        }
        shared
    }

    /// Returns these events, the empty ones shared.
    pub(super) fn events(&self, events: impl ExactSizeIterator<Item = Event>) -> Arc<[Event]> {
        if events.len() == 0 { Arc::clone(&self.no_events) } else { events.collect() }
    }

    /// Returns these branches, the empty ones shared.
    pub(super) fn branches(&self, branches: Vec<FinishedBranch>) -> Arc<[FinishedBranch]> {
        if branches.is_empty() { Arc::clone(&self.no_branches) } else { branches.into() }
    }

    fn forget(&mut self) {
        self.uses = 0;
        self.texts.clear();
        // Not the default, which is one for the whole process.
        self.no_events = Arc::from([]);
        self.no_branches = Arc::from([]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_share_a_copy_for_a_while() {
        let mut recurring = Recurring::default();
        let [first, other, second] = ["a", "b", "a"].map(|text| recurring.text(text));
        assert!(Arc::ptr_eq(&first, &second) && !Arc::ptr_eq(&first, &other));
        (0..USES_MAX).for_each(|_| drop(recurring.text("b")));
        let later = recurring.text("a");
        assert!(later == first && !Arc::ptr_eq(&first, &later));
    }

    #[test]
    fn more_texts_than_are_looked_through_are_not_shared() {
        let mut recurring = Recurring::default();
        (0..TEXTS_MAX).for_each(|number| drop(recurring.text(&number.to_string())));
        let [first, second] = ["x", "x"].map(|text| recurring.text(text));
        assert!(first == second && !Arc::ptr_eq(&first, &second));
        assert_eq!(recurring.texts.len(), TEXTS_MAX);
    }
}
