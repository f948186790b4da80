//! Many waiters for one lock of the coordinator: each sends one request for each grant, and all get
//! the lock equally often. This is alone in its program, because metrics are counted per process.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::future::join_all;
use handfast::Handfast;
use handfast_locks::Locks;
use handfast_server::embedded::Server;
use tokio::sync::{Barrier, watch};

const CLIENTS: u64 = 20;
const TASKS: u64 = 50;
const WAITERS: u64 = CLIENTS * TASKS;
/// How often the lock is granted: five times to each waiter.
const GRANTS: u64 = WAITERS * 5;
/// By how much the clients may differ in grants. In each round a client gets one for each of its
/// tasks. The first and the last round are cut off where a client begins late or the test ends, and
/// a client that the machine pauses misses some; a queue that favours a client gives it whole
/// rounds.
const DIFFERENCE_MAX: u64 = TASKS;

/// The common state of all waiters.
struct Crowd {
    begins: Barrier,
    grants: AtomicU64,
    end: watch::Sender<()>,
}

impl Crowd {
    /// Takes the lock again and again until all waiters have had it often enough.
    async fn take_turns(self: Arc<Self>, locks: Locks, served: Arc<AtomicU64>) {
        let mut ended = self.end.subscribe();
        self.begins.wait().await;
        loop {
            let guard = tokio::select! {
                guard = locks.lock("hot") => guard.unwrap(),
                _ = ended.changed() => return,
            };
            if self.grants.fetch_add(1, Ordering::SeqCst) >= GRANTS {
                self.end.send_replace(());
                return;
            }
            served.fetch_add(1, Ordering::SeqCst);
            assert!(guard.is_held());
        }
    }

    /// Runs the waiters of one connection, as one process would, and returns how often they were
    /// served.
    async fn client(self: Arc<Self>, endpoint: String) -> u64 {
        let handfast = Handfast::connect(endpoint).await.unwrap();
        let locks = Locks::over(handfast.locks()).start().unwrap();
        let served = Arc::new(AtomicU64::new(0));
        let turns = (0..TASKS).map(|_| {
            let (crowd, locks, served) = (Arc::clone(&self), locks.clone(), Arc::clone(&served));
            tokio::spawn(crowd.take_turns(locks, served))
        });
        let turns: Vec<_> = turns.collect();
        join_all(turns).await.into_iter().for_each(|ended| ended.unwrap());
        locks.settle().await.unwrap();
        served.load(Ordering::SeqCst)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_waiters_send_one_request_each() {
    let metrics = handfast_server::metrics::recorder();
    let folder = tempfile::tempdir().unwrap();
    let server = Server::builder().directory(folder.path()).listen("127.0.0.1:0");
    let server = server.start().await.unwrap();
    let begins = Barrier::new(usize::try_from(WAITERS).unwrap());
    let (grants, end) = (AtomicU64::new(0), watch::channel(()).0);
    let crowd = Arc::new(Crowd { begins, grants, end });
    let clients = (0..CLIENTS).map(|_| {
        let endpoint = format!("http://{}", server.address());
        tokio::spawn(Arc::clone(&crowd).client(endpoint))
    });
    let clients: Vec<_> = clients.collect();
    let served = join_all(clients).await.into_iter().map(|served| served.unwrap());
    let served: Vec<u64> = served.collect();

    let (least, most) = (served.iter().min().unwrap(), served.iter().max().unwrap());
    println!("{WAITERS} waiters: {least} to {most} grants a client");
    assert!(most - least <= DIFFERENCE_MAX, "served {served:?}");
    let shown = metrics.render();
    let count = |result: &str| {
        let line = format!("handfast_lock_acquire_seconds_count{{result=\"{result}\"}} ");
        let found = shown.lines().find_map(|shown| shown.strip_prefix(&line));
        found.map_or(0, |count| count.parse::<u64>().unwrap())
    };
    let (granted, others) = (count("granted"), count("not granted"));
    println!("{granted} requests were granted, {others} were not");
    assert!(granted >= GRANTS);
    // A waiter that was in the queue at the end was given up, which is not a failed attempt.
    let attempts = granted + others.saturating_sub(WAITERS);
    assert!(attempts * 100 <= granted * 105, "{attempts} attempts for {granted} grants");
}
