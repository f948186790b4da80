//! Requests for locks as they mostly are, free and without waiters: requests that come together go
//! to the server in one call.
//!
//! Starting a script costs the server more than the work for one lock, and so does a message each
//! way. A single request is sent at once; under load, a call carries what has come while the calls
//! before it were under way. If requests are mostly single, each caller sends its own.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use futures::future::{self, BoxFuture, FutureExt};
use futures::poll;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind, RedisError, RedisWrite, Script};
use tokio::sync::{mpsc, oneshot};

use super::node::{self, HOLDER};
use super::script;
use crate::backend::{AcquireRequest, LockRef};
use crate::name::{AcquisitionId, LockName};

/// How much is sent at a time.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Calls under way: while the server works on one, the next one travels.
    calls: usize,
    /// Requests in one call: the server does nothing else for a fraction of a millisecond.
    batch_size_max: usize,
}

const BATCHED: Limits = Limits { calls: 2, batch_size_max: 128 };
/// For servers where a script may not touch several locks.
const UNBATCHED: Limits = Limits { calls: 128, batch_size_max: 1 };
/// How often this task yields to answered callers before other calls are answered. Their next
/// request takes a turn of the driver, one of the caller and one of the driver; one is to spare.
const TURNS_MAX: usize = 4;
/// How many requests in a row must have been single before the next one bypasses the batches. A
/// bypass while many callers are active would make the batches small and leave the server idle.
const ALONE_ENOUGH: usize = 8;
/// How many requests wait for a call. Later ones wait for room.
const WAITING_MAX: usize = 1024;

/// An operation on a lock that consists of its holder alone, or of nothing.
#[derive(Debug)]
enum Operation {
    /// Take the lock, for this many milliseconds.
    Take { label: Arc<str>, lease: i64 },
    /// Free the lock.
    Free,
}

/// A request.
#[derive(Debug)]
struct Request {
    name: LockName,
    id: AcquisitionId,
    operation: Operation,
}

impl Request {
    /// Writes the id, and for a lock to be taken also its label and its lease.
    fn write_args(&self, call: &mut Cmd) {
        call.write_arg_fmt(self.id);
        if let Operation::Take { label, lease } = &self.operation {
            call.write_arg_fmt(format_args!("- {label}"));
            call.arg(*lease);
        }
    }
}

/// A request that waits for its answer.
#[derive(Debug)]
struct Waiting {
    request: Request,
    answer: oneshot::Sender<Result<i64, RedisError>>,
}

impl Waiting {
    fn answered(self, answer: Result<i64, RedisError>) {
        // A caller that has gone needs no answer.
        let _ = self.answer.send(answer);
    }
}

/// The scripts for one request and for several. Freeing one lock needs no script.
#[derive(Clone, Debug)]
pub(super) struct Scripts {
    take_one: Script,
    batch: Script,
}

impl Scripts {
    pub(super) fn new() -> Self {
        Self { take_one: Script::new(script::TAKE_ONE), batch: Script::new(script::BATCH) }
    }
}

/// Collects the requests for one connection into calls. A clone leads to the same connection.
#[derive(Clone, Debug)]
pub(super) struct Batcher {
    sender: mpsc::Sender<Waiting>,
    connection: MultiplexedConnection,
    scripts: Arc<Scripts>,
    concurrency: Arc<Concurrency>,
}

/// How many callers have a request at a time.
#[derive(Debug, Default)]
struct Concurrency {
    unanswered: AtomicUsize,
    alone_in_a_row: AtomicUsize,
}

impl Concurrency {
    /// Counts a request that begins, and returns whether requests have mostly been single.
    fn enter(&self) -> (Unanswered<'_>, bool) {
        let in_a_row = if self.unanswered.fetch_add(1, Ordering::Relaxed) == 0 {
            self.alone_in_a_row.fetch_add(1, Ordering::Relaxed)
        } else {
            self.alone_in_a_row.store(0, Ordering::Relaxed);
            0
        };
        (Unanswered(&self.unanswered), in_a_row >= ALONE_ENOUGH)
    }
}

/// Counts a request for as long as it is not answered.
struct Unanswered<'c>(&'c AtomicUsize);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Batcher {
    /// Starts collecting for a connection, until it fails or no caller is left. Locks of several
    /// slots go together if the server `crosses_slots`.
    pub(super) fn start(
        connection: MultiplexedConnection,
        scripts: Scripts,
        crosses_slots: bool,
    ) -> Self {
        let (requests, waiting) = mpsc::channel(WAITING_MAX);
        let limits = if crosses_slots { BATCHED } else { UNBATCHED };
        let scripts = Arc::new(scripts);
        tokio::spawn(serve(waiting, connection.clone(), Arc::clone(&scripts), limits));
        Self { sender: requests, connection, scripts, concurrency: Arc::default() }
    }

    /// Returns whether both lead to the same connection.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.sender.same_channel(&other.sender)
    }

    /// Takes a lock, and returns its fencing token, or 0.
    pub(super) async fn take(&self, request: &AcquireRequest) -> Result<i64, RedisError> {
        let operation = Operation::Take {
            label: Arc::clone(&request.label),
            lease: node::milliseconds(request.lease),
        };
        self.request(Request { name: request.name.clone(), id: request.id, operation }).await
    }

    /// Frees a lock, and returns 1, or 0 if it was not freed.
    pub(super) async fn free(&self, lock_ref: &LockRef) -> Result<i64, RedisError> {
        let (name, id) = (lock_ref.name.clone(), lock_ref.id);
        self.request(Request { name, id, operation: Operation::Free }).await
    }

    async fn request(&self, request: Request) -> Result<i64, RedisError> {
        let (_unanswered, is_alone) = self.concurrency.enter();
        if is_alone {
            return alone(&mut self.connection.clone(), &self.scripts, &request).await;
        }
        let (answer, answered) = oneshot::channel();
        self.sender.send(Waiting { request, answer }).await.map_err(|_| lost())?;
        answered.await.unwrap_or_else(|_| Err(lost()))
    }
}

/// The error of a request whose connection failed before the answer, or whose runtime ended.
fn lost() -> RedisError {
    std::io::Error::from(std::io::ErrorKind::BrokenPipe).into()
}

async fn serve(
    mut waiting: mpsc::Receiver<Waiting>,
    connection: MultiplexedConnection,
    scripts: Arc<Scripts>,
    limits: Limits,
) {
    let mut calls = CallsInFlight::default();
    loop {
        tokio::select! {
            biased;
            request = waiting.recv(), if calls.len() < limits.calls => {
                let Some(request) = request else { break };
                // Each call carries its share of all that is unanswered: one call with everything
                // would leave nothing to send while the server works on it.
                let share = (calls.requests + 1 + waiting.len()).div_ceil(limits.calls);
                let most = share.min(limits.batch_size_max);
                let requests = collect_batch(request, &mut waiting, most);
                calls.start(&connection, &scripts, requests).await;
            }
            is_alive = calls.oldest(), if calls.len() > 0 => {
                // The end of the receiver fails the requests that wait and those that come. Their
                // callers make another connection.
                if !is_alive {
                    return;
                }
                if calls.len() > 0 {
                    yield_to_callers(&waiting).await;
                }
            }
        }
    }
    while calls.len() > 0 {
        calls.oldest().await;
    }
}

fn collect_batch(
    first: Waiting,
    waiting: &mut mpsc::Receiver<Waiting>,
    most: usize,
) -> Vec<Waiting> {
    let mut requests = Vec::with_capacity(most);
    requests.push(first);
    while requests.len() < most
        && let Ok(request) = waiting.try_recv()
    {
        requests.push(request);
    }
    requests
}

/// Gives the callers that have their answers a turn before others get theirs: their next requests
/// are then on their way while the server works on the other call. Otherwise all calls would be
/// answered at the same time, and server and clients would wait for each other in turns.
async fn yield_to_callers(waiting: &mpsc::Receiver<Waiting>) {
    for _ in 0..TURNS_MAX {
        if !waiting.is_empty() {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// The calls under way, the oldest first, which is the order of their answers.
#[derive(Default)]
struct CallsInFlight {
    answers: VecDeque<(usize, BoxFuture<'static, bool>)>,
    requests: usize,
}

impl CallsInFlight {
    fn len(&self) -> usize {
        self.answers.len()
    }

    /// Sends a call without waiting for its answer.
    async fn start(
        &mut self,
        connection: &MultiplexedConnection,
        scripts: &Arc<Scripts>,
        requests: Vec<Waiting>,
    ) {
        let count = requests.len();
        let mut answer = call(connection.clone(), Arc::clone(scripts), requests).boxed();
        // The first poll hands the call to the connection, so calls are sent in the order in which
        // they are queued here.
        let answer = match poll!(&mut answer) {
            Poll::Ready(is_alive) => future::ready(is_alive).boxed(),
            Poll::Pending => answer,
        };
        self.requests += count;
        self.answers.push_back((count, answer));
    }

    /// Waits for the oldest call, and returns whether the connection is still usable.
    async fn oldest(&mut self) -> bool {
        let Some((count, answer)) = self.answers.front_mut() else { return true };
        // The call stays at the front until it is answered: this future is dropped whenever a
        // request comes first.
        let (count, is_alive) = (*count, answer.await);
        self.requests -= count;
        self.answers.pop_front();
        is_alive
    }
}

/// Answers requests with one call. Returns whether the connection is still usable.
async fn call(
    mut connection: MultiplexedConnection,
    scripts: Arc<Scripts>,
    mut requests: Vec<Waiting>,
) -> bool {
    // A caller that has given up has released the lock as well, or is about to.
    requests.retain(|request| !request.answer.is_closed());
    if requests.is_empty() {
        return true;
    }
    let answers = answers(&mut connection, &scripts, &requests).await;
    let is_alive = !answers.as_ref().is_err_and(node::is_dead);
    match answers {
        Ok(answers) if answers.len() == requests.len() => {
            for (request, answer) in requests.into_iter().zip(answers) {
                request.answered(Ok(answer));
            }
        }
        // Only the server gives a code. After any other failure the call may have been carried out.
        Err(refused) if refused.code().is_some() && requests.len() > 1 => {
            return one_by_one(&connection, &scripts, requests).await;
        }
        other => {
            let incomplete = (ErrorKind::UnexpectedReturnType, "not an answer for each request");
            let error = other.err().unwrap_or_else(|| incomplete.into());
            for request in requests {
                request.answered(Err(error.clone()));
            }
        }
    }
    is_alive
}

/// Sends requests one by one after the server has refused the call as a whole before it did
/// anything, perhaps for one lock that this client may not touch: that one must not fail the
/// others.
fn one_by_one(
    connection: &MultiplexedConnection,
    scripts: &Arc<Scripts>,
    requests: Vec<Waiting>,
) -> BoxFuture<'static, bool> {
    let alone = |request| call(connection.clone(), Arc::clone(scripts), vec![request]);
    let calls: Vec<_> = requests.into_iter().map(alone).collect();
    future::join_all(calls).map(|are_alive| are_alive.into_iter().all(|it| it)).boxed()
}

/// Sends requests. A single one takes a script of its own, with one answer.
async fn answers(
    connection: &mut MultiplexedConnection,
    scripts: &Scripts,
    requests: &[Waiting],
) -> Result<Vec<i64>, RedisError> {
    if let [Waiting { request, .. }] = requests {
        return Ok(vec![alone(connection, scripts, request).await?]);
    }
    let call = batch_call(&scripts.batch, requests);
    node::run(connection, &scripts.batch, &call).await
}

async fn alone(
    connection: &mut MultiplexedConnection,
    scripts: &Scripts,
    request: &Request,
) -> Result<i64, RedisError> {
    match request.operation {
        Operation::Take { .. } => {
            let mut call = node::call_of(&scripts.take_one, &request.name, &HOLDER);
            request.write_args(&mut call);
            node::run(connection, &scripts.take_one, &call).await
        }
        Operation::Free => {
            // The field is the holder's id, so the lock of another holder stays, and so does one
            // with waiters, whose field is marked. Redis deletes a hash that has no field left.
            let mut call = redis::cmd("HDEL");
            node::keys(&mut call, &request.name, &HOLDER[..1]);
            request.write_args(&mut call);
            call.query_async(connection).await
        }
    }
}

fn batch_call(script: &Script, requests: &[Waiting]) -> Cmd {
    let mut call = node::begin(script, requests.len() * HOLDER.len());
    for Waiting { request, .. } in requests {
        node::keys(&mut call, &request.name, &HOLDER);
    }
    for Waiting { request, .. } in requests {
        request.write_args(&mut call);
        if let Operation::Free = request.operation {
            call.arg("").arg("");
        }
    }
    call
}
