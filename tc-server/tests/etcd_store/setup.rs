//! Candidates on one etcd, and a look at its keys that no store takes.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use handfast_core::{
    BranchId, BranchRecord, BranchState, Change, Epoch, FencingToken, Mode, Record, RecordKey,
    Timestamp, Xid,
};
use handfast_etcd::{EtcdClient, KeyRange, KeyValue, RequestOp, put, read_all};
use handfast_server::store::{
    CoordinatorNode, EtcdOptions, EtcdStore, EtcdStoreSettings, Leader, Store, StoreError,
};
use handfast_test_services::{DatabaseServer, ServerDirectory, ServerKind};
use tokio::runtime::{Builder, Runtime};

use crate::wire::Wire;

/// A lease that does not end while a test runs.
pub(crate) const LONG: Duration = Duration::from_secs(3600);
/// The shortest lease of etcd.
pub(crate) const SHORT: Duration = Duration::from_secs(2);
/// How long anything may take on a loaded machine.
const LIMIT: Duration = Duration::from_secs(120);

static ETCD: LazyLock<DatabaseServer> = LazyLock::new(start);

/// Starts a server for one test.
pub(crate) fn start() -> DatabaseServer {
    let directory = ServerDirectory::new().unwrap();
    DatabaseServer::start(ServerKind::Etcd, &directory, &|| Ok(())).unwrap()
}

/// A namespace in an etcd.
#[derive(Clone, Debug)]
pub(crate) struct Namespace {
    pub(crate) members: Vec<String>,
    pub(crate) name: String,
}

impl Namespace {
    /// Makes one that no other test has, in the server that they share.
    pub(crate) fn new() -> Self {
        Self::in_etcd([ETCD.url()])
    }

    pub(crate) fn in_etcd(members: impl IntoIterator<Item = String>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        Self { members: members.into_iter().collect(), name }
    }

    /// Makes a wire to its only server.
    pub(crate) fn wire(&self) -> Arc<Wire> {
        Wire::to(self.members[0].strip_prefix("http://").unwrap().parse().unwrap())
    }

    /// The same namespace, reached another way.
    pub(crate) fn through(&self, member: String) -> Self {
        Self { members: vec![member], name: self.name.clone() }
    }

    /// Makes a candidate whose tasks go on while the test does something else.
    pub(crate) fn candidate(&self, name: &str, lease: Duration) -> Candidate {
        self.candidate_with(EtcdOptions::new(&self.members), name, lease)
    }

    /// Makes such a candidate with options of its own.
    pub(crate) fn candidate_with(
        &self,
        options: EtcdOptions,
        name: &str,
        lease: Duration,
    ) -> Candidate {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        Candidate::of(self, options, name, lease, runtime)
    }

    /// Makes a candidate that sleeps whenever it is not in a call of [`Candidate::run`]: a stopped
    /// process.
    pub(crate) fn sleeper(&self, name: &str, lease: Duration) -> Candidate {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        Candidate::of(self, EtcdOptions::new(&self.members), name, lease, runtime)
    }

    /// Returns the keys below a folder.
    pub(crate) fn keys(&self, folder: &str) -> Vec<KeyValue> {
        let range = KeyRange::with_prefix(format!("/handfast/{}/{folder}", self.name));
        self.run(vec![read_all(&range)])
    }

    /// Overwrites a key.
    pub(crate) fn put(&self, key: &str, value: &str) {
        let key = format!("/handfast/{}/{key}", self.name).into_bytes();
        self.run(vec![put(key, value.to_owned(), 0)]);
    }

    /// Deletes a key, as an operator may.
    pub(crate) fn delete(&self, key: &str) {
        self.run(vec![handfast_etcd::delete(self.keys(key).remove(0).key)]);
    }

    /// Does something to the keys, and returns what the first step found.
    pub(crate) fn run(&self, steps: Vec<RequestOp>) -> Vec<KeyValue> {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let etcd = EtcdClient::connect(&EtcdOptions::new(&self.members)).unwrap();
            etcd.run(steps).await.unwrap().found(0)
        })
    }

    /// Returns the number in the mark: that of the last batch among the records.
    pub(crate) fn applied(&self) -> u64 {
        self.number("mark")
    }

    /// Returns the number of the newest batch.
    pub(crate) fn newest(&self) -> u64 {
        self.number("head")
    }

    fn number(&self, key: &str) -> u64 {
        let found = self.keys(key);
        let number = found.first().map_or("/0", |found| str::from_utf8(&found.value).unwrap());
        u64::from_str_radix(number.split_once('/').unwrap().1, 16).unwrap()
    }
}

/// A store in a process of its own, as far as its tasks are concerned.
pub(crate) struct Candidate {
    // Dropped before the runtime that its tasks run in.
    pub(crate) store: Arc<EtcdStore>,
    runtime: Runtime,
}

impl Candidate {
    fn of(
        shared: &Namespace,
        etcd: EtcdOptions,
        name: &str,
        lease: Duration,
        runtime: Runtime,
    ) -> Self {
        let settings = EtcdStoreSettings {
            etcd,
            namespace: shared.name.clone(),
            node: node(name),
            lease,
            checkpoint_bytes: EtcdStoreSettings::CHECKPOINT_BYTES,
        };
        let _within = runtime.enter();
        let store = Arc::new(EtcdStore::open(settings).unwrap());
        Self { store, runtime }
    }

    pub(crate) fn run<T>(&self, work: impl Future<Output = T>) -> T {
        let within = async { tokio::time::timeout(LIMIT, work).await };
        self.runtime.block_on(within).expect("it is done within the limit")
    }

    /// Goes on with work that is not done before a condition holds.
    pub(crate) fn run_until<T: Debug>(
        &self,
        work: impl Future<Output = T>,
        what: &'static str,
        holds: impl FnMut() -> bool + Send + 'static,
    ) {
        self.run(async {
            tokio::select! {
                done = work => panic!("done too early: {done:?}"),
                held = tokio::task::spawn_blocking(move || until(what, holds)) => held.unwrap(),
            }
        });
    }

    pub(crate) fn lead(&self) -> (Epoch, Vec<Record>) {
        self.run(self.store.lead(Epoch(0))).unwrap()
    }

    pub(crate) fn commit(&self, epoch: Epoch, batch: Vec<Change>) -> Result<(), StoreError> {
        self.run(self.store.commit(epoch, batch))
    }

    /// Waits until the candidate knows this of the lead.
    pub(crate) fn sees(&self, expected: &Leader) {
        let mut leader = self.store.leader();
        let seen = self.run(async { leader.wait_for(|leader| leader == expected).await.map(drop) });
        seen.unwrap();
    }
}

pub(crate) fn node(name: &str) -> CoordinatorNode {
    let at = |port: u16| format!("{name}.example:{port}");
    let (id, version) = (name.to_owned(), "1.2.3".to_owned());
    CoordinatorNode { id, version, grpc: at(7091), admin: at(7092), seata: None }
}

/// Waits for what no event reports.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < LIMIT, "not within the limit: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Makes a record with this many bytes in it.
pub(crate) fn record(number: u64, bytes: usize) -> Record {
    let data = number.to_le_bytes().into_iter().cycle().take(bytes);
    Record::Branch(BranchRecord {
        xid: Xid(1 << 40 | number),
        id: BranchId(1),
        sequence: 0,
        resource: "sqlite:orders".into(),
        mode: Mode::At,
        rows: Vec::new(),
        token: FencingToken(number),
        registered_at: Timestamp(1),
        application_data: data.collect(),
        state: BranchState::Registered,
        attempts: 0,
        last_failure: None,
        registered_by: None,
        phase_one_at: None,
        events: [].into(),
        trace: None,
    })
}

pub(crate) fn puts(numbers: impl IntoIterator<Item = u64>, bytes: usize) -> Vec<Change> {
    numbers.into_iter().map(|number| Change::Put(record(number, bytes))).collect()
}

pub(crate) fn delete(number: u64) -> Change {
    Change::Delete(record(number, 0).key())
}

/// The records that a store should hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model(BTreeMap<RecordKey, Record>);

impl Model {
    pub(crate) fn apply(&mut self, batch: &[Change]) {
        for change in batch {
            match change {
                Change::Put(record) => drop(self.0.insert(record.key(), record.clone())),
                Change::Delete(key) => drop(self.0.remove(key)),
            }
        }
    }

    /// Checks that these are the records.
    pub(crate) fn check(&self, records: Vec<Record>) {
        let count = records.len();
        let found: BTreeMap<_, _> = records.into_iter().map(|it| (it.key(), it)).collect();
        assert_eq!(found.len(), count, "no record is there twice");
        let keys = |records: &BTreeMap<RecordKey, Record>| records.keys().copied().collect();
        let (found_keys, expected): (Vec<_>, Vec<_>) = (keys(&found), keys(&self.0));
        assert_eq!(found_keys, expected);
        assert!(found == self.0, "the records have their values");
    }
}
