//! Redlock: one lock over several Redis servers that know nothing of each other. A lock is held by
//! the acquisition that holds it on a majority of them, so it survives the loss of the others.
//!
//! This goes beyond the published algorithm in four points. A release goes to every node, also to
//! those that were silent. A node that was started less than a lease ago does not vote, because it
//! may have forgotten what it had granted. The nodes agree on one queue, so that a split vote ends
//! and no waiter is overtaken. They also agree on one fencing token, which a majority has stored
//! before the lock counts as held.
//!
//! The guarantee is still efficiency. A node whose clock jumps, or that loses what it had confirmed
//! while it runs on, votes twice. Then two acquisitions may hold the lock, with tokens in any
//! order. The client counts the deadline, less the drift of clocks, as for every backend: from
//! before the first request.

mod majority;
mod votes;

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::{BoxFuture, join_all};
use futures::stream::{self, FuturesUnordered};
use futures::{FutureExt, StreamExt};
use tokio::sync::{Semaphore, mpsc};

use self::majority::Majority;
use self::votes::{VoteResult, Votes};
use super::node::{Agreement, Node, ScriptReply};
use super::observed;
use crate::backend::{
    AcquireRequest, AcquireResponse, Backend, Guarantee, LockMode, LockRef, QueueMode,
    ReleaseRequest, ReleaseResponse, WakeUp,
};
use crate::clock::Moment;
use crate::driver::within;
use crate::error::{BackendError, LockError};
use crate::name::{AcquisitionId, FencingToken};

/// Fewer nodes do not survive the loss of one.
const NODES_MIN: usize = 3;
/// How many rounds one request takes before it counts as refused (BOUNDED).
const ROUNDS_MAX: u32 = 12;
/// The longest pause between two rounds of a split vote. The pause is random.
const PAUSE_MAX_MS: u64 = 20;
/// How long a node may take to answer: a tenth of the longest lease, within these limits.
const PATIENCE_MIN: Duration = Duration::from_millis(50);
const PATIENCE_MAX: Duration = Duration::from_secs(1);
/// The pause before listening to a node again, or repeating a release, after a failure.
const AGAIN: Duration = Duration::from_millis(500);
/// How many wake-ups that a minority has sent are kept (BOUNDED). Forgetting one costs a waiter the
/// time until its next heartbeat.
const CALLS_MAX: usize = 1024;
/// How many releases are repeated to a node at a time (BOUNDED); those beyond are sent to it once.
/// Too low, and a node that comes back keeps locks for the rest of their leases: until then only
/// the other nodes can grant them. Too high, and a node that is away for long costs a task, and a
/// request every half second, for each lock that was released within the longest lease.
const REPEATS_MAX: usize = 1024;

/// Locks over a majority of several Redis servers.
#[derive(Debug)]
pub struct RedlockLocks {
    nodes: Vec<Arc<Node>>,
    /// The rest of [`REPEATS_MAX`] for each node.
    repeats: Vec<Arc<Semaphore>>,
    lease_max: Duration,
}

impl RedlockLocks {
    /// Connects to the servers by URL: three or five independent ones without replicas. No lease
    /// may be longer than `lease_max`, and a server that was started less than that ago does not
    /// vote. All clients of the same locks must use the same servers and the same limit.
    ///
    /// # Errors
    /// [`LockError::Refused`] for fewer than three servers, if a majority of them cannot be
    /// reached, or if the `maxmemory-policy` of one is not `noeviction`.
    pub async fn connect<U: AsRef<str>>(
        urls: impl IntoIterator<Item = U>,
        lease_max: Duration,
    ) -> Result<Self, LockError> {
        let locks = Self::over(urls, lease_max).map_err(|source| LockError::Refused { source })?;
        let checks = locks.nodes.iter().map(|node| within(locks.limit(), node.check()));
        let checked = join_all(checks).await;
        let reached = checked.iter().filter(|checked| checked.is_ok()).count();
        let failed = checked.into_iter().filter_map(Result::err);
        let (lasting, passing): (Vec<_>, Vec<_>) = failed.partition(BackendError::is_final);
        if let Some(source) = lasting.into_iter().next() {
            return Err(LockError::Refused { source });
        }
        if reached < locks.quorum() {
            return Err(LockError::Refused { source: locks.no_quorum(reached, passing) });
        }
        Ok(locks)
    }

    fn over<U: AsRef<str>>(
        urls: impl IntoIterator<Item = U>,
        lease_max: Duration,
    ) -> Result<Self, BackendError> {
        let node = |url: U| Node::new(url.as_ref(), lease_max, wait(lease_max)).map(Arc::new);
        let nodes: Vec<_> = urls.into_iter().map(node).collect::<Result<_, _>>()?;
        if nodes.len() < NODES_MIN {
            return Err(BackendError::lasting("Redlock needs at least three servers"));
        }
        let repeats = nodes.iter().map(|_| Arc::new(Semaphore::new(REPEATS_MAX))).collect();
        Ok(Self { nodes, repeats, lease_max })
    }

    /// Waits until a majority of the servers has been running for as long as the longest lease, so
    /// that they vote. Use it after all of them were started together.
    ///
    /// # Errors
    /// [`LockError::Refused`] if a majority of them cannot be reached.
    pub async fn settled(&self) -> Result<(), LockError> {
        loop {
            let checks = self.nodes.iter().map(|node| within(self.limit(), node.check()));
            let (mut settled, mut failed) = (Vec::new(), Vec::new());
            for checked in join_all(checks).await {
                match checked {
                    Ok(at) => settled.push(at),
                    Err(error) => failed.push(error),
                }
            }
            settled.sort_unstable();
            // From this time on a majority votes, whichever servers settle later.
            let Some(at) = settled.get(self.quorum() - 1) else {
                return Err(LockError::Refused { source: self.no_quorum(settled.len(), failed) });
            };
            let left = at.remaining(Moment::now());
            if left.is_zero() {
                return Ok(());
            }
            // The wait is cut into slices, so that a server that is restarted meanwhile is noticed.
            tokio::time::sleep(left.min(AGAIN)).await;
        }
    }

    fn quorum(&self) -> usize {
        self.nodes.len() / 2 + 1
    }

    /// The time limit of a request, also of one that has to connect first. A connection that does
    /// not answer is dropped before that.
    fn limit(&self) -> Duration {
        wait(self.lease_max) * 5 / 4
    }

    fn majority(&self, answered: usize) -> Majority {
        Majority { quorum: self.quorum(), failed: self.nodes.len() - answered }
    }

    fn no_quorum(&self, votes: usize, reason: Vec<BackendError>) -> BackendError {
        self.failed("no quorum of Redis servers", votes, reason)
    }

    fn undecided(&self, votes: usize, reason: Vec<BackendError>) -> BackendError {
        self.failed("a Redis server that did not answer decides", votes, reason)
    }

    fn failed(&self, message: &str, votes: usize, reason: Vec<BackendError>) -> BackendError {
        let reason: Vec<String> = reason.iter().map(ToString::to_string).collect();
        let source = format!("{votes} of {} vote; {}", self.nodes.len(), reason.join("; "));
        BackendError::passing(message, source)
    }

    /// Runs one round, until the answers suffice. The requests to the other nodes go on, so that a
    /// lock is held on as many nodes as can be reached.
    async fn round(
        &self,
        request: &Arc<AcquireRequest>,
        agreed: Agreement,
    ) -> Result<VoteResult, BackendError> {
        let id = request.id.to_string();
        let ask_one = |node| ask(Arc::clone(node), Arc::clone(request), agreed, self.limit());
        let mut answers: Answers = self.nodes.iter().map(|node| ask_one(node).boxed()).collect();
        let (mut rows, mut failed, mut perhaps_held) = (Vec::new(), Vec::new(), Vec::new());
        let (quorum, queue) = (self.quorum(), request.queue);
        while let Some((node, answer)) = answers.next().await {
            // A node that failed is noted as well: it may have granted the lock all the same, and a
            // request that does not wait must leave nothing there.
            if may_be_held(&answer) {
                perhaps_held.push(node);
            }
            match answer {
                Ok(row) => rows.push(row),
                Err(error) => failed.push(error),
            }
            if (Votes { rows: &rows, quorum, id: &id, queue, agreed }).are_enough() {
                break;
            }
        }
        let result = if rows.len() < quorum {
            Err(self.no_quorum(rows.len(), failed))
        } else {
            Ok(Votes { rows: &rows, quorum, id: &id, queue, agreed }.result())
        };
        let is_over = queue == QueueMode::NoWait && matches!(result, Ok(VoteResult::Busy(_)));
        let release = is_over.then(|| release_of(request));
        if !answers.is_empty() || is_over {
            tokio::spawn(finish(perhaps_held, answers, release, self.limit()));
        }
        result
    }

    /// Releases what a split vote has left on some nodes. A node that cannot be reached frees the
    /// lock itself when the lease ends.
    async fn give_back(&self, request: &AcquireRequest) {
        let request = release_of(request);
        let given = self.nodes.iter().map(|node| within(self.limit(), node.release(&request)));
        join_all(given).await;
    }

    /// Sends a release to a node, repeatedly until it answers or the lease has ended there. Only
    /// the first answer is passed on: a node counts once.
    fn tell(
        &self,
        node: &Arc<Node>,
        repeats: &Arc<Semaphore>,
        request: &ReleaseRequest,
        answers: mpsc::UnboundedSender<Result<ScriptReply, BackendError>>,
    ) {
        let (node, repeats, request) = (Arc::clone(node), Arc::clone(repeats), request.clone());
        let (limit, end) = (self.limit(), Moment::now() + self.lease_max);
        tokio::spawn(async move {
            let answer = within(limit, node.release(&request)).await;
            let mut is_told = answer.is_ok();
            // If the receiver is gone, its caller has enough answers, or repeats the request
            // itself.
            let _ = answers.send(answer);
            if is_told {
                return;
            }
            // BOUNDED: without a permit, the node keeps the lock for the rest of its lease.
            let Ok(_permit) = repeats.try_acquire_owned() else { return };
            while !is_told && Moment::now() < end {
                tokio::time::sleep(AGAIN).await;
                is_told = within(limit, node.release(&request)).await.is_ok();
            }
        });
    }
}

#[async_trait]
impl Backend for RedlockLocks {
    fn name(&self) -> &'static str {
        "redlock"
    }

    fn guarantee(&self) -> Guarantee {
        Guarantee::Efficiency
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireResponse, BackendError> {
        if request.mode != LockMode::Exclusive {
            return Err(BackendError::no_shared_mode(self.name()));
        }
        if request.lease > self.lease_max {
            let limit = self.lease_max.as_secs_f32();
            let message = format!(
                "a lease above {limit} s, the limit that decides when a restarted server votes"
            );
            return Err(BackendError::lasting(message));
        }
        let request = Arc::new(request.clone());
        let mut agreed = Agreement::default();
        for _ in 0..ROUNDS_MAX {
            match self.round(&request, agreed).await? {
                VoteResult::Granted(fencing_token) => {
                    return Ok(AcquireResponse::granted(FencingToken::new(fencing_token)));
                }
                VoteResult::Busy(row) => return Ok(observed(row).answer(None)),
                VoteResult::Agree(next) => agreed = next,
                VoteResult::Insist => tokio::time::sleep(pause()).await,
                VoteResult::Yield(next) => {
                    // The release also removes the request from the queues. The time of arrival
                    // that was agreed on brings it back to its old place.
                    self.give_back(&request).await;
                    agreed = next;
                    tokio::time::sleep(pause()).await;
                }
            }
        }
        // What a minority has granted would keep others from a majority until the lease ends.
        self.give_back(&request).await;
        Ok(AcquireResponse::Busy { holder: None, retry_after: pause() })
    }

    async fn renew(
        &self,
        lock_refs: &[LockRef],
        lease: Duration,
    ) -> Result<Vec<bool>, BackendError> {
        let (lock_refs, limit): (Arc<[LockRef]>, _) = (lock_refs.into(), self.limit());
        let renew = |node: &Arc<Node>| {
            let (node, lock_refs) = (Arc::clone(node), Arc::clone(&lock_refs));
            async move { within(limit, node.renew(&lock_refs, lease)).await }.boxed()
        };
        let mut answers: FuturesUnordered<_> = self.nodes.iter().map(renew).collect();
        let (mut counts, mut votes, mut failed) = (vec![0; lock_refs.len()], 0, Vec::new());
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(held) => {
                    votes += 1;
                    counts
                        .iter_mut()
                        .zip(held)
                        .for_each(|(count, held)| *count += usize::from(held));
                }
                Err(error) => failed.push(error),
            }
            // The first majority of answers need not be enough: a lock may be held on a majority
            // that includes a slower node.
            if counts.iter().all(|count| *count >= self.quorum()) {
                break;
            }
        }
        if !answers.is_empty() {
            // Dropped, they would keep a slow node from being connected to and renewed ever again.
            tokio::spawn(answers.for_each(async |_late| {}));
        }
        if votes < self.quorum() {
            return Err(self.no_quorum(votes, failed));
        }
        self.majority(votes).are_held(&counts).ok_or_else(|| self.undecided(votes, failed))
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseResponse, BackendError> {
        // A node that was silent may still get its requests.
        let request = ReleaseRequest { refuse_late_requests: true, ..request.clone() };
        let (sender, mut answers) = mpsc::unbounded_channel();
        for (node, repeats) in self.nodes.iter().zip(&self.repeats) {
            self.tell(node, repeats, &request, sender.clone());
        }
        let (mut rows, mut failed) = (Vec::new(), Vec::new());
        while rows.len() + failed.len() < self.nodes.len() {
            match answers.recv().await {
                Some(Ok(row)) => rows.push(row),
                Some(Err(error)) => failed.push(error),
                None => break,
            }
            if self.majority(rows.len()).left(&rows) == Some(ReleaseResponse::Released) {
                break;
            }
        }
        if rows.len() < self.quorum() {
            return Err(self.no_quorum(rows.len(), failed));
        }
        let left = self.majority(rows.len()).left(&rows);
        left.ok_or_else(|| self.undecided(rows.len(), failed))
    }

    /// Wakes a waiter when a majority has sent its wake-up: before that, a request would be in
    /// vain.
    async fn listen(
        &self,
        client: u128,
        wake_ups: &mpsc::UnboundedSender<WakeUp>,
    ) -> Result<Infallible, BackendError> {
        let (sender, mut heard) = mpsc::unbounded_channel();
        let listening = join_all(self.nodes.iter().map(|node| listen(node, client, &sender)));
        let mut calls: HashMap<AcquisitionId, usize> = HashMap::new();
        let counting = async {
            loop {
                let wake = match heard.recv().await {
                    Some(WakeUp::One(id)) => {
                        if calls.len() >= CALLS_MAX {
                            calls.clear();
                        }
                        let count = calls.entry(id).or_default();
                        *count += 1;
                        if *count < self.quorum() {
                            continue;
                        }
                        // The messages of the other nodes begin another count. A wake-up that then
                        // comes too early costs one request.
                        calls.remove(&id);
                        WakeUp::One(id)
                    }
                    Some(WakeUp::All) => WakeUp::All,
                    None => std::future::pending().await,
                };
                // The receiver ends with the caller of this function.
                let _ = wake_ups.send(wake);
            }
        };
        futures::future::join(listening, counting).await;
        std::future::pending().await
    }
}

/// The answers of the nodes to one request for a lock.
type Answers = FuturesUnordered<BoxFuture<'static, (Arc<Node>, Result<ScriptReply, BackendError>)>>;

async fn ask(
    node: Arc<Node>,
    request: Arc<AcquireRequest>,
    agreed: Agreement,
    limit: Duration,
) -> (Arc<Node>, Result<ScriptReply, BackendError>) {
    let answer = within(limit, node.acquire(&request, agreed)).await;
    let vote = answer.and_then(|(row, settled_at)| {
        // The node has carried the request out before its vote is dropped: once it votes again, it
        // knows of the lock.
        let left = settled_at.remaining(Moment::now());
        if left.is_zero() {
            return Ok(row);
        }
        let message = format!("restarted recently, votes in {:.1} s", left.as_secs_f32());
        Err(BackendError::passing(message, "a restart may lose locks"))
    });
    (node, vote)
}

/// Lets requests for a lock reach their nodes, each within the time limit. If the acquisition is
/// over, a release is given: it frees the lock on the nodes that hold it already, and on those that
/// grant it only now.
async fn finish(
    held: Vec<Arc<Node>>,
    answers: Answers,
    release: Option<ReleaseRequest>,
    limit: Duration,
) {
    let late = answers.filter_map(async |(node, answer)| may_be_held(&answer).then_some(node));
    let free = async |node: Arc<Node>| {
        if let Some(release) = &release {
            // A node that cannot be reached frees the lock itself when the lease ends.
            let _ = within(limit, node.release(release)).await;
        }
    };
    stream::iter(held).chain(late).for_each_concurrent(None, free).await;
}

fn may_be_held(answer: &Result<ScriptReply, BackendError>) -> bool {
    answer.as_ref().map_or(true, |row| row.0 > 0)
}

fn release_of(request: &AcquireRequest) -> ReleaseRequest {
    let lock_ref = LockRef { name: request.name.clone(), id: request.id };
    ReleaseRequest { lock_ref, refuse_late_requests: false, is_uncontended: false }
}

/// Listens to one node forever, independently of the others.
async fn listen(node: &Node, client: u128, wake_ups: &mpsc::UnboundedSender<WakeUp>) {
    loop {
        let Err(error) = node.listen(client, wake_ups).await;
        tracing::warn!(%error, "wake-ups of one Redis server are interrupted");
        tokio::time::sleep(AGAIN).await;
    }
}

/// How long a node may take to answer.
fn wait(lease_max: Duration) -> Duration {
    (lease_max / 10).clamp(PATIENCE_MIN, PATIENCE_MAX)
}

fn pause() -> Duration {
    Duration::from_millis(1 + rand::random::<u64>() % PAUSE_MAX_MS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::LockName;

    /// A test that waits for longer than this has failed.
    const WAIT_MAX: Duration = Duration::from_secs(30);

    /// Regression: each release left a task for each node that was away, until the lease had ended.
    #[tokio::test]
    async fn repeated_releases_to_absent_nodes_are_bounded() {
        // The nodes cannot be reached: no server has this port.
        let urls = ["redis://127.0.0.1:1"; NODES_MIN];
        let locks = RedlockLocks::over(urls, Duration::from_secs(3600)).unwrap();
        let before = alive_tasks();
        let release = async |number| {
            let name = LockName::new(format!("lock {number}")).unwrap();
            let lock_ref = LockRef { name, id: AcquisitionId { client: 1, number } };
            let (refuse_late_requests, is_uncontended) = (false, false);
            locks.release(&ReleaseRequest { lock_ref, refuse_late_requests, is_uncontended }).await
        };
        let releases = (0..).take(REPEATS_MAX + 100).map(release);
        assert!(join_all(releases).await.iter().all(Result::is_err));
        let is_bounded = async {
            while alive_tasks() > before + NODES_MIN * REPEATS_MAX {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(WAIT_MAX, is_bounded).await.unwrap();
        assert!(locks.repeats.iter().all(|repeats| repeats.available_permits() == 0));
    }

    fn alive_tasks() -> usize {
        tokio::runtime::Handle::current().metrics().num_alive_tasks()
    }
}
