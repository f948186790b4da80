//! Locks among real processes: counted (T-MUTEX), killed (T-CRASH), stopped for longer than their
//! lease (T-PAUSE). The result is judged by stamps of one clock and by a file that knows nothing of
//! locks.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod child;
mod history;
mod part;
#[path = "../conformance/setup.rs"]
#[allow(dead_code, reason = "it serves the other tests too")]
mod setup;

use std::fmt::Debug;
use std::str::FromStr;
use std::time::Duration;

use handfast_locks::fencing::claim;
use handfast_locks::{FencingToken, LockName};
use handfast_test_services::RoleProcess;
use sqlx::SqlitePool;

use history::{Stay, check};
use part::{Part, Script};
use setup::{Kind, coordinator, fresh, mysql, postgres, server, sqlite};

const PROCESSES: usize = 4;
const TASKS: usize = 4;
const ROUNDS: usize = 6;
/// The leases of a holder that is paused, in the order in which they are tried.
const LEASES: [Duration; 3] =
    [Duration::from_secs(2), Duration::from_secs(8), Duration::from_secs(18)];

/// A backend that several processes reach, and a place for what the lock protects.
struct Ground {
    script: Script,
    _folders: [tempfile::TempDir; 2],
}

impl Ground {
    async fn new(kind: Kind, lease: Duration) -> Self {
        let (resource, folder) = sqlite().await;
        let spare = tempfile::tempdir().unwrap();
        let (url, other) = match kind {
            Kind::Postgres => (postgres().await, spare),
            Kind::MySql => (mysql().await, spare),
            Kind::Redis => (server("HANDFAST_TEST_REDIS"), spare),
            Kind::Redlock => (server("HANDFAST_TEST_REDLOCK"), spare),
            Kind::Etcd => (format!("etcd:{}", server("HANDFAST_TEST_ETCD")), spare),
            Kind::ZooKeeper => (format!("zookeeper:{}", server("HANDFAST_TEST_ZOOKEEPER")), spare),
            Kind::Sqlite => sqlite().await,
            Kind::Coordinator => (coordinator(), spare),
            Kind::Memory => unreachable!("it has one process"),
        };
        let script = Script {
            part: Part::Hold,
            url,
            name: fresh(),
            resource,
            counter: folder.path().join("counter").display().to_string(),
            lease_ms: u64::try_from(lease.as_millis()).unwrap(),
            tasks: TASKS,
            rounds: ROUNDS,
        };
        Self { script, _folders: [folder, other] }
    }

    fn child(&self, part: Part) -> RoleProcess {
        child::start(&Script { part, ..self.script.clone() })
    }
}

async fn a_counter_is_exact(kind: Kind) {
    let ground = Ground::new(kind, setup::LEASE).await;
    std::fs::write(&ground.script.counter, "0").unwrap();
    let mut children: Vec<RoleProcess> =
        (0..PROCESSES).map(|_| ground.child(Part::Count)).collect();
    let mut stays = Vec::new();
    for child in &mut children {
        for _ in 0..TASKS * ROUNDS {
            stays.push(Stay::read(&child.next_report::<String>().await));
        }
    }
    let count = PROCESSES * TASKS * ROUNDS;
    assert_eq!(std::fs::read_to_string(&ground.script.counter).unwrap(), count.to_string());
    check(&stays).unwrap();
}

async fn a_killed_holder_is_followed(kind: Kind) {
    let ground = Ground::new(kind, Duration::from_secs(2)).await;
    let mut holder = ground.child(Part::Hold);
    let fencing_token: i64 = reported(&mut holder, "held").await;
    holder.kill().await;
    let mut next = ground.child(Part::Hold);
    assert!(reported::<i64>(&mut next, "held").await > fencing_token);
}

async fn a_paused_holder_is_refused(kind: Kind) {
    for lease in LEASES {
        if Box::pin(is_refused_after_its_pause(kind, lease)).await {
            return;
        }
    }
    panic!("the resource admits every holder that was paused");
}

/// Returns whether a holder that was paused for longer than its lease is refused. A holder that
/// loses its lock before the pause, as a renewal was answered late, comes to the resource first.
async fn is_refused_after_its_pause(kind: Kind, lease: Duration) -> bool {
    let ground = Ground::new(kind, lease).await;
    let mut old = ground.child(Part::Hold);
    let fencing_token: i64 = reported(&mut old, "held").await;
    old.pause();
    let mut next = ground.child(Part::Hold);
    let later: i64 = reported(&mut next, "held").await;
    assert!(later > fencing_token);
    let pool = SqlitePool::connect(&ground.script.resource).await.unwrap();
    let mut local = pool.begin().await.unwrap();
    let name = LockName::new(&*ground.script.name).unwrap();
    claim(&mut local, &name, FencingToken::new(later)).await.unwrap();
    local.commit().await.unwrap();
    old.go_on();
    // It knows, and the resource knows better.
    assert_eq!(old.next_report::<String>().await, "lost");
    let told = old.next_report::<String>().await;
    assert!(["refused", "Ok(())"].contains(&&*told), "{told}");
    told == "refused"
}

async fn reported<T: FromStr<Err: Debug>>(child: &mut RoleProcess, what: &str) -> T {
    let line = child.next_report::<String>().await;
    line.strip_prefix(what).unwrap().trim().parse().unwrap()
}

macro_rules! on_every_backend {
    ($($backend:ident $kind:ident),+: $cases:tt) => {
        $(on_every_backend!(@one $backend $kind $cases);)+
    };
    (@one $backend:ident $kind:ident [$($case:ident)+]) => {
        mod $backend {
            $(
                #[tokio::test]
                async fn $case() {
                    super::$case(super::Kind::$kind).await;
                }
            )+
        }
    };
}

on_every_backend! {
    on_coordinator Coordinator, on_postgres Postgres, on_mysql MySql, on_sqlite Sqlite,
    on_redis Redis, on_redlock Redlock, on_etcd Etcd,
    on_zookeeper ZooKeeper:
    [a_counter_is_exact a_killed_holder_is_followed a_paused_holder_is_refused]
}
