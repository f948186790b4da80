//! Locks in ZooKeeper: an ephemeral node for each holder and waiter, in the order of the numbers
//! that ZooKeeper gives them.
//!
//! The first candidate holds the lock. Every other one watches the candidate ahead of it, so that a
//! release wakes one. The fencing token is the number of the transaction that created the node,
//! which the whole cluster counts and never counts back. It is not the number in the node's name,
//! which starts again whenever the lock's folder is created again. Shared holders write down the
//! same token.
//!
//! The id is in the node's name: a node whose creation was not answered is found again and never
//! created twice. Nodes of an earlier session count for nothing. A lease ends before its session
//! can.

mod candidate;
mod connection;
mod options;
mod registry;
mod snapshot;

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use futures::future::join_all;
use tokio::sync::mpsc;
use zookeeper_client::{Acls, Client, CreateMode, Error};

use self::candidate::{Candidate, LOCKS, NodeValue, folder, prefix};
use self::connection::{ClusterConnection, failed};
pub use self::options::ZooKeeperOptions;
use self::registry::{LockNode, NodeRegistry, Registration};
use self::snapshot::{QueueSnapshot, busy, holder};
use crate::backend::{
    AcquireRequest, AcquireResponse, Backend, Guarantee, LockMode, LockRef, QueueMode,
    ReleaseRequest, ReleaseResponse, WAITER_HEARTBEAT, WakeUp,
};
use crate::client::LEASE_MAX;
use crate::clock::Moment;
use crate::driver::within;
use crate::error::{BackendError, LockError};
use crate::name::{AcquisitionId, FencingToken, Holder, LockName};
use crate::queue::{self, Turn};
use crate::watches::Watches;

/// How often a request reads the queue again if the queue moves while the request acts on what it
/// saw (BOUNDED).
const READS_MAX: u32 = 8;
/// When the request is repeated after that, or while a release of the same acquisition is under
/// way.
const RETRY_SOON: Duration = Duration::from_millis(20);
/// How long the first answer of a cluster, or the deletion of a node, may take.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// How late the end of a lease may be noticed.
const SWEEP_EVERY: Duration = Duration::from_millis(100);
/// The pause after a node could not be deleted.
const SWEEP_AGAIN: Duration = Duration::from_secs(1);

/// Locks in a ZooKeeper cluster.
///
/// ```no_run
/// use std::time::Duration;
///
/// use handfast_locks::{Locks, ZooKeeperLocks};
///
/// # async fn edit() -> Result<(), handfast_locks::LockError> {
/// let lease = Duration::from_secs(20);
/// let backend = ZooKeeperLocks::connect("127.0.0.1:2181", lease).await?;
/// let locks = Locks::over(backend).lease(lease).start()?;
/// let guard = locks.lock("orders/42").await?;
/// println!("held with fencing token {}", guard.fencing_token());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ZooKeeperLocks {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    link: ClusterConnection,
    registry: Mutex<NodeRegistry>,
    /// Each with the holder that was seen.
    watches: Watches<Option<Holder>>,
}

impl ZooKeeperLocks {
    /// Connects to a cluster, as `zk1:2181,zk2:2181` or `zk1:2181/for/us`, for leases up to that
    /// long. The session lasts a third longer, which ZooKeeper must allow: up to 40 s unless its
    /// `maxSessionTimeout` says otherwise. A process that dies holds its locks for as long.
    ///
    /// # Errors
    /// [`LockError::Refused`] with the cluster's message, also if no answer comes for 5 s, or if
    /// the cluster ends sessions too early. [`LockError::Settings`] for leases above an hour.
    pub async fn connect(cluster: &str, lease_max: Duration) -> Result<Self, LockError> {
        Self::connect_with(ZooKeeperOptions::new(cluster, lease_max)).await
    }

    /// Connects as a user.
    ///
    /// # Errors
    /// The errors of [`connect`](Self::connect). [`LockError::Denied`] if the locks belong to
    /// another user, and [`LockError::Refused`] if they are open to all users.
    pub async fn connect_with(options: ZooKeeperOptions) -> Result<Self, LockError> {
        if options.lease_max > LEASE_MAX {
            let reason = "a lease lasts an hour at most";
            return Err(LockError::Settings { reason });
        }
        let link = ClusterConnection::new(options);
        within(ANSWER_MAX, link.open_folder()).await.map_err(LockError::refused)?;
        let (registry, watches) = (Mutex::default(), Watches::default());
        let inner = Arc::new(Inner { link, registry, watches });
        tokio::spawn(sweep(Arc::downgrade(&inner)));
        Ok(Self { inner })
    }
}

/// Deletes the nodes of what was not renewed, for as long as the backend is there.
async fn sweep(inner: Weak<Inner>) {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        let Some(inner) = inner.upgrade() else { return };
        let ended = inner.registry().expire(Moment::now());
        for (id, entry) in ended {
            inner.watches.forget(id);
            // A deletion that fails is repeated.
            match within(ANSWER_MAX, inner.delete(id, &entry.name)).await {
                Ok(_) => inner.registry().forget(id),
                Err(error) => {
                    tracing::debug!(%error, "a node in ZooKeeper is still to be deleted");
                    tokio::time::sleep(SWEEP_AGAIN).await;
                    break;
                }
            }
        }
    }
}

impl Inner {
    fn registry(&self) -> MutexGuard<'_, NodeRegistry> {
        // No change to the registry panics half-way.
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the node of an acquisition, if this process knows it.
    fn node(&self, id: AcquisitionId) -> Option<LockNode> {
        self.registry().get(id).and_then(|entry| entry.node.clone())
    }

    fn check_lease(&self, lease: Duration) -> Result<(), BackendError> {
        let lease_max = self.link.lease_max();
        if lease <= lease_max {
            return Ok(());
        }
        let (lease, max) = (lease.as_millis(), lease_max.as_millis());
        Err(BackendError::lasting(format!(
            "a lease of {lease} ms, over a session that was made for {max} ms at most"
        )))
    }

    async fn answer(
        &self,
        client: &Client,
        request: &AcquireRequest,
    ) -> Result<AcquireResponse, BackendError> {
        for _ in 0..READS_MAX {
            let snapshot = QueueSnapshot {
                client,
                request,
                candidates: self.candidates(client, &request.name).await?,
            };
            if let Some(answer) = self.advance(&snapshot).await? {
                return Ok(answer);
            }
        }
        Ok(AcquireResponse::Busy { holder: None, retry_after: RETRY_SOON })
    }

    async fn candidates(
        &self,
        client: &Client,
        name: &LockName,
    ) -> Result<Vec<Candidate>, BackendError> {
        match client.list_children(&folder(name)).await {
            Ok(children) => Ok(Candidate::in_order(name, &children)),
            Err(Error::NoNode) => Ok(Vec::new()),
            Err(error) => Err(failed(error)),
        }
    }

    /// Joins the queue: creates the node, and the folders above it if they are not there.
    async fn join(&self, client: &Client, request: &AcquireRequest) -> Result<(), BackendError> {
        let path = prefix(&request.name, request.id, request.mode);
        let text = NodeValue { fencing_token: None, label: request.label.to_string() }.write();
        let acls = self.link.acls();
        let options = CreateMode::EphemeralSequential.with_acls(acls);
        let made = match client.create(&path, text.as_bytes(), &options).await {
            Err(Error::NoNode) => {
                make_folders(client, &request.name, acls).await.map_err(failed)?;
                client.create(&path, text.as_bytes(), &options).await
            }
            made => made,
        };
        let (stat, number) = made.map_err(failed)?;
        let session = client.session_id().0;
        let node = LockNode { path: format!("{path}{number}"), made_by: stat.czxid, session };
        self.registry().set_node(request.id, Some(node));
        Ok(())
    }

    /// Takes one step towards a response. Returns none if the queue moved and must be read again.
    async fn advance(
        &self,
        snapshot: &QueueSnapshot<'_>,
    ) -> Result<Option<AcquireResponse>, BackendError> {
        let Some(mut ahead) = snapshot.modes().await? else { return Ok(None) };
        let at =
            snapshot.candidates.iter().position(|candidate| candidate.id == snapshot.request.id);
        let Some(at) = at else {
            snapshot.check_permits(&ahead)?;
            let is_free = queue::turn(&ahead, snapshot.request.mode) == Turn::Now;
            if !is_free && snapshot.request.queue == QueueMode::NoWait {
                return Ok(Some(busy(snapshot.holder().await?)));
            }
            self.join(snapshot.client, snapshot.request).await?;
            return Ok(None);
        };
        let Some(node) = self.own_node(snapshot, &snapshot.candidates[at]).await? else {
            return Ok(None);
        };
        let fencing_token =
            self.registry().get(snapshot.request.id).and_then(|entry| entry.fencing_token);
        if let Some(fencing_token) = fencing_token {
            return self.confirm_holder(snapshot, &snapshot.candidates[at], fencing_token).await;
        }
        ahead.truncate(at);
        let mode = snapshot.candidates[at].mode;
        match queue::turn(&ahead, mode) {
            Turn::Now => {
                let fencing_token = match mode {
                    LockMode::Exclusive => Some(node.made_by),
                    LockMode::Shared { .. } => snapshot.shared_fencing_token(at, &node).await?,
                };
                Ok(fencing_token.and_then(|fencing_token| {
                    self.grant(snapshot.request, FencingToken::new(fencing_token))
                }))
            }
            Turn::Behind(other) => self.wait(snapshot, &ahead, Some(other)).await,
            Turn::Full => self.wait(snapshot, &ahead, None).await,
        }
    }

    /// Returns the node of a candidate, if it belongs to this session. Another session is over, or
    /// about to be, and its nodes with it.
    async fn own_node(
        &self,
        snapshot: &QueueSnapshot<'_>,
        own: &Candidate,
    ) -> Result<Option<LockNode>, BackendError> {
        let session = snapshot.client.session_id().0;
        let is_own = |node: &LockNode| node.session == session && node.path == own.path;
        if let Some(node) = self.node(snapshot.request.id).filter(is_own) {
            return Ok(Some(node));
        }
        let Some(stat) = snapshot.client.check_stat(&own.path).await.map_err(failed)? else {
            return Ok(None);
        };
        if stat.ephemeral_owner != session {
            self.registry().set_node(snapshot.request.id, None);
            // As long as that node is there, a request finds it by its id and does not join the
            // queue.
            delete(snapshot.client, &own.path).await?;
            return Ok(None);
        }
        let node = LockNode { path: own.path.clone(), made_by: stat.czxid, session };
        self.registry().set_node(snapshot.request.id, Some(node.clone()));
        Ok(Some(node))
    }

    /// Makes the acquisition a holder. Returns none if it has ended meanwhile.
    fn grant(
        &self,
        request: &AcquireRequest,
        fencing_token: FencingToken,
    ) -> Option<AcquireResponse> {
        self.watches.forget(request.id);
        let is_there =
            self.registry().mark_held(Moment::now(), request.id, request.lease, fencing_token);
        is_there.then(|| AcquireResponse::granted(fencing_token))
    }

    /// Answers a request of a holder, alike each time. A writer that asks for a permit keeps only
    /// that. A reader that asks for the exclusive mode gets nothing: the request is a late one.
    async fn confirm_holder(
        &self,
        snapshot: &QueueSnapshot<'_>,
        own: &Candidate,
        fencing_token: FencingToken,
    ) -> Result<Option<AcquireResponse>, BackendError> {
        if own.mode == LockMode::Exclusive && snapshot.request.mode != LockMode::Exclusive {
            let text = NodeValue {
                fencing_token: Some(fencing_token.number()),
                label: snapshot.request.label.to_string(),
            }
            .write();
            match snapshot.client.set_data(&own.path, text.as_bytes(), None).await {
                Ok(_) => {}
                Err(Error::NoNode) => return Ok(None),
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(self.grant(snapshot.request, fencing_token))
    }

    /// Sends a heartbeat, and watches the candidate `other` ahead, or all of them.
    async fn wait(
        &self,
        snapshot: &QueueSnapshot<'_>,
        ahead: &[LockMode],
        other: Option<usize>,
    ) -> Result<Option<AcquireResponse>, BackendError> {
        snapshot.check_permits(ahead)?;
        let (id, now) = (snapshot.request.id, Moment::now());
        self.registry().mark_waiting(now, id);
        let holder = snapshot.holder().await?;
        if snapshot.request.queue != QueueMode::NoWait && self.watches.needs_watch(now, id) {
            let watcher = match other {
                Some(other) => snapshot.watch_one(other).await?,
                None => snapshot.watch_all().await?,
            };
            let Some(watcher) = watcher else { return Ok(None) };
            let sign = watcher.changed().map(drop).boxed();
            self.watches.set(now, id, holder.clone(), sign);
        }
        Ok(Some(busy(holder)))
    }

    /// Removes the node of a request without waiting that another one has overtaken: it must leave
    /// nothing behind.
    async fn withdraw(&self, request: &AcquireRequest) -> Result<(), BackendError> {
        if self.node(request.id).is_some() {
            self.delete(request.id, &request.name).await?;
        }
        self.registry().forget(request.id);
        Ok(())
    }

    /// Deletes the node of an acquisition, if there is one, and returns whether there was.
    async fn delete(&self, id: AcquisitionId, name: &LockName) -> Result<bool, BackendError> {
        let client = self.link.client().await?;
        if let Some(node) = self.node(id) {
            return delete(&client, &node.path).await;
        }
        // The creation of its node may not have been answered, and this server may not know of it
        // yet.
        sync_with_leader(&client).await?;
        let mut is_there = false;
        for candidate in self.candidates(&client, name).await? {
            if candidate.id == id {
                is_there |= delete(&client, &candidate.path).await?;
            }
        }
        Ok(is_there)
    }
}

#[async_trait]
impl Backend for ZooKeeperLocks {
    fn name(&self) -> &'static str {
        "zookeeper"
    }

    fn guarantee(&self) -> Guarantee {
        Guarantee::Correctness
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireResponse, BackendError> {
        self.inner.check_lease(request.lease)?;
        let found = self.inner.registry().register(Moment::now(), request);
        let unknown_holder = |retry_after| Ok(AcquireResponse::Busy { holder: None, retry_after });
        match found {
            Registration::Barred => return unknown_holder(WAITER_HEARTBEAT),
            Registration::Ending => return unknown_holder(RETRY_SOON),
            Registration::First | Registration::Earlier => {}
        }
        let now = Moment::now();
        if let Some(holder) = self.inner.watches.observation(now, request.id) {
            // The session keeps the waiter's node alive.
            self.inner.registry().mark_waiting(now, request.id);
            return Ok(busy(holder));
        }
        let client = self.inner.link.client().await?;
        if found == Registration::First && request.queue != QueueMode::NoWait {
            // The request wants its place whatever the queue is like.
            self.inner.join(&client, request).await?;
        } else if found == Registration::Earlier {
            // Its node may be there and must not be created twice. Or it is there no more, and only
            // a server that is cut off from the leader still shows it.
            sync_with_leader(&client).await?;
        }
        let answer = self.inner.answer(&client, request).await?;
        if request.queue == QueueMode::NoWait && matches!(answer, AcquireResponse::Busy { .. }) {
            self.inner.withdraw(request).await?;
        }
        Ok(answer)
    }

    async fn renew(
        &self,
        lock_refs: &[LockRef],
        lease: Duration,
    ) -> Result<Vec<bool>, BackendError> {
        let client = self.inner.link.client().await?;
        let session = client.session_id().0;
        // A server that is cut off still answers for a while, and the leader ends the session
        // meanwhile.
        sync_with_leader(&client).await?;
        let renew = lock_refs.iter().map(async |lock_ref| {
            let Some(path) = self.inner.registry().held_path(Moment::now(), lock_ref, session)
            else {
                return Ok(false);
            };
            // This request keeps the session, and so the node, alive.
            let is_there = client.check_stat(&path).await.map_err(failed)?.is_some();
            Ok(is_there && self.inner.registry().renew(Moment::now(), lock_ref.id, lease))
        });
        join_all(renew).await.into_iter().collect()
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseResponse, BackendError> {
        let ReleaseRequest { lock_ref: LockRef { name, id }, refuse_late_requests, .. } = request;
        self.inner.watches.forget(*id);
        // The bar comes first: a late request must not create a node behind the deletion.
        if *refuse_late_requests {
            self.inner.registry().bar(Moment::now(), *id);
        }
        let was_held =
            self.inner.registry().get(*id).is_some_and(registry::RegisteredNode::is_held);
        let was_there = self.inner.delete(*id, name).await?;
        // The node is known to be gone: if its deletion had failed, the sweep would repeat it.
        self.inner.registry().forget(*id);
        if was_held && was_there {
            return Ok(ReleaseResponse::Released);
        }
        let client = self.inner.link.client().await?;
        let candidates = self.inner.candidates(&client, name).await?;
        let current = match candidates.first() {
            Some(first) => holder(&client, first).await?,
            None => None,
        };
        Ok(ReleaseResponse::NotHeld { current })
    }

    async fn listen(
        &self,
        client: u128,
        wake_ups: &mpsc::UnboundedSender<WakeUp>,
    ) -> Result<Infallible, BackendError> {
        // When the session ends, each watch ends too, and its waiter reads the queue.
        self.inner.watches.listen(client, wake_ups).await
    }
}

async fn make_folders(client: &Client, name: &LockName, acls: Acls<'static>) -> Result<(), Error> {
    let path = folder(name);
    // ZooKeeper removes the folder when the queue has been empty for a while.
    let container = CreateMode::Container.with_acls(acls);
    let made = match client.create(&path, &[], &container).await {
        Err(Error::NoNode) => {
            client.mkdir(LOCKS, &CreateMode::Persistent.with_acls(acls)).await?;
            client.create(&path, &[], &container).await
        }
        made => made,
    };
    match made {
        Ok(_) | Err(Error::NodeExists) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Waits until everything that was written before is visible, also at a server that is behind. The
/// leader answers, so this fails if the leader cannot be reached.
async fn sync_with_leader(client: &Client) -> Result<(), BackendError> {
    client.sync(LOCKS).await.map_err(failed)
}

/// Deletes a node, and returns whether it was there.
async fn delete(client: &Client, path: &str) -> Result<bool, BackendError> {
    match client.delete(path, None).await {
        Ok(()) => Ok(true),
        Err(Error::NoNode) => Ok(false),
        Err(error) => Err(failed(error)),
    }
}
