//! Locks in etcd: a key for each holder and waiter, queued by the revision at which it was created.
//!
//! That revision is the fencing token. The whole cluster counts it and never counts it back. Shared
//! holders have the token of the one that came first. A key hangs on a lease of its own: while its
//! owner waits, the lease is as long as the waiter timeout; once the key says that its owner holds
//! the lock, it is as long as the lock is held without renewal.
//!
//! A waiter watches the key ahead of it, from the present on, and then reads the queue again: a
//! watch from the revision of an earlier read, as in etcd's own recipe, is served only every 100
//! ms. The key of a holder that died goes with its lease, and wakes the next waiter as a release
//! does. Until then, a waiter's heartbeat only keeps its lease alive (`heartbeats.rs`).

mod entry;
mod heartbeats;
mod queue_view;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use handfast_etcd::{
    Changes, EtcdClient, EtcdError, EtcdOptions, KeyRange, delete, is_unchanged, none_since, put,
    read_all, read_first, read_last_before, within,
};
use tokio::sync::mpsc;

use self::entry::{EntryValue, QueueEntry, barred, entries, key};
use self::heartbeats::Heartbeats;
use self::queue_view::QueueView;
use crate::backend::{
    AcquireRequest, AcquireResponse, Backend, Guarantee, LockMode, LockRef, QueueMode,
    ReleaseRequest, ReleaseResponse, WAITER_HEARTBEAT, WAITER_TIMEOUT, WakeUp,
};
use crate::clock::Moment;
use crate::error::{BackendError, LockError};
use crate::name::{FencingToken, Holder};
use crate::queue::{self, Turn};
use crate::watches::Watches;

/// How long an id stays refused: longer than any request with it can be under way.
const BARRED: Duration = Duration::from_secs(60);
/// How often a request reads the queue again if the queue moves while the request acts on what it
/// saw (BOUNDED).
const READS_MAX: u32 = 8;
/// When the request is repeated after that.
const RETRY_SOON: Duration = Duration::from_millis(20);
/// How long the first answer of a cluster may take.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Locks in an etcd cluster.
///
/// ```no_run
/// use handfast_locks::{EtcdLocks, Locks};
///
/// # async fn edit() -> Result<(), handfast_locks::LockError> {
/// let locks = Locks::over(EtcdLocks::connect(["http://127.0.0.1:2379"]).await?).start()?;
/// let guard = locks.lock("orders/42").await?;
/// println!("held with fencing token {}", guard.fencing_token());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct EtcdLocks {
    etcd: EtcdClient,
    watches: Arc<Watches<WatchContext>>,
    heartbeats: Heartbeats,
}

/// The observation of a waiter when it set its watch.
#[derive(Clone, Debug)]
struct WatchContext {
    /// The lease of the waiter's own key.
    lease: i64,
    holder: Option<Holder>,
}

impl From<EtcdError> for BackendError {
    fn from(error: EtcdError) -> Self {
        match error {
            EtcdError::Denied { .. } => Self::denied(error.to_string()),
            EtcdError::Options { reason } => Self::lasting(reason),
            EtcdError::Unanswered => Self::unanswered(),
            EtcdError::Failed { source }
            | EtcdError::Full { source }
            | EtcdError::Compacted { source }
            | EtcdError::Refused { source } => Self::passing("etcd failed", source),
            EtcdError::Ended { .. } | EtcdError::Token { .. } => {
                Self::passing("etcd failed", error)
            }
        }
    }
}

impl EtcdLocks {
    /// Connects to a cluster by the URLs of some of its members, as `http://127.0.0.1:2379`. A
    /// member that does not answer is left out until it does.
    ///
    /// # Errors
    /// [`LockError::Refused`] without a member, for an invalid address, and with the cluster's
    /// message, also if no answer comes for 5 s.
    pub async fn connect<U: Into<String>>(
        members: impl IntoIterator<Item = U>,
    ) -> Result<Self, LockError> {
        Self::connect_with(EtcdOptions::new(members)).await
    }

    /// Connects with certificates, or as a user.
    ///
    /// # Errors
    /// The errors of [`connect`](Self::connect). [`LockError::Denied`] for a wrong user, password
    /// or certificate, or a user that may not read and write the keys of locks.
    pub async fn connect_with(options: EtcdOptions) -> Result<Self, LockError> {
        let refused = |error: EtcdError| LockError::refused(error.into());
        let etcd = EtcdClient::connect(&options).map_err(refused)?;
        let ping = etcd.run(vec![read_first(&entry::all_entries())]);
        if let Err(error) = within(ANSWER_MAX, ping).await {
            return Err(refused(options.explain_failure(error, ANSWER_MAX).await));
        }
        let watches = Arc::default();
        let heartbeats = Heartbeats::start(etcd.clone(), Arc::clone(&watches));
        Ok(Self { etcd, watches, heartbeats })
    }

    /// Reads the queue. Returns none if the id is barred. A request for the exclusive mode needs to
    /// know only the first key, and whether that is its own.
    async fn read_queue(
        &self,
        request: &AcquireRequest,
    ) -> Result<Option<QueueView>, BackendError> {
        let (view, own) = (entries(&request.name), KeyRange::one(key(&request.name, request.id)));
        // All steps are one transaction: the bar, the queue and the own key are as of one revision.
        let steps = match request.mode {
            LockMode::Exclusive => {
                vec![read_all(&barred(request.id)), read_first(&view), read_first(&own)]
            }
            LockMode::Shared { .. } => vec![read_all(&barred(request.id)), read_all(&view)],
        };
        let mut seen = self.etcd.run(steps).await?;
        if !seen.found(0).is_empty() {
            return Ok(None);
        }
        let mut entries = QueueEntry::read_all(&seen.found(1))?;
        let own = QueueEntry::read_all(&seen.found(2))?;
        let first = entries.first().map(|first| first.id);
        entries.extend(own.into_iter().filter(|own| Some(own.id) != first));
        Ok(Some(QueueView { entries, revision: seen.revision }))
    }

    /// Takes one step towards a response. Returns none if the queue moved and must be read again.
    async fn advance(
        &self,
        request: &AcquireRequest,
        view: &QueueView,
    ) -> Result<Option<AcquireResponse>, BackendError> {
        if let Some(at) = view.entries.iter().position(|entry| entry.id == request.id) {
            return self.advance_in_queue(request, view, at).await;
        }
        view.check_permits(request)?;
        if queue::turn(&view.modes(), request.mode) == Turn::Now {
            return self.take(request, view).await;
        }
        match request.queue {
            QueueMode::NoWait => Ok(Some(view.busy())),
            QueueMode::Join | QueueMode::KeepPlace => self.join(request).await.map(|()| None),
        }
    }

    /// Takes a lock that is free, or held only in the same shared mode.
    async fn take(
        &self,
        request: &AcquireRequest,
        view: &QueueView,
    ) -> Result<Option<AcquireResponse>, BackendError> {
        // The lease comes first, since a key can only hang on one that exists. If the client dies
        // before the key is there, the lease ends unused.
        let lease = self.etcd.grant_lease(request.lease).await?.id;
        // A key that was created since the view was read stands ahead of this one. The bar is
        // checked here again, because a release may have come since.
        let mut conditions = vec![
            none_since(&entries(&request.name), view.revision),
            none_since(&barred(request.id), 0),
        ];
        let fencing_token = view.shared_fencing_token(request, &mut conditions);
        let text = EntryValue {
            is_holder: true,
            mode: request.mode,
            fencing_token,
            label: request.label.to_string(),
        };
        let hold = put(key(&request.name, request.id), text.write(), lease);
        let taken = self.etcd.transaction(conditions, vec![hold], Vec::new()).await?;
        if taken.succeeded {
            // The key was created by this very transaction.
            let fencing_token = FencingToken::new(fencing_token.unwrap_or(taken.revision));
            return Ok(Some(AcquireResponse::granted(fencing_token)));
        }
        self.end_lease(lease);
        Ok(None)
    }

    /// Joins the queue, unless the key is in it already.
    async fn join(&self, request: &AcquireRequest) -> Result<(), BackendError> {
        let lease = self.etcd.grant_lease(WAITER_TIMEOUT).await?.id;
        let own = key(&request.name, request.id);
        let conditions =
            vec![none_since(&KeyRange::one(own.clone()), 0), none_since(&barred(request.id), 0)];
        let text = EntryValue {
            is_holder: false,
            mode: request.mode,
            fencing_token: None,
            label: request.label.to_string(),
        };
        let join = vec![put(own, text.write(), lease)];
        if !self.etcd.transaction(conditions, join, Vec::new()).await?.succeeded {
            self.end_lease(lease);
        }
        Ok(())
    }

    async fn advance_in_queue(
        &self,
        request: &AcquireRequest,
        view: &QueueView,
        at: usize,
    ) -> Result<Option<AcquireResponse>, BackendError> {
        let own = &view.entries[at];
        if own.text.is_holder {
            return self.confirm_holder(request, own).await;
        }
        view.check_permits(request)?;
        let ahead = &view.modes()[..at];
        match queue::turn(ahead, request.mode) {
            Turn::Now => self.take_over(request, view, own).await,
            Turn::Behind(other) => self.wait(request, view, own, Some(other)).await,
            Turn::Full => self.wait(request, view, own, None).await,
        }
    }

    /// Answers a request of a holder, alike each time. A writer that asks for a permit keeps only
    /// that. A reader that asks for the exclusive mode gets nothing: the request is a late one.
    async fn confirm_holder(
        &self,
        request: &AcquireRequest,
        own: &QueueEntry,
    ) -> Result<Option<AcquireResponse>, BackendError> {
        // SENT-TIME: the client counts the lease from when this request was sent, so the request
        // must renew it.
        if self.etcd.keep_alive(&[own.lease]).await? != [true] {
            return Ok(None);
        }
        if own.text.mode == LockMode::Exclusive && request.mode != LockMode::Exclusive {
            let fencing_token = Some(own.fencing_token().number());
            let text = EntryValue { mode: request.mode, fencing_token, ..own.text.clone() };
            let own_key = key(&request.name, request.id);
            let conditions = vec![is_unchanged(own_key.clone(), own.changed)];
            let keep = vec![put(own_key, text.write(), own.lease)];
            if !self.etcd.transaction(conditions, keep, Vec::new()).await?.succeeded {
                return Ok(None);
            }
        }
        Ok(Some(AcquireResponse::granted(own.fencing_token())))
    }

    /// Makes a waiter the holder, because its turn has come: from here on, its key lives as long as
    /// a holder's. Its former lease ends by itself.
    async fn take_over(
        &self,
        request: &AcquireRequest,
        view: &QueueView,
        own: &QueueEntry,
    ) -> Result<Option<AcquireResponse>, BackendError> {
        let lease = self.etcd.grant_lease(request.lease).await?.id;
        let own_key = key(&request.name, request.id);
        // The keys ahead are not checked: none comes ahead of one that exists, and those that were
        // there can only have gone. A waiter whose lease has ended has no key any more, and joins
        // again.
        let mut conditions =
            vec![is_unchanged(own_key.clone(), own.changed), none_since(&barred(request.id), 0)];
        let fencing_token = view.shared_fencing_token(request, &mut conditions);
        let text = EntryValue { is_holder: true, fencing_token, ..own.text.clone() };
        let hold = vec![put(own_key, text.write(), lease)];
        if self.etcd.transaction(conditions, hold, Vec::new()).await?.succeeded {
            self.watches.forget(request.id);
            let fencing_token = fencing_token.unwrap_or(own.created);
            return Ok(Some(AcquireResponse::granted(FencingToken::new(fencing_token))));
        }
        self.end_lease(lease);
        Ok(None)
    }

    /// Sends a heartbeat, and watches the entry `other` ahead, or all of them.
    async fn wait(
        &self,
        request: &AcquireRequest,
        view: &QueueView,
        own: &QueueEntry,
        other: Option<usize>,
    ) -> Result<Option<AcquireResponse>, BackendError> {
        // An ended lease has taken the key along, and with it the place in the queue.
        if self.etcd.keep_alive(&[own.lease]).await? != [true] {
            return Ok(None);
        }
        let is_watching = !self.watches.needs_watch(Moment::now(), request.id);
        if is_watching || self.watch(request, view, own, other).await? {
            return Ok(Some(view.busy()));
        }
        Ok(None)
    }

    /// Sets a watch. Returns whether the entries ahead are still as they were when the watch was
    /// set: then every change will be seen.
    async fn watch(
        &self,
        request: &AcquireRequest,
        view: &QueueView,
        own: &QueueEntry,
        other: Option<usize>,
    ) -> Result<bool, BackendError> {
        let range = entries(&request.name);
        let one = |entry: &QueueEntry| KeyRange::one(key(&request.name, entry.id));
        let (read, before, watched, changes) = match (request.mode, other) {
            (LockMode::Exclusive, _) => {
                let read = read_last_before(&range, own.created);
                let before =
                    QueueEntry::read_all(&self.etcd.run(vec![read.clone()]).await?.found(0))?;
                let Some(last) = before.first() else { return Ok(false) };
                (read, before.clone(), one(last), Changes::Deletions)
            }
            (LockMode::Shared { .. }, Some(other)) => {
                let other = &view.entries[other];
                // A writer may become a reader.
                (read_all(&one(other)), vec![other.clone()], one(other), Changes::All)
            }
            (LockMode::Shared { .. }, None) => {
                (read_all(&range), view.entries.clone(), range, Changes::Deletions)
            }
        };
        let set_at = Moment::now();
        let watched = self.etcd.watch(watched, changes).await?;
        // The entries are read again with the watch standing: a change before that gives no event.
        let is_unchanged =
            QueueEntry::read_all(&self.etcd.run(vec![read]).await?.found(0))? == before;
        if is_unchanged {
            let seen = WatchContext { lease: own.lease, holder: view.holder() };
            self.watches.set(set_at, request.id, seen, watched.changed().boxed());
        }
        Ok(is_unchanged)
    }

    /// Ends a lease without keys, in the background: it would end by itself.
    fn end_lease(&self, lease: i64) {
        let etcd = self.etcd.clone();
        tokio::spawn(async move {
            if let Err(error) = etcd.revoke(lease).await {
                tracing::debug!(%error, "a lease in etcd is left to end by itself");
            }
        });
    }
}

#[async_trait]
impl Backend for EtcdLocks {
    fn name(&self) -> &'static str {
        "etcd"
    }

    fn guarantee(&self) -> Guarantee {
        Guarantee::Correctness
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireResponse, BackendError> {
        if let Some(WatchContext { lease, holder }) =
            self.watches.observation(Moment::now(), request.id)
            && self.heartbeats.send(request.id, lease)
        {
            return Ok(AcquireResponse::Busy { holder, retry_after: WAITER_HEARTBEAT });
        }
        // A first request finds the lock free, more often than not.
        let mut view = (request.queue != QueueMode::KeepPlace).then(QueueView::default);
        for _ in 0..READS_MAX {
            let seen = match view.take() {
                Some(empty) => empty,
                None => match self.read_queue(request).await? {
                    Some(seen) => seen,
                    None => {
                        return Ok(AcquireResponse::Busy {
                            holder: None,
                            retry_after: WAITER_HEARTBEAT,
                        });
                    }
                },
            };
            if let Some(answer) = self.advance(request, &seen).await? {
                return Ok(answer);
            }
        }
        Ok(AcquireResponse::Busy { holder: None, retry_after: RETRY_SOON })
    }

    async fn renew(&self, lock_refs: &[LockRef], _: Duration) -> Result<Vec<bool>, BackendError> {
        // A lease in etcd knows its own duration.
        let read = |lock_ref: &LockRef| read_all(&KeyRange::one(key(&lock_ref.name, lock_ref.id)));
        let mut seen = self.etcd.run(lock_refs.iter().map(read).collect()).await?;
        let mut leases = Vec::with_capacity(lock_refs.len());
        for step in 0..lock_refs.len() {
            let entry = QueueEntry::read_all(&seen.found(step))?.into_iter().next();
            // A waiter's key hangs on the shorter lease of its place, which is not the lock's.
            leases.push(entry.filter(|entry| entry.text.is_holder).map(|entry| entry.lease));
        }
        let there: Vec<i64> = leases.iter().copied().flatten().collect();
        let mut alive = self.etcd.keep_alive(&there).await?.into_iter();
        let held = leases.into_iter().map(|lease| lease.is_some() && alive.next() == Some(true));
        Ok(held.collect())
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseResponse, BackendError> {
        let ReleaseRequest { lock_ref: LockRef { name, id }, refuse_late_requests, .. } = request;
        self.watches.forget(*id);
        // All steps are one transaction: the read finds another holder and not this one, and a late
        // request finds either its key or the bar.
        let mut steps = vec![delete(key(name, *id)), read_first(&entries(name))];
        if *refuse_late_requests {
            let lease = self.etcd.grant_lease(BARRED).await?.id;
            steps.push(put(barred(*id).from, String::new(), lease));
        }
        let mut left = self.etcd.run(steps).await?;
        let own = QueueEntry::read_all(&left.found(0))?.into_iter().next();
        let first = QueueEntry::read_all(&left.found(1))?.into_iter().next();
        if let Some(own) = &own {
            self.end_lease(own.lease);
        }
        if own.is_some_and(|own| own.text.is_holder) {
            return Ok(ReleaseResponse::Released);
        }
        Ok(ReleaseResponse::NotHeld { current: first.as_ref().and_then(QueueEntry::holder) })
    }

    async fn listen(
        &self,
        client: u128,
        wake_ups: &mpsc::UnboundedSender<WakeUp>,
    ) -> Result<Infallible, BackendError> {
        self.watches.listen(client, wake_ups).await
    }
}
