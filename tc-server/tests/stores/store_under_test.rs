//! The traits of a store that is tested, and the stores of one process.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use handfast_core::{
    BranchId, BranchRecord, BranchState, Change, FencingToken, GlobalRecord, GlobalState, Labels,
    Mode, Record, Timestamp, Xid,
};
use handfast_server::store::{CoordinatorNode, EmbeddedStore, MemoryStore, Store};

use crate::gate::Gate;

/// A store that can be opened.
pub(crate) trait StoreUnderTest: Send + Sync + 'static {
    /// Makes an empty store.
    fn create() -> BoxFuture<'static, Self>
    where
        Self: Sized;

    /// Opens it. A store of one process is open once at a time.
    fn open(&self) -> BoxFuture<'_, Arc<dyn Store>>;
}

/// A store that several processes have open.
pub(crate) trait SharedStore: StoreUnderTest {
    /// Whether an epoch is drawn with the lease, so that it is later than that of a candidate
    /// that had the lease before.
    const DRAWS_EPOCH_WITH_LEASE: bool;
    /// The bytes of epoch 0x5A5A5A, and how often they pass on the way to the store until they pass
    /// with the mark.
    const EPOCH_WITH_MARK: (&'static [u8], usize);
    /// Bytes that pass, for the n-th time in a lead, when the lease is taken and the mark is not
    /// begun.
    const BEFORE_MARK: (&'static [u8], usize);
    /// Bytes that pass when a compaction takes effect.
    const COMPACTION: &'static [u8];

    /// Opens the store as another process.
    fn process(&self, options: Options) -> BoxFuture<'_, Process>;

    /// Lets a process whose gate was stopped go on, and waits until the store has dealt with the
    /// request that had stopped it.
    fn wake<'p>(&'p self, process: &'p Process) -> BoxFuture<'p, ()>;

    /// Ends the lease of the process that leads, which does not hear of it.
    fn end_lease(&self) -> BoxFuture<'_, ()>;

    /// Returns the numbers of the first and the last batch that are not deleted.
    fn batches(&self) -> BoxFuture<'_, (u64, u64)>;

    /// Forgets the last two batches, as a fail-over to a standby that was behind.
    fn go_back(&self) -> BoxFuture<'_, ()>;
}

/// How a process opens a shared store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) lease: Duration,
    pub(crate) compact_bytes: u64,
    /// Bytes that a compaction leaves, where the store leaves any.
    pub(crate) tail_bytes: u64,
}

/// A lease that runs out within a test.
pub(crate) const SHORT: Options = Options { lease: Duration::from_secs(1), ..LONG };
/// A lease that does not.
pub(crate) const LONG: Options =
    Options { lease: Duration::from_secs(3600), compact_bytes: 4 << 20, tail_bytes: 0 };
/// Each batch is followed by a compaction.
pub(crate) const COMPACTING: Options = Options { compact_bytes: 1, ..LONG };

/// One of several processes.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) node: CoordinatorNode,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) gate: Gate,
}

/// Returns a node of this name.
pub(crate) fn node(id: u64) -> CoordinatorNode {
    CoordinatorNode {
        id: format!("node-{id}"),
        version: "0.1.0".to_owned(),
        grpc: format!("10.0.0.{id}:8091"),
        admin: format!("10.0.0.{id}:7091"),
        seata: None,
    }
}

/// Returns a global of this number and name.
pub(crate) fn global(number: u64, name: &str) -> Record {
    Record::Global(GlobalRecord {
        xid: Xid(1 << 40 | number),
        address: "127.0.0.1:7091".into(),
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
    })
}

/// Returns a branch of such a global, without rows.
pub(crate) fn branch(number: u64, id: u64, sequence: u32) -> Record {
    Record::Branch(BranchRecord {
        xid: Xid(1 << 40 | number),
        id: BranchId(id),
        sequence,
        resource: "orders".into(),
        mode: Mode::At,
        rows: Vec::new(),
        token: FencingToken(1),
        registered_at: Timestamp(1),
        application_data: Box::default(),
        state: BranchState::Registered,
        attempts: 0,
        last_failure: None,
        registered_by: None,
        phase_one_at: None,
        events: [].into(),
        trace: None,
    })
}

/// Returns a batch that stores one global.
pub(crate) fn put(number: u64, name: &str) -> Vec<Change> {
    vec![Change::Put(global(number, name))]
}

/// Returns the change that deletes a global.
pub(crate) fn delete(number: u64) -> Change {
    Change::Delete(global(number, "").key())
}

/// Returns number and name of each global, sorted.
pub(crate) fn names(records: &[Record]) -> Vec<(u64, String)> {
    let mut names: Vec<(u64, String)> = records.iter().map(name).collect();
    names.sort_unstable();
    names
}

fn name(record: &Record) -> (u64, String) {
    let Record::Global(global) = record else { panic!("only globals are stored: {record:?}") };
    (global.xid.0 & !(1 << 40), global.name.to_string())
}

/// Returns what [`names`] returns of these.
pub(crate) fn named(expected: &[(u64, &str)]) -> Vec<(u64, String)> {
    expected.iter().map(|(number, name)| (*number, (*name).to_owned())).collect()
}

/// The store without a disk.
pub(crate) struct Memory(Arc<MemoryStore>);

impl StoreUnderTest for Memory {
    fn create() -> BoxFuture<'static, Self> {
        Box::pin(async { Self(Arc::new(MemoryStore::new())) })
    }

    fn open(&self) -> BoxFuture<'_, Arc<dyn Store>> {
        Box::pin(async {
            let store: Arc<dyn Store> = Arc::clone(&self.0) as _;
            store
        })
    }
}

/// The store of one machine.
pub(crate) struct Embedded(tempfile::TempDir);

impl StoreUnderTest for Embedded {
    fn create() -> BoxFuture<'static, Self> {
        Box::pin(async { Self(tempfile::tempdir().unwrap()) })
    }

    fn open(&self) -> BoxFuture<'_, Arc<dyn Store>> {
        Box::pin(async {
            let store: Arc<dyn Store> = Arc::new(EmbeddedStore::open(self.0.path()).unwrap());
            store
        })
    }
}
