//! Private servers for one run, installed if need be.
//!
//! A server that the caller names in the environment is used instead of a private one.

use std::env;
use std::sync::Arc;

use anyhow::{Context, Result};

use crate::install::{Installer, Needed, install_missing};
use crate::interrupt::Interrupts;
use crate::say::say;
use handfast_test_services::{DatabaseServer, ServerDirectory, ServerKind};

/// Names the PostgreSQL server that tests use, with the right to create databases.
pub(crate) const POSTGRES_VARIABLE: &str = "HANDFAST_TEST_POSTGRES";
/// Names the MySQL or MariaDB server that tests use, with the right to create databases.
pub(crate) const MYSQL_VARIABLE: &str = "HANDFAST_TEST_MYSQL";
/// Names the Redis server that tests use, whose database 0 is theirs.
pub(crate) const REDIS_VARIABLE: &str = "HANDFAST_TEST_REDIS";
/// Names the Redis servers that Redlock is tested over, with commas between them.
pub(crate) const REDLOCK_VARIABLE: &str = "HANDFAST_TEST_REDLOCK";
/// How many they are.
const REDLOCK_NODES: usize = 5;
/// Names the RabbitMQ server that tests use.
pub(crate) const RABBITMQ_VARIABLE: &str = "HANDFAST_TEST_RABBITMQ";
/// Names the NATS server that tests use, with JetStream.
pub(crate) const NATS_VARIABLE: &str = "HANDFAST_TEST_NATS";
/// Names the etcd that tests use.
pub(crate) const ETCD_VARIABLE: &str = "HANDFAST_TEST_ETCD";
/// Names the ZooKeeper that tests use, as its clients call a cluster.
pub(crate) const ZOOKEEPER_VARIABLE: &str = "HANDFAST_TEST_ZOOKEEPER";

/// Further advice about a missing server.
const OTHERWISE: &str = "set HANDFAST_TEST_POSTGRES, HANDFAST_TEST_MYSQL, HANDFAST_TEST_REDIS, \
    HANDFAST_TEST_RABBITMQ, HANDFAST_TEST_NATS, HANDFAST_TEST_ETCD and HANDFAST_TEST_ZOOKEEPER to \
    servers of your own, HANDFAST_TEST_REDLOCK to five Redis servers";

/// The running servers. Dropping it stops them and removes their data.
#[derive(Debug)]
pub(crate) struct RunningServers {
    variables: Vec<(&'static str, String)>,
    _servers: Vec<DatabaseServer>,
}

impl RunningServers {
    /// Installs and starts what the environment does not name already.
    pub(crate) fn start(interrupts: &Interrupts) -> Result<Self> {
        let own: Vec<ServerKind> = ServerKind::ALL
            .into_iter()
            .filter(|kind| env::var_os(variable(*kind)).is_none())
            .collect();
        install(interrupts, &own)?;
        if env::var_os(REDLOCK_VARIABLE).is_none() {
            install(interrupts, &[ServerKind::Redis])?;
        }
        let place = ServerDirectory::new()?;
        let (mut variables, mut servers) = (Vec::new(), Vec::new());
        for kind in own {
            interrupts.check()?;
            let server = DatabaseServer::start(kind, &place, &|| interrupts.check())?;
            say(format_args!("{} runs at {}", kind.programs().name, server.url()));
            variables.push((variable(kind), server.url()));
            servers.push(server);
        }
        if env::var_os(REDLOCK_VARIABLE).is_none() {
            let nodes = redlock_nodes(interrupts, &place)?;
            let urls: Vec<String> = nodes.iter().map(DatabaseServer::url).collect();
            say(format_args!("{REDLOCK_NODES} Redis servers for Redlock run"));
            variables.push((REDLOCK_VARIABLE, urls.join(",")));
            servers.extend(nodes);
        }
        Ok(Self { variables, _servers: servers })
    }

    /// The environment variables of tests.
    pub(crate) fn variables(&self) -> &[(&'static str, String)] {
        &self.variables
    }

    /// The address of every server with SQL, private or named by the caller.
    pub(crate) fn sql_urls(&self) -> Result<Vec<String>> {
        ServerKind::SQL.into_iter().map(|kind| self.url(variable(kind))).collect()
    }

    /// The address of the Redis server.
    pub(crate) fn redis_url(&self) -> Result<String> {
        self.url(REDIS_VARIABLE)
    }

    /// The address of the ZooKeeper server.
    pub(crate) fn zookeeper_url(&self) -> Result<String> {
        self.url(ZOOKEEPER_VARIABLE)
    }

    /// The address of every broker.
    pub(crate) fn broker_urls(&self) -> Result<Vec<String>> {
        [REDIS_VARIABLE, RABBITMQ_VARIABLE, NATS_VARIABLE]
            .into_iter()
            .map(|it| self.url(it))
            .collect()
    }

    fn url(&self, variable: &'static str) -> Result<String> {
        match self.variables.iter().find(|(name, _)| *name == variable) {
            Some((_, url)) => Ok(url.clone()),
            None => env::var(variable).context(variable),
        }
    }
}

fn redlock_nodes(
    interrupts: &Interrupts,
    place: &Arc<ServerDirectory>,
) -> Result<Vec<DatabaseServer>> {
    let start = |_| DatabaseServer::start(ServerKind::Redis, place, &|| interrupts.check());
    (0..REDLOCK_NODES).map(start).collect()
}

/// Makes sure that these servers' programs are on this machine.
pub(crate) fn install(interrupts: &Interrupts, kinds: &[ServerKind]) -> Result<()> {
    let needed: Vec<Needed> = kinds.iter().map(|kind| needed(*kind)).collect();
    install_missing(interrupts, &needed)
}

fn needed(kind: ServerKind) -> Needed {
    let name = kind.programs().name;
    match kind {
        ServerKind::Postgres => Needed {
            name,
            is_installed: || ServerKind::Postgres.programs().are_installed(),
            packages: postgres_packages,
            otherwise: OTHERWISE,
        },
        ServerKind::MariaDb => Needed {
            name,
            is_installed: || ServerKind::MariaDb.programs().are_installed(),
            packages: mariadb_packages,
            otherwise: OTHERWISE,
        },
        ServerKind::Redis => Needed {
            name,
            is_installed: || ServerKind::Redis.programs().are_installed(),
            packages: redis_packages,
            otherwise: OTHERWISE,
        },
        ServerKind::RabbitMq => Needed {
            name,
            is_installed: || ServerKind::RabbitMq.programs().are_installed(),
            packages: rabbitmq_packages,
            otherwise: OTHERWISE,
        },
        ServerKind::Nats => Needed {
            name,
            is_installed: || ServerKind::Nats.programs().are_installed(),
            packages: nats_packages,
            otherwise: OTHERWISE,
        },
        ServerKind::Etcd => Needed {
            name,
            is_installed: || ServerKind::Etcd.programs().are_installed(),
            packages: etcd_packages,
            otherwise: OTHERWISE,
        },
        ServerKind::ZooKeeper => Needed {
            name,
            is_installed: || ServerKind::ZooKeeper.programs().are_installed(),
            packages: zookeeper_packages,
            otherwise: OTHERWISE,
        },
    }
}

fn variable(kind: ServerKind) -> &'static str {
    match kind {
        ServerKind::Postgres => POSTGRES_VARIABLE,
        ServerKind::MariaDb => MYSQL_VARIABLE,
        ServerKind::Redis => REDIS_VARIABLE,
        ServerKind::RabbitMq => RABBITMQ_VARIABLE,
        ServerKind::Nats => NATS_VARIABLE,
        ServerKind::Etcd => ETCD_VARIABLE,
        ServerKind::ZooKeeper => ZOOKEEPER_VARIABLE,
    }
}

fn postgres_packages(installer: Installer) -> &'static [&'static str] {
    match installer {
        Installer::Apt => &["postgresql"],
        Installer::Dnf => &["postgresql-server"],
        Installer::Apk => &["postgresql"],
        Installer::Brew => &["postgresql@17"],
    }
}

fn mariadb_packages(installer: Installer) -> &'static [&'static str] {
    match installer {
        // Without the service of its own that `mariadb-server` would start.
        Installer::Apt => &["mariadb-server-core", "mariadb-client-core"],
        Installer::Dnf => &["mariadb-server"],
        Installer::Apk => &["mariadb"],
        Installer::Brew => &["mariadb"],
    }
}

fn redis_packages(installer: Installer) -> &'static [&'static str] {
    match installer {
        Installer::Apt => &["redis-server"],
        Installer::Dnf | Installer::Apk | Installer::Brew => &["redis"],
    }
}

fn rabbitmq_packages(installer: Installer) -> &'static [&'static str] {
    match installer {
        Installer::Apt | Installer::Dnf => &["rabbitmq-server"],
        Installer::Apk | Installer::Brew => &["rabbitmq"],
    }
}

fn nats_packages(_installer: Installer) -> &'static [&'static str] {
    &["nats-server"]
}

fn etcd_packages(installer: Installer) -> &'static [&'static str] {
    match installer {
        Installer::Apt => &["etcd-server"],
        Installer::Dnf | Installer::Apk | Installer::Brew => &["etcd"],
    }
}

fn zookeeper_packages(installer: Installer) -> &'static [&'static str] {
    match installer {
        // Without the service of its own that `zookeeper` would bring.
        Installer::Apt => &["libzookeeper-java", "libslf4j-java", "default-jre-headless"],
        Installer::Dnf | Installer::Apk | Installer::Brew => &["zookeeper"],
    }
}
