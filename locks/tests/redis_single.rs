//! A single Redis through crashes, fail-overs and single commands: the state that it keeps, and the
//! writes that only the fencing token prevents.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "conformance/setup.rs"]
#[expect(dead_code, reason = "it serves the other tests too")]
mod setup;

use std::sync::Arc;

use futures::future::join_all;
use handfast_locks::fencing::FencedKey;
use handfast_locks::{
    AcquireRequest, AcquireResponse, Backend, LockError, LockRef, Locks, QueueMode, RedisLocks,
    ReleaseRequest, ReleaseResponse,
};
use handfast_test_services::{DatabaseServer, ServerDirectory, ServerKind, until};
use redis::aio::MultiplexedConnection;

use setup::{LEASE, acquire_request, fresh, lock_ref, over, redis_connection, redis_locks, server};

async fn start() -> DatabaseServer {
    let start = || DatabaseServer::start(ServerKind::Redis, &ServerDirectory::new()?, &|| Ok(()));
    tokio::task::spawn_blocking(start).await.unwrap().unwrap()
}

async fn locks(url: &str) -> Locks {
    over(Arc::new(redis_locks(url).await)).start().unwrap()
}

/// R1, R2, R13: a held lock has an expiry at every moment, and all of a lock is in one slot of a
/// cluster.
#[tokio::test]
async fn no_holder_is_kept_without_an_expiry() {
    let url = server("HANDFAST_TEST_REDIS");
    let (locks, mut redis) = (locks(&url).await, redis_connection(&url).await);
    for is_shared in [false, true] {
        let name = fresh();
        let guard = if is_shared {
            locks.lock_shared(&name).await.unwrap()
        } else {
            locks.lock(&name).await.unwrap()
        };
        let pattern = format!("handfast:lock:*{name}*");
        let keys: Vec<String> =
            redis::cmd("KEYS").arg(pattern).query_async(&mut redis).await.unwrap();
        assert!(keys.len() >= 2, "{keys:?}");
        for key in keys {
            assert!(key.contains(&format!("{{{name}}}")), "{key} may be in another slot");
            let left: i64 = redis::cmd("PTTL").arg(&key).query_async(&mut redis).await.unwrap();
            // Fencing tokens stay forever; the keys that name the holder do not.
            assert_eq!(left == -1, key.ends_with("fence"), "{key}: {left}");
            assert!(left <= i64::try_from(LEASE.as_millis()).unwrap(), "{key}: {left}");
        }
        drop(guard);
    }
}

/// Regression: `volatile-*` was accepted, under which held locks are evicted.
#[tokio::test]
async fn a_server_that_evicts_locks_is_refused() {
    let server = start().await;
    let mut redis = redis_connection(&server.url()).await;
    for policy in ["volatile-lru", "volatile-ttl", "allkeys-lru"] {
        let mut set = redis::cmd("CONFIG");
        set.arg("SET").arg("maxmemory-policy").arg(policy);
        let () = set.query_async(&mut redis).await.unwrap();
        let refused = RedisLocks::connect(&server.url()).await.map(drop);
        let Err(LockError::Refused { source }) = refused else { panic!("{policy}: {refused:?}") };
        assert!(source.to_string().contains(policy), "{source}");
    }
}

/// R13: a cluster, here of one server, runs no script whose keys lie in two slots.
#[tokio::test]
async fn a_lock_is_one_slot_of_a_cluster() {
    let mut redis = start().await;
    let bus = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let bus = format!("cluster-port={bus}");
    let restart = move || {
        redis.restart_with(&["cluster-enabled=yes", &bus])?;
        anyhow::Ok(redis)
    };
    let redis = tokio::task::spawn_blocking(restart).await.unwrap().unwrap();
    let mut connection = redis_connection(&redis.url()).await;
    let mut slots = redis::cmd("CLUSTER");
    slots.arg("ADDSLOTSRANGE").arg(0).arg(16383);
    let () = slots.query_async(&mut connection).await.unwrap();
    let crosses: Result<(), _> =
        redis::cmd("MGET").arg("a").arg("b").query_async(&mut connection).await;
    assert!(crosses.is_err(), "it is not a cluster");

    let (one, other) = (locks(&redis.url()).await, locks(&redis.url()).await);
    let writer = one.lock("orders/42").await.unwrap();
    assert!(matches!(other.try_lock("orders/42").await, Err(LockError::Busy { .. })));
    let waiting = tokio::spawn(async move { other.lock("orders/42").await.unwrap() });
    drop(writer.downgrade().await.unwrap());
    assert!(waiting.await.unwrap().is_held());
    let reader = one.lock_shared("prices").await.unwrap();
    assert_eq!(one.lock_shared("prices").await.unwrap().fencing_token(), reader.fencing_token());
    let permits = one.semaphore("printers", 2).unwrap();
    let _permits = [permits.acquire().await.unwrap(), permits.acquire().await.unwrap()];
    // Neither the locks that are requested together nor those that are renewed together are in one
    // slot.
    let backend = redis_locks(&redis.url()).await;
    let lock_refs: Vec<LockRef> = (0..20).map(|_| lock_ref(&fresh())).collect();
    let asks: Vec<AcquireRequest> =
        lock_refs.iter().map(|lock_ref| acquire_request(lock_ref, QueueMode::NoWait)).collect();
    for answer in join_all(asks.iter().map(|request| backend.acquire(request))).await {
        assert!(matches!(answer.unwrap(), AcquireResponse::Granted { .. }));
    }
    assert_eq!(backend.renew(&lock_refs, LEASE).await.unwrap(), [true; 20]);
}

/// Requests that come together are one call. Each has an answer of its own all the same, also if
/// one cannot be served.
#[tokio::test]
async fn batched_requests_get_their_own_answers() {
    let url = server("HANDFAST_TEST_REDIS");
    let (backend, mut redis) = (redis_locks(&url).await, redis_connection(&url).await);
    let names: Vec<String> = (0..100).map(|_| fresh()).collect();
    let lock_refs: Vec<LockRef> = names.iter().map(|name| lock_ref(name)).collect();
    // The counter of the first lock has another type.
    let mut push = redis::cmd("RPUSH");
    push.arg(counter_key(&names[0])).arg("x");
    let () = push.query_async(&mut redis).await.unwrap();
    let asks: Vec<AcquireRequest> =
        lock_refs.iter().map(|lock_ref| acquire_request(lock_ref, QueueMode::NoWait)).collect();
    let answers = join_all(asks.iter().map(|request| backend.acquire(request))).await;
    for (at, answer) in answers.iter().enumerate() {
        assert_eq!(
            matches!(answer, Ok(AcquireResponse::Granted { .. })),
            at != 0,
            "{at}: {answer:?}"
        );
    }
    // Another acquisition holds half of them.
    let leaves: Vec<ReleaseRequest> = names
        .iter()
        .zip(&lock_refs)
        .enumerate()
        .skip(1)
        .map(|(at, (name, mine))| {
            let lock_ref = if at % 2 == 0 { mine.clone() } else { lock_ref(name) };
            ReleaseRequest { lock_ref, refuse_late_requests: false, is_uncontended: true }
        })
        .collect();
    let left = join_all(leaves.iter().map(|request| backend.release(request))).await;
    for (at, left) in (1..).zip(left) {
        assert_eq!(matches!(left.unwrap(), ReleaseResponse::Released), at % 2 == 0, "{at}");
    }
}

/// The server refuses a call as a whole for one lock that the client may not touch.
#[tokio::test]
async fn a_forbidden_lock_does_not_block_its_batch() {
    let server = start().await;
    let allowed: Vec<String> = (0..20).map(|_| fresh()).collect();
    let forbidden = fresh();
    let mut user = redis::cmd("ACL");
    user.arg("SETUSER").arg("teller").arg(&["on", ">secret", "+@all", "&*"]);
    user.arg(allowed.iter().map(|name| format!("~*{name}*")).collect::<Vec<_>>());
    let () = user.query_async(&mut redis_connection(&server.url()).await).await.unwrap();
    let url = server.url().replace("redis://", "redis://teller:secret@");
    let backend = redis_locks(&url).await;
    let names = allowed.iter().take(10).chain([&forbidden]).chain(allowed.iter().skip(10));
    let lock_refs: Vec<LockRef> = names.map(|name| lock_ref(name)).collect();
    let asks: Vec<AcquireRequest> =
        lock_refs.iter().map(|lock_ref| acquire_request(lock_ref, QueueMode::NoWait)).collect();
    let answers = join_all(asks.iter().map(|request| backend.acquire(request))).await;
    for (at, answer) in answers.iter().enumerate() {
        assert_eq!(
            matches!(answer, Ok(AcquireResponse::Granted { .. })),
            at != 10,
            "{at}: {answer:?}"
        );
    }
}

/// F1: the primary dies before its replica has heard of the lock. Two clients believe to hold it,
/// and the resource admits only the later one.
#[tokio::test]
async fn a_fail_over_that_loses_a_lock_is_fenced() {
    let (mut primary, replica) = (start().await, start().await);
    let (address, name) = (primary.address(), fresh());
    let mut standby = redis_connection(&replica.url()).await;
    let mut follow = redis::cmd("REPLICAOF");
    follow.arg(address.ip().to_string()).arg(address.port());
    let () = follow.query_async(&mut standby).await.unwrap();
    let before = locks(&primary.url()).await;
    let first = before.lock(&name).await.unwrap().fencing_token();
    before.settle().await.unwrap();
    is_replicated(&primary.url()).await;
    // From here on the replica hears nothing. An operator that notices the dead primary promotes
    // it.
    let () = redis::cmd("REPLICAOF").arg("NO").arg("ONE").query_async(&mut standby).await.unwrap();
    let old = before.lock(&name).await.unwrap();
    primary.kill().unwrap();
    let new = locks(&replica.url()).await.lock(&name).await.unwrap();
    assert!(old.is_held() && new.is_held(), "the fail-over has not lost the lock");
    assert!(
        first < old.fencing_token() && old.fencing_token() < new.fencing_token(),
        "{old:?}, {new:?}"
    );

    let mut redis = redis_connection(&server("HANDFAST_TEST_REDIS")).await;
    let value = FencedKey::new(&fresh());
    value.claim(&mut redis, new.fencing_token()).await.unwrap();
    let late = value.set(&mut redis, old.fencing_token(), b"old").await;
    assert!(matches!(late, Err(LockError::Stale { .. })), "{late:?}");
    value.set(&mut redis, new.fencing_token(), b"new").await.unwrap();
}

/// Waits until a replica has confirmed all that was written to the primary before.
async fn is_replicated(primary: &str) {
    let mut redis = redis_connection(primary).await;
    // `WAIT` is for the writes of its own connection. A replica applies all writes in order, so it
    // has the earlier ones of other connections too.
    let set = redis::cmd("SET").arg(fresh()).arg("last").query_async(&mut redis).await;
    let () = set.unwrap();
    let replicas: usize = redis::cmd("WAIT").arg(1).arg(0).query_async(&mut redis).await.unwrap();
    assert_eq!(replicas, 1);
}

/// Regression: a primary that becomes a replica keeps its connections and refuses every write, and
/// the client never made another connection, which might have led to the next primary.
#[tokio::test]
async fn a_demoted_primary_is_left() {
    let server = start().await;
    let (backend, mut redis) =
        (redis_locks(&server.url()).await, redis_connection(&server.url()).await);
    let request = || acquire_request(&lock_ref(&fresh()), QueueMode::NoWait);
    backend.acquire(&request()).await.unwrap();
    let before = connections_received(&mut redis).await;
    // A replica that does not reach its primary refuses writes too.
    replica_of(&mut redis, "127.0.0.1", "1").await;
    let refused = backend.acquire(&request()).await;
    assert!(refused.is_err(), "{refused:?}");
    replica_of(&mut redis, "NO", "ONE").await;
    backend.acquire(&request()).await.unwrap();
    assert!(connections_received(&mut redis).await > before, "the old connection is used");
}

async fn replica_of(redis: &mut MultiplexedConnection, host: &str, port: &str) {
    redis::cmd("REPLICAOF").arg(host).arg(port).query_async(redis).await.unwrap()
}

async fn connections_received(redis: &mut MultiplexedConnection) -> u64 {
    let stats: String = redis::cmd("INFO").arg("stats").query_async(redis).await.unwrap();
    let line = stats.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
    line.unwrap().trim().parse().unwrap()
}

/// F7: with `appendfsync always`, a server that was killed comes back with its locks.
#[tokio::test]
async fn a_lock_outlives_its_server_where_every_write_is_synced() {
    let mut redis = start().await;
    let (holder, name) = (locks(&redis.url()).await, fresh());
    let guard = holder.lock(&name).await.unwrap();
    redis.kill().unwrap();
    redis.restart().unwrap();
    let refused = locks(&redis.url()).await.try_lock(&name).await;
    let Err(LockError::Busy { holder: Some(found), .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(found.id, guard.id());
    let after = guard.fencing_token();
    let _outcome = guard.release().await.unwrap();
    assert!(locks(&redis.url()).await.lock(&name).await.unwrap().fencing_token() > after);
}

/// The server falls back to older data while the client stays connected, as when a replica that is
/// behind replaces it behind a proxy.
#[tokio::test]
async fn tokens_grow_over_older_data() {
    let url = server("HANDFAST_TEST_REDIS");
    let (locks, mut redis, name) = (locks(&url).await, redis_connection(&url).await, fresh());
    let mut last = locks.lock(&name).await.unwrap().fencing_token();
    let older = counter(&mut redis, &name).await;
    assert_eq!(older, last.to_string());
    for _ in 0..3 {
        locks.settle().await.unwrap();
        let mut set = redis::cmd("SET");
        set.arg(counter_key(&name)).arg(&older);
        let () = set.query_async(&mut redis).await.unwrap();
        let guard = locks.lock(&name).await.unwrap();
        assert!(last < guard.fencing_token(), "{} after {last}", guard.fencing_token());
        last = guard.fencing_token();
    }
}

/// A repeated request gets a fencing token even if the counter was deleted.
#[tokio::test]
async fn a_holder_without_a_counter_has_a_token() {
    let url = server("HANDFAST_TEST_REDIS");
    let (backend, mut redis) = (redis_locks(&url).await, redis_connection(&url).await);
    let (name, mut fences) = (fresh(), Vec::new());
    let request = acquire_request(&lock_ref(&name), QueueMode::Join);
    for _ in 0..2 {
        let answer = backend.acquire(&request).await.unwrap();
        let AcquireResponse::Granted { fencing_token, .. } = answer else { panic!("{answer:?}") };
        fences.push(fencing_token);
        let delete = redis::cmd("DEL").arg(counter_key(&name)).query_async(&mut redis).await;
        let () = delete.unwrap();
    }
    assert!(fences[0] < fences[1], "{fences:?}");
}

/// The short scripts go by the mark of the counter: it is there exactly as long as there is a
/// waiter or a shared holder.
#[tokio::test]
async fn counter_is_marked_while_more_than_a_holder_exists() {
    let url = server("HANDFAST_TEST_REDIS");
    let (one, other) = (locks(&url).await, locks(&url).await);
    let (mut redis, name) = (redis_connection(&url).await, fresh());
    let writer = one.lock(&name).await.unwrap();
    assert_eq!(counter(&mut redis, &name).await, writer.fencing_token().to_string());
    let waiting = tokio::spawn({
        let (other, name) = (other.clone(), name.clone());
        async move { other.lock_shared(&name).await.unwrap() }
    });
    let queue = format!("handfast:lock:{{{name}}}:queue");
    until("the reader waits", async || {
        redis::cmd("EXISTS").arg(&queue).query_async(&mut redis).await.unwrap()
    })
    .await;
    assert_eq!(counter(&mut redis, &name).await, format!("~{}", writer.fencing_token()));
    drop(writer);
    let reader = waiting.await.unwrap();
    assert_eq!(counter(&mut redis, &name).await, format!("~{}", reader.fencing_token()));
    let fencing_token = reader.fencing_token();
    let _outcome = reader.release().await.unwrap();
    assert_eq!(counter(&mut redis, &name).await, fencing_token.to_string());
    assert!(fencing_token < one.lock(&name).await.unwrap().fencing_token());
}

fn counter_key(name: &str) -> String {
    format!("handfast:lock:{{{name}}}:fence")
}

async fn counter(redis: &mut MultiplexedConnection, name: &str) -> String {
    redis::cmd("GET").arg(counter_key(name)).query_async(redis).await.unwrap()
}
