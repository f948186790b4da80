//! Locks in etcd: a key for each who holds or waits, in line by the revision at which it was made.
//!
//! That revision is the fence, which the whole cluster counts together and never counts back; those
//! who hold parts beside one another have that of the one who came first. A key hangs on a lease of
//! its own: as long as a sign of life lasts while its owner waits, as long as the lock is held
//! without renewal once it says so.
//!
//! Whoever waits watches the one in front, from the present on, and then looks again: a watch from
//! the revision of an earlier look, as etcd's own recipe has it, is served every 100 ms only. The
//! key of a holder who died goes with its lease and wakes the next one as a release does. Until
//! then a waiter's sign of life only keeps his lease alive (`signs.rs`).

mod cluster;
mod entry;
mod handshake;
mod options;
mod pass;
mod signs;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use tokio::sync::mpsc;
use tonic::transport::Endpoint;

use self::api::Compare;
use self::cluster::{
    Changes, Cluster, Range, all, delete, first, is_unchanged, last_before, none_since, put,
};
use self::entry::{Entry, Text, barred, entries, key};
pub use self::options::EtcdOptions;
use self::signs::Signs;
use crate::backend::{
    Answer, Ask, Backend, Grade, Hold, Leave, Left, Place, Share, WAITER_ALIVE, WAITER_BEAT, Wake,
};
use crate::clock::Moment;
use crate::error::{BackendError, LockError};
use crate::line::{self, Turn};
use crate::name::{Fence, Holder};
use crate::shell::within;
use crate::watches::Watches;

/// The part of etcd's API that is used here.
mod api {
    // Generated code is not ours to lint or document.
    #![allow(clippy::all, clippy::pedantic, missing_docs, missing_debug_implementations)]
    #![allow(unreachable_pub, unused_qualifications, dead_code)]
    tonic::include_proto!("etcdserverpb");
}

/// How long a token stays refused: longer than any request of it can be under way.
const BARRED: Duration = Duration::from_secs(60);
/// How often a request looks again when the line moves while it acts on what it saw (BOUNDED).
const LOOKS_MAX: u32 = 8;
/// When it asks again after that.
const LOOK_SOON: Duration = Duration::from_millis(20);
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
/// println!("held with fence {}", guard.fence());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct EtcdLocks {
    etcd: Cluster,
    watches: Arc<Watches<Seen>>,
    signs: Signs,
}

/// What somebody who waits saw when he set his watch.
#[derive(Clone, Debug)]
struct Seen {
    /// That of his own key.
    lease: i64,
    holder: Option<Holder>,
}

/// Those who stand in line, as far as they were looked at.
#[derive(Debug, Default)]
struct Line {
    entries: Vec<Entry>,
    /// Of the store, when they were looked at. Nobody has come before revision 1.
    revision: i64,
}

impl Cluster {
    /// Asks for something.
    async fn look_in(&self) -> Result<(), BackendError> {
        let steps = vec![first(&entry::all_entries())];
        within(ANSWER_MAX, self.run(steps)).await.map(drop)
    }
}

/// Why a cluster does not answer. Where there are several members, one that fails is left out, and
/// nothing says why; so each is asked alone.
async fn reason(
    endpoints: &[Endpoint],
    options: &EtcdOptions,
    error: BackendError,
) -> BackendError {
    let Some(certificates) = options.certificates().filter(|_| !error.is_final()) else {
        return error;
    };
    for endpoint in endpoints {
        let tried = handshake::try_out(endpoint.uri(), &certificates);
        if let Ok(Err(said)) = tokio::time::timeout(ANSWER_MAX, tried).await
            && let Some(denied) = pass::denied(&said.to_string())
        {
            return denied;
        }
    }
    error
}

impl EtcdLocks {
    /// Connects to a cluster by the URLs of some of its members, as `http://127.0.0.1:2379`. A
    /// member that does not answer is left out until it does.
    ///
    /// # Errors
    /// [`LockError::Refused`] without a member, for an address that is none, and with what the
    /// cluster says, also if that is nothing for 5 s.
    pub async fn connect<U: Into<String>>(
        members: impl IntoIterator<Item = U>,
    ) -> Result<Self, LockError> {
        Self::connect_with(EtcdOptions::new(members)).await
    }

    /// Connects with certificates, or as a user.
    ///
    /// # Errors
    /// Those of [`connect`](Self::connect); [`LockError::Denied`] for a wrong user, password or
    /// certificate, or a user who may not read and write our keys.
    pub async fn connect_with(options: EtcdOptions) -> Result<Self, LockError> {
        let endpoints = options.endpoints().map_err(LockError::refused)?;
        let etcd = Cluster::new(&endpoints, options.user.clone()).map_err(LockError::refused)?;
        if let Err(error) = etcd.look_in().await {
            return Err(LockError::refused(reason(&endpoints, &options, error).await));
        }
        let watches = Arc::default();
        let signs = Signs::to(etcd.clone(), Arc::clone(&watches));
        Ok(Self { etcd, watches, signs })
    }

    /// Looks at the line; none if the token is refused. Whoever wants all needs to know only who is
    /// first, and whether it is he.
    async fn look(&self, ask: &Ask) -> Result<Option<Line>, BackendError> {
        let (line, own) = (entries(&ask.name), Range::one(key(&ask.name, ask.token)));
        let steps = match ask.share {
            Share::All => vec![all(&barred(ask.token)), first(&line), first(&own)],
            Share::One { .. } => vec![all(&barred(ask.token)), all(&line)],
        };
        let mut seen = self.etcd.run(steps).await?;
        if !seen.found(0).is_empty() {
            return Ok(None);
        }
        let mut entries = Entry::read_all(&seen.found(1))?;
        let own = Entry::read_all(&seen.found(2))?;
        let first = entries.first().map(|first| first.token);
        entries.extend(own.into_iter().filter(|own| Some(own.token) != first));
        Ok(Some(Line { entries, revision: seen.revision }))
    }

    /// One step towards an answer; none if the line moved, and is to be looked at again.
    async fn step(&self, ask: &Ask, line: &Line) -> Result<Option<Answer>, BackendError> {
        if let Some(at) = line.entries.iter().position(|entry| entry.token == ask.token) {
            return self.step_in_line(ask, line, at).await;
        }
        line.check_parts(ask)?;
        if line::turn(&line.shares(), ask.share) == Turn::Now {
            return self.take(ask, line).await;
        }
        match ask.place {
            Place::None => Ok(Some(line.busy())),
            Place::Join | Place::Keep => self.join(ask).await.map(|()| None),
        }
    }

    /// Takes what is free, with nobody in front but those who share it.
    async fn take(&self, ask: &Ask, line: &Line) -> Result<Option<Answer>, BackendError> {
        let lease = self.etcd.grant_lease(ask.lease).await?;
        let mut conditions =
            vec![none_since(&entries(&ask.name), line.revision), none_since(&barred(ask.token), 0)];
        let fence = line.fence_of_parts(ask, &mut conditions);
        let text = Text { holds: true, share: ask.share, fence, label: ask.label.to_string() };
        let hold = put(key(&ask.name, ask.token), text.write(), lease);
        let taken = self.etcd.transaction(conditions, vec![hold], Vec::new()).await?;
        if taken.succeeded {
            let fence = Fence::new(fence.unwrap_or(taken.revision));
            return Ok(Some(Answer::granted(fence)));
        }
        self.end_lease(lease);
        Ok(None)
    }

    /// Stands in line, unless one stands there already.
    async fn join(&self, ask: &Ask) -> Result<(), BackendError> {
        let lease = self.etcd.grant_lease(WAITER_ALIVE).await?;
        let own = key(&ask.name, ask.token);
        let conditions =
            vec![none_since(&Range::one(own.clone()), 0), none_since(&barred(ask.token), 0)];
        let text =
            Text { holds: false, share: ask.share, fence: None, label: ask.label.to_string() };
        let join = vec![put(own, text.write(), lease)];
        if !self.etcd.transaction(conditions, join, Vec::new()).await?.succeeded {
            self.end_lease(lease);
        }
        Ok(())
    }

    async fn step_in_line(
        &self,
        ask: &Ask,
        line: &Line,
        at: usize,
    ) -> Result<Option<Answer>, BackendError> {
        let own = &line.entries[at];
        if own.text.holds {
            return self.hold_on(ask, own).await;
        }
        line.check_parts(ask)?;
        let ahead = &line.shares()[..at];
        match line::turn(ahead, ask.share) {
            Turn::Now => self.take_over(ask, line, own).await,
            Turn::Behind(other) => self.wait(ask, line, own, Some(other)).await,
            Turn::Full => self.wait(ask, line, own, None).await,
        }
    }

    /// Asked by one who holds already: the same answer. A writer who asks for a part keeps no more
    /// than that; a reader who asks for all is late with it.
    async fn hold_on(&self, ask: &Ask, own: &Entry) -> Result<Option<Answer>, BackendError> {
        if self.etcd.keep_alive(&[own.lease]).await? != [true] {
            return Ok(None);
        }
        if own.text.share == Share::All && ask.share != Share::All {
            let fence = Some(own.fence().number());
            let text = Text { share: ask.share, fence, ..own.text.clone() };
            let own_key = key(&ask.name, ask.token);
            let conditions = vec![is_unchanged(own_key.clone(), own.changed)];
            let keep = vec![put(own_key, text.write(), own.lease)];
            if !self.etcd.transaction(conditions, keep, Vec::new()).await?.succeeded {
                return Ok(None);
            }
        }
        Ok(Some(Answer::granted(own.fence())))
    }

    /// The turn of one who waits has come: from here on his key lives as long as a holder's. Its
    /// former lease ends by itself.
    async fn take_over(
        &self,
        ask: &Ask,
        line: &Line,
        own: &Entry,
    ) -> Result<Option<Answer>, BackendError> {
        let lease = self.etcd.grant_lease(ask.lease).await?;
        let own_key = key(&ask.name, ask.token);
        let mut conditions =
            vec![is_unchanged(own_key.clone(), own.changed), none_since(&barred(ask.token), 0)];
        let fence = line.fence_of_parts(ask, &mut conditions);
        let text = Text { holds: true, fence, ..own.text.clone() };
        let hold = vec![put(own_key, text.write(), lease)];
        if self.etcd.transaction(conditions, hold, Vec::new()).await?.succeeded {
            self.watches.forget(ask.token);
            let fence = fence.unwrap_or(own.created);
            return Ok(Some(Answer::granted(Fence::new(fence))));
        }
        self.end_lease(lease);
        Ok(None)
    }

    /// Shows a sign of life and watches that one in front, or all of them.
    async fn wait(
        &self,
        ask: &Ask,
        line: &Line,
        own: &Entry,
        other: Option<usize>,
    ) -> Result<Option<Answer>, BackendError> {
        if self.etcd.keep_alive(&[own.lease]).await? != [true] {
            return Ok(None);
        }
        let is_watching = !self.watches.are_wanted(Moment::now(), ask.token);
        if is_watching || self.watch(ask, line, own, other).await? {
            return Ok(Some(line.busy()));
        }
        Ok(None)
    }

    /// Answers whether those in front are still as they were when the watch stood: then a change
    /// will be seen.
    async fn watch(
        &self,
        ask: &Ask,
        line: &Line,
        own: &Entry,
        other: Option<usize>,
    ) -> Result<bool, BackendError> {
        let range = entries(&ask.name);
        let one = |entry: &Entry| Range::one(key(&ask.name, entry.token));
        let (look, before, watched, changes) = match (ask.share, other) {
            (Share::All, _) => {
                let look = last_before(&range, own.created);
                let before = Entry::read_all(&self.etcd.run(vec![look.clone()]).await?.found(0))?;
                let Some(last) = before.first() else { return Ok(false) };
                (look, before.clone(), one(last), Changes::Deletions)
            }
            (Share::One { .. }, Some(other)) => {
                let other = &line.entries[other];
                // A writer may become a reader.
                (all(&one(other)), vec![other.clone()], one(other), Changes::All)
            }
            (Share::One { .. }, None) => {
                (all(&range), line.entries.clone(), range, Changes::Deletions)
            }
        };
        let set_at = Moment::now();
        let watched = self.etcd.watch(watched, changes).await?;
        let is_unchanged = Entry::read_all(&self.etcd.run(vec![look]).await?.found(0))? == before;
        if is_unchanged {
            let seen = Seen { lease: own.lease, holder: line.holder() };
            self.watches.watch(set_at, ask.token, seen, watched.changed().boxed());
        }
        Ok(is_unchanged)
    }

    /// Ends a lease that nothing hangs on, at leisure: it would end by itself.
    fn end_lease(&self, lease: i64) {
        let etcd = self.etcd.clone();
        tokio::spawn(async move {
            if let Err(error) = etcd.revoke(lease).await {
                tracing::debug!(%error, "a lease in etcd is left to end by itself");
            }
        });
    }
}

impl Line {
    fn shares(&self) -> Vec<Share> {
        self.entries.iter().map(|entry| entry.text.share).collect()
    }

    fn check_parts(&self, ask: &Ask) -> Result<(), BackendError> {
        let first = self.entries.first().filter(|first| first.text.holds);
        match line::other_parts(first.map(|first| first.text.share), ask.share) {
            Some(other) => Err(BackendError::other_parts(other)),
            None => Ok(()),
        }
    }

    fn holder(&self) -> Option<Holder> {
        self.entries.first().and_then(Entry::holder)
    }

    fn busy(&self) -> Answer {
        Answer::Busy { holder: self.holder(), look_again: WAITER_BEAT }
    }

    /// The fence for one whose turn it is, if it is not that of his own key: that of those who hold
    /// parts already, or will be that of the first of them. What it is taken from must not change
    /// until it is written down, or two beside one another would have two.
    fn fence_of_parts(&self, ask: &Ask, conditions: &mut Vec<Compare>) -> Option<i64> {
        if ask.share == Share::All {
            return None;
        }
        let holds = |entry: &&Entry| entry.text.holds && entry.text.share == ask.share;
        let source = self.entries.iter().find(holds).or(self.entries.first())?;
        if source.token != ask.token {
            conditions.push(is_unchanged(key(&ask.name, source.token), source.changed));
        }
        Some(source.fence().number())
    }
}

#[async_trait]
impl Backend for EtcdLocks {
    fn name(&self) -> &'static str {
        "etcd"
    }

    fn grade(&self) -> Grade {
        Grade::Correctness
    }

    async fn ask(&self, ask: &Ask) -> Result<Answer, BackendError> {
        if let Some(Seen { lease, holder }) = self.watches.seen(Moment::now(), ask.token)
            && self.signs.give(ask.token, lease)
        {
            return Ok(Answer::Busy { holder, look_again: WAITER_BEAT });
        }
        // Who asks for the first time finds the lock free, more often than not.
        let mut line = (ask.place != Place::Keep).then(Line::default);
        for _ in 0..LOOKS_MAX {
            let seen = match line.take() {
                Some(empty) => empty,
                None => match self.look(ask).await? {
                    Some(seen) => seen,
                    None => return Ok(Answer::Busy { holder: None, look_again: WAITER_BEAT }),
                },
            };
            if let Some(answer) = self.step(ask, &seen).await? {
                return Ok(answer);
            }
        }
        Ok(Answer::Busy { holder: None, look_again: LOOK_SOON })
    }

    async fn renew(&self, holds: &[Hold], _: Duration) -> Result<Vec<bool>, BackendError> {
        // A lease knows its own duration.
        let look = |hold: &Hold| all(&Range::one(key(&hold.name, hold.token)));
        let mut seen = self.etcd.run(holds.iter().map(look).collect()).await?;
        let mut leases = Vec::with_capacity(holds.len());
        for step in 0..holds.len() {
            let entry = Entry::read_all(&seen.found(step))?.into_iter().next();
            leases.push(entry.filter(|entry| entry.text.holds).map(|entry| entry.lease));
        }
        let there: Vec<i64> = leases.iter().copied().flatten().collect();
        let mut alive = self.etcd.keep_alive(&there).await?.into_iter();
        let held = leases.into_iter().map(|lease| lease.is_some() && alive.next() == Some(true));
        Ok(held.collect())
    }

    async fn leave(&self, leave: &Leave) -> Result<Left, BackendError> {
        let Leave { hold: Hold { name, token }, is_doubtful, .. } = leave;
        self.watches.forget(*token);
        let mut steps = vec![delete(key(name, *token)), first(&entries(name))];
        if *is_doubtful {
            let lease = self.etcd.grant_lease(BARRED).await?;
            steps.push(put(barred(*token).from, String::new(), lease));
        }
        let mut left = self.etcd.run(steps).await?;
        let own = Entry::read_all(&left.found(0))?.into_iter().next();
        let first = Entry::read_all(&left.found(1))?.into_iter().next();
        if let Some(own) = &own {
            self.end_lease(own.lease);
        }
        if own.is_some_and(|own| own.text.holds) {
            return Ok(Left::Freed);
        }
        Ok(Left::NotHeld { current: first.as_ref().and_then(Entry::holder) })
    }

    async fn listen(
        &self,
        client: u128,
        wakes: &mpsc::UnboundedSender<Wake>,
    ) -> Result<Infallible, BackendError> {
        self.watches.listen(client, wakes).await
    }
}
