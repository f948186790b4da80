//! Backends that keep a queue of entries, etcd and ZooKeeper: a release wakes one waiter, the order
//! holds when waiters leave, and what a killed server has confirmed is there when it is back.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "conformance/setup.rs"]
#[expect(dead_code, reason = "it serves the other tests too")]
mod setup;

use std::collections::HashSet;
use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use handfast_locks::{
    AcquireRequest, AcquireResponse, AcquisitionId, Backend, BackendError, EtcdLocks, FencingToken,
    Guarantee, Guard, LockError, LockRef, Locks, QueueMode, ReleaseOutcome, ReleaseRequest,
    ReleaseResponse, WAITER_TIMEOUT, WakeUp, ZooKeeperLocks,
};
use handfast_test_services::DatabaseServer;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use zookeeper_client::{Acls, Client, CreateMode};

use setup::{Kind, LEASE, TestBackend, acquire_request, fresh, lock_ref, over, server};

const WAITERS: usize = 30;
/// How often a waiter may lose its place because the machine is busy.
const TRIES: usize = 3;
/// A crowd, where each waiter is woken once.
const MANY: usize = 1_000;

/// A backend that records which acquisitions wait, and how often one is woken.
#[derive(Debug)]
struct Watched {
    backend: Arc<dyn Backend>,
    waiting: watch::Sender<HashSet<AcquisitionId>>,
    wake_ups: watch::Sender<usize>,
}

#[async_trait]
impl Backend for Watched {
    fn name(&self) -> &'static str {
        self.backend.name()
    }

    fn guarantee(&self) -> Guarantee {
        self.backend.guarantee()
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireResponse, BackendError> {
        let answer = self.backend.acquire(request).await?;
        if matches!(answer, AcquireResponse::Busy { .. }) {
            self.waiting.send_if_modified(|waiting| waiting.insert(request.id));
        }
        Ok(answer)
    }

    async fn renew(
        &self,
        lock_refs: &[LockRef],
        lease: Duration,
    ) -> Result<Vec<bool>, BackendError> {
        self.backend.renew(lock_refs, lease).await
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseResponse, BackendError> {
        self.backend.release(request).await
    }

    async fn listen(
        &self,
        client: u128,
        wake_ups: &mpsc::UnboundedSender<WakeUp>,
    ) -> Result<Infallible, BackendError> {
        let (heard, mut hears) = mpsc::unbounded_channel();
        let pass_on = async {
            while let Some(wake) = hears.recv().await {
                self.wake_ups.send_modify(|count| *count += usize::from(wake != WakeUp::All));
                let _ = wake_ups.send(wake);
            }
            std::future::pending().await
        };
        tokio::select! {
            ended = self.backend.listen(client, &heard) => ended,
            never = pass_on => never,
        }
    }
}

impl Watched {
    async fn over(kind: Kind) -> Arc<Self> {
        Self::of(TestBackend::new(kind).await.backend)
    }

    fn of(backend: Arc<dyn Backend>) -> Arc<Self> {
        let (waiting, wake_ups) = (watch::Sender::new(HashSet::new()), watch::Sender::new(0));
        Arc::new(Self { backend, waiting, wake_ups })
    }

    /// Waits until so many acquisitions have been answered that they have to wait.
    async fn until_waiting(&self, count: usize) {
        self.waiting.subscribe().wait_for(|waiting| waiting.len() >= count).await.unwrap();
    }

    /// Waits until a waiter has been woken.
    async fn until_woken(&self) {
        self.wake_ups.subscribe().wait_for(|count| *count > 0).await.unwrap();
    }

    fn locks(self: &Arc<Self>) -> Locks {
        over(Arc::clone(self) as _).start().unwrap()
    }
}

/// A number of waiters, one behind the other. Each that is served reports its number and fencing
/// token, and releases the lock.
struct Crowd {
    watched: Arc<Watched>,
    holder: Guard,
    waiting: Vec<JoinHandle<()>>,
    served: mpsc::UnboundedReceiver<(usize, FencingToken)>,
}

impl Crowd {
    async fn gather(kind: Kind, waiters: usize) -> Self {
        let (watched, name) = (Watched::over(kind).await, fresh());
        let holder = watched.locks().lock(&name).await.unwrap();
        let clients = [watched.locks(), watched.locks(), watched.locks()];
        let (serves, served) = mpsc::unbounded_channel();
        let mut waiting = Vec::new();
        for number in 0..waiters {
            let (locks, name) = (clients[number % clients.len()].clone(), name.clone());
            let serves = serves.clone();
            waiting.push(tokio::spawn(async move {
                let guard = locks.lock(&name).await.unwrap();
                serves.send((number, guard.fencing_token())).unwrap();
                assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
            }));
            tokio::select! {
                () = watched.until_waiting(number + 1) => {}
                ended = &mut waiting[number] => panic!("waiter {number} does not wait: {ended:?}"),
            }
        }
        Self { watched, holder, waiting, served }
    }

    /// Releases the lock, and returns the waiters that are served then.
    fn release(self) -> mpsc::UnboundedReceiver<(usize, FencingToken)> {
        drop(self.holder);
        self.served
    }
}

async fn a_release_wakes_one(kind: Kind) {
    let crowd = Crowd::gather(kind, MANY).await;
    let watched = Arc::clone(&crowd.watched);
    let mut served = crowd.release();
    for number in 0..MANY {
        assert_eq!(served.recv().await.unwrap().0, number);
    }
    let wake_ups = *watched.wake_ups.borrow();
    assert!(wake_ups <= MANY, "{wake_ups} wake-ups for {MANY} releases");
}

async fn the_order_holds_when_waiters_leave(kind: Kind) {
    let crowd = Crowd::gather(kind, WAITERS).await;
    let leaving: HashSet<usize> =
        (0..WAITERS / 2).map(|_| rand::random_range(0..WAITERS)).collect();
    for number in &leaving {
        crowd.waiting[*number].abort();
    }
    let mut served = crowd.release();
    for number in (0..WAITERS).filter(|number| !leaving.contains(number)) {
        assert_eq!(served.recv().await.unwrap().0, number, "without {leaving:?}");
    }
}

/// A waiter that is alive keeps its place, however long it waits. On a busy machine it may be
/// silent for so long that it counts as dead, so it is tried again then.
async fn a_place_is_kept(kind: Kind) {
    for _ in 0..TRIES {
        if Box::pin(keeps_its_place(kind)).await {
            return;
        }
    }
    panic!("the waiters lose their places");
}

async fn keeps_its_place(kind: Kind) -> bool {
    let crowd = Crowd::gather(kind, 1).await;
    let later = crowd.watched.locks().lock(&fresh()).await.unwrap();
    // A place is lost by time alone, and the loss of one gives no event.
    tokio::time::sleep(WAITER_TIMEOUT * 2).await;
    let (_, fencing_token) = crowd.release().recv().await.unwrap();
    fencing_token < later.fencing_token()
}

async fn connect(kind: handfast_test_services::ServerKind, urls: &[String]) -> Arc<dyn Backend> {
    if kind == handfast_test_services::ServerKind::Etcd {
        Arc::new(EtcdLocks::connect(urls).await.unwrap())
    } else {
        Arc::new(ZooKeeperLocks::connect(&urls.join(","), LEASE).await.unwrap())
    }
}

/// Checks that the servers, or others in their place, are there and know the holder.
async fn is_known(locks: &Locks, guard: &Guard) {
    let refused = loop {
        match locks.try_lock(guard.name().as_str()).await {
            Err(LockError::Unavailable { .. }) => {}
            other => break other,
        }
    };
    let Err(LockError::Busy { holder: Some(holder), .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(holder.id, guard.id());
    assert!(guard.is_held());
}

/// A holder of a lock on these servers, and a waiter for it.
struct Pair {
    locks: Locks,
    guard: Guard,
    waiting: JoinHandle<Guard>,
}

impl Pair {
    async fn over(backend: Arc<dyn Backend>) -> Self {
        let locks = over(Arc::clone(&backend)).start().unwrap();
        let guard = locks.lock("orders/42").await.unwrap();
        let others = over(backend).start().unwrap();
        let waiting = tokio::spawn(async move { others.lock("orders/42").await.unwrap() });
        Self { locks, guard, waiting }
    }

    async fn ends_in_order(self) {
        assert!(!self.waiting.is_finished());
        let fencing_token = self.guard.fencing_token();
        assert_eq!(self.guard.release().await.unwrap(), ReleaseOutcome::Released);
        assert!(self.waiting.await.unwrap().fencing_token() > fencing_token);
    }
}

/// Runs a slow operation on servers.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> T {
    tokio::task::spawn_blocking(work).await.unwrap().unwrap()
}

/// A server is killed and comes back while a lock is held and waited for.
async fn a_lock_survives_its_server(kind: handfast_test_services::ServerKind) {
    let start = move || {
        let place = handfast_test_services::ServerDirectory::new()?;
        DatabaseServer::start(kind, &place, &|| Ok(()))
    };
    let mut server = blocking(start).await;
    let pair = Pair::over(connect(kind, &[server.url()]).await).await;
    let _server = blocking(move || server.restart().map(|()| server)).await;
    is_known(&pair.locks, &pair.guard).await;
    pair.ends_in_order().await;
}

/// Each member of a cluster is killed in turn, so the leader is among them.
async fn a_lock_survives_each_member(kind: handfast_test_services::ServerKind) {
    let start = move || {
        let place = handfast_test_services::ServerDirectory::new()?;
        DatabaseServer::cluster(kind, &place)
    };
    let mut members = blocking(start).await;
    let urls: Vec<String> = members.iter().map(DatabaseServer::url).collect();
    let pair = Pair::over(connect(kind, &urls).await).await;
    for at in 0..members.len() {
        members[at].kill().unwrap();
        is_known(&pair.locks, &pair.guard).await;
        members = blocking(move || members[at].restart().map(|()| members)).await;
    }
    pair.ends_in_order().await;
}

/// Returns whether a member of ZooKeeper reports that it follows another one.
fn follows(member: &DatabaseServer) -> anyhow::Result<bool> {
    let mut connection = TcpStream::connect(member.address())?;
    connection.write_all(b"srvr")?;
    let mut about = String::new();
    connection.read_to_string(&mut about)?;
    Ok(about.contains("Mode: follower"))
}

/// A regression: two clients held a lock. An isolated member answers what it knows for as long as
/// it looks for the leader, which ends its sessions meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn isolated_zookeeper_member_keeps_no_lock() {
    const ZOOKEEPER: handfast_test_services::ServerKind =
        handfast_test_services::ServerKind::ZooKeeper;
    let start = move || {
        let mut members =
            DatabaseServer::cluster(ZOOKEEPER, &handfast_test_services::ServerDirectory::new()?)?;
        loop {
            for at in 0..members.len() {
                if follows(&members[at])? {
                    return Ok((members.swap_remove(at), members));
                }
            }
        }
    };
    let (follower, others) = blocking(start).await;
    // Two sessions are used, because a member answers requests of one in their order.
    let [holding, waiting] =
        [connect(ZOOKEEPER, &[follower.url()]).await, connect(ZOOKEEPER, &[follower.url()]).await];
    let [held, first] = ["orders/1", "orders/2"].map(lock_ref);
    let next = lock_ref("orders/2");
    for (backend, lock_ref) in [(&holding, &held), (&waiting, &first)] {
        let answer = backend.acquire(&acquire_request(lock_ref, QueueMode::NoWait)).await.unwrap();
        assert!(matches!(answer, AcquireResponse::Granted { .. }), "{answer:?}");
    }
    let waits = waiting.acquire(&acquire_request(&next, QueueMode::Join)).await.unwrap();
    assert!(matches!(waits, AcquireResponse::Busy { .. }), "{waits:?}");
    let request =
        ReleaseRequest { lock_ref: first, refuse_late_requests: false, is_uncontended: false };
    assert_eq!(waiting.release(&request).await.unwrap(), ReleaseResponse::Released);

    others.iter().for_each(DatabaseServer::pause);
    let held = [held];
    let keep = acquire_request(&next, QueueMode::KeepPlace);
    let (renewed, granted) = tokio::join!(holding.renew(&held, LEASE), waiting.acquire(&keep));
    assert!(renewed.is_err(), "{renewed:?}");
    assert!(granted.is_err(), "{granted:?}");

    others.iter().for_each(DatabaseServer::go_on);
    let renewed = loop {
        if let Ok(renewed) = holding.renew(&held, LEASE).await {
            break renewed;
        }
    };
    assert_eq!(renewed, [true]);
    while !matches!(waiting.acquire(&keep).await, Ok(AcquireResponse::Granted { .. })) {}
}

/// A regression: the watches of a member that was cut off from the others stood, and heard of no
/// release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn isolated_etcd_member_ends_its_watches() {
    const ETCD: handfast_test_services::ServerKind = handfast_test_services::ServerKind::Etcd;
    let start =
        move || DatabaseServer::cluster(ETCD, &handfast_test_services::ServerDirectory::new()?);
    let members = blocking(start).await;
    let watched = Watched::of(connect(ETCD, &[members[0].url()]).await);
    let mut pair = Pair::over(Arc::clone(&watched) as _).await;
    tokio::select! {
        () = watched.until_waiting(1) => {}
        ended = &mut pair.waiting => panic!("the waiter did not join the queue: {ended:?}"),
    }
    members[1..].iter().for_each(DatabaseServer::pause);
    tokio::select! {
        () = watched.until_woken() => {}
        ended = &mut pair.waiting => panic!("the waiter has given up: {ended:?}"),
    }
    members[1..].iter().for_each(DatabaseServer::go_on);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_survives_each_member_on_etcd() {
    a_lock_survives_each_member(handfast_test_services::ServerKind::Etcd).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_survives_each_member_on_zookeeper() {
    a_lock_survives_each_member(handfast_test_services::ServerKind::ZooKeeper).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_wakes_one_on_etcd() {
    a_release_wakes_one(Kind::Etcd).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_wakes_one_on_zookeeper() {
    a_release_wakes_one(Kind::ZooKeeper).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_is_kept_on_etcd() {
    a_place_is_kept(Kind::Etcd).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_is_kept_on_zookeeper() {
    a_place_is_kept(Kind::ZooKeeper).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_order_holds_when_waiters_leave_on_etcd() {
    the_order_holds_when_waiters_leave(Kind::Etcd).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_order_holds_when_waiters_leave_on_zookeeper() {
    the_order_holds_when_waiters_leave(Kind::ZooKeeper).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_survives_its_server_on_etcd() {
    a_lock_survives_its_server(handfast_test_services::ServerKind::Etcd).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_survives_its_server_on_zookeeper() {
    a_lock_survives_its_server(handfast_test_services::ServerKind::ZooKeeper).await;
}

#[tokio::test]
async fn etcd_is_refused_without_an_address() {
    for members in [vec![], vec!["no address"]] {
        let refused = EtcdLocks::connect(members).await;
        assert!(matches!(refused, Err(LockError::Refused { .. })), "{refused:?}");
    }
}

/// Creates a node as another client, or an earlier session of this one, would have.
async fn made(client: &Client, name: &str, child: &str) -> String {
    let path = format!("/handfast/locks/{}", name.replace('/', "%2F"));
    let acls = Acls::anyone_all();
    client.mkdir(&path, &CreateMode::Persistent.with_acls(acls)).await.unwrap();
    let path = format!("{path}/{child}");
    let ephemeral = CreateMode::EphemeralSequential.with_acls(acls);
    let (_, number) = client.create(&path, b"", &ephemeral).await.unwrap();
    format!("{path}{number}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_nodes_are_not_in_the_queue() {
    let (setup, name) = (TestBackend::new(Kind::ZooKeeper).await, fresh());
    let client = Client::connect(&server("HANDFAST_TEST_ZOOKEEPER")).await.unwrap();
    let path = made(&client, &name, "foreign-").await;
    let guard = setup.locks().try_lock(&name).await.unwrap();
    assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
    assert!(client.check_stat(&path).await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_an_earlier_session_counts_for_nothing() {
    let (setup, lock_ref) = (TestBackend::new(Kind::ZooKeeper).await, lock_ref(&fresh()));
    let earlier = Client::connect(&server("HANDFAST_TEST_ZOOKEEPER")).await.unwrap();
    let path = made(&earlier, lock_ref.name.as_str(), &format!("{}-0-", lock_ref.id)).await;
    let answer =
        setup.backend.acquire(&acquire_request(&lock_ref, QueueMode::NoWait)).await.unwrap();
    assert!(matches!(answer, AcquireResponse::Granted { .. }), "{answer:?}");
    assert!(earlier.check_stat(&path).await.unwrap().is_none());
    // The node goes with the earlier session, and the lock does not.
    drop(earlier);
    assert!(setup.locks().try_lock(lock_ref.name.as_str()).await.is_err());
}

#[tokio::test]
async fn a_lease_is_shorter_than_its_session() {
    let cluster = server("HANDFAST_TEST_ZOOKEEPER");
    let refused = ZooKeeperLocks::connect(&cluster, Duration::from_secs(3600)).await;
    let Err(LockError::Refused { source }) = refused else { panic!("{refused:?}") };
    assert!(source.is_final() && source.to_string().contains("maxSessionTimeout"), "{source}");
    let short = ZooKeeperLocks::connect(&cluster, Duration::from_secs(5)).await.unwrap();
    let refused = over(Arc::new(short)).start().unwrap().lock(&fresh()).await;
    let Err(LockError::Refused { source }) = refused else { panic!("{refused:?}") };
    assert!(source.to_string().contains("a lease of 20000 ms"), "{source}");
    for endless in [Duration::from_secs(3601), Duration::MAX] {
        let refused = ZooKeeperLocks::connect(&cluster, endless).await;
        assert!(matches!(refused, Err(LockError::Settings { .. })), "{refused:?}");
    }
}
