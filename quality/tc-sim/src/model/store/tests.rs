//! The contract of `Store`, to which `tc-server/tests/stores` holds the product's stores, on
//! virtual time. Cases that both have are named alike.

use std::future::Future;
use std::sync::{Arc, Mutex};

use futures::channel::oneshot;
use handfast_core::{Change, Epoch, GlobalRecord, GlobalState, Labels, Record, Timestamp, Xid};
use handfast_server::store::{Leader, MemoryStore, Store, StoreError};

use super::host::StoreHost;
use super::lease::LEASE;
use super::sim_store::{SimStore, node};
use crate::model::observation::{Observation, Observer};
use crate::plan::{Fault, Plan};
use crate::random::Random;
use crate::world::{LogMode, MS, Owner, RunEnd, SECOND, World};

/// An observer that ignores everything.
struct NoJudge;

impl Observer for NoJudge {
    fn observe(&self, _observation: &Observation<'_>) {}
}

/// A store that two processes have open.
#[derive(Clone)]
struct Shared {
    world: Arc<World>,
    host: Arc<StoreHost>,
    stores: [Arc<SimStore>; 2],
}

/// Runs a case to its end.
fn check<F: Future<Output = ()> + Send + 'static>(case: impl FnOnce(Shared) -> F) {
    let plan = Plan { servers: 2, without: Fault::ALL.into(), ..Plan::of_seed(1) };
    let world = World::new(plan, LogMode::Off);
    let host = StoreHost::new(&world, Arc::new(NoJudge));
    let stores = [0, 1].map(|server| Arc::new(SimStore::open(&host, server)));
    let failed = Mutex::new(None);
    let case = case(Shared { world: Arc::clone(&world), host, stores });
    let end = world.run(case, |failure| *failed.lock().unwrap() = Some(failure));
    assert_eq!((end, failed.into_inner().unwrap()), (RunEnd::Done, None));
}

fn put(number: u64, name: &str) -> Vec<Change> {
    vec![Change::Put(Record::Global(GlobalRecord {
        xid: Xid(number),
        address: "sim:0".into(),
        application: "order-service".into(),
        name: name.into(),
        begun_at: Timestamp(1),
        deadline: Timestamp(2),
        state: GlobalState::Active,
        paused: false,
        rollback_only: false,
        events: [].into(),
        labels: Labels::NONE,
        key: None,
        finished_branches: [].into(),
        trace: None,
    }))]
}

fn delete(number: u64) -> Change {
    let Change::Put(record) = put(number, "").remove(0) else { unreachable!("it is put") };
    Change::Delete(record.key())
}

fn names(records: &[Record]) -> Vec<(u64, String)> {
    let name = |record: &Record| {
        let Record::Global(global) = record else { panic!("only globals are stored") };
        (global.xid.0, global.name.to_string())
    };
    records.iter().map(name).collect()
}

fn named(expected: &[(u64, &str)]) -> Vec<(u64, String)> {
    expected.iter().map(|(number, name)| (*number, (*name).to_owned())).collect()
}

fn is_lost<T>(done: &Result<T, StoreError>) -> bool {
    matches!(done, Err(StoreError::LostLeadership))
}

#[test]
fn a_batch_of_an_earlier_epoch_is_refused() {
    check(async |Shared { stores: [store, _], .. }| {
        let (first, _) = store.lead(Epoch(0)).await.unwrap();
        store.commit(first, put(1, "kept")).await.unwrap();
        let (second, _) = store.lead(Epoch(first.0 + 9)).await.unwrap();
        assert_eq!(second.0, first.0 + 9, "no earlier than asked for");
        assert!(is_lost(&store.commit(first, put(2, "late")).await));
        assert!(is_lost(&store.confirm(first).await));
        store.confirm(second).await.unwrap();
        store.commit(second, put(3, "later")).await.unwrap();
        let (_, records) = store.lead(Epoch(0)).await.unwrap();
        assert_eq!(names(&records), named(&[(1, "kept"), (3, "later")]));
    });
}

/// Compactions among them.
#[test]
fn random_batches_give_the_records_of_the_model() {
    check(async |Shared { stores: [store, other], .. }| {
        let (mut random, model) = (Random::new(7), MemoryStore::new());
        let (epoch, _) = store.lead(Epoch(0)).await.unwrap();
        let (of_model, _) = model.lead(Epoch(0)).await.unwrap();
        for batch in 0..200 {
            let mut changes = Vec::new();
            for _ in 0..random.index(20) {
                let number = random.between(1, 50);
                if random.happens(300) {
                    changes.push(delete(number));
                } else {
                    changes.append(&mut put(number, &format!("batch {batch}")));
                }
            }
            model.commit(of_model, changes.clone()).await.unwrap();
            store.commit(epoch, changes).await.unwrap();
        }
        store.resign(epoch).await;
        let (_, records) = other.lead(Epoch(0)).await.unwrap();
        assert_eq!(names(&records), names(&model.records()));
    });
}

#[test]
fn a_lead_that_is_given_up_is_taken_at_once() {
    check(async |Shared { world, stores: [leader, follower], .. }| {
        let (first, _) = leader.lead(Epoch(0)).await.unwrap();
        assert_eq!(*leader.leader().borrow(), Leader::Here);
        let (led, follows) = oneshot::channel();
        let candidate = Arc::clone(&follower);
        world.spawn(Owner::Server(1), async move {
            let _awaited = led.send(candidate.lead(Epoch(0)).await);
        });
        world.sleep(SECOND).await;
        let leads = Leader::Elsewhere { epoch: first, node: node(0) };
        assert_eq!(*follower.leader().borrow(), leads);
        let resigned_at = world.now();
        leader.resign(first).await;
        assert!(is_lost(&leader.commit(first, put(1, "late")).await));
        let (second, _) = follows.await.unwrap().unwrap();
        assert!(second > first && world.now() < resigned_at + 200 * MS);
    });
}

/// It sleeps through compactions too, behind which its number is free.
#[test]
fn a_leader_that_sleeps_before_its_batch_stores_nothing() {
    check(async |Shared { world, host, stores: [sleeper, next] }| {
        let (first, _) = sleeper.lead(Epoch(0)).await.unwrap();
        sleeper.commit(first, put(1, "before")).await.unwrap();
        let (done, late) = oneshot::channel();
        let asleep = Arc::clone(&sleeper);
        world.spawn(Owner::Server(0), async move {
            let _awaited = done.send(asleep.commit(first, put(2, "sent asleep")).await);
        });
        world.freeze(Owner::Server(0), 4 * LEASE);
        let (second, records) = next.lead(Epoch(0)).await.unwrap();
        assert_eq!(names(&records), named(&[(1, "before")]));
        let last = host.newest().number;
        for _ in 0..20 {
            next.commit(second, put(3, "after")).await.unwrap();
        }
        assert!(host.applied() > last);
        assert!(is_lost(&late.await.unwrap()));
        next.confirm(second).await.unwrap();
        let (_, records) = next.lead(Epoch(0)).await.unwrap();
        assert_eq!(names(&records), named(&[(1, "before"), (3, "after")]));
    });
}

#[test]
fn a_commit_without_an_answer_is_looked_up() {
    check(async |Shared { world, host, stores: [leader, _] }| {
        let (epoch, _) = leader.lead(Epoch(0)).await.unwrap();
        let before = host.newest().number;
        host.cut_off(0, world.now() + SECOND / 2);
        leader.commit(epoch, put(1, "cut off")).await.unwrap();
        leader.commit(epoch, put(2, "after")).await.unwrap();
        assert_eq!(host.newest().number, before + 2, "each batch is stored once");
    });
}

#[test]
fn a_lease_that_cannot_be_renewed_ends_the_lead() {
    check(async |Shared { world, host, stores: [leader, next] }| {
        let (epoch, _) = leader.lead(Epoch(0)).await.unwrap();
        host.cut_off(0, world.now() + 10 * LEASE);
        leader.lost(epoch).await;
        assert!(leader.certain_until(epoch) <= Some(std::time::Instant::now()));
        let (later, _) = next.lead(Epoch(0)).await.unwrap();
        assert!(later > epoch);
        assert!(is_lost(&leader.commit(epoch, put(1, "late")).await));
    });
}
