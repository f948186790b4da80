//! Locks in ZooKeeper: an ephemeral node for each who stands in line, in the order of the numbers
//! that ZooKeeper gives them.
//!
//! Whoever has nobody in front holds the lock. Everybody else watches the one in front, so that a
//! release wakes one. The fence is the number of the transaction that made the node, which the
//! whole cluster counts together and never counts back; not the number in the node's name, which
//! begins anew with the lock. Those who hold parts beside one another write down the same one.
//!
//! The token is in the node's name: a node whose creation was not answered is found again and never
//! made twice. Nodes of an earlier session count for nothing. A lease ends before its session can.

mod kept;
mod link;
mod look;
mod options;
mod stand;

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use futures::future::join_all;
use tokio::sync::mpsc;
use zookeeper_client::{Acls, Client, CreateMode, Error};

use self::kept::{Found, Kept, Node};
use self::link::{Link, failed};
use self::look::{Look, busy, holder};
pub use self::options::ZooKeeperOptions;
use self::stand::{LOCKS, Stand, Text, folder, prefix};
use crate::backend::{
    Answer, Ask, Backend, Grade, Hold, Leave, Left, Place, Share, WAITER_BEAT, Wake,
};
use crate::client::LEASE_MAX;
use crate::clock::Moment;
use crate::error::{BackendError, LockError};
use crate::line::{self, Turn};
use crate::name::{Fence, Holder, LockName, Token};
use crate::shell::within;
use crate::watches::Watches;

/// How often a request looks again when the line moves while it acts on what it saw (BOUNDED).
const LOOKS_MAX: u32 = 8;
/// When it asks again after that, or after an end of the same acquisition that is under way.
const LOOK_SOON: Duration = Duration::from_millis(20);
/// How long the first answer of a cluster, or the end of a node, may take.
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
/// println!("held with fence {}", guard.fence());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ZooKeeperLocks {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    link: Link,
    kept: Mutex<Kept>,
    /// Each with who was seen holding the lock.
    watches: Watches<Option<Holder>>,
}

impl ZooKeeperLocks {
    /// Connects to a cluster, as `zk1:2181,zk2:2181` or `zk1:2181/for/us`, for leases up to that
    /// long. The session lasts a third longer, which ZooKeeper must allow: 40 s unless its
    /// `maxSessionTimeout` says otherwise. A process that dies holds its locks for as long.
    ///
    /// # Errors
    /// [`LockError::Refused`] with what the cluster says, also if that is nothing for 5 s, and if
    /// it ends sessions too early; [`LockError::Settings`] for leases above an hour.
    pub async fn connect(cluster: &str, lease_max: Duration) -> Result<Self, LockError> {
        Self::connect_with(ZooKeeperOptions::new(cluster, lease_max)).await
    }

    /// Connects as a user.
    ///
    /// # Errors
    /// Those of [`connect`](Self::connect); [`LockError::Denied`] if the locks belong to another
    /// user, and [`LockError::Refused`] if they belong to everybody.
    pub async fn connect_with(options: ZooKeeperOptions) -> Result<Self, LockError> {
        if options.lease_max > LEASE_MAX {
            let reason = "a lease lasts an hour at most";
            return Err(LockError::Settings { reason });
        }
        let link = Link::new(options);
        within(ANSWER_MAX, link.open_folder()).await.map_err(LockError::refused)?;
        let (kept, watches) = (Mutex::default(), Watches::default());
        let inner = Arc::new(Inner { link, kept, watches });
        tokio::spawn(sweep(Arc::downgrade(&inner)));
        Ok(Self { inner })
    }
}

/// Ends what was not renewed, for as long as the backend is there.
async fn sweep(inner: Weak<Inner>) {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        let Some(inner) = inner.upgrade() else { return };
        let ended = inner.kept().ended(Moment::now());
        for (token, place) in ended {
            inner.watches.forget(token);
            // What fails is tried again.
            match within(ANSWER_MAX, inner.delete(token, &place.name)).await {
                Ok(_) => inner.kept().forget(token),
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
    fn kept(&self) -> MutexGuard<'_, Kept> {
        // No step in there panics half-way.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its node, as far as is known here.
    fn node(&self, token: Token) -> Option<Node> {
        self.kept().place(token).and_then(|place| place.node.clone())
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

    async fn answer(&self, client: &Client, ask: &Ask) -> Result<Answer, BackendError> {
        for _ in 0..LOOKS_MAX {
            let look = Look { client, ask, line: self.line(client, &ask.name).await? };
            if let Some(answer) = self.step(&look).await? {
                return Ok(answer);
            }
        }
        Ok(Answer::Busy { holder: None, look_again: LOOK_SOON })
    }

    async fn line(&self, client: &Client, name: &LockName) -> Result<Vec<Stand>, BackendError> {
        match client.list_children(&folder(name)).await {
            Ok(children) => Ok(Stand::in_order(name, &children)),
            Err(Error::NoNode) => Ok(Vec::new()),
            Err(error) => Err(failed(error)),
        }
    }

    /// Stands in line: makes the node, and the folders above it if they are not there.
    async fn join(&self, client: &Client, ask: &Ask) -> Result<(), BackendError> {
        let path = prefix(&ask.name, ask.token, ask.share);
        let text = Text { fence: None, label: ask.label.to_string() }.write();
        let acls = self.link.acls();
        let options = CreateMode::EphemeralSequential.with_acls(acls);
        let made = match client.create(&path, text.as_bytes(), &options).await {
            Err(Error::NoNode) => {
                make_folders(client, &ask.name, acls).await.map_err(failed)?;
                client.create(&path, text.as_bytes(), &options).await
            }
            made => made,
        };
        let (stat, number) = made.map_err(failed)?;
        let session = client.session_id().0;
        let node = Node { path: format!("{path}{number}"), made_by: stat.czxid, session };
        self.kept().stands(ask.token, Some(node));
        Ok(())
    }

    /// One step towards an answer; none if the line moved, and is to be looked at again.
    async fn step(&self, look: &Look<'_>) -> Result<Option<Answer>, BackendError> {
        let Some(mut ahead) = look.shares().await? else { return Ok(None) };
        let at = look.line.iter().position(|stand| stand.token == look.ask.token);
        let Some(at) = at else {
            look.check_parts(&ahead)?;
            let is_free = line::turn(&ahead, look.ask.share) == Turn::Now;
            if !is_free && look.ask.place == Place::None {
                return Ok(Some(busy(look.holder().await?)));
            }
            self.join(look.client, look.ask).await?;
            return Ok(None);
        };
        let Some(node) = self.own_node(look, &look.line[at]).await? else { return Ok(None) };
        let fence = self.kept().place(look.ask.token).and_then(|place| place.fence);
        if let Some(fence) = fence {
            return self.hold_on(look, &look.line[at], fence).await;
        }
        ahead.truncate(at);
        let share = look.line[at].share;
        match line::turn(&ahead, share) {
            Turn::Now => {
                let fence = match share {
                    Share::All => Some(node.made_by),
                    Share::One { .. } => look.fence_of_parts(at, &node).await?,
                };
                Ok(fence.and_then(|fence| self.grant(look.ask, Fence::new(fence))))
            }
            Turn::Behind(other) => self.wait(look, &ahead, Some(other)).await,
            Turn::Full => self.wait(look, &ahead, None).await,
        }
    }

    /// The node of one who stands in line, if it is this session's. Another one is over, or about
    /// to be, and its nodes with it.
    async fn own_node(&self, look: &Look<'_>, own: &Stand) -> Result<Option<Node>, BackendError> {
        let session = look.client.session_id().0;
        let is_it = |node: &Node| node.session == session && node.path == own.path;
        if let Some(node) = self.node(look.ask.token).filter(is_it) {
            return Ok(Some(node));
        }
        let Some(stat) = look.client.check_stat(&own.path).await.map_err(failed)? else {
            return Ok(None);
        };
        if stat.ephemeral_owner != session {
            self.kept().stands(look.ask.token, None);
            delete(look.client, &own.path).await?;
            return Ok(None);
        }
        let node = Node { path: own.path.clone(), made_by: stat.czxid, session };
        self.kept().stands(look.ask.token, Some(node.clone()));
        Ok(Some(node))
    }

    /// None if the acquisition has ended meanwhile.
    fn grant(&self, ask: &Ask, fence: Fence) -> Option<Answer> {
        self.watches.forget(ask.token);
        let is_there = self.kept().holds(Moment::now(), ask.token, ask.lease, fence);
        is_there.then(|| Answer::granted(fence))
    }

    /// Asked by one who holds already: the same answer. A writer who asks for a part keeps no more
    /// than that; a reader who asks for all is late with it.
    async fn hold_on(
        &self,
        look: &Look<'_>,
        own: &Stand,
        fence: Fence,
    ) -> Result<Option<Answer>, BackendError> {
        if own.share == Share::All && look.ask.share != Share::All {
            let text =
                Text { fence: Some(fence.number()), label: look.ask.label.to_string() }.write();
            match look.client.set_data(&own.path, text.as_bytes(), None).await {
                Ok(_) => {}
                Err(Error::NoNode) => return Ok(None),
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(self.grant(look.ask, fence))
    }

    /// Shows a sign of life and watches that one in front, or all of them.
    async fn wait(
        &self,
        look: &Look<'_>,
        ahead: &[Share],
        other: Option<usize>,
    ) -> Result<Option<Answer>, BackendError> {
        look.check_parts(ahead)?;
        let (token, now) = (look.ask.token, Moment::now());
        self.kept().waits(now, token);
        let holder = look.holder().await?;
        if look.ask.place != Place::None && self.watches.are_wanted(now, token) {
            let watcher = match other {
                Some(other) => look.watch_one(other).await?,
                None => look.watch_all().await?,
            };
            let Some(watcher) = watcher else { return Ok(None) };
            let sign = watcher.changed().map(drop).boxed();
            self.watches.watch(now, token, holder.clone(), sign);
        }
        Ok(Some(busy(holder)))
    }

    /// A try leaves nothing behind: somebody was faster.
    async fn withdraw(&self, ask: &Ask) -> Result<(), BackendError> {
        if self.node(ask.token).is_some() {
            self.delete(ask.token, &ask.name).await?;
        }
        self.kept().forget(ask.token);
        Ok(())
    }

    /// Deletes the node of an acquisition, if there is one, and answers whether there was.
    async fn delete(&self, token: Token, name: &LockName) -> Result<bool, BackendError> {
        let client = self.link.client().await?;
        if let Some(node) = self.node(token) {
            return delete(&client, &node.path).await;
        }
        catch_up(&client).await?;
        let mut is_there = false;
        for stand in self.line(&client, name).await? {
            if stand.token == token {
                is_there |= delete(&client, &stand.path).await?;
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

    fn grade(&self) -> Grade {
        Grade::Correctness
    }

    async fn ask(&self, ask: &Ask) -> Result<Answer, BackendError> {
        self.inner.check_lease(ask.lease)?;
        let found = self.inner.kept().ask(Moment::now(), ask);
        let nobody = |look_again| Ok(Answer::Busy { holder: None, look_again });
        match found {
            Found::Barred => return nobody(WAITER_BEAT),
            Found::Ending => return nobody(LOOK_SOON),
            Found::Nothing | Found::Earlier => {}
        }
        let now = Moment::now();
        if let Some(holder) = self.inner.watches.seen(now, ask.token) {
            // It is the session that keeps his node alive.
            self.inner.kept().waits(now, ask.token);
            return Ok(busy(holder));
        }
        let client = self.inner.link.client().await?;
        if found == Found::Nothing && ask.place != Place::None {
            // Its place in line is wanted whatever the line is like.
            self.inner.join(&client, ask).await?;
        } else if found == Found::Earlier {
            // Its node may be there: it must not be made twice. Or it is there no more, and only a
            // server that is cut off from the leader still has it.
            catch_up(&client).await?;
        }
        let answer = self.inner.answer(&client, ask).await?;
        if ask.place == Place::None && matches!(answer, Answer::Busy { .. }) {
            self.inner.withdraw(ask).await?;
        }
        Ok(answer)
    }

    async fn renew(&self, holds: &[Hold], lease: Duration) -> Result<Vec<bool>, BackendError> {
        let client = self.inner.link.client().await?;
        let session = client.session_id().0;
        // A server that is cut off answers for a while, and the leader ends the session meanwhile.
        catch_up(&client).await?;
        let renew = holds.iter().map(async |hold| {
            let Some(path) = self.inner.kept().held_by(Moment::now(), hold, session) else {
                return Ok(false);
            };
            // It is the session's request that keeps the session, and so the node, alive.
            let is_there = client.check_stat(&path).await.map_err(failed)?.is_some();
            Ok(is_there && self.inner.kept().renew(Moment::now(), hold.token, lease))
        });
        join_all(renew).await.into_iter().collect()
    }

    async fn leave(&self, leave: &Leave) -> Result<Left, BackendError> {
        let Leave { hold: Hold { name, token }, is_doubtful, .. } = leave;
        self.inner.watches.forget(*token);
        if *is_doubtful {
            self.inner.kept().bar(Moment::now(), *token);
        }
        let was_held = self.inner.kept().place(*token).is_some_and(kept::Place::is_held);
        let was_there = self.inner.delete(*token, name).await?;
        self.inner.kept().forget(*token);
        if was_held && was_there {
            return Ok(Left::Freed);
        }
        let client = self.inner.link.client().await?;
        let line = self.inner.line(&client, name).await?;
        let current = match line.first() {
            Some(first) => holder(&client, first).await?,
            None => None,
        };
        Ok(Left::NotHeld { current })
    }

    async fn listen(
        &self,
        client: u128,
        wakes: &mpsc::UnboundedSender<Wake>,
    ) -> Result<Infallible, BackendError> {
        // After an end of the session each watch ends too, and whoever waits looks.
        self.inner.watches.listen(client, wakes).await
    }
}

async fn make_folders(client: &Client, name: &LockName, acls: Acls<'static>) -> Result<(), Error> {
    let path = folder(name);
    // ZooKeeper removes it when nobody stands in line for a while.
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

/// From here on, what was written before is seen, also by a server that is behind. The leader
/// answers: it fails where he is not reached.
async fn catch_up(client: &Client) -> Result<(), BackendError> {
    client.sync(LOCKS).await.map_err(failed)
}

/// Answers whether it was there.
async fn delete(client: &Client, path: &str) -> Result<bool, BackendError> {
    match client.delete(path, None).await {
        Ok(()) => Ok(true),
        Err(Error::NoNode) => Ok(false),
        Err(error) => Err(failed(error)),
    }
}
