//! A server that can be killed, stopped, and started again on its data.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use nix::sys::signal::Signal;
use nix::unistd::User;

use crate::process::{
    PROBE_EVERY, Process, account, command_as, free_port, last_lines, make_folder,
};
use crate::programs::Programs;
use crate::server_directory::ServerDirectory;
use crate::{etcd, mariadb, nats, postgres, rabbitmq, redis, zookeeper};

const READY_WITHIN: Duration = Duration::from_secs(180);

/// A product whose server tests can start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerKind {
    /// PostgreSQL.
    Postgres,
    /// MariaDB.
    MariaDb,
    /// Redis.
    Redis,
    /// RabbitMQ.
    RabbitMq,
    /// NATS with JetStream.
    Nats,
    /// etcd.
    Etcd,
    /// ZooKeeper.
    ZooKeeper,
}

impl ServerKind {
    /// All products.
    pub const ALL: [Self; 7] = [
        Self::Postgres,
        Self::MariaDb,
        Self::Redis,
        Self::RabbitMq,
        Self::Nats,
        Self::Etcd,
        Self::ZooKeeper,
    ];
    /// The products with SQL.
    pub const SQL: [Self; 2] = [Self::Postgres, Self::MariaDb];

    /// Returns the programs that must be installed.
    #[must_use]
    pub fn programs(self) -> &'static Programs {
        match self {
            Self::Postgres => &postgres::PROGRAMS,
            Self::MariaDb => &mariadb::PROGRAMS,
            Self::Redis => &redis::PROGRAMS,
            Self::RabbitMq => &rabbitmq::PROGRAMS,
            Self::Nats => &nats::PROGRAMS,
            Self::Etcd => &etcd::PROGRAMS,
            Self::ZooKeeper => &zookeeper::PROGRAMS,
        }
    }

    fn account(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::MariaDb => "mysql",
            Self::Redis => "redis",
            Self::RabbitMq => "rabbitmq",
            Self::Nats => "nats",
            Self::Etcd => "etcd",
            Self::ZooKeeper => "zookeeper",
        }
    }

    /// Returns the signal for a fast orderly shutdown. PostgreSQL waits for its clients on SIGTERM.
    fn stop(self) -> Signal {
        match self {
            Self::Postgres => Signal::SIGINT,
            Self::MariaDb
            | Self::Redis
            | Self::RabbitMq
            | Self::Nats
            | Self::Etcd
            | Self::ZooKeeper => Signal::SIGTERM,
        }
    }
}

/// A running server. Dropping it stops it; its data goes with the [`ServerDirectory`].
#[derive(Debug)]
pub struct DatabaseServer {
    kind: ServerKind,
    // Dropped before the place, which holds its data.
    process: Option<Process>,
    /// The name server that RabbitMQ needs, with its port.
    name_server: Option<(Process, u16)>,
    home: ServerHome,
    /// Settings beyond those that every server has; the last of a name counts.
    settings: Vec<String>,
    log: PathBuf,
    place: Arc<ServerDirectory>,
}

/// Home, account and port of a server, which stay the same through restarts.
#[derive(Debug)]
pub(crate) struct ServerHome {
    pub(crate) path: PathBuf,
    pub(crate) account: Option<User>,
    pub(crate) port: u16,
}

impl ServerHome {
    /// Returns a command that runs under the server's account in its home.
    pub(crate) fn command(&self, programs: &Programs, name: &str) -> Result<Command> {
        Ok(command_as(&programs.require(name)?, self.account.as_ref(), &self.path))
    }
}

impl DatabaseServer {
    /// Makes an empty server and waits until it answers. `may_go_on` is called repeatedly
    /// meanwhile; its error ends the wait.
    ///
    /// # Errors
    /// Returns the end of the server's log if it does not start.
    pub fn start(
        kind: ServerKind,
        place: &Arc<ServerDirectory>,
        may_go_on: &dyn Fn() -> Result<()>,
    ) -> Result<Self> {
        Self::start_with(kind, place, Vec::new(), may_go_on)
    }

    /// Makes three servers of one cluster.
    ///
    /// # Errors
    /// Returns the end of a server's log if it does not start, and an error for a product that is
    /// not started as a cluster.
    pub fn cluster(kind: ServerKind, place: &Arc<ServerDirectory>) -> Result<Vec<Self>> {
        let members = match kind {
            ServerKind::Etcd => etcd::members()?,
            ServerKind::ZooKeeper => zookeeper::members()?,
            ServerKind::Postgres
            | ServerKind::MariaDb
            | ServerKind::Redis
            | ServerKind::RabbitMq
            | ServerKind::Nats => {
                bail!("{} is not started as a cluster", kind.programs().name)
            }
        };
        // All start at once: no member answers before a majority runs.
        thread::scope(|scope| {
            let start =
                |settings| scope.spawn(move || Self::start_with(kind, place, settings, &|| Ok(())));
            let starting: Vec<_> = members.into_iter().map(start).collect();
            let end = |started: thread::ScopedJoinHandle<'_, Result<Self>>| {
                started.join().map_err(|_| anyhow!("starting a server panicked"))?
            };
            starting.into_iter().map(end).collect()
        })
    }

    /// Makes a standby of a PostgreSQL server, which it reaches at this address, perhaps through a
    /// proxy.
    ///
    /// # Errors
    /// Returns the end of the server's log if it does not start.
    pub fn standby_of(primary: SocketAddr, place: &Arc<ServerDirectory>) -> Result<Self> {
        let copy = |home: &ServerHome| postgres::copy(home, primary);
        Self::make(ServerKind::Postgres, place, Vec::new(), &copy, &|| Ok(()))
    }

    /// Makes a server with additional settings, each `name=value`.
    fn start_with(
        kind: ServerKind,
        place: &Arc<ServerDirectory>,
        settings: Vec<String>,
        may_go_on: &dyn Fn() -> Result<()>,
    ) -> Result<Self> {
        let initialise = |home: &ServerHome| match kind {
            ServerKind::Postgres => postgres::initialise(home),
            ServerKind::MariaDb => mariadb::initialise(home),
            // These make their files at the first start.
            ServerKind::Redis
            | ServerKind::RabbitMq
            | ServerKind::Nats
            | ServerKind::Etcd
            | ServerKind::ZooKeeper => Ok(()),
        };
        Self::make(kind, place, settings, &initialise, may_go_on)
    }

    fn make(
        kind: ServerKind,
        place: &Arc<ServerDirectory>,
        settings: Vec<String>,
        initialise: &dyn Fn(&ServerHome) -> Result<()>,
        may_go_on: &dyn Fn() -> Result<()>,
    ) -> Result<Self> {
        let account = account(kind.account())?;
        let name = kind.programs().name.to_lowercase();
        // Several servers of a product share the directory.
        let port = free_port()?;
        let path = place.path().join(format!("{name}-{port}"));
        make_folder(&path, account.as_ref())?;
        let home = ServerHome { path, account, port };
        initialise(&home)?;
        let log = home.path.with_extension("log");
        let (process, name_server, place) = (None, None, Arc::clone(place));
        let mut server = Self { kind, process, name_server, home, settings, log, place };
        server.serve(may_go_on)?;
        Ok(server)
    }

    /// Returns the product.
    #[must_use]
    pub fn kind(&self) -> ServerKind {
        self.kind
    }

    /// Returns the address that it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.home.port))
    }

    /// Returns its URL, with a user that may create databases.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_through(self.address())
    }

    /// Returns its URL for a client that reaches it at another address, as through a proxy.
    #[must_use]
    pub fn url_through(&self, address: SocketAddr) -> String {
        match self.kind {
            ServerKind::Postgres => postgres::url(address),
            ServerKind::MariaDb => mariadb::url(address),
            ServerKind::Redis => redis::url(address),
            ServerKind::RabbitMq => rabbitmq::url(address),
            ServerKind::Nats => nats::url(address),
            ServerKind::Etcd => etcd::url(address),
            ServerKind::ZooKeeper => zookeeper::url(address),
        }
    }

    /// Kills the server as `kill -9` does. PostgreSQL's backends notice and end.
    ///
    /// # Errors
    /// Returns an error if it cannot be killed.
    pub fn kill(&mut self) -> Result<()> {
        let Some(mut process) = self.process.take() else { return Ok(()) };
        process.kill()?;
        self.place.guard.remove(process.id());
        Ok(())
    }

    /// Starts a killed server again, on the same port and data, and waits until it answers.
    ///
    /// # Errors
    /// Returns the end of the server's log if it does not start.
    pub fn restart(&mut self) -> Result<()> {
        self.kill()?;
        self.serve(&|| Ok(()))
    }

    /// Starts the server again with other settings, each `name=value`.
    ///
    /// # Errors
    /// Returns the end of the server's log if it does not start.
    pub fn restart_with(&mut self, settings: &[&str]) -> Result<()> {
        self.settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        self.restart()
    }

    /// Stops the server and its children where they are, until [`go_on`](Self::go_on).
    pub fn pause(&self) {
        self.process.iter().for_each(|process| process.signal_all(Signal::SIGSTOP));
    }

    /// Lets a paused server go on.
    pub fn go_on(&self) {
        self.process.iter().for_each(|process| process.signal_all(Signal::SIGCONT));
    }

    fn serve(&mut self, may_go_on: &dyn Fn() -> Result<()>) -> Result<()> {
        let started = Instant::now();
        loop {
            match self.try_to_serve(started, may_go_on) {
                // The last backend of a killed PostgreSQL may still hold its memory.
                Err(error) if started.elapsed() > READY_WITHIN => return Err(error),
                Err(_) => may_go_on()?,
                Ok(()) => return Ok(()),
            }
            thread::sleep(PROBE_EVERY);
        }
    }

    /// Starts the process once and waits until it answers or ends.
    fn try_to_serve(&mut self, started: Instant, may_go_on: &dyn Fn() -> Result<()>) -> Result<()> {
        let name_server = self.name_server()?;
        let mut command = match self.kind {
            ServerKind::Postgres => postgres::serve(&self.home, &self.settings)?,
            ServerKind::MariaDb => mariadb::serve(&self.home, &self.settings)?,
            ServerKind::Redis => redis::serve(&self.home, &self.settings)?,
            ServerKind::RabbitMq => rabbitmq::serve(&self.home, name_server)?,
            ServerKind::Nats => nats::serve(&self.home)?,
            ServerKind::Etcd => etcd::serve(&self.home, &self.settings)?,
            ServerKind::ZooKeeper => zookeeper::serve(&self.home, &self.settings)?,
        };
        let mut process = Process::start(&mut command, &self.log, self.kind.stop())?;
        let id = process.id();
        self.place.guard.add(id)?;
        match self.wait_for_answer(&mut process, started, may_go_on) {
            Ok(()) => {
                self.process = Some(process);
                Ok(())
            }
            Err(error) => {
                // Its id goes with it: kept, it could later be that of another process.
                drop(process);
                self.place.guard.remove(id);
                Err(error)
            }
        }
    }

    fn wait_for_answer(
        &self,
        process: &mut Process,
        started: Instant,
        may_go_on: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        let name = self.kind.programs().name;
        while !self.answers() {
            may_go_on()?;
            if let Some(status) = process.ended()? {
                bail!("{name} ended with {status}:\n{}", last_lines(&self.log));
            }
            if started.elapsed() > READY_WITHIN {
                bail!("{name} does not answer:\n{}", last_lines(&self.log));
            }
            thread::sleep(PROBE_EVERY);
        }
        Ok(())
    }

    /// Returns the port of RabbitMQ's name server, which is started if it does not run, and 0 for
    /// other products.
    fn name_server(&mut self) -> Result<u16> {
        if self.kind != ServerKind::RabbitMq {
            return Ok(0);
        }
        if let Some((_, port)) = &self.name_server {
            return Ok(*port);
        }
        let port = free_port()?;
        let mut command = rabbitmq::name_server(&self.home, port)?;
        let process = Process::start(&mut command, &self.log, Signal::SIGTERM)?;
        self.place.guard.add(process.id())?;
        self.name_server = Some((process, port));
        Ok(port)
    }

    fn answers(&self) -> bool {
        match self.kind {
            ServerKind::Postgres => postgres::answers(self.home.port),
            ServerKind::MariaDb => mariadb::answers(self.home.port),
            ServerKind::Redis => redis::answers(self.home.port),
            ServerKind::RabbitMq => rabbitmq::answers(self.home.port),
            ServerKind::Nats => nats::answers(self.home.port),
            ServerKind::Etcd => etcd::answers(self.home.port, &self.settings),
            ServerKind::ZooKeeper => zookeeper::answers(self.home.port),
        }
    }
}

impl Drop for DatabaseServer {
    /// Stops the server, after which the guard no longer knows it: the system may soon give its id
    /// to another process.
    fn drop(&mut self) {
        let name_server = self.name_server.take().map(|(process, _)| process);
        for process in self.process.take().into_iter().chain(name_server) {
            let id = process.id();
            drop(process);
            self.place.guard.remove(id);
        }
    }
}
