//! Backends that keep a line of entries, etcd and ZooKeeper: a release wakes one, the order holds
//! whoever leaves, and what a server that is killed has confirmed is there when it is back.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "conformance/stage.rs"]
#[expect(dead_code, reason = "it serves the other tests too")]
mod stage;

use std::collections::HashSet;
use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use handfast_locks::{
    Answer, Ask, Backend, BackendError, EtcdLocks, Fence, Grade, Guard, Hold, Leave, Left,
    LockError, Locks, Outcome, Place, Token, WAITER_ALIVE, Wake, ZooKeeperLocks,
};
use handfast_test_services::DatabaseServer;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use zookeeper_client::{Acls, Client, CreateMode};

use stage::{Kind, LEASE, Stage, ask, fresh, hold, over, server};

const WAITERS: usize = 30;
/// A crowd, where each is woken once.
const MANY: usize = 1_000;

/// A backend that is watched: who stands in line, and how often somebody is woken.
#[derive(Debug)]
struct Watched {
    backend: Arc<dyn Backend>,
    waiting: Mutex<HashSet<Token>>,
    wakes: AtomicUsize,
}

#[async_trait]
impl Backend for Watched {
    fn name(&self) -> &'static str {
        self.backend.name()
    }

    fn grade(&self) -> Grade {
        self.backend.grade()
    }

    async fn ask(&self, ask: &Ask) -> Result<Answer, BackendError> {
        let answer = self.backend.ask(ask).await?;
        if matches!(answer, Answer::Busy { .. }) {
            self.waiting.lock().unwrap().insert(ask.token);
        }
        Ok(answer)
    }

    async fn renew(&self, holds: &[Hold], lease: Duration) -> Result<Vec<bool>, BackendError> {
        self.backend.renew(holds, lease).await
    }

    async fn leave(&self, leave: &Leave) -> Result<Left, BackendError> {
        self.backend.leave(leave).await
    }

    async fn listen(
        &self,
        client: u128,
        wakes: &mpsc::UnboundedSender<Wake>,
    ) -> Result<Infallible, BackendError> {
        let (heard, mut hears) = mpsc::unbounded_channel();
        let pass_on = async {
            while let Some(wake) = hears.recv().await {
                self.wakes.fetch_add(usize::from(wake != Wake::All), Ordering::SeqCst);
                let _ = wakes.send(wake);
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
        Self::of(Stage::new(kind).await.backend)
    }

    fn of(backend: Arc<dyn Backend>) -> Arc<Self> {
        Arc::new(Self { backend, waiting: Mutex::default(), wakes: AtomicUsize::new(0) })
    }

    fn locks(self: &Arc<Self>) -> Locks {
        over(Arc::clone(self) as _).start().unwrap()
    }
}

/// So many who wait, one behind the other; each that is served says its number and fence, and lets
/// go.
struct Crowd {
    watched: Arc<Watched>,
    holder: Guard,
    waiting: Vec<JoinHandle<()>>,
    served: mpsc::UnboundedReceiver<(usize, Fence)>,
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
                serves.send((number, guard.fence())).unwrap();
                assert_eq!(guard.release().await.unwrap(), Outcome::Released);
            }));
            while watched.waiting.lock().unwrap().len() <= number {
                assert!(!waiting[number].is_finished(), "waiter {number} did not get into line");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        Self { watched, holder, waiting, served }
    }

    /// Lets go; answers who are served then.
    fn release(self) -> mpsc::UnboundedReceiver<(usize, Fence)> {
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
    let wakes = watched.wakes.load(Ordering::SeqCst);
    assert!(wakes <= MANY, "{wakes} wake-ups for {MANY} releases");
}

async fn the_order_holds_whoever_leaves(kind: Kind) {
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

/// However long it takes: who waits is alive.
async fn a_place_is_kept(kind: Kind) {
    let crowd = Crowd::gather(kind, 1).await;
    let later = crowd.watched.locks().lock(&fresh()).await.unwrap();
    tokio::time::sleep(WAITER_ALIVE * 2).await;
    let (_, fence) = crowd.release().recv().await.unwrap();
    assert!(fence < later.fence(), "its place was made anew");
}

async fn connect(kind: handfast_test_services::Kind, urls: &[String]) -> Arc<dyn Backend> {
    if kind == handfast_test_services::Kind::Etcd {
        Arc::new(EtcdLocks::connect(urls).await.unwrap())
    } else {
        Arc::new(ZooKeeperLocks::connect(&urls.join(","), LEASE).await.unwrap())
    }
}

/// The servers are there again, or others in their place, and know who holds the lock.
async fn is_known(locks: &Locks, guard: &Guard) {
    let refused = loop {
        match locks.try_lock(guard.name().as_str()).await {
            Err(LockError::Unavailable { .. }) => {}
            other => break other,
        }
    };
    let Err(LockError::Busy { holder: Some(holder), .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(holder.token, guard.token());
    assert!(guard.is_held());
}

/// One who holds a lock of these servers, and one who waits for it.
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
        let fence = self.guard.fence();
        assert_eq!(self.guard.release().await.unwrap(), Outcome::Released);
        assert!(self.waiting.await.unwrap().fence() > fence);
    }
}

/// Something that takes its time with servers.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> T {
    tokio::task::spawn_blocking(work).await.unwrap().unwrap()
}

/// A server that is killed and comes back while a lock is held and waited for.
async fn a_lock_survives_its_server(kind: handfast_test_services::Kind) {
    let start = move || {
        let place = handfast_test_services::Place::new()?;
        DatabaseServer::start(kind, &place, &|| Ok(()))
    };
    let mut server = blocking(start).await;
    let pair = Pair::over(connect(kind, &[server.url()]).await).await;
    let _server = blocking(move || server.restart().map(|()| server)).await;
    is_known(&pair.locks, &pair.guard).await;
    pair.ends_in_order().await;
}

/// Each member of a cluster is killed in turn, so whoever leads is among them.
async fn a_lock_survives_each_member(kind: handfast_test_services::Kind) {
    let start = move || {
        let place = handfast_test_services::Place::new()?;
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

/// Whether a member of ZooKeeper follows another one, by its own word.
fn follows(member: &DatabaseServer) -> anyhow::Result<bool> {
    let mut connection = TcpStream::connect(member.address())?;
    connection.write_all(b"srvr")?;
    let mut about = String::new();
    connection.read_to_string(&mut about)?;
    Ok(about.contains("Mode: follower"))
}

/// It answers what it knows for as long as it hopes for the leader, who ends its sessions
/// meanwhile: two held a lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_is_alone_keeps_no_lock_on_zookeeper() {
    const ZOOKEEPER: handfast_test_services::Kind = handfast_test_services::Kind::ZooKeeper;
    let start = move || {
        let mut members =
            DatabaseServer::cluster(ZOOKEEPER, &handfast_test_services::Place::new()?)?;
        loop {
            for at in 0..members.len() {
                if follows(&members[at])? {
                    return Ok((members.swap_remove(at), members));
                }
            }
        }
    };
    let (follower, others) = blocking(start).await;
    // In two sessions: a member answers requests of one in their order.
    let [holding, waiting] =
        [connect(ZOOKEEPER, &[follower.url()]).await, connect(ZOOKEEPER, &[follower.url()]).await];
    let [held, first] = ["orders/1", "orders/2"].map(hold);
    let next = hold("orders/2");
    for (backend, hold) in [(&holding, &held), (&waiting, &first)] {
        let answer = backend.ask(&ask(hold, Place::None)).await.unwrap();
        assert!(matches!(answer, Answer::Granted { .. }), "{answer:?}");
    }
    let waits = waiting.ask(&ask(&next, Place::Join)).await.unwrap();
    assert!(matches!(waits, Answer::Busy { .. }), "{waits:?}");
    let leave = Leave { hold: first, is_doubtful: false, is_alone: false };
    assert_eq!(waiting.leave(&leave).await.unwrap(), Left::Freed);

    others.iter().for_each(DatabaseServer::pause);
    let held = [held];
    let keep = ask(&next, Place::Keep);
    let (renewed, granted) = tokio::join!(holding.renew(&held, LEASE), waiting.ask(&keep));
    assert!(renewed.is_err(), "{renewed:?}");
    assert!(granted.is_err(), "{granted:?}");

    others.iter().for_each(DatabaseServer::go_on);
    let renewed = loop {
        if let Ok(renewed) = holding.renew(&held, LEASE).await {
            break renewed;
        }
    };
    assert_eq!(renewed, [true]);
    while !matches!(waiting.ask(&keep).await, Ok(Answer::Granted { .. })) {}
}

/// A member that is cut off from the others would hear of no release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_is_alone_ends_its_watches_on_etcd() {
    const ETCD: handfast_test_services::Kind = handfast_test_services::Kind::Etcd;
    let start = move || DatabaseServer::cluster(ETCD, &handfast_test_services::Place::new()?);
    let members = blocking(start).await;
    let watched = Watched::of(connect(ETCD, &[members[0].url()]).await);
    let pair = Pair::over(Arc::clone(&watched) as _).await;
    while watched.waiting.lock().unwrap().is_empty() {
        assert!(!pair.waiting.is_finished(), "who waits did not get into line");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    members[1..].iter().for_each(DatabaseServer::pause);
    while watched.wakes.load(Ordering::SeqCst) == 0 {
        assert!(!pair.waiting.is_finished(), "who waits has given up without a word");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    members[1..].iter().for_each(DatabaseServer::go_on);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_survives_each_member_on_etcd() {
    a_lock_survives_each_member(handfast_test_services::Kind::Etcd).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_survives_each_member_on_zookeeper() {
    a_lock_survives_each_member(handfast_test_services::Kind::ZooKeeper).await;
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
async fn the_order_holds_whoever_leaves_on_etcd() {
    the_order_holds_whoever_leaves(Kind::Etcd).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_order_holds_whoever_leaves_on_zookeeper() {
    the_order_holds_whoever_leaves(Kind::ZooKeeper).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_survives_its_server_on_etcd() {
    a_lock_survives_its_server(handfast_test_services::Kind::Etcd).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_survives_its_server_on_zookeeper() {
    a_lock_survives_its_server(handfast_test_services::Kind::ZooKeeper).await;
}

#[tokio::test]
async fn etcd_is_refused_without_an_address() {
    for members in [vec![], vec!["no address"]] {
        let refused = EtcdLocks::connect(members).await;
        assert!(matches!(refused, Err(LockError::Refused { .. })), "{refused:?}");
    }
}

/// What another client would have made, or we in an earlier session, in ZooKeeper.
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
async fn nodes_of_others_stand_in_no_line() {
    let (stage, name) = (Stage::new(Kind::ZooKeeper).await, fresh());
    let client = Client::connect(&server("HANDFAST_TEST_ZOOKEEPER")).await.unwrap();
    let path = made(&client, &name, "somebody-else-").await;
    let guard = stage.locks().try_lock(&name).await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Outcome::Released);
    assert!(client.check_stat(&path).await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_an_earlier_session_counts_for_nothing() {
    let (stage, hold) = (Stage::new(Kind::ZooKeeper).await, hold(&fresh()));
    let earlier = Client::connect(&server("HANDFAST_TEST_ZOOKEEPER")).await.unwrap();
    let path = made(&earlier, hold.name.as_str(), &format!("{}-0-", hold.token)).await;
    let answer = stage.backend.ask(&ask(&hold, Place::None)).await.unwrap();
    assert!(matches!(answer, Answer::Granted { .. }), "{answer:?}");
    assert!(earlier.check_stat(&path).await.unwrap().is_none());
    // It goes with the earlier session, and the lock does not.
    drop(earlier);
    assert!(stage.locks().try_lock(hold.name.as_str()).await.is_err());
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
