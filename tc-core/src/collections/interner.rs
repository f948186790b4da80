//! Names that many globals share: one copy of each text, and of each combination that recurs.
//!
//! Every request brings texts of its own; here they become shared ones, so that a million open
//! globals cost pointers. Unused copies are swept out as the tables grow (BOUNDED).

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::hash_index::{HashIndex, hash_of};
use crate::contract::ClientId;

/// Below this many entries a table is not worth sweeping.
const SWEEP_MIN: usize = 1_024;

/// Where a global comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    /// The address part of the XID's text form.
    pub(crate) address: Arc<str>,
    pub(crate) application: Arc<str>,
    pub(crate) name: Arc<str>,
    /// The client that began it, or that has taken it over; none since a restart.
    pub(crate) client: ClientId,
}

/// Where a branch runs, and the process that registered it, where that is known.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BranchSite {
    pub(crate) resource: Arc<str>,
    pub(crate) registered_by: Option<Arc<str>>,
}

/// A table of a resource: what a row key is unique within.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Space {
    pub(crate) resource: Arc<str>,
    pub(crate) table: Arc<str>,
    hash: u64,
}

impl Space {
    pub(crate) fn new(resource: Arc<str>, table: Arc<str>) -> Self {
        let hash = hash_of(&(&*resource, &*table));
        Self { resource, table, hash }
    }
}

impl Hash for Space {
    /// Hashes a stored number: rows are looked up far more often than a table is interned.
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// The shared copies.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    texts: Interner<Arc<str>>,
    origins: Interner<Origin>,
    sites: Interner<BranchSite>,
    spaces: Interner<Space>,
}

impl Names {
    pub(crate) fn new() -> Self {
        Self {
            texts: Interner::new(),
            origins: Interner::new(),
            sites: Interner::new(),
            spaces: Interner::new(),
        }
    }

    pub(crate) fn text(&mut self, text: &Arc<str>) -> Arc<str> {
        self.texts.shared(text)
    }

    /// As [`text`](Self::text), for text that is not shared yet.
    pub(crate) fn text_of(&mut self, text: &str) -> Arc<str> {
        Arc::clone(&self.texts.intern(text, || Arc::from(text)))
    }

    pub(crate) fn origin(&mut self, origin: &Origin) -> Arc<Origin> {
        let texts = &mut self.texts;
        self.origins.intern(origin, || Origin {
            address: texts.shared(&origin.address),
            application: texts.shared(&origin.application),
            name: texts.shared(&origin.name),
            client: origin.client,
        })
    }

    pub(crate) fn site(
        &mut self,
        resource: &Arc<str>,
        registered_by: Option<&Arc<str>>,
    ) -> Arc<BranchSite> {
        let site = BranchSite { resource: resource.clone(), registered_by: registered_by.cloned() };
        let texts = &mut self.texts;
        self.sites.intern(&site, || BranchSite {
            resource: texts.shared(resource),
            registered_by: registered_by.map(|process| texts.shared(process)),
        })
    }

    pub(crate) fn space(&mut self, resource: &Arc<str>, table: &Arc<str>) -> Arc<Space> {
        let space = Space::new(resource.clone(), table.clone());
        let texts = &mut self.texts;
        self.spaces.intern(&space, || {
            Space::new(texts.shared(&space.resource), texts.shared(&space.table))
        })
    }
}

impl Interner<Arc<str>> {
    fn shared(&mut self, text: &Arc<str>) -> Arc<str> {
        Arc::clone(&self.intern(&**text, || text.clone()))
    }
}

/// One shared copy of every value that is in use.
#[derive(Clone, Debug)]
struct Interner<T> {
    known: HashIndex<Arc<T>>,
    sweep_at: usize,
}

impl<T: Hash + Eq + Shared> Interner<T> {
    fn new() -> Self {
        Self { known: HashIndex::new(), sweep_at: SWEEP_MIN }
    }

    fn intern<Q>(&mut self, value: &Q, make: impl FnOnce() -> T) -> Arc<T>
    where
        T: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = hash_of(value);
        if let Some(known) = self.known.find(hash, |known| (**known).borrow() == value) {
            return known.clone();
        }
        // The table is swept whenever it has doubled, so that the cost per entry is constant.
        if self.known.len() >= self.sweep_at {
            self.known.sweep(|known| Arc::strong_count(known) > 1 || known.is_shared());
            self.sweep_at = SWEEP_MIN.max(self.known.len().saturating_mul(2));
        }
        let shared = Arc::new(make());
        self.known.insert(hash, shared.clone(), |known| hash_of(&**known));
        shared
    }
}

/// Values that may be in use outside the table, directly or by their parts.
trait Shared {
    fn is_shared(&self) -> bool;
}

impl Shared for Arc<str> {
    fn is_shared(&self) -> bool {
        Self::strong_count(self) > 1
    }
}

impl Shared for Origin {
    fn is_shared(&self) -> bool {
        false
    }
}

impl Shared for BranchSite {
    fn is_shared(&self) -> bool {
        false
    }
}

impl Shared for Space {
    fn is_shared(&self) -> bool {
        false
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
    fn unused_texts_are_swept_and_used_ones_stay() {
        let mut names = Names::new();
        let kept = names.text_of("kept");
        for number in 0..10 * SWEEP_MIN {
            names.text_of(&number.to_string());
        }
        assert!(names.texts.known.len() <= SWEEP_MIN + 1);
        assert!(Arc::ptr_eq(&kept, &names.text_of("kept")));
    }
}
