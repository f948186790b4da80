//! The owner of a call: the process that registered the branch, by the name that was stored with
//! it.
//!
//! A native process keeps its name for its whole life, across restarts of the coordinator. The name
//! of a client of Seata ends in the port of its connection and so changes with a reconnect. If the
//! exact name is not connected, the part before the port is looked up. Several processes may share
//! that part, and each of them may be the owner.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::call::ProcessId;

/// The connected processes by their names.
#[derive(Debug, Default)]
pub(super) struct ProcessNames {
    /// By name without port, the earliest connected first.
    candidates: BTreeMap<Box<str>, Vec<(ProcessId, Arc<str>)>>,
}

impl ProcessNames {
    pub(super) fn add(&mut self, id: ProcessId, name: &Arc<str>) {
        self.candidates.entry(without_port(name).into()).or_default().push((id, Arc::clone(name)));
    }

    pub(super) fn remove(&mut self, id: ProcessId, name: &str) {
        let Some(candidates) = self.candidates.get_mut(without_port(name)) else { return };
        candidates.retain(|(other, _)| *other != id);
        if candidates.is_empty() {
            self.candidates.remove(without_port(name));
        }
    }

    /// Returns, of the processes that fit, the owner. If it is not among them, returns those that
    /// may be the owner.
    pub(super) fn owners(
        &self,
        owner: &str,
        fits: impl Fn(ProcessId) -> bool + Copy,
    ) -> impl Iterator<Item = ProcessId> + Clone {
        let candidates = self.candidates.get(without_port(owner)).into_iter().flatten();
        let candidates = candidates.filter(move |(id, _)| fits(*id));
        let is_there = candidates.clone().any(|(_, name)| **name == *owner);
        let owners = candidates.filter(move |(_, name)| !is_there || **name == *owner);
        owners.map(|(id, _)| *id)
    }
}

/// Returns a name without the port at its end, which is the part that survives a reconnect.
pub(super) fn without_port(name: &str) -> &str {
    match name.rsplit_once(':') {
        Some((rest, port)) if port.parse::<u16>().is_ok() => rest,
        Some(_) | None => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_port_at_the_end_is_cut_off() {
        for (name, expected) in [
            ("shop:10.0.0.1:51234", "shop:10.0.0.1"),
            ("shop:[::1]:51234", "shop:[::1]"),
            ("8f14e45f-ceea-467f-a0e6-8c1f2d3a4b5c", "8f14e45f-ceea-467f-a0e6-8c1f2d3a4b5c"),
            ("shop:worker", "shop:worker"),
            ("", ""),
        ] {
            assert_eq!(without_port(name), expected);
        }
    }

    #[test]
    fn owners_are_found_by_name_then_by_name_without_port() {
        let mut names = ProcessNames::default();
        for (id, name) in [(1, "shop:a:1"), (2, "shop:a:2"), (3, "shop:b:1"), (4, "x")] {
            names.add(ProcessId(id), &name.into());
        }
        let owners =
            |names: &ProcessNames, owner| names.owners(owner, |_| true).collect::<Vec<_>>();
        assert_eq!(owners(&names, "shop:a:2"), [ProcessId(2)]);
        assert_eq!(owners(&names, "shop:a:7"), [ProcessId(1), ProcessId(2)]);
        let without_it = names.owners("shop:a:2", |id| id == ProcessId(1));
        assert_eq!(without_it.collect::<Vec<_>>(), [ProcessId(1)]);
        assert_eq!(owners(&names, "x"), [ProcessId(4)]);
        assert_eq!(owners(&names, "y"), []);
        names.remove(ProcessId(2), "shop:a:2");
        assert_eq!(owners(&names, "shop:a:2"), [ProcessId(1)]);
    }
}
