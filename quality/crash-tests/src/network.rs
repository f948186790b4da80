//! Several hosts on one network: each a network namespace with a link to a bridge, so that one can
//! be cut off from all others, in both directions or in one.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use nix::sched::{CloneFlags, setns};

use crate::namespace::{Namespace, ip};

/// The ports of a coordinator: nothing else listens on its host.
const GRPC_PORT: u16 = 7091;
const ADMIN_PORT: u16 = 7092;

/// A hardware address that no interface has: what is sent there is lost without an error.
const NOWHERE: &str = "02:00:00:00:00:01";

/// The part of a host's traffic that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkCut {
    /// All of it.
    Both,
    /// The packets that others send to it.
    Incoming,
    /// The packets that it sends to others.
    Outgoing,
}

/// The hosts, and the bridge that connects them with each other and with this one.
#[derive(Debug)]
pub struct Network {
    bridge: String,
    here: Ipv4Addr,
    hosts: Vec<NetworkHost>,
}

/// A host.
#[derive(Debug)]
pub struct NetworkHost {
    namespace: Namespace,
    /// The end of the link at the bridge.
    near: String,
    /// The end of the link at the host.
    far: String,
    address: Ipv4Addr,
}

impl Network {
    /// Makes so many hosts. Returns the reason as the inner error if this process may not, or a
    /// program for it is missing.
    ///
    /// # Errors
    /// When a namespace can be made, but not its link.
    pub fn make(hosts: u8) -> Result<Result<Self, String>> {
        // Names and addresses that no other run of this machine uses, and no single host of this.
        let own = std::process::id();
        let [_, _, high, low] = own.to_be_bytes();
        let address = |last| Ipv4Addr::new(198, 18 + (high & 1), low, last);
        let mut network =
            Self { bridge: format!("hf{own}br"), here: address(129), hosts: Vec::new() };
        for number in 0..hosts {
            let namespace = match Namespace::make()? {
                Ok(namespace) => namespace,
                Err(reason) => return Ok(Err(reason)),
            };
            if number == 0
                && let Err(error) = ip(&["link", "add", &network.bridge, "type", "bridge"])
            {
                return Ok(Err(error.to_string()));
            }
            let [near, far] = ['a', 'b'].map(|end| format!("hf{own}{number}{end}"));
            let host = NetworkHost { namespace, near, far, address: address(130 + number) };
            host.join(&network.bridge)?;
            network.hosts.push(host);
        }
        ip(&["addr", "add", &format!("{}/25", network.here), "dev", &network.bridge])?;
        ip(&["link", "set", &network.bridge, "up"])?;
        Ok(Ok(network))
    }

    /// Returns the address of this host on the network.
    #[must_use]
    pub fn here(&self) -> IpAddr {
        self.here.into()
    }

    /// Returns a host by its number.
    #[must_use]
    pub fn host(&self, number: usize) -> &NetworkHost {
        &self.hosts[number]
    }

    /// Loses a part of a host's traffic from now on, without an error at either end.
    ///
    /// # Errors
    /// When a host is gone.
    pub fn cut(&self, number: usize, cut: LinkCut) -> Result<()> {
        let host = self.host(number);
        match cut {
            LinkCut::Both => ip(&["link", "set", &host.near, "down"]),
            LinkCut::Incoming => self.each_to(host, &LOSE),
            LinkCut::Outgoing => self.each_from(host, &LOSE),
        }
    }

    /// Lets a host's traffic pass again.
    ///
    /// # Errors
    /// When a host is gone.
    pub fn heal(&self, number: usize, cut: LinkCut) -> Result<()> {
        let host = self.host(number);
        match cut {
            LinkCut::Both => ip(&["link", "set", &host.near, "up"]),
            LinkCut::Incoming => self.each_to(host, &FORGET),
            LinkCut::Outgoing => self.each_from(host, &FORGET),
        }
    }

    /// Changes where this host and all others send what is for one.
    fn each_to(&self, host: &NetworkHost, change: &Change) -> Result<()> {
        ip(&change.arguments(host.address, &self.bridge))?;
        let mut others = self.hosts.iter().filter(|it| it.address != host.address);
        others.try_for_each(|it| it.namespace.ip(&change.arguments(host.address, &it.far)))
    }

    /// Changes where one host sends what is for this host and for all others.
    fn each_from(&self, host: &NetworkHost, change: &Change) -> Result<()> {
        let others = self.hosts.iter().map(|it| it.address).filter(|it| *it != host.address);
        let mut all = others.chain([self.here]);
        all.try_for_each(|to| host.namespace.ip(&change.arguments(to, &host.far)))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // The links go with the namespaces. The bridge is not there if it could not be made.
        let _ = ip(&["link", "del", &self.bridge]);
    }
}

/// A change of a host's table of hardware addresses.
#[derive(Debug)]
struct Change {
    verb: &'static str,
    rest: &'static [&'static str],
}

const LOSE: Change = Change { verb: "replace", rest: &["lladdr", NOWHERE, "nud", "permanent"] };
const FORGET: Change = Change { verb: "del", rest: &[] };

impl Change {
    fn arguments(&self, address: Ipv4Addr, device: &str) -> Vec<String> {
        let address = address.to_string();
        let words = ["neigh", self.verb, &address, "dev", device];
        words.iter().chain(self.rest).map(|word| (*word).to_owned()).collect()
    }
}

impl NetworkHost {
    /// Returns the addresses of a coordinator's native API and admin API there.
    #[must_use]
    pub fn coordinator(&self) -> [SocketAddr; 2] {
        [GRPC_PORT, ADMIN_PORT].map(|port| (self.address, port).into())
    }

    /// Returns the words before a command that is to run there.
    #[must_use]
    pub fn prefix(&self) -> [String; 4] {
        self.namespace.prefix()
    }

    /// Returns what lets a thread move there.
    ///
    /// # Errors
    /// When the host is gone.
    pub fn door(&self) -> Result<HostDoor> {
        Ok(HostDoor(self.namespace.file()?))
    }

    /// Connects it to the bridge.
    fn join(&self, bridge: &str) -> Result<()> {
        let Self { namespace, near, far, address } = self;
        ip(&["link", "add", near, "type", "veth", "peer", "name", far])?;
        ip(&["link", "set", far, "netns", &namespace.id()])?;
        ip(&["link", "set", near, "master", bridge])?;
        ip(&["link", "set", near, "up"])?;
        namespace.ip(&["addr", "add", &format!("{address}/25"), "dev", far])?;
        namespace.ip(&["link", "set", far, "up"])?;
        // Also what a host sends to its own address goes over this one.
        namespace.ip(&["link", "set", "lo", "up"])
    }
}

/// Lets a thread move to a host.
#[derive(Debug)]
pub struct HostDoor(File);

impl HostDoor {
    /// Moves this thread, and the threads that it starts from now on, to the host.
    ///
    /// # Errors
    /// When this process may not.
    pub fn enter(&self) -> Result<()> {
        setns(&self.0, CloneFlags::CLONE_NEWNET).context("entering a network namespace")
    }
}
