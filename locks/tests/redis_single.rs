//! What a single Redis keeps through crashes, fail-overs and single commands, and what only the
//! fence does.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "conformance/stage.rs"]
#[expect(dead_code, reason = "it serves the other tests too")]
mod stage;

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use handfast_locks::fencing::FencedKey;
use handfast_locks::{
    Answer, Ask, Backend, Hold, Leave, Left, LockError, Locks, Place as Queue, RedisLocks,
};
use handfast_test_services::{DatabaseServer, Kind, Place};
use redis::aio::MultiplexedConnection;

use stage::{LEASE, ask, fresh, hold, over, server};

async fn start() -> DatabaseServer {
    let start = || DatabaseServer::start(Kind::Redis, &Place::new()?, &|| Ok(()));
    tokio::task::spawn_blocking(start).await.unwrap().unwrap()
}

async fn connection(url: &str) -> MultiplexedConnection {
    redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap()
}

async fn locks(url: &str) -> Locks {
    over(Arc::new(RedisLocks::connect(url).await.unwrap())).start().unwrap()
}

/// R1, R2, R13: at no moment is there a held lock without an expiry, and all of a lock is in one
/// slot of a cluster.
#[tokio::test]
async fn no_holder_is_kept_without_an_expiry() {
    let url = server("HANDFAST_TEST_REDIS");
    let (locks, mut redis) = (locks(&url).await, connection(&url).await);
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
            // Fences are for ever; whatever says who holds the lock is not.
            assert_eq!(left == -1, key.ends_with("fence"), "{key}: {left}");
            assert!(left <= i64::try_from(LEASE.as_millis()).unwrap(), "{key}: {left}");
        }
        drop(guard);
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
    let mut connection = connection(&redis.url()).await;
    let mut slots = redis::cmd("CLUSTER");
    slots.arg("ADDSLOTSRANGE").arg(0).arg(16383);
    let () = slots.query_async(&mut connection).await.unwrap();
    let crosses: Result<(), _> =
        redis::cmd("MGET").arg("a").arg("b").query_async(&mut connection).await;
    assert!(crosses.is_err(), "it is no cluster");

    let (one, other) = (locks(&redis.url()).await, locks(&redis.url()).await);
    let writer = one.lock("orders/42").await.unwrap();
    assert!(matches!(other.try_lock("orders/42").await, Err(LockError::Busy { .. })));
    let waiting = tokio::spawn(async move { other.lock("orders/42").await.unwrap() });
    drop(writer.downgrade().await.unwrap());
    assert!(waiting.await.unwrap().is_held());
    let reader = one.lock_shared("prices").await.unwrap();
    assert_eq!(one.lock_shared("prices").await.unwrap().fence(), reader.fence());
    let permits = one.semaphore("printers", 2).unwrap();
    let _permits = [permits.acquire().await.unwrap(), permits.acquire().await.unwrap()];
    // Neither those that are asked for together nor those that are renewed together are one slot.
    let backend = RedisLocks::connect(&redis.url()).await.unwrap();
    let holds: Vec<Hold> = (0..20).map(|_| hold(&fresh())).collect();
    let asks: Vec<Ask> = holds.iter().map(|hold| ask(hold, Queue::None)).collect();
    for answer in join_all(asks.iter().map(|ask| backend.ask(ask))).await {
        assert!(matches!(answer.unwrap(), Answer::Granted { .. }));
    }
    assert_eq!(backend.renew(&holds, LEASE).await.unwrap(), [true; 20]);
}

/// Requests that come together are one call: each has an answer of its own all the same, also where
/// one cannot be served.
#[tokio::test]
async fn what_comes_together_is_answered_one_by_one() {
    let url = server("HANDFAST_TEST_REDIS");
    let (backend, mut redis) = (RedisLocks::connect(&url).await.unwrap(), connection(&url).await);
    let names: Vec<String> = (0..100).map(|_| fresh()).collect();
    let holds: Vec<Hold> = names.iter().map(|name| hold(name)).collect();
    // The counter of the first is something else.
    let mut push = redis::cmd("RPUSH");
    push.arg(counter_key(&names[0])).arg("x");
    let () = push.query_async(&mut redis).await.unwrap();
    let asks: Vec<Ask> = holds.iter().map(|hold| ask(hold, Queue::None)).collect();
    let answers = join_all(asks.iter().map(|ask| backend.ask(ask))).await;
    for (at, answer) in answers.iter().enumerate() {
        assert_eq!(matches!(answer, Ok(Answer::Granted { .. })), at != 0, "{at}: {answer:?}");
    }
    // Half of them belong to somebody else.
    let leaves: Vec<Leave> = names
        .iter()
        .zip(&holds)
        .enumerate()
        .skip(1)
        .map(|(at, (name, mine))| {
            let hold = if at % 2 == 0 { mine.clone() } else { hold(name) };
            Leave { hold, is_doubtful: false, is_alone: true }
        })
        .collect();
    let left = join_all(leaves.iter().map(|leave| backend.leave(leave))).await;
    for (at, left) in (1..).zip(left) {
        assert_eq!(matches!(left.unwrap(), Left::Freed), at % 2 == 0, "{at}");
    }
}

/// The server refuses a call as a whole for one lock that the client may not touch.
#[tokio::test]
async fn a_lock_that_is_forbidden_does_not_keep_the_others() {
    let server = start().await;
    let allowed: Vec<String> = (0..20).map(|_| fresh()).collect();
    let forbidden = fresh();
    let mut user = redis::cmd("ACL");
    user.arg("SETUSER").arg("teller").arg(&["on", ">secret", "+@all", "&*"]);
    user.arg(allowed.iter().map(|name| format!("~*{name}*")).collect::<Vec<_>>());
    let () = user.query_async(&mut connection(&server.url()).await).await.unwrap();
    let url = server.url().replace("redis://", "redis://teller:secret@");
    let backend = RedisLocks::connect(&url).await.unwrap();
    let names = allowed.iter().take(10).chain([&forbidden]).chain(allowed.iter().skip(10));
    let holds: Vec<Hold> = names.map(|name| hold(name)).collect();
    let asks: Vec<Ask> = holds.iter().map(|hold| ask(hold, Queue::None)).collect();
    let answers = join_all(asks.iter().map(|ask| backend.ask(ask))).await;
    for (at, answer) in answers.iter().enumerate() {
        assert_eq!(matches!(answer, Ok(Answer::Granted { .. })), at != 10, "{at}: {answer:?}");
    }
}

/// F1: the primary dies before its replica has heard of the lock. Two believe to hold it, and the
/// resource lets in the later one alone.
#[tokio::test]
async fn a_fail_over_that_forgets_a_lock_is_fenced() {
    let (mut primary, replica) = (start().await, start().await);
    let (address, name) = (primary.address(), fresh());
    let mut standby = connection(&replica.url()).await;
    let mut follow = redis::cmd("REPLICAOF");
    follow.arg(address.ip().to_string()).arg(address.port());
    let () = follow.query_async(&mut standby).await.unwrap();
    let before = locks(&primary.url()).await;
    let first = before.lock(&name).await.unwrap().fence();
    before.settle().await.unwrap();
    is_replicated(&mut standby, &name).await;
    // From here on the replica hears nothing; whoever notices that the primary is dead promotes it.
    let () = redis::cmd("REPLICAOF").arg("NO").arg("ONE").query_async(&mut standby).await.unwrap();
    let old = before.lock(&name).await.unwrap();
    primary.kill().unwrap();
    let new = locks(&replica.url()).await.lock(&name).await.unwrap();
    assert!(old.is_held() && new.is_held(), "the fail-over has not lost the lock");
    assert!(first < old.fence() && old.fence() < new.fence(), "{old:?}, {new:?}");

    let mut redis = connection(&server("HANDFAST_TEST_REDIS")).await;
    let value = FencedKey::new(&fresh());
    value.claim(&mut redis, new.fence()).await.unwrap();
    let late = value.set(&mut redis, old.fence(), b"old").await;
    assert!(matches!(late, Err(LockError::Stale { .. })), "{late:?}");
    value.set(&mut redis, new.fence(), b"new").await.unwrap();
}

/// The counter of fences has come over.
async fn is_replicated(standby: &mut MultiplexedConnection, name: &str) {
    while !redis::cmd("EXISTS").arg(counter_key(name)).query_async::<bool>(standby).await.unwrap() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// F7: with `appendfsync always` a server that was killed comes back with its locks.
#[tokio::test]
async fn a_lock_outlives_its_server_where_every_write_is_synced() {
    let mut redis = start().await;
    let (holder, name) = (locks(&redis.url()).await, fresh());
    let guard = holder.lock(&name).await.unwrap();
    redis.kill().unwrap();
    redis.restart().unwrap();
    let refused = locks(&redis.url()).await.try_lock(&name).await;
    let Err(LockError::Busy { holder: Some(found), .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(found.token, guard.token());
    let after = guard.fence();
    let _outcome = guard.release().await.unwrap();
    assert!(locks(&redis.url()).await.lock(&name).await.unwrap().fence() > after);
}

/// The server falls back to older data while the client stays connected, as when a replica that is
/// behind takes its place behind a proxy.
#[tokio::test]
async fn fences_grow_over_older_data_under_a_living_connection() {
    let url = server("HANDFAST_TEST_REDIS");
    let (locks, mut redis, name) = (locks(&url).await, connection(&url).await, fresh());
    let mut last = locks.lock(&name).await.unwrap().fence();
    let older = counter(&mut redis, &name).await;
    assert_eq!(older, last.to_string());
    for _ in 0..3 {
        locks.settle().await.unwrap();
        let mut set = redis::cmd("SET");
        set.arg(counter_key(&name)).arg(&older);
        let () = set.query_async(&mut redis).await.unwrap();
        let guard = locks.lock(&name).await.unwrap();
        assert!(last < guard.fence(), "{} after {last}", guard.fence());
        last = guard.fence();
    }
}

/// Whoever asks twice has a fence even if somebody has deleted the counter.
#[tokio::test]
async fn a_holder_without_a_counter_has_a_fence() {
    let url = server("HANDFAST_TEST_REDIS");
    let (backend, mut redis) = (RedisLocks::connect(&url).await.unwrap(), connection(&url).await);
    let (name, mut fences) = (fresh(), Vec::new());
    let ask = ask(&hold(&name), Queue::Join);
    for _ in 0..2 {
        let answer = backend.ask(&ask).await.unwrap();
        let Answer::Granted { fence, .. } = answer else { panic!("{answer:?}") };
        fences.push(fence);
        let delete = redis::cmd("DEL").arg(counter_key(&name)).query_async(&mut redis).await;
        let () = delete.unwrap();
    }
    assert!(fences[0] < fences[1], "{fences:?}");
}

/// The short scripts go by the mark of the counter: it is there as long as anybody waits or holds
/// a part, and not longer.
#[tokio::test]
async fn a_counter_is_marked_while_there_is_more_than_a_holder() {
    let url = server("HANDFAST_TEST_REDIS");
    let (one, other) = (locks(&url).await, locks(&url).await);
    let (mut redis, name) = (connection(&url).await, fresh());
    let writer = one.lock(&name).await.unwrap();
    assert_eq!(counter(&mut redis, &name).await, writer.fence().to_string());
    let waiting = tokio::spawn({
        let (other, name) = (other.clone(), name.clone());
        async move { other.lock_shared(&name).await.unwrap() }
    });
    let queue = format!("handfast:lock:{{{name}}}:queue");
    while !redis::cmd("EXISTS").arg(&queue).query_async::<bool>(&mut redis).await.unwrap() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(counter(&mut redis, &name).await, format!("~{}", writer.fence()));
    drop(writer);
    let reader = waiting.await.unwrap();
    assert_eq!(counter(&mut redis, &name).await, format!("~{}", reader.fence()));
    let fence = reader.fence();
    let _outcome = reader.release().await.unwrap();
    assert_eq!(counter(&mut redis, &name).await, fence.to_string());
    assert!(fence < one.lock(&name).await.unwrap().fence());
}

fn counter_key(name: &str) -> String {
    format!("handfast:lock:{{{name}}}:fence")
}

async fn counter(redis: &mut MultiplexedConnection, name: &str) -> String {
    redis::cmd("GET").arg(counter_key(name)).query_async(redis).await.unwrap()
}
