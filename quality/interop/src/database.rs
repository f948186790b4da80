//! A database server, the addresses by which clients know it, and the tables of the scenarios.

use anyhow::Result;
use handfast_interop::undo_log;
use handfast_test_services::{DatabaseServer, ServerDirectory, ServerKind};

/// A private server with a database.
#[derive(Debug)]
pub(crate) struct Database {
    server: DatabaseServer,
}

/// The URLs by which a client in Java reaches a database.
#[derive(Debug)]
pub(crate) struct Address {
    pub(crate) url: String,
    pub(crate) url_for_xa: String,
}

/// The user that tests connect as, the only one on the test servers.
pub(crate) const USER: &str = "handfast";

impl Database {
    /// Starts a server.
    pub(crate) fn start(kind: ServerKind) -> Result<Self> {
        Ok(Self { server: DatabaseServer::start(kind, &ServerDirectory::new()?, &|| Ok(()))? })
    }

    /// Returns the product.
    pub(crate) fn kind(&self) -> ServerKind {
        self.server.kind()
    }

    /// Returns the URLs for Java. XA needs MariaDB's own driver: by MySQL's the client takes the
    /// server for a MySQL that lets any connection end a prepared branch.
    pub(crate) fn jdbc(&self, name: &str) -> Address {
        let at = self.server.address();
        match self.server.kind() {
            ServerKind::Postgres => {
                let url = format!("jdbc:postgresql://{at}/postgres?currentSchema={name}");
                Address { url_for_xa: url.clone(), url }
            }
            ServerKind::MariaDb
            | ServerKind::Redis
            | ServerKind::RabbitMq
            | ServerKind::Nats
            | ServerKind::Etcd
            | ServerKind::ZooKeeper => Address {
                url: format!("jdbc:mysql://{at}/{name}?createDatabaseIfNotExist=true"),
                url_for_xa: format!("jdbc:mariadb://{at}/{name}"),
            },
        }
    }

    /// Returns the data source name for Go. The client asks its driver for images in a way that
    /// needs both options.
    pub(crate) fn dsn(&self, name: &str) -> String {
        let options = "multiStatements=true&interpolateParams=true";
        format!("{USER}:{USER}@tcp({})/{name}?{options}", self.server.address())
    }

    /// Returns the statements that make the tables, in order.
    pub(crate) fn tables(&self, name: &str) -> Vec<String> {
        let tables = match self.server.kind() {
            ServerKind::Postgres => POSTGRES,
            ServerKind::MariaDb
            | ServerKind::Redis
            | ServerKind::RabbitMq
            | ServerKind::Nats
            | ServerKind::Etcd
            | ServerKind::ZooKeeper => MARIADB,
        };
        tables.iter().map(|statement| statement.replace("{name}", name)).collect()
    }
}

const STOCK: &str =
    "create table stock (id bigint not null primary key, name varchar(40), amount int not null)";
const RESERVATION: &str = "create table reservation \
    (id bigint not null primary key, state varchar(20) not null, ends int not null)";

const MARIADB: &[&str] = &[STOCK, RESERVATION, undo_log::MYSQL];
const POSTGRES: &[&str] =
    &["create schema {name}", STOCK, RESERVATION, undo_log::POSTGRES, undo_log::POSTGRES_SEQUENCE];
