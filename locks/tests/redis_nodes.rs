//! Redis servers that are killed, stopped, started again and emptied: what Redlock is for, and what
//! a single Redis can keep.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "conformance/stage.rs"]
#[expect(dead_code, reason = "it serves the other tests too")]
mod stage;

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use handfast_locks::{
    Answer, Ask, Backend, Guard, Leave, Left, LockError, Moment, Outcome, Place, RedisLocks,
    RedlockLocks,
};
use handfast_test_services::{DatabaseServer, Kind};
use redis::aio::MultiplexedConnection;

use stage::{ask, fresh, hold, over, redlock, server};

const NODES: usize = 5;
/// So short that a test can wait for servers to be of age.
const LEASE_MAX: Duration = Duration::from_secs(5);

struct Nodes {
    servers: Vec<DatabaseServer>,
}

impl Nodes {
    async fn start() -> Self {
        let start = || {
            let place = handfast_test_services::Place::new()?;
            let start = |_| DatabaseServer::start(Kind::Redis, &place, &|| Ok(()));
            (0..NODES).map(start).collect::<anyhow::Result<Vec<_>>>()
        };
        let servers = tokio::task::spawn_blocking(start).await.unwrap().unwrap();
        Self { servers }
    }

    /// A backend that counts every server.
    async fn redlock(&self) -> Arc<RedlockLocks> {
        let urls = self.servers.iter().map(DatabaseServer::url);
        let locks = RedlockLocks::connect(urls, LEASE_MAX).await.unwrap();
        locks.settled().await.unwrap();
        Arc::new(locks)
    }

    async fn connection(&self, node: usize) -> MultiplexedConnection {
        let client = redis::Client::open(self.servers[node].url()).unwrap();
        client.get_multiplexed_async_connection().await.unwrap()
    }

    async fn holds(&self, node: usize, name: &str) -> bool {
        let mut connection = self.connection(node).await;
        redis::cmd("EXISTS").arg(key(name)).query_async(&mut connection).await.unwrap()
    }
}

fn key(name: &str) -> String {
    format!("handfast:lock:{{{name}}}")
}

fn locks(backend: &Arc<RedlockLocks>) -> handfast_locks::Locks {
    over(Arc::clone(backend) as _).lease(LEASE_MAX).start().unwrap()
}

fn short(name: &str) -> Ask {
    let mut ask = ask(&hold(name), Place::None);
    ask.lease = LEASE_MAX;
    ask
}

/// F2: a minority is missed by nobody.
#[tokio::test]
async fn two_of_five_nodes_may_be_dead() {
    let mut nodes = Nodes::start().await;
    let (backend, name) = (nodes.redlock().await, fresh());
    nodes.servers[0].kill().unwrap();
    nodes.servers[3].kill().unwrap();
    let guard = locks(&backend).lock(&name).await.unwrap();
    let refused = locks(&backend).try_lock(&name).await;
    let Err(LockError::Busy { holder: Some(holder), .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(holder.token, guard.token());
    assert_eq!(guard.release().await.unwrap(), Outcome::Released);
    assert!(locks(&backend).try_lock(&name).await.is_ok());
}

/// F2: without a majority nothing is granted, and nothing stays behind.
#[tokio::test]
async fn three_of_five_dead_nodes_are_too_many() {
    let mut nodes = Nodes::start().await;
    let (backend, name) = (nodes.redlock().await, fresh());
    for node in 0..3 {
        nodes.servers[node].kill().unwrap();
    }
    let refused = locks(&backend).try_lock(&name).await;
    let Err(LockError::Unavailable { source, .. }) = refused else { panic!("{refused:?}") };
    assert!(source.to_string().contains("no quorum"), "{source}");
    for node in [3, 4] {
        while nodes.holds(node, &name).await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// F5: a node that was away when its lock was let go hears of it as soon as it is back, long before
/// the lease ends.
#[tokio::test]
async fn a_silent_node_is_told_of_the_release() {
    let mut nodes = Nodes::start().await;
    let urls = nodes.servers.iter().map(DatabaseServer::url);
    let backend = RedlockLocks::connect(urls, Duration::from_secs(3600)).await.unwrap();
    let (mut asked, name) = (ask(&hold(&fresh()), Place::None), fresh());
    asked.name = handfast_locks::LockName::new(&*name).unwrap();
    // Held on every node, though none of them votes yet.
    assert!(backend.ask(&asked).await.is_err());
    assert!(nodes.holds(4, &name).await);
    nodes.servers[4].kill().unwrap();
    let hold = handfast_locks::Hold { name: asked.name.clone(), token: asked.token };
    let left = backend.leave(&Leave { hold, is_doubtful: false, is_alone: false }).await.unwrap();
    assert_eq!(left, Left::Freed);
    // With all that it has confirmed.
    nodes.servers[4].restart().unwrap();
    while nodes.holds(4, &name).await {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut connection = nodes.connection(4).await;
    let mut barred = redis::cmd("ZSCORE");
    barred.arg(format!("{}:barred", key(&name))).arg(asked.token.to_string());
    let barred: Option<f64> = barred.query_async(&mut connection).await.unwrap();
    assert!(barred.is_some(), "it was the lease that ended");
}

/// F6: held on A, B and C; C is started again and has forgotten; C, D and E would be a majority.
#[tokio::test]
async fn a_node_that_was_started_again_does_not_vote() {
    let mut nodes = Nodes::start().await;
    let (backend, name) = (nodes.redlock().await, fresh());
    let guards = [3, 4].map(|node| &nodes.servers[node]);
    guards.iter().for_each(|server| server.pause());
    let first = short(&name);
    let granted_at = Moment::now();
    assert!(matches!(backend.ask(&first).await.unwrap(), Answer::Granted { .. }));
    guards.iter().for_each(|server| server.go_on());
    // What was asked of D and E while they were silent is taken back, as if it had been lost.
    for node in [3, 4] {
        empty(&mut nodes.connection(node).await).await;
    }
    nodes.servers[2].restart().unwrap();
    empty(&mut nodes.connection(2).await).await;
    loop {
        let second = short(&name);
        if matches!(backend.ask(&second).await, Ok(Answer::Granted { .. })) {
            break;
        }
        // Whoever gives up is refused from then on; somebody else asks.
        let _left =
            backend.leave(&Leave { hold: of(&second), is_doubtful: false, is_alone: false }).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(granted_at + LEASE_MAX <= Moment::now(), "two majorities at once");
}

/// F3: whatever the nodes took to answer, the holder stops believing before any of them may give
/// the lock away.
#[tokio::test]
async fn the_deadline_is_before_the_end_of_every_nodes_lease() {
    let nodes = Nodes::start().await;
    let (backend, name) = (nodes.redlock().await, fresh());
    let guard = locks(&backend).lock(&name).await.unwrap();
    for node in 0..NODES {
        let mut connection = nodes.connection(node).await;
        let left: i64 =
            redis::cmd("PTTL").arg(key(&name)).query_async(&mut connection).await.unwrap();
        let ends_at = Moment::now() + Duration::from_millis(u64::try_from(left).unwrap() + 1);
        let drift = LEASE_MAX / 100 + Duration::from_millis(2);
        assert!(guard.deadline() + drift <= ends_at, "node {node}");
    }
}

/// A token that only one node has seen so far is written down by a majority before it is used, so
/// that the next one is larger without that node.
#[tokio::test]
async fn fences_grow_whichever_majority_answers() {
    let nodes = Nodes::start().await;
    let (backend, name) = (nodes.redlock().await, fresh());
    // As if its clock were ahead by years.
    let ahead: i64 = 8_000_000_000_000_000;
    let mut connection = nodes.connection(0).await;
    let counter = format!("{}:fence", key(&name));
    let set = redis::cmd("SET").arg(counter).arg(ahead).query_async(&mut connection).await;
    let () = set.unwrap();
    let mut last = ahead;
    for absent in [[3, 4], [0, 1], [2, 4], [0, 3]] {
        let absent = absent.map(|node| &nodes.servers[node]);
        absent.iter().for_each(|server| server.pause());
        let guard = locks(&backend).lock(&name).await.unwrap();
        assert!(guard.fence().number() > last, "{} after {last}", guard.fence());
        last = guard.fence().number();
        let _outcome = guard.release().await.unwrap();
        absent.iter().for_each(|server| server.go_on());
    }
}

/// F4: contenders whose votes split do not stand in one another's way for ever.
#[tokio::test]
async fn one_of_many_contenders_wins() {
    let urls = server("HANDFAST_TEST_REDLOCK");
    let backends = join_all((0..4).map(|_| redlock(&urls))).await;
    let backends: Vec<_> = backends.into_iter().map(Arc::new).collect();
    for _ in 0..5 {
        let name = fresh();
        let tries = backends.iter().cycle().take(12).map(|backend| {
            let (locks, name) = (locks(backend), name.clone());
            tokio::spawn(async move { locks.try_lock(&name).await })
        });
        let tries: Vec<Result<Guard, _>> =
            join_all(tries).await.into_iter().map(Result::unwrap).collect();
        assert_eq!(tries.iter().filter(|tried| tried.is_ok()).count(), 1, "{tries:?}");
    }
}

#[tokio::test]
async fn too_few_nodes_and_too_long_leases_are_refused() {
    let mut nodes = Nodes::start().await;
    let urls: Vec<String> = nodes.servers.iter().map(DatabaseServer::url).collect();
    let two = RedlockLocks::connect(&urls[..2], LEASE_MAX).await.map(drop);
    assert!(matches!(two, Err(LockError::Refused { .. })));
    let backend = nodes.redlock().await;
    let longer = over(backend as _).lease(LEASE_MAX * 2).start().unwrap();
    let refused = longer.lock(&fresh()).await;
    assert!(matches!(refused, Err(LockError::Refused { .. })), "{refused:?}");
    for node in 0..3 {
        nodes.servers[node].kill().unwrap();
    }
    let unreachable = RedlockLocks::connect(&urls, LEASE_MAX).await.map(drop);
    assert!(matches!(unreachable, Err(LockError::Refused { .. })));
}

/// A single Redis that loses everything goes on with larger tokens.
#[tokio::test]
async fn fences_grow_over_a_loss_of_all_data() {
    let nodes = Nodes::start().await;
    let locks = RedisLocks::connect(&nodes.servers[0].url()).await.unwrap();
    let (locks, name) = (over(Arc::new(locks)).start().unwrap(), fresh());
    let mut last = None;
    for _ in 0..5 {
        let guard = locks.lock(&name).await.unwrap();
        assert!(Some(guard.fence()) > last, "{} after {last:?}", guard.fence());
        last = Some(guard.fence());
        empty(&mut nodes.connection(0).await).await;
        assert_eq!(guard.release().await.unwrap(), Outcome::WasLost);
    }
}

async fn empty(connection: &mut MultiplexedConnection) {
    let () = redis::cmd("FLUSHALL").query_async(connection).await.unwrap();
}

fn of(ask: &Ask) -> handfast_locks::Hold {
    handfast_locks::Hold { name: ask.name.clone(), token: ask.token }
}
