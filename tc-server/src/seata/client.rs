//! The client of a connection, as its registrations describe it.

use std::net::SocketAddr;
use std::sync::Arc;

use handfast_core::Asker;
use handfast_seata_wire::message::{Register, RegisterResources};
use handfast_seata_wire::value::BranchType;
use handfast_seata_wire::{ClientVersion, Dialect, Encoding, Family};
use hashbrown::{HashMap, HashSet};

use super::resource::{is_database, may_hold_password, mode_of, name_of};
use crate::dispatch::{NewProcess, RegisteredResource, ResourceKey};
use crate::presence::client_of;

/// The version with which seata-go registers its TM, without extra data.
const GO_VERSION: &str = "1.1.0";

/// The longest name of a client that is stored with each of its branches.
const NAME_BYTES_MAX: usize = 512;

/// The properties of a client. Its first registration sets its identity; later ones add resources.
#[derive(Clone, Debug)]
pub(super) struct Client {
    peer: SocketAddr,
    /// Its name, unique among all clients.
    pub(super) id: Arc<str>,
    pub(super) application: Arc<str>,
    pub(super) group: Arc<str>,
    pub(super) agent: Arc<str>,
    pub(super) dialect: Dialect,
    /// The encoding of its last message, used for calls to it.
    pub(super) encoding: Encoding,
    pub(super) is_registered: bool,
    /// The client's own names of its registered resources, by the core's names.
    resources: Arc<HashMap<Arc<str>, Arc<str>>>,
    /// The core's names of the resources as databases, by the client's own names.
    databases: Arc<HashMap<Arc<str>, Arc<str>>>,
}

impl Client {
    /// Returns a client that has not registered.
    pub(super) fn unknown(dialect: Dialect, peer: SocketAddr) -> Self {
        Self {
            peer,
            id: format!("?:{peer}").into(),
            application: "?".into(),
            group: "".into(),
            agent: "seata".into(),
            dialect,
            encoding: Encoding::default(),
            is_registered: false,
            resources: Arc::default(),
            databases: Arc::default(),
        }
    }

    /// Applies a registration. Only the first counts, and the `one_way` registration that only
    /// seata-go sends: it identifies seata-go, and may come after the registration of its
    /// resources.
    pub(super) fn introduce(&mut self, register: &Register, one_way: bool) {
        let is_go = one_way && register.version == GO_VERSION && register.extra_data.is_empty();
        if std::mem::replace(&mut self.is_registered, true) && !is_go {
            return;
        }
        let family = if is_go { Family::Go } else { Family::Java };
        let name = if is_go { "seata-go" } else { "seata" };
        self.application = register.application_id.as_str().into();
        self.id = format!("{}:{}", self.application, self.peer).into();
        self.group = register.transaction_service_group.as_str().into();
        self.agent = format!("{name} {}", register.version).into();
        let client = ClientVersion::parse(&register.version);
        self.dialect = Dialect { client, family, ..self.dialect };
    }

    /// Adds resources and returns their form for the dispatcher. Returns `None`, and adds none, if
    /// the client would have more than `max`.
    pub(super) fn add_resources(
        &mut self,
        resources: &RegisterResources,
        max: usize,
    ) -> Option<Vec<RegisteredResource>> {
        self.add_distinct(distinct(resources, max)?, max)
    }

    /// Returns whether a branch that the client registers shows a resource of its own that it has
    /// not registered. seata-go registers its resources on its first connection alone, and a branch
    /// always in the process that ends it. A branch of another client may be an action of TCC that
    /// another process carries out.
    pub(super) fn shows(&self, resource: &str) -> bool {
        let is_known = self.databases.contains_key(resource);
        self.dialect.family == Family::Go && !is_known && !resource.is_empty()
    }

    /// Adds the resource of a branch, as [`Self::add_resources`] does.
    pub(super) fn add_resource(
        &mut self,
        resource: &str,
        max: usize,
    ) -> Option<Vec<RegisteredResource>> {
        self.add_distinct(HashSet::from_iter([resource]), max)
    }

    fn add_distinct(&mut self, ids: HashSet<&str>, max: usize) -> Option<Vec<RegisteredResource>> {
        use BranchType::{At, Saga, SagaAnnotation, Tcc, Xa};
        let mut registered = Vec::new();
        // Changed in copies, so that a list that is too long leaves nothing behind.
        let mut names = HashMap::clone(&self.resources);
        let mut databases = HashMap::clone(&self.databases);
        for id in ids {
            let own: Arc<str> = id.into();
            // A registration does not say what kind of resource it is.
            let kinds: &[BranchType] =
                if is_database(id) { &[At, Xa] } else { &[At, Xa, Saga, Tcc, SagaAnnotation] };
            for &kind in kinds {
                let name = name_of(kind, &self.application, id);
                let shown = label_of(kind, id, &name);
                let key = ResourceKey { id: Arc::clone(&name), mode: mode_of(kind) };
                registered.push(RegisteredResource { key, label: shown });
                if kind == At {
                    databases.insert(Arc::clone(&own), Arc::clone(&name));
                }
                names.insert(name, Arc::clone(&own));
            }
        }
        if names.values().collect::<HashSet<_>>().len() > max {
            return None;
        }
        (self.resources, self.databases) = (Arc::new(names), Arc::new(databases));
        Some(registered)
    }

    /// Returns the core's name for the resource of a branch of this type.
    pub(super) fn name_of(&self, kind: BranchType, resource: &str) -> Arc<str> {
        let is_of_database = matches!(kind, BranchType::At | BranchType::Xa);
        let known = if is_of_database { self.databases.get(resource) } else { None };
        known.map_or_else(|| name_of(kind, &self.application, resource), Arc::clone)
    }

    /// Returns the name that is stored with the client's branches, by which it is later found as
    /// their owner. `None` if the client has not registered, or if the name is too long to be
    /// stored with each branch.
    pub(super) fn registers_as(&self) -> Option<Arc<str>> {
        let is_kept = self.is_registered && self.id.len() <= NAME_BYTES_MAX;
        is_kept.then(|| Arc::clone(&self.id))
    }

    /// Returns the resources that are certainly databases, by the client's own name and the core's.
    /// Returns none for a client that cannot read messages about undo logs.
    pub(super) fn undo_logs(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> {
        let reads = self.dialect.family == Family::Java;
        self.databases.iter().filter(move |(own, _)| reads && is_database(own))
    }

    /// Returns the client's own name of a resource.
    pub(super) fn own_name(&self, resource: &str) -> Option<&Arc<str>> {
        self.resources.get(resource)
    }

    /// Returns the identity under which the client's requests are counted. It is the same for all
    /// processes of an application on one machine, since a connection has no name that the process
    /// keeps on its next connection. Without a registration it is the connection.
    pub(super) fn asker(&self) -> Asker {
        if !self.is_registered {
            return Asker { client: client_of("seata", &self.id), ..Asker::default() };
        }
        let name = format!("{}#{}@{}", self.application, self.group, self.peer.ip());
        Asker { client: client_of("seata", &name), application: Arc::clone(&self.application) }
    }

    pub(super) fn process(&self) -> NewProcess {
        NewProcess {
            client_id: Arc::clone(&self.id),
            application: Arc::clone(&self.application),
            agent: Arc::clone(&self.agent),
            peer: self.peer.to_string().into(),
        }
    }
}

/// Returns the distinct resources of a list, or `None` if there are more than `max` (BOUNDED): a
/// frame has room for millions.
fn distinct(resources: &RegisterResources, max: usize) -> Option<HashSet<&str>> {
    let mut ids = HashSet::new();
    for id in resources.resource_ids() {
        ids.insert(id);
        if ids.len() > max {
            return None;
        }
    }
    Some(ids)
}

/// Returns the label that operators see for a resource. A name that may contain a database password
/// has no label before a branch uses it as an action.
fn label_of(kind: BranchType, id: &str, name: &Arc<str>) -> Option<Arc<str>> {
    let is_masked = matches!(kind, BranchType::At | BranchType::Xa);
    (is_masked || !may_hold_password(id)).then(|| Arc::clone(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn introduced(registrations: &[(&str, bool)]) -> Client {
        let peer = SocketAddr::from(([127, 0, 0, 1], 4_000));
        let mut client = Client::unknown(Dialect::default(), peer);
        for &(version, one_way) in registrations {
            let register = Register { version: version.to_owned(), ..Register::default() };
            client.introduce(&register, one_way);
        }
        client
    }

    /// Each connection of seata-go sends both registrations, in either order.
    #[test]
    fn seata_go_is_recognized_in_either_order() {
        let go = (GO_VERSION, true);
        for registrations in [&[go][..], &[("1.5.2", false), go], &[go, ("1.5.2", false)]] {
            let client = introduced(registrations);
            assert_eq!(client.dialect.family, Family::Go, "{registrations:?}");
            assert_eq!(&*client.agent, "seata-go 1.1.0");
        }
        for registrations in [&[("1.5.2", false)][..], &[("1.5.2", false), ("2.3.0", false)]] {
            let client = introduced(registrations);
            assert_eq!((client.dialect.family, &*client.agent), (Family::Java, "seata 1.5.2"));
        }
    }
}
