//! Finds the global that was begun with a key, so that a begin whose reply was lost can be
//! repeated.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::contract::Xid;

/// The keys of unfinished and remembered globals. A global without one takes no room.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BeginKeys {
    globals: BTreeMap<(Arc<str>, Arc<str>), Xid>,
}

impl BeginKeys {
    pub(crate) fn find(&self, application: &Arc<str>, key: &Arc<str>) -> Option<Xid> {
        self.globals.get(&(application.clone(), key.clone())).copied()
    }

    pub(crate) fn insert(&mut self, application: &Arc<str>, key: Option<&Arc<str>>, xid: Xid) {
        if let Some(key) = key {
            self.globals.insert((application.clone(), key.clone()), xid);
        }
    }

    /// Forgets a global. Its key begins another one from then on.
    pub(crate) fn remove(&mut self, application: &Arc<str>, key: Option<&Arc<str>>) {
        if let Some(key) = key {
            self.globals.remove(&(application.clone(), key.clone()));
        }
    }
}
