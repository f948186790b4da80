//! Stores in one etcd that all tests of this program share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use futures::future::BoxFuture;
use handfast_etcd::{EtcdClient, KeyRange, KeyValue, RequestOp, delete, put, read_all};
use handfast_server::store::{EtcdOptions, EtcdStore, EtcdStoreSettings, Store};
use handfast_test_services::{DatabaseServer, ServerDirectory, ServerKind};
use tokio::task::block_in_place;

use crate::gate::Gate;
use crate::store_under_test::{LONG, Options, Process, SharedStore, StoreUnderTest, node};

/// More than the bytes of a mark, and fewer than those of any other batch.
const CHECKPOINT_BYTES_MIN: u64 = 32;
/// How many answers to other requests show that an earlier one was carried out.
const LOOKS: usize = 20;

// The suite has it to itself: checkpoints compact its history.
static ETCD: LazyLock<DatabaseServer> = LazyLock::new(|| {
    let directory = ServerDirectory::new().unwrap();
    DatabaseServer::start(ServerKind::Etcd, &directory, &|| Ok(())).unwrap()
});

/// A store under a namespace of its own.
pub(crate) struct Etcd {
    url: String,
    namespace: String,
    processes: AtomicU64,
}

impl Etcd {
    fn key(&self, rest: &str) -> Vec<u8> {
        format!("/handfast/{}/{rest}", self.namespace).into_bytes()
    }

    /// Executes requests past the gates, and returns what the first step found.
    async fn run(&self, steps: Vec<RequestOp>) -> Vec<KeyValue> {
        let etcd = EtcdClient::connect(&EtcdOptions::new([&self.url])).unwrap();
        etcd.run(steps).await.unwrap().found(0)
    }

    async fn keys(&self, folder: &str) -> Vec<KeyValue> {
        self.run(vec![read_all(&KeyRange::with_prefix(self.key(folder)))]).await
    }

    /// Returns epoch and number of the newest batch.
    async fn head(&self) -> (u64, u64) {
        let found = self.keys("head").await;
        let text = found.first().map_or("0/0", |found| str::from_utf8(&found.value).unwrap());
        let (epoch, number) = text.split_once('/').unwrap();
        (hexadecimal(epoch), hexadecimal(number))
    }
}

fn hexadecimal(digits: &str) -> u64 {
    u64::from_str_radix(digits, 16).unwrap()
}

impl StoreUnderTest for Etcd {
    fn create() -> BoxFuture<'static, Self> {
        Box::pin(async {
            static COUNT: AtomicU64 = AtomicU64::new(0);
            let namespace = format!("stores-{}", COUNT.fetch_add(1, Ordering::Relaxed));
            let url = block_in_place(|| ETCD.url());
            Self { url, namespace, processes: AtomicU64::new(0) }
        })
    }

    fn open(&self) -> BoxFuture<'_, Arc<dyn Store>> {
        Box::pin(async { self.process(LONG).await.store })
    }
}

impl SharedStore for Etcd {
    const DRAWS_EPOCH_WITH_LEASE: bool = false;
    /// Numbers are written in digits.
    const EPOCH_WITH_MARK: (&'static [u8], usize) = (b"5a5a5a", 1);
    const BEFORE_MARK: (&'static [u8], usize) = (b"/head", 1);
    /// The condition of each of its requests.
    const COMPACTION: &'static [u8] = b"/mark";

    fn process(&self, options: Options) -> BoxFuture<'_, Process> {
        Box::pin(async move {
            let server = self.url.strip_prefix("http://").unwrap();
            let (host, port) = server.split_once(':').unwrap();
            let gate = Gate::to((host.to_owned(), port.parse().unwrap())).await;
            let node = node(self.processes.fetch_add(1, Ordering::Relaxed));
            let bytes = options.compact_bytes.max(CHECKPOINT_BYTES_MIN);
            let store = EtcdStore::open(EtcdStoreSettings {
                etcd: EtcdOptions::new([format!("http://{}", gate.address())]),
                namespace: self.namespace.clone(),
                node: node.clone(),
                lease: options.lease,
                checkpoint_bytes: bytes.try_into().unwrap(),
            });
            Process { node, store: Arc::new(store.unwrap()), gate }
        })
    }

    fn wake<'p>(&'p self, process: &'p Process) -> BoxFuture<'p, ()> {
        Box::pin(async {
            process.gate.go_on();
            for _ in 0..LOOKS {
                self.head().await;
            }
        })
    }

    fn end_lease(&self) -> BoxFuture<'_, ()> {
        Box::pin(async { drop(self.run(vec![delete(self.key("lease"))]).await) })
    }

    fn batches(&self) -> BoxFuture<'_, (u64, u64)> {
        Box::pin(async {
            let (_, last) = self.head().await;
            let journal = self.keys("journal/").await;
            let number = |found: &KeyValue| {
                let key = str::from_utf8(&found.key).unwrap();
                hexadecimal(key.rsplit_once('/').unwrap().1)
            };
            (journal.first().map_or(last + 1, number), last)
        })
    }

    fn go_back(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let (epoch, last) = self.head().await;
            let forgotten =
                [last - 1, last].map(|it| delete(self.key(&format!("journal/{it:016x}"))));
            let head = put(self.key("head"), format!("{epoch:016x}/{:016x}", last - 2), 0);
            drop(self.run(forgotten.into_iter().chain([head]).collect()).await);
        })
    }
}
