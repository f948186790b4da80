//! Redlock: one lock over several Redis servers that know nothing of each other. It is held by
//! whoever holds it on a majority, so that it survives the loss of the others.
//!
//! Beyond the published algorithm: what is let go is let go on every node, also on those that were
//! silent; a node that was started less than a lease ago does not vote, because it may have
//! forgotten what it had granted; the nodes agree on one queue, so that a split vote ends and
//! nobody overtakes; and on one fencing token, which a majority has written down before the lock
//! counts as held.
//!
//! It is efficiency all the same. A node whose clock jumps, or that loses what it had confirmed
//! while it runs on, votes twice, and then two may hold the lock, with tokens in any order.
//! The deadline, less the drift of clocks, is the client's business as for every backend: it
//! counts from before the first request.

mod votes;

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use tokio::sync::mpsc;

use self::votes::{Verdict, Votes};
use super::node::{Agreed, Node, Row};
use super::seen;
use crate::backend::{Answer, Ask, Backend, Grade, Hold, Leave, Left, Share, Wake};
use crate::clock::Moment;
use crate::error::{BackendError, LockError};
use crate::name::{Fence, Token};
use crate::shell::within;

/// Fewer do not survive the loss of one.
const NODES_MIN: usize = 3;
/// How often one request asks again before it counts as refused (BOUNDED).
const ROUNDS_MAX: u32 = 12;
/// The longest pause between two rounds of a split vote; how long exactly is left to chance.
const PAUSE_MAX_MS: u64 = 20;
/// How long a node may take to answer: a tenth of the longest lease, within these limits.
const PATIENCE_MIN: Duration = Duration::from_millis(50);
const PATIENCE_MAX: Duration = Duration::from_secs(1);
/// The pause before a node is listened to again, or told again, after it failed.
const AGAIN: Duration = Duration::from_millis(500);
/// So many half-heard wake-ups are kept (BOUNDED). Forgetting one costs a waiter's beat.
const CALLS_MAX: usize = 1024;

/// Locks over a majority of several Redis servers.
#[derive(Debug)]
pub struct RedlockLocks {
    nodes: Vec<Arc<Node>>,
    lease_max: Duration,
}

impl RedlockLocks {
    /// Connects to the servers by URL: independent ones, without replicas, three or five of them.
    /// No lease may be longer than `lease_max`; a server that was started less than that ago does
    /// not vote. All clients of the same locks must use the same servers and the same limit.
    ///
    /// # Errors
    /// [`LockError::Refused`] for fewer than three servers, if a majority of them cannot be
    /// reached, or if one evicts keys that have no expiry.
    pub async fn connect<U: AsRef<str>>(
        urls: impl IntoIterator<Item = U>,
        lease_max: Duration,
    ) -> Result<Self, LockError> {
        let refused = |source| LockError::Refused { source };
        let node = |url: U| Node::new(url.as_ref(), lease_max, patience(lease_max)).map(Arc::new);
        let nodes = urls.into_iter().map(node);
        let nodes: Vec<_> = nodes.collect::<Result<_, _>>().map_err(refused)?;
        if nodes.len() < NODES_MIN {
            let message = "Redlock needs three servers at least";
            return Err(LockError::Refused { source: BackendError::lasting(message) });
        }
        let locks = Self { nodes, lease_max };
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

    /// Waits until a majority of the servers has been running for as long as the longest lease, so
    /// that they vote: after all of them were started together.
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
            let Some(at) = settled.get(self.quorum() - 1) else {
                return Err(LockError::Refused { source: self.no_quorum(settled.len(), failed) });
            };
            let left = at.left(Moment::now());
            if left.is_zero() {
                return Ok(());
            }
            // In slices: a server that is started again meanwhile is noticed.
            tokio::time::sleep(left.min(AGAIN)).await;
        }
    }

    fn quorum(&self) -> usize {
        self.nodes.len() / 2 + 1
    }

    /// For a request of which no answer comes, and for one that has to connect first: a connection
    /// that does not answer is left before that.
    fn limit(&self) -> Duration {
        patience(self.lease_max) * 5 / 4
    }

    fn no_quorum(&self, votes: usize, why: Vec<BackendError>) -> BackendError {
        let why: Vec<String> = why.iter().map(ToString::to_string).collect();
        let (nodes, message) = (self.nodes.len(), "no quorum of Redis servers");
        BackendError::passing(message, format!("{votes} of {nodes} vote; {}", why.join("; ")))
    }

    /// One round: the answers that count, as soon as they suffice. What is sent to the other nodes
    /// reaches them all the same, and is undone with the rest when the lock is let go.
    async fn round(&self, ask: &Ask, agreed: Agreed) -> Result<Verdict, BackendError> {
        let token = ask.token.to_string();
        let ask_one = |node: &Arc<Node>| {
            let node = Arc::clone(node);
            async move {
                let (row, settled_at) = within(self.limit(), node.ask(ask, agreed)).await?;
                if Moment::now() < settled_at {
                    let left = settled_at.left(Moment::now()).as_secs_f32();
                    let message = format!("started lately, votes in {left:.1} s");
                    return Err(BackendError::passing(message, "a restart may lose locks"));
                }
                Ok(row)
            }
        };
        let mut answers: FuturesUnordered<_> = self.nodes.iter().map(ask_one).collect();
        let (mut rows, mut failed) = (Vec::new(), Vec::new());
        let (quorum, place) = (self.quorum(), ask.place);
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(row) => rows.push(row),
                Err(error) => failed.push(error),
            }
            if (Votes { rows: &rows, quorum, token: &token, place, agreed }).are_enough() {
                break;
            }
        }
        if rows.len() < quorum {
            return Err(self.no_quorum(rows.len(), failed));
        }
        Ok(Votes { rows: &rows, quorum, token: &token, place, agreed }.verdict())
    }

    /// Lets go what a split vote has left on some nodes. A node that cannot be reached lets go by
    /// itself when the lease ends.
    async fn give_back(&self, ask: &Ask) {
        let hold = Hold { name: ask.name.clone(), token: ask.token };
        let leave = Leave { hold, is_doubtful: false, is_alone: false };
        let given = self.nodes.iter().map(|node| within(self.limit(), node.leave(&leave)));
        join_all(given).await;
    }

    /// Tells a node that an acquisition has ended, again and again until it answers or the lease
    /// has ended there; what it answers first counts.
    fn tell(
        &self,
        node: &Arc<Node>,
        leave: &Leave,
        answers: mpsc::UnboundedSender<Result<Row, BackendError>>,
    ) {
        let (node, leave) = (Arc::clone(node), leave.clone());
        let (limit, end) = (self.limit(), Moment::now() + self.lease_max);
        tokio::spawn(async move {
            loop {
                let answer = within(limit, node.leave(&leave)).await;
                let is_told = answer.is_ok();
                // Whoever asked has enough answers, or repeats the request himself.
                let _ = answers.send(answer);
                if is_told || end <= Moment::now() {
                    return;
                }
                tokio::time::sleep(AGAIN).await;
            }
        });
    }

    /// It was held if a majority frees it.
    fn left(&self, rows: &[Row]) -> Left {
        let freed = rows.iter().filter(|row| row.0 > 0).count();
        if freed >= self.quorum() {
            return Left::Freed;
        }
        let others = rows.iter().filter(|row| row.0 == 0 && !row.1.is_empty());
        let most = others.max_by_key(|row| rows.iter().filter(|it| it.1 == row.1).count());
        Left::NotHeld { current: most.and_then(|row| seen(row.clone()).holder()) }
    }
}

#[async_trait]
impl Backend for RedlockLocks {
    fn name(&self) -> &'static str {
        "redlock"
    }

    fn grade(&self) -> Grade {
        Grade::Efficiency
    }

    async fn ask(&self, ask: &Ask) -> Result<Answer, BackendError> {
        if ask.share != Share::All {
            return Err(BackendError::no_shares(self.name()));
        }
        if ask.lease > self.lease_max {
            let limit = self.lease_max.as_secs_f32();
            let message = format!("a lease above {limit} s, the limit that restarts are judged by");
            return Err(BackendError::lasting(message));
        }
        let mut agreed = Agreed::default();
        for _ in 0..ROUNDS_MAX {
            match self.round(ask, agreed).await? {
                Verdict::Granted(fence) => {
                    return Ok(Answer::granted(Fence::new(fence)));
                }
                Verdict::Busy(row) => return Ok(seen(row).answer(None)),
                Verdict::Agree(next) => agreed = next,
                Verdict::Insist => tokio::time::sleep(pause()).await,
                Verdict::Yield(next) => {
                    self.give_back(ask).await;
                    agreed = next;
                    tokio::time::sleep(pause()).await;
                }
            }
        }
        self.give_back(ask).await;
        Ok(Answer::Busy { holder: None, look_again: pause() })
    }

    async fn renew(&self, holds: &[Hold], lease: Duration) -> Result<Vec<bool>, BackendError> {
        let renew = |node: &Arc<Node>| {
            let node = Arc::clone(node);
            async move { within(self.limit(), node.renew(holds, lease)).await }
        };
        let mut answers: FuturesUnordered<_> = self.nodes.iter().map(renew).collect();
        let (mut counts, mut votes, mut failed) = (vec![0; holds.len()], 0, Vec::new());
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
            if counts.iter().all(|count| *count >= self.quorum()) {
                break;
            }
        }
        if votes < self.quorum() {
            return Err(self.no_quorum(votes, failed));
        }
        Ok(counts.into_iter().map(|count| count >= self.quorum()).collect())
    }

    async fn leave(&self, leave: &Leave) -> Result<Left, BackendError> {
        // A node that was silent may get its requests yet.
        let leave = Leave { is_doubtful: true, ..leave.clone() };
        let (sender, mut answers) = mpsc::unbounded_channel();
        for node in &self.nodes {
            self.tell(node, &leave, sender.clone());
        }
        let (mut rows, mut failed) = (Vec::new(), Vec::new());
        while rows.len() + failed.len() < self.nodes.len() {
            match answers.recv().await {
                Some(Ok(row)) => rows.push(row),
                Some(Err(error)) => failed.push(error),
                None => break,
            }
            if self.left(&rows) == Left::Freed {
                break;
            }
        }
        if rows.len() < self.quorum() {
            return Err(self.no_quorum(rows.len(), failed));
        }
        Ok(self.left(&rows))
    }

    /// A waiter is woken when a majority calls it: before that, asking is in vain.
    async fn listen(
        &self,
        client: u128,
        wakes: &mpsc::UnboundedSender<Wake>,
    ) -> Result<Infallible, BackendError> {
        let (sender, mut heard) = mpsc::unbounded_channel();
        let listening = join_all(self.nodes.iter().map(|node| listen(node, client, &sender)));
        let mut calls: HashMap<Token, usize> = HashMap::new();
        let counting = async {
            loop {
                let wake = match heard.recv().await {
                    Some(Wake::One(token)) => {
                        if calls.len() >= CALLS_MAX {
                            calls.clear();
                        }
                        let count = calls.entry(token).or_default();
                        *count += 1;
                        if *count < self.quorum() {
                            continue;
                        }
                        calls.remove(&token);
                        Wake::One(token)
                    }
                    Some(Wake::All) => Wake::All,
                    None => std::future::pending().await,
                };
                // The receiver ends with the one who called this.
                let _ = wakes.send(wake);
            }
        };
        futures::future::join(listening, counting).await;
        std::future::pending().await
    }
}

/// Listens to one node for ever; the others are heard meanwhile.
async fn listen(node: &Node, client: u128, wakes: &mpsc::UnboundedSender<Wake>) {
    loop {
        let Err(error) = node.listen(client, wakes).await;
        tracing::warn!(%error, "wake-ups of one Redis server are interrupted");
        tokio::time::sleep(AGAIN).await;
    }
}

/// How long a node may take to answer.
fn patience(lease_max: Duration) -> Duration {
    (lease_max / 10).clamp(PATIENCE_MIN, PATIENCE_MAX)
}

fn pause() -> Duration {
    Duration::from_millis(1 + rand::random::<u64>() % PAUSE_MAX_MS)
}
