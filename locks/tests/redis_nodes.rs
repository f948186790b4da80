//! Redis servers that are killed, stopped, restarted and emptied: what Redlock is for, and what a
//! single Redis can keep.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "conformance/setup.rs"]
#[expect(dead_code, reason = "it serves the other tests too")]
mod setup;

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use handfast_locks::{
    AcquireRequest, AcquireResponse, Backend, Guard, LockError, LockRef, Locks, Moment, QueueMode,
    RedisLocks, RedlockLocks, ReleaseOutcome, ReleaseRequest, ReleaseResponse,
};
use handfast_test_services::{DatabaseServer, ServerKind, until, until_some};
use redis::aio::MultiplexedConnection;

use setup::{acquire_request, fresh, lock_ref, over, redis_connection, redlock, server};

const NODES: usize = 5;
/// So short that a test can wait until restarted servers vote.
const LEASE_MAX: Duration = Duration::from_secs(5);

struct Nodes {
    servers: Vec<DatabaseServer>,
}

impl Nodes {
    async fn start() -> Self {
        let start = || {
            let place = handfast_test_services::ServerDirectory::new()?;
            let start = |_| DatabaseServer::start(ServerKind::Redis, &place, &|| Ok(()));
            (0..NODES).map(start).collect::<anyhow::Result<Vec<_>>>()
        };
        let servers = tokio::task::spawn_blocking(start).await.unwrap().unwrap();
        Self { servers }
    }

    /// Connects a backend to all servers, and waits until they vote.
    async fn redlock(&self) -> Arc<RedlockLocks> {
        until_some("enough servers vote", async || {
            let locks = self.connect(LEASE_MAX).await;
            locks.settled().await.is_ok().then(|| Arc::new(locks))
        })
        .await
    }

    /// Connects a backend to all servers, which may not vote yet.
    async fn connect(&self, lease_max: Duration) -> RedlockLocks {
        let urls: Vec<String> = self.servers.iter().map(DatabaseServer::url).collect();
        let connects = async || RedlockLocks::connect(&urls, lease_max).await.ok();
        until_some("enough servers answer", connects).await
    }

    async fn connection(&self, node: usize) -> MultiplexedConnection {
        redis_connection(&self.servers[node].url()).await
    }

    async fn until_free_on(&self, node: usize, name: &str) {
        let what = format!("{name} is free on node {node}");
        until(&what, async || !self.is_held_on(node, name).await).await;
    }

    /// The majority grants, and the others follow.
    async fn until_held_on(&self, node: usize, name: &str) {
        let what = format!("{name} is held on node {node}");
        until(&what, async || self.is_held_on(node, name).await).await;
    }

    /// Renews a lock with this lease while the last node is silent, until that has it too: the
    /// majority has answered before it can.
    async fn until_renewed_on_4(&self, backend: &RedlockLocks, held: &LockRef, lease: Duration) {
        until("node 4 has the new lease", async || {
            let left = self.lease_left_ms(4, held.name.as_str()).await;
            if left > i64::try_from(lease.as_millis()).unwrap() / 2 {
                return true;
            }
            self.servers[4].pause();
            // On a busy machine the others may be too slow: it is renewed again.
            let _renewed = backend.renew(std::slice::from_ref(held), lease).await;
            self.servers[4].go_on();
            false
        })
        .await;
    }

    async fn is_held_on(&self, node: usize, name: &str) -> bool {
        let mut connection = self.connection(node).await;
        redis::cmd("EXISTS").arg(key(name)).query_async(&mut connection).await.unwrap()
    }

    async fn lease_left_ms(&self, node: usize, name: &str) -> i64 {
        let mut connection = self.connection(node).await;
        redis::cmd("PTTL").arg(key(name)).query_async(&mut connection).await.unwrap()
    }
}

fn key(name: &str) -> String {
    format!("handfast:lock:{{{name}}}")
}

fn locks(backend: &Arc<RedlockLocks>) -> Locks {
    over(Arc::clone(backend) as _).lease(LEASE_MAX).start().unwrap()
}

/// Tries to take a lock until enough servers answer in time: where few are alive, a majority waits
/// for each of them, and on a busy machine one may take too long.
async fn answered_try(locks: &Locks, name: &str) -> Result<Guard, LockError> {
    until_some("enough servers answer", async || match locks.try_lock(name).await {
        Err(LockError::Unavailable { .. }) => None,
        answered => Some(answered),
    })
    .await
}

/// Repeats a request until enough servers answer in time.
async fn answered(backend: &RedlockLocks, request: &AcquireRequest) -> AcquireResponse {
    until_some("enough servers answer", async || backend.acquire(request).await.ok()).await
}

fn short(name: &str) -> AcquireRequest {
    request_of(&lock_ref(name), QueueMode::NoWait)
}

fn request_of(lock_ref: &LockRef, queue: QueueMode) -> AcquireRequest {
    AcquireRequest { lease: LEASE_MAX, ..acquire_request(lock_ref, queue) }
}

/// F2: a dead minority changes nothing.
#[tokio::test]
async fn two_of_five_nodes_may_be_dead() {
    let mut nodes = Nodes::start().await;
    let (backend, name) = (nodes.redlock().await, fresh());
    nodes.servers[0].kill().unwrap();
    nodes.servers[3].kill().unwrap();
    let guard = locks(&backend).lock(&name).await.unwrap();
    let refused = answered_try(&locks(&backend), &name).await;
    let Err(LockError::Busy { holder: Some(holder), .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(holder.id, guard.id());
    assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
    let is_free = async || locks(&backend).try_lock(&name).await.is_ok();
    until("the lock is free", is_free).await;
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
        nodes.until_free_on(node, &name).await;
    }
}

/// F5: a node that was away at the release gets it as soon as it is back, long before the lease
/// ends.
#[tokio::test]
async fn a_silent_node_gets_the_release_later() {
    let mut nodes = Nodes::start().await;
    let backend = nodes.connect(Duration::from_secs(3600)).await;
    let (mut asked, name) = (acquire_request(&lock_ref(&fresh()), QueueMode::NoWait), fresh());
    asked.name = handfast_locks::LockName::new(&*name).unwrap();
    asked.lease = Duration::from_secs(600);
    // The lock is held on every node, though none of them votes yet.
    assert!(backend.acquire(&asked).await.is_err());
    for node in 0..NODES {
        nodes.until_held_on(node, &name).await;
    }
    nodes.servers[4].kill().unwrap();
    let lock_ref = LockRef { name: asked.name.clone(), id: asked.id };
    let left = backend
        .release(&ReleaseRequest { lock_ref, refuse_late_requests: false, is_uncontended: false })
        .await
        .unwrap();
    assert_eq!(left, ReleaseResponse::Released);
    // The node comes back with everything that it has confirmed.
    nodes.servers[4].restart().unwrap();
    nodes.until_free_on(4, &name).await;
    let mut connection = nodes.connection(4).await;
    let mut barred = redis::cmd("ZSCORE");
    barred.arg(format!("{}:barred", key(&name))).arg(asked.id.to_string());
    let barred: Option<f64> = barred.query_async(&mut connection).await.unwrap();
    assert!(barred.is_some(), "the lease has ended instead");
}

/// Regression: a renewal was dropped once a majority had answered, before a node that had to be
/// connected to again could be asked.
#[tokio::test]
async fn a_node_that_was_away_is_renewed_again() {
    let mut nodes = Nodes::start().await;
    let (backend, name) = (nodes.redlock().await, fresh());
    let held = lock_ref(&name);
    let granted = answered(&backend, &request_of(&held, QueueMode::NoWait)).await;
    assert!(matches!(granted, AcquireResponse::Granted { .. }), "{granted:?}");
    nodes.until_renewed_on_4(&backend, &held, Duration::from_secs(60)).await;
    nodes.servers[4].kill().unwrap();
    nodes.servers[4].restart().unwrap();
    nodes.until_renewed_on_4(&backend, &held, Duration::from_secs(600)).await;
}

/// Regression: two nodes have the lock, two have not, and the fifth is silent. The lock was
/// reported as lost, though the fifth node had it too.
#[tokio::test]
async fn a_lock_that_a_silent_node_decides_is_not_reported_as_lost() {
    let nodes = Nodes::start().await;
    let (backend, name) = (nodes.redlock().await, fresh());
    let held = lock_ref(&name);
    let granted = answered(&backend, &request_of(&held, QueueMode::NoWait)).await;
    assert!(matches!(granted, AcquireResponse::Granted { .. }), "{granted:?}");
    let lease = Duration::from_secs(600);
    for node in 0..NODES {
        nodes.until_held_on(node, &name).await;
    }
    nodes.until_renewed_on_4(&backend, &held, lease).await;
    for node in [0, 1] {
        let forget = redis::cmd("DEL").arg(key(&name)).to_owned();
        let () = forget.query_async(&mut nodes.connection(node).await).await.unwrap();
    }
    nodes.servers[4].pause();
    let renewed = backend.renew(std::slice::from_ref(&held), lease).await;
    assert!(renewed.is_err(), "{renewed:?}");
    nodes.servers[4].go_on();
    until("the lock is held still", async || {
        let renewed = backend.renew(std::slice::from_ref(&held), lease).await;
        renewed.is_ok_and(|renewed| renewed == [true])
    })
    .await;
    nodes.servers[4].pause();
    let (lock_ref, refuse_late_requests, is_uncontended) = (held, false, false);
    let left =
        backend.release(&ReleaseRequest { lock_ref, refuse_late_requests, is_uncontended }).await;
    assert!(left.is_err(), "{left:?}");
    nodes.servers[4].go_on();
}

/// F6: the lock is held on A, B and C. C is restarted and has forgotten it. C, D and E would be a
/// majority.
#[tokio::test]
async fn a_restarted_node_does_not_vote() {
    let mut nodes = Nodes::start().await;
    let backend = nodes.redlock().await;
    // Every node knows the scripts, so that a request is one message.
    let _outcome = locks(&backend).lock(&fresh()).await.unwrap().release().await.unwrap();
    let guards = [3, 4].map(|node| &nodes.servers[node]);
    guards.iter().for_each(|server| server.pause());
    // Each try is for another lock: one that a busy server answered late may be held on the others.
    let (name, granted_at) = until_some("A, B and C grant a lock", async || {
        let (name, asked_at) = (fresh(), Moment::now());
        let answer = backend.acquire(&short(&name)).await;
        matches!(answer, Ok(AcquireResponse::Granted { .. })).then_some((name, asked_at))
    })
    .await;
    guards.iter().for_each(|server| server.go_on());
    // The requests to D and E while they were silent are taken back, as if they had been lost.
    for node in [3, 4] {
        empty(&mut nodes.connection(node).await).await;
    }
    nodes.servers[2].restart().unwrap();
    empty(&mut nodes.connection(2).await).await;
    until("a second acquisition is granted", async || {
        let second = short(&name);
        if matches!(backend.acquire(&second).await, Ok(AcquireResponse::Granted { .. })) {
            return true;
        }
        // An id that gives up is refused from then on, so another one tries.
        let _left = backend
            .release(&ReleaseRequest {
                lock_ref: of(&second),
                refuse_late_requests: false,
                is_uncontended: false,
            })
            .await;
        false
    })
    .await;
    assert!(granted_at + LEASE_MAX <= Moment::now(), "two majorities at once");
}

/// A lock that only a bare majority knows is held: waiters keep their order, and a request that
/// does not wait leaves nothing on the other nodes.
#[tokio::test]
async fn a_bare_majority_holds_the_lock() {
    let nodes = Nodes::start().await;
    let (backend, name) = (nodes.redlock().await, fresh());
    let guard = locks(&backend).lock(&name).await.unwrap();
    for node in [3, 4] {
        nodes.until_held_on(node, &name).await;
        let forget = redis::cmd("DEL").arg(key(&name)).to_owned();
        let () = forget.query_async(&mut nodes.connection(node).await).await.unwrap();
    }
    let refused = answered_try(&locks(&backend), &name).await;
    let Err(LockError::Busy { holder: Some(holder), .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(holder.id, guard.id());
    for node in [3, 4] {
        nodes.until_free_on(node, &name).await;
    }
    let [first, second] = [lock_ref(&name), lock_ref(&name)];
    for waiter in [&first, &second, &first, &second] {
        let answer = answered(&backend, &request_of(waiter, QueueMode::Join)).await;
        let AcquireResponse::Busy { holder: Some(holder), .. } = answer else {
            panic!("{answer:?}")
        };
        assert_eq!(holder.id, guard.id());
    }
    assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
    let early = answered(&backend, &request_of(&second, QueueMode::KeepPlace)).await;
    assert!(matches!(early, AcquireResponse::Busy { .. }), "{early:?}");
    let repeated = request_of(&first, QueueMode::KeepPlace);
    until("the first waiter has it", async || {
        matches!(answered(&backend, &repeated).await, AcquireResponse::Granted { .. })
    })
    .await;
}

/// The majority answers before the others are connected again.
#[tokio::test]
async fn a_lock_comes_to_nodes_that_answer_late() {
    let nodes = Nodes::start().await;
    let (backend, name) = (nodes.redlock().await, fresh());
    for node in [3, 4] {
        let mut connection = nodes.connection(node).await;
        let mut cut = redis::cmd("CLIENT");
        cut.arg("KILL").arg("TYPE").arg("normal").arg("SKIPME").arg("yes");
        let _killed: i64 = cut.query_async(&mut connection).await.unwrap();
    }
    // A connection is found to be cut by the request that is lost with it.
    let _before = locks(&backend).lock(&fresh()).await.unwrap();
    let _guard = locks(&backend).lock(&name).await.unwrap();
    for node in [3, 4] {
        nodes.until_held_on(node, &name).await;
    }
}

/// F3: however long the nodes took to answer, the holder stops believing in its lock before any of
/// them may grant it to another.
#[tokio::test]
async fn the_deadline_is_before_the_end_of_every_nodes_lease() {
    let nodes = Nodes::start().await;
    let backend = nodes.redlock().await;
    let drift = LEASE_MAX / 100 + Duration::from_millis(2);
    // A renewal meanwhile moves the deadline, and comes to some nodes later than to others.
    until("no renewal comes between", async || {
        let name = fresh();
        let guard = locks(&backend).lock(&name).await.unwrap();
        let deadline = guard.deadline();
        let mut left = Vec::new();
        for node in 0..NODES {
            nodes.until_held_on(node, &name).await;
            left.push((nodes.lease_left_ms(node, &name).await, Moment::now()));
        }
        let is_renewed = guard.deadline() != deadline;
        if is_renewed || !guard.is_held() {
            return false;
        }
        for (node, (left_ms, seen_at)) in left.into_iter().enumerate() {
            let ends_at = seen_at + Duration::from_millis(u64::try_from(left_ms).unwrap() + 1);
            assert!(deadline + drift <= ends_at, "node {node}");
        }
        true
    })
    .await;
}

/// A token that only one node has seen is stored by a majority before it is used, so that the next
/// one is larger without that node.
#[tokio::test]
async fn tokens_grow_whichever_majority_answers() {
    let nodes = Nodes::start().await;
    let (backend, name) = (nodes.redlock().await, fresh());
    // As if the clock of this node were ahead by years.
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
        assert!(guard.fencing_token().number() > last, "{} after {last}", guard.fencing_token());
        last = guard.fencing_token().number();
        let _outcome = guard.release().await.unwrap();
        absent.iter().for_each(|server| server.go_on());
    }
}

/// Regression: one node still had the token of an acquisition when the others had been held by
/// another one since. The repeated request was granted with that token, the smaller one.
#[tokio::test]
async fn token_of_a_minority_is_not_used_again() {
    let nodes = Nodes::start().await;
    let (backend, name) = (nodes.redlock().await, fresh());
    let request = request_of(&lock_ref(&name), QueueMode::NoWait);
    let AcquireResponse::Granted { fencing_token: first, .. } = answered(&backend, &request).await
    else {
        panic!("the lock is free");
    };
    let later = first.number() + 1_000_000_000;
    for node in 1..NODES {
        nodes.until_held_on(node, &name).await;
        let mut connection = nodes.connection(node).await;
        let mut end = redis::pipe();
        end.del(key(&name)).ignore().set(format!("{}:fence", key(&name)), later).ignore();
        let () = end.query_async(&mut connection).await.unwrap();
    }
    let again = answered(&backend, &request).await;
    let AcquireResponse::Granted { fencing_token, .. } = again else { panic!("{again:?}") };
    assert!(fencing_token.number() > later, "{fencing_token} after {later}");
}

/// F4: contenders whose votes split do not block each other forever.
#[tokio::test]
async fn one_of_many_contenders_wins() {
    let urls = server("HANDFAST_TEST_REDLOCK");
    let backends = join_all((0..4).map(|_| redlock(&urls))).await;
    let backends: Vec<_> = backends.into_iter().map(Arc::new).collect();
    for _ in 0..5 {
        // A contender that a busy server answers too late may have been the winner.
        until("all contenders are answered", async || {
            let name = fresh();
            let tries = backends.iter().cycle().take(12).map(|backend| {
                let (locks, name) = (locks(backend), name.clone());
                tokio::spawn(async move { locks.try_lock(&name).await })
            });
            let tries: Vec<Result<Guard, _>> =
                join_all(tries).await.into_iter().map(Result::unwrap).collect();
            let winners = tries.iter().filter(|tried| tried.is_ok()).count();
            let is_late = |tried: &Result<Guard, LockError>| {
                matches!(tried, Err(LockError::Unavailable { .. }))
            };
            let are_answered = !tries.iter().any(is_late);
            assert!(winners == 1 || winners == 0 && !are_answered, "{tries:?}");
            are_answered
        })
        .await;
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
async fn tokens_grow_over_a_loss_of_all_data() {
    let nodes = Nodes::start().await;
    let locks = RedisLocks::connect(&nodes.servers[0].url()).await.unwrap();
    let (locks, name) = (over(Arc::new(locks)).start().unwrap(), fresh());
    let mut last = None;
    for _ in 0..5 {
        let guard = locks.lock(&name).await.unwrap();
        assert!(Some(guard.fencing_token()) > last, "{} after {last:?}", guard.fencing_token());
        last = Some(guard.fencing_token());
        empty(&mut nodes.connection(0).await).await;
        assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::WasLost);
    }
}

async fn empty(connection: &mut MultiplexedConnection) {
    let () = redis::cmd("FLUSHALL").query_async(connection).await.unwrap();
}

fn of(request: &AcquireRequest) -> LockRef {
    LockRef { name: request.name.clone(), id: request.id }
}
