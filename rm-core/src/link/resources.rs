//! The resources of this process, and which of them the coordinator has accepted.
//!
//! The coordinator refuses an announcement as a whole. After a refusal its resources are announced
//! one by one, and one that is refused alone is dropped. `Hello`, whose refusal would end the
//! connection, carries only accepted resources.

use std::collections::{BTreeMap, VecDeque};

use handfast_proto::v1::Resource;

use super::event::RequestId;

/// The resources by state: each is in one of three.
#[derive(Debug, Default)]
pub(super) struct Resources {
    accepted: Vec<Resource>,
    /// Not announced on this connection yet.
    waiting: VecDeque<Resource>,
    /// Announced, and not answered yet.
    asked: BTreeMap<RequestId, Vec<Resource>>,
    /// After a refusal, until nothing waits.
    is_one_by_one: bool,
}

impl Resources {
    pub(super) fn add(&mut self, resource: Resource) {
        let is_it = |known: &Resource| known.id == resource.id && known.mode == resource.mode;
        let mut known =
            self.accepted.iter().chain(&self.waiting).chain(self.asked.values().flatten());
        if !known.any(is_it) {
            self.waiting.push_back(resource);
        }
    }

    /// Returns the accepted resources, for the greeting.
    pub(super) fn accepted(&self) -> Vec<Resource> {
        self.accepted.clone()
    }

    /// Returns whether a resource is to be announced.
    pub(super) fn wait(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes the resources to announce under this id.
    pub(super) fn announce(&mut self, id: RequestId) -> Vec<Resource> {
        let count = if self.is_one_by_one { 1 } else { self.waiting.len() };
        let resources: Vec<Resource> =
            self.waiting.drain(..count.min(self.waiting.len())).collect();
        self.is_one_by_one &= !self.waiting.is_empty();
        self.asked.insert(id, resources.clone());
        resources
    }

    /// Accepts the resources of an announcement.
    pub(super) fn accept(&mut self, id: RequestId) {
        self.accepted.extend(self.asked.remove(&id).into_iter().flatten());
    }

    /// Returns whether the id is that of an announcement that was not answered yet.
    pub(super) fn are_asked(&self, id: RequestId) -> bool {
        self.asked.contains_key(&id)
    }

    /// Takes note of a refused announcement. Returns its resource if it had only one, which is
    /// dropped.
    pub(super) fn refuse(&mut self, id: RequestId) -> Option<Resource> {
        let mut refused = self.asked.remove(&id)?;
        if refused.len() == 1 {
            return refused.pop();
        }
        self.is_one_by_one = true;
        self.waiting.extend(refused);
        None
    }

    /// Takes note of a lost connection: resources without an answer are announced on the next one.
    pub(super) fn start_over(&mut self) {
        let asked = std::mem::take(&mut self.asked).into_values().flatten();
        self.waiting = asked.chain(std::mem::take(&mut self.waiting)).collect();
    }
}
