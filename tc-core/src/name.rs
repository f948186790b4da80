//! Names that many globals share: one copy of each text, and of each combination that recurs.
//!
//! Every request brings texts of its own; here they become shared ones, so that a million open
//! globals cost pointers. What nobody refers to any more is swept out as the tables grow (BOUNDED).

use std::hash::Hash;
use std::sync::Arc;

use crate::index::{Index, hash_of};

/// Below this many entries a table is not worth sweeping.
const SWEEP_MIN: usize = 1_024;

/// Where a global comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    /// The address part of the XID's text form.
    pub(crate) address: Arc<str>,
    pub(crate) application: Arc<str>,
    pub(crate) name: Arc<str>,
}

/// A table of a resource: what a row key is unique within.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Space {
    pub(crate) resource: Arc<str>,
    pub(crate) table: Arc<str>,
}

/// The shared copies.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    texts: Interner<str>,
    origins: Interner<Origin>,
    spaces: Interner<Space>,
}

impl Names {
    pub(crate) fn new() -> Self {
        Self { texts: Interner::new(), origins: Interner::new(), spaces: Interner::new() }
    }

    pub(crate) fn text(&mut self, text: &Arc<str>) -> Arc<str> {
        self.texts.intern(text, || text.clone())
    }

    /// As [`text`](Self::text), for text that is not shared yet.
    pub(crate) fn text_of(&mut self, text: &str) -> Arc<str> {
        self.texts.intern(text, || Arc::from(text))
    }

    pub(crate) fn origin(&mut self, origin: &Origin) -> Arc<Origin> {
        let texts = &mut self.texts;
        let mut shared = |text: &Arc<str>| texts.intern(text, || text.clone());
        self.origins.intern(origin, || {
            Arc::new(Origin {
                address: shared(&origin.address),
                application: shared(&origin.application),
                name: shared(&origin.name),
            })
        })
    }

    pub(crate) fn space(&mut self, resource: &Arc<str>, table: &Arc<str>) -> Arc<Space> {
        let space = Space { resource: resource.clone(), table: table.clone() };
        let texts = &mut self.texts;
        let mut shared = |text: &Arc<str>| texts.intern(text, || text.clone());
        self.spaces.intern(&space, || {
            Arc::new(Space { resource: shared(&space.resource), table: shared(&space.table) })
        })
    }
}

/// One shared copy of every value that is in use.
#[derive(Debug)]
struct Interner<T: ?Sized> {
    known: Index<Arc<T>>,
    sweep_at: usize,
}

impl<T: ?Sized> Clone for Interner<T> {
    fn clone(&self) -> Self {
        Self { known: self.known.clone(), sweep_at: self.sweep_at }
    }
}

impl<T: ?Sized + Hash + Eq> Interner<T> {
    fn new() -> Self {
        Self { known: Index::new(), sweep_at: SWEEP_MIN }
    }

    fn intern(&mut self, value: &T, share: impl FnOnce() -> Arc<T>) -> Arc<T> {
        let hash = hash_of(value);
        if let Some(known) = self.known.find(hash, |known| **known == *value) {
            return known.clone();
        }
        if self.known.len() >= self.sweep_at {
            self.known.sweep(|known| Arc::strong_count(known) > 1);
            self.sweep_at = SWEEP_MIN.max(self.known.len().saturating_mul(2));
        }
        let shared = share();
        self.known.insert(hash, shared.clone(), |known| hash_of(&**known));
        shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_become_one() {
        let mut names = Names::new();
        let first = names.text(&Arc::from("orders"));
        let second = names.text(&Arc::from("orders"));
        assert!(Arc::ptr_eq(&first, &second));
    }

    #[test]
    fn what_nobody_uses_is_swept_and_what_is_used_stays() {
        let mut names = Names::new();
        let kept = names.text_of("kept");
        for number in 0..10 * SWEEP_MIN {
            names.text_of(&number.to_string());
        }
        assert!(names.texts.known.len() <= SWEEP_MIN + 1);
        assert!(Arc::ptr_eq(&kept, &names.text_of("kept")));
    }
}
