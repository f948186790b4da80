//! Locks of this project beside those of the client libraries in Java that are most used, on the
//! same servers.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use handfast_interop::LockClient;
use handfast_test_services::ServerKind;
use tempfile::TempDir;

use super::contender::Contender;
use super::servers::LockServers;
use super::{Backend, Options, Workload, hand_overs, name, pairs};
use crate::java::{FLAGS, JavaClients, JavaRun};
use crate::measure::{Measure, RunDirectory};
use crate::peers::set_times;
use crate::report::Row;
use crate::sample::Sample;
use crate::usage::Process;

const ALONE: usize = 1;
const MANY: usize = 64;
const WAITERS: usize = 32;
/// A warm-up is a run whose window is this short.
const SHORT: Duration = Duration::from_millis(100);

/// Measures the coordinator's locks, and those on each server by this library and by a peer.
pub(crate) async fn peers(
    redis_server: &Path,
    measure: &Measure,
    place: &RunDirectory,
    jvm_warm_up: Duration,
) -> Result<Vec<Row>> {
    let options = Options {
        backend: backends(ServerKind::ZooKeeper.programs().are_installed()),
        mysql: None,
        postgres: None,
        redis_server: redis_server.to_owned(),
        clients: vec![ALONE, MANY],
        waiters: vec![WAITERS],
        measure: measure.clone(),
        place: place.clone(),
    };
    let servers = LockServers::open(&options).await?;
    let directory = place.directory()?;
    let mut lock_peers = LockPeers::open(&servers, &directory, &options.backend).await?;
    lock_peers.warm_up(jvm_warm_up).await?;
    let mut rows = Vec::new();
    let loads = [(Workload::Pairs, ALONE), (Workload::Pairs, MANY), (Workload::HandOver, WAITERS)];
    for (workload, clients) in loads {
        rows.extend(lock_peers.rows(workload, clients, measure).await?);
    }
    drop(lock_peers);
    servers.close(&options).await?;
    Ok(rows)
}

/// ZooKeeper's locks are left out where there is no ZooKeeper to start.
fn backends(has_zookeeper: bool) -> Vec<Backend> {
    let always = [Backend::Coordinator, Backend::RedisDefault, Backend::RedisAlways];
    always.into_iter().chain(has_zookeeper.then_some(Backend::Zookeeper)).collect()
}

/// Returns the peer on a backend.
fn peer(backend: Backend) -> Option<LockClient> {
    match backend {
        Backend::RedisDefault | Backend::RedisAlways => Some(LockClient::Redisson),
        Backend::Zookeeper => Some(LockClient::Curator),
        Backend::Coordinator
        | Backend::Redis
        | Backend::Redlock
        | Backend::Postgres
        | Backend::Mysql
        | Backend::Sqlite
        | Backend::Etcd
        | Backend::Memory => None,
    }
}

/// One implementation of locks on one server.
enum LockPeer<'s> {
    Handfast(&'s Contender),
    Java { client: LockClient, backend: Backend, java: Box<JavaClients> },
}

/// All of them, each peer behind this library on the same server.
struct LockPeers<'s> {
    all: Vec<LockPeer<'s>>,
}

impl<'s> LockPeers<'s> {
    async fn open(
        servers: &'s LockServers,
        directory: &TempDir,
        backends: &[Backend],
    ) -> Result<Self> {
        let mut all = Vec::new();
        for &backend in backends {
            let library = servers.contenders.iter().filter(|it| it.backend == backend);
            all.extend(library.filter(|it| !it.is_plain()).map(LockPeer::Handfast));
            let Some(client) = peer(backend) else { continue };
            let command = client.command(&FLAGS, servers.address(backend)?)?;
            let log = directory.path().join(format!("java-{}.log", all.len()));
            let java = Box::new(JavaClients::start(command, log).await?);
            all.push(LockPeer::Java { client, backend, java });
        }
        Ok(Self { all })
    }

    async fn warm_up(&mut self, length: Duration) -> Result<()> {
        let is_java = |peer: &LockPeer<'_>| matches!(peer, LockPeer::Java { .. });
        let servers = self.servers()?;
        for peer in self.all.iter_mut().filter(|peer| is_java(peer)) {
            peer.run(Workload::Pairs, MANY, (length, SHORT), &servers).await?;
        }
        Ok(())
    }

    async fn rows(
        &mut self,
        workload: Workload,
        clients: usize,
        measure: &Measure,
    ) -> Result<Vec<Row>> {
        let names: Vec<String> = self
            .all
            .iter()
            .map(|peer| name(peer.backend(), workload, clients, &peer.way()))
            .collect();
        let times = (measure.warm_up(), measure.length());
        let servers = self.servers()?;
        let run =
            async |which: usize| self.all[which].run(workload, clients, times, &servers).await;
        let mut rows = measure.rows(&names, run).await?;
        let sides: Vec<_> = self.all.iter().map(|it| (it.backend(), it.is_handfast())).collect();
        compare(&sides, &mut rows);
        Ok(rows)
    }

    /// Returns every process that may work for clients in Java: not their own.
    fn servers(&self) -> Result<Vec<Process>> {
        let mut own = Vec::new();
        let mut servers = Vec::new();
        for peer in &self.all {
            match peer {
                LockPeer::Java { java, .. } => own.push(java.process()?),
                LockPeer::Handfast(contender) => servers = contender.servers()?,
            }
        }
        servers.retain(|server| !own.contains(server));
        Ok(servers)
    }
}

/// Sets on each peer's row how many times as fast this library is on the same server, and how many
/// times as fast the coordinator is.
fn compare(sides: &[(Backend, bool)], rows: &mut [Row]) {
    let handfast: Vec<(Backend, f64)> = sides
        .iter()
        .zip(rows.iter())
        .filter(|((_, is_handfast), _)| *is_handfast)
        .map(|((backend, _), row)| (*backend, row.per_second.median))
        .collect();
    let rate = |wanted| handfast.iter().find(|(backend, _)| *backend == wanted).map(|it| it.1);
    for ((backend, is_handfast), row) in sides.iter().zip(rows) {
        if *is_handfast {
            continue;
        }
        if let Some(library) = rate(*backend) {
            set_times(library, row);
        }
        if let Some(coordinator) = rate(Backend::Coordinator) {
            row.set_figure("coordinator ÷ this", coordinator / row.per_second.median);
        }
    }
}

impl LockPeer<'_> {
    fn backend(&self) -> Backend {
        match self {
            Self::Handfast(contender) => contender.backend,
            Self::Java { backend, .. } => *backend,
        }
    }

    fn is_handfast(&self) -> bool {
        matches!(self, Self::Handfast(_))
    }

    fn way(&self) -> String {
        match self {
            Self::Handfast(_) => "Handfast".to_owned(),
            Self::Java { client, .. } => client.name(),
        }
    }

    async fn run(
        &mut self,
        workload: Workload,
        clients: usize,
        times: (Duration, Duration),
        servers: &[Process],
    ) -> Result<(Sample, f64)> {
        match (self, workload) {
            (Self::Handfast(contender), Workload::Pairs) => pairs(contender, clients, times).await,
            (Self::Handfast(contender), Workload::HandOver) => {
                hand_overs(contender, clients, times).await
            }
            (Self::Java { java, .. }, workload) => {
                let operation = match workload {
                    Workload::Pairs => "pairs",
                    Workload::HandOver => "hand-over",
                };
                let expected = |_: &str| None;
                let run = JavaRun { operation, clients, times, servers, expected };
                let result = java.run(&run).await?;
                Ok((result.sample, result.foreign_cores))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::TIMES;
    use crate::statistics::Spread;

    #[test]
    fn a_peer_is_held_against_the_library_on_its_own_server() {
        let row = |median| Row { per_second: Spread::of([median]), ..Row::default() };
        let sides = [
            (Backend::Coordinator, true),
            (Backend::RedisDefault, true),
            (Backend::RedisDefault, false),
            (Backend::Zookeeper, true),
            (Backend::Zookeeper, false),
        ];
        let mut rows = [100.0, 300.0, 150.0, 20.0, 40.0].map(row);
        compare(&sides, &mut rows);
        let figure = |at: usize, name: &str| rows[at].figure(name).unwrap_or(f64::NAN);
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(figure(2, TIMES), 2.0) && near(figure(4, TIMES), 0.5));
        assert!(near(figure(4, "coordinator ÷ this"), 2.5));
        assert!(rows[0].figures.is_empty() && rows[1].figures.is_empty());
    }

    #[test]
    fn without_zookeeper_its_rows_are_left_out() {
        assert_eq!(backends(false).len(), 3);
        assert_eq!(backends(true)[3], Backend::Zookeeper);
        assert!(backends(true)[1..].iter().all(|backend| peer(*backend).is_some()));
    }
}
