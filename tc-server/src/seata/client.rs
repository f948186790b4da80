//! Who is at the other end of a connection: what its registrations said.

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

/// seata-go registers its TM with this version and nothing else to say.
const GO_VERSION: &str = "1.1.0";

/// The longest name of a client that is stored with each of its branches.
const NAME_BYTES_MAX: usize = 512;

/// What is known of the client. The first registration says who it is; later ones add resources.
#[derive(Clone, Debug)]
pub(super) struct Client {
    peer: SocketAddr,
    /// Its name among all clients.
    pub(super) id: Arc<str>,
    pub(super) application: Arc<str>,
    pub(super) group: Arc<str>,
    pub(super) agent: Arc<str>,
    pub(super) dialect: Dialect,
    /// What it wrote last, and is asked in.
    pub(super) encoding: Encoding,
    pub(super) is_registered: bool,
    /// The client's own names of what it registered, by the core's.
    resources: Arc<HashMap<Arc<str>, Arc<str>>>,
    /// The core's names of those as databases, by the client's own.
    databases: Arc<HashMap<Arc<str>, Arc<str>>>,
}

impl Client {
    /// Somebody who has not said who it is.
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

    /// Takes a registration in: the first, and that which only seata-go sends, `one_way`. It says
    /// who seata-go is, and may come after the one of its resources.
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

    /// Notes the resources and gives back what the dispatcher is to know of them; `None` if there
    /// are more than allowed, and then none is noted.
    pub(super) fn add_resources(
        &mut self,
        resources: &RegisterResources,
        max: usize,
    ) -> Option<Vec<RegisteredResource>> {
        use BranchType::{At, Saga, SagaAnnotation, Tcc, Xa};
        let ids = distinct(resources, max)?;
        let mut registered = Vec::new();
        let mut names = HashMap::clone(&self.resources);
        let mut databases = HashMap::clone(&self.databases);
        for id in ids {
            let own: Arc<str> = id.into();
            // A client does not say what a resource is.
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

    /// The core's name for the resource of a branch of this type.
    pub(super) fn name_of(&self, kind: BranchType, resource: &str) -> Arc<str> {
        let is_of_database = matches!(kind, BranchType::At | BranchType::Xa);
        let known = if is_of_database { self.databases.get(resource) } else { None };
        known.map_or_else(|| name_of(kind, &self.application, resource), Arc::clone)
    }

    /// By what it is asked first about the branches that it registers. Nothing of a client that
    /// has not said who it is, nor a name that is too long to be kept with each branch.
    pub(super) fn registers_as(&self) -> Option<Arc<str>> {
        let is_kept = self.is_registered && self.id.len() <= NAME_BYTES_MAX;
        is_kept.then(|| Arc::clone(&self.id))
    }

    /// What is surely a database, by the client's own name and the core's, unless the client cannot
    /// read a word about its undo logs.
    pub(super) fn undo_logs(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> {
        let reads = self.dialect.family == Family::Java;
        self.databases.iter().filter(move |(own, _)| reads && is_database(own))
    }

    /// The client's own name of a resource.
    pub(super) fn own_name(&self, resource: &str) -> Option<&Arc<str>> {
        self.resources.get(resource)
    }

    /// Who asks. A process cannot be told from another one of its application on its machine: a
    /// connection has no name that its next one has too. Without a registration it is the
    /// connection alone.
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

/// The resources of a list, unless they are more than allowed (BOUNDED): a frame has room for
/// millions.
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

/// What people see of a resource. A name that may be a database's, with a password in it, is not
/// shown whole before somebody has a branch of it as an action.
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

    /// Each of its connections sends both, whichever is first.
    #[test]
    fn seata_go_is_known_by_its_own_registration_wherever_it_comes() {
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
