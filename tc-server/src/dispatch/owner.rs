//! The owner of a call: the process that registered the branch, by the name that was stored with
//! it.
//!
//! A process is found under its name for as long as it lives, whatever becomes of the coordinator
//! in between. A client of Seata has no such name: its own ends in the port of its connection and
//! is another one after a reconnect, so what stands before the port is looked for then. Several
//! processes may share that; each of them may be the owner.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::call::ProcessId;

/// The connected processes by their names.
#[derive(Debug, Default)]
pub(super) struct ByName {
    /// By what a name keeps when its connection is made again, the earliest connected first.
    kin: BTreeMap<Box<str>, Vec<(ProcessId, Arc<str>)>>,
}

impl ByName {
    pub(super) fn add(&mut self, id: ProcessId, name: &Arc<str>) {
        self.kin.entry(lasting(name).into()).or_default().push((id, Arc::clone(name)));
    }

    pub(super) fn remove(&mut self, id: ProcessId, name: &str) {
        let Some(kin) = self.kin.get_mut(lasting(name)) else { return };
        kin.retain(|(other, _)| *other != id);
        if kin.is_empty() {
            self.kin.remove(lasting(name));
        }
    }

    /// Of the processes that fit those that are the owner or, where it is not among them, may be.
    pub(super) fn owners(
        &self,
        owner: &str,
        fits: impl Fn(ProcessId) -> bool + Copy,
    ) -> impl Iterator<Item = ProcessId> + Clone {
        let kin = self.kin.get(lasting(owner)).into_iter().flatten();
        let kin = kin.filter(move |(id, _)| fits(*id));
        let is_there = kin.clone().any(|(_, name)| **name == *owner);
        let owners = kin.filter(move |(_, name)| !is_there || **name == *owner);
        owners.map(|(id, _)| *id)
    }
}

/// What a name keeps when its connection is made again: all of it but a port at its end.
pub(super) fn lasting(name: &str) -> &str {
    match name.rsplit_once(':') {
        Some((rest, port)) if port.parse::<u16>().is_ok() => rest,
        Some(_) | None => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_at_the_end_does_not_last() {
        for (name, expected) in [
            ("shop:10.0.0.1:51234", "shop:10.0.0.1"),
            ("shop:[::1]:51234", "shop:[::1]"),
            ("8f14e45f-ceea-467f-a0e6-8c1f2d3a4b5c", "8f14e45f-ceea-467f-a0e6-8c1f2d3a4b5c"),
            ("shop:worker", "shop:worker"),
            ("", ""),
        ] {
            assert_eq!(lasting(name), expected);
        }
    }

    #[test]
    fn the_owner_is_found_by_its_name_and_else_those_that_may_be_it() {
        let mut names = ByName::default();
        for (id, name) in [(1, "shop:a:1"), (2, "shop:a:2"), (3, "shop:b:1"), (4, "x")] {
            names.add(ProcessId(id), &name.into());
        }
        let owners = |names: &ByName, owner| names.owners(owner, |_| true).collect::<Vec<_>>();
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
