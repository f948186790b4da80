//! Requests for locks as they mostly are, free and wanted by nobody else: those that come together
//! go to the server in one call.
//!
//! Starting a script costs the server more than what this one does for a lock, and so does a
//! message each way. One alone is sent at once; under load a call carries what has come while the
//! calls before it were under way. Where there is mostly one alone, whoever asks sends it himself.

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
use crate::backend::{Ask, Hold};
use crate::name::{LockName, Token};

/// How much goes out at a time.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Calls under way: while the server works on one, the next one travels.
    calls: usize,
    /// Requests in one call: the server does nothing else meanwhile, for a fraction of a
    /// millisecond.
    together: usize,
}

const TOGETHER: Limits = Limits { calls: 2, together: 128 };
/// Where a script may not touch several locks.
const ONE_BY_ONE: Limits = Limits { calls: 128, together: 1 };
/// How often those who were answered have a turn before others are answered: they, the client's
/// shell before and after them, and once more.
const TURNS_MAX: usize = 4;
/// How many requests in a row must have been alone for the next one not to stand in line: an odd
/// one beside the calls of many makes these small, and the server wait.
const ALONE_ENOUGH: usize = 8;
/// How many requests wait for a call; who comes then waits for room.
const WAITING_MAX: usize = 1024;

/// What is done about a lock of which there is nothing but its holder, if there is one.
#[derive(Debug)]
enum Step {
    /// It is taken, and says so, for so many milliseconds.
    Take { label: Arc<str>, lease: i64 },
    /// It is freed.
    Free,
}

/// What is asked for.
#[derive(Debug)]
struct Request {
    name: LockName,
    token: Token,
    step: Step,
}

impl Request {
    /// Whose lock it is, and, if it is to be taken, what stands with that and for how long.
    fn say(&self, call: &mut Cmd) {
        call.write_arg_fmt(self.token);
        if let Step::Take { label, lease } = &self.step {
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
        // Who does not wait any more need not know.
        let _ = self.answer.send(answer);
    }
}

/// What the server runs for one request, and for several. To free one takes no script.
#[derive(Clone, Debug)]
pub(super) struct Scripts {
    take_one: Script,
    several: Script,
}

impl Scripts {
    pub(super) fn new() -> Self {
        Self { take_one: Script::new(script::TAKE_ONE), several: Script::new(script::SEVERAL) }
    }
}

/// Where requests gather for one connection. A clone leads to the same.
#[derive(Clone, Debug)]
pub(super) struct Gathering {
    line: mpsc::Sender<Waiting>,
    connection: MultiplexedConnection,
    scripts: Arc<Scripts>,
    crowd: Arc<Crowd>,
}

/// How many ask at a time.
#[derive(Debug, Default)]
struct Crowd {
    unanswered: AtomicUsize,
    alone_in_a_row: AtomicUsize,
}

impl Crowd {
    /// A request begins; whether it mostly has been alone.
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

impl Gathering {
    /// Gathers for a connection until it fails or nobody is left to ask. Locks of several slots go
    /// together if the server `crosses_slots`.
    pub(super) fn start(
        connection: MultiplexedConnection,
        scripts: Scripts,
        crosses_slots: bool,
    ) -> Self {
        let (requests, waiting) = mpsc::channel(WAITING_MAX);
        let limits = if crosses_slots { TOGETHER } else { ONE_BY_ONE };
        let scripts = Arc::new(scripts);
        tokio::spawn(serve(waiting, connection.clone(), Arc::clone(&scripts), limits));
        Self { line: requests, connection, scripts, crowd: Arc::default() }
    }

    /// Whether both lead to the same connection.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.line.same_channel(&other.line)
    }

    /// The fence of a lock that was taken, or 0.
    pub(super) async fn take(&self, ask: &Ask) -> Result<i64, RedisError> {
        let step =
            Step::Take { label: Arc::clone(&ask.label), lease: node::milliseconds(ask.lease) };
        self.request(Request { name: ask.name.clone(), token: ask.token, step }).await
    }

    /// 1 for a lock that was freed, or 0.
    pub(super) async fn free(&self, hold: &Hold) -> Result<i64, RedisError> {
        let (name, token) = (hold.name.clone(), hold.token);
        self.request(Request { name, token, step: Step::Free }).await
    }

    async fn request(&self, request: Request) -> Result<i64, RedisError> {
        let (_unanswered, is_alone) = self.crowd.enter();
        if is_alone {
            return alone(&mut self.connection.clone(), &self.scripts, &request).await;
        }
        let (answer, answered) = oneshot::channel();
        self.line.send(Waiting { request, answer }).await.map_err(|_| lost())?;
        answered.await.unwrap_or_else(|_| Err(lost()))
    }
}

/// The connection failed before this request was answered, or the runtime that served it ended.
fn lost() -> RedisError {
    std::io::Error::from(std::io::ErrorKind::BrokenPipe).into()
}

async fn serve(
    mut waiting: mpsc::Receiver<Waiting>,
    connection: MultiplexedConnection,
    scripts: Arc<Scripts>,
    limits: Limits,
) {
    let mut calls = Calls::default();
    loop {
        tokio::select! {
            biased;
            request = waiting.recv(), if calls.len() < limits.calls => {
                let Some(request) = request else { break };
                let share = (calls.requests + 1 + waiting.len()).div_ceil(limits.calls);
                let requests = more_with(request, &mut waiting, share.min(limits.together));
                calls.start(&connection, &scripts, requests).await;
            }
            is_alive = calls.oldest(), if calls.len() > 0 => {
                if !is_alive {
                    return;
                }
                if calls.len() > 0 {
                    let_them_ask(&waiting).await;
                }
            }
        }
    }
    while calls.len() > 0 {
        calls.oldest().await;
    }
}

fn more_with(first: Waiting, waiting: &mut mpsc::Receiver<Waiting>, most: usize) -> Vec<Waiting> {
    let mut requests = Vec::with_capacity(most);
    requests.push(first);
    while requests.len() < most
        && let Ok(request) = waiting.try_recv()
    {
        requests.push(request);
    }
    requests
}

/// Gives those who have their answers a turn before others have theirs: what they ask for next is
/// then on its way while the server works on the other call. Otherwise all calls would be answered
/// at the same time, and server and clients would wait for each other in turns.
async fn let_them_ask(waiting: &mpsc::Receiver<Waiting>) {
    for _ in 0..TURNS_MAX {
        if !waiting.is_empty() {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// Calls under way, the oldest first: they are answered in their order.
#[derive(Default)]
struct Calls {
    answers: VecDeque<(usize, BoxFuture<'static, bool>)>,
    requests: usize,
}

impl Calls {
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
        let answer = match poll!(&mut answer) {
            Poll::Ready(is_alive) => future::ready(is_alive).boxed(),
            Poll::Pending => answer,
        };
        self.requests += count;
        self.answers.push_back((count, answer));
    }

    /// Whether the connection is still of use when the oldest call is answered.
    async fn oldest(&mut self) -> bool {
        let Some((count, answer)) = self.answers.front_mut() else { return true };
        let (count, is_alive) = (*count, answer.await);
        self.requests -= count;
        self.answers.pop_front();
        is_alive
    }
}

/// Answers requests with one call. Answers itself whether the connection is still of use.
async fn call(
    mut connection: MultiplexedConnection,
    scripts: Arc<Scripts>,
    mut requests: Vec<Waiting>,
) -> bool {
    // Who has given up has let go as well, or is about to.
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

/// What the server has refused as a whole before it did anything, for one lock perhaps that this
/// client may not touch: that one does not keep the others.
fn one_by_one(
    connection: &MultiplexedConnection,
    scripts: &Arc<Scripts>,
    requests: Vec<Waiting>,
) -> BoxFuture<'static, bool> {
    let alone = |request| call(connection.clone(), Arc::clone(scripts), vec![request]);
    let calls: Vec<_> = requests.into_iter().map(alone).collect();
    future::join_all(calls).map(|are_alive| are_alive.into_iter().all(|it| it)).boxed()
}

/// One alone takes a script that does only that, and says only one thing.
async fn answers(
    connection: &mut MultiplexedConnection,
    scripts: &Scripts,
    requests: &[Waiting],
) -> Result<Vec<i64>, RedisError> {
    if let [Waiting { request, .. }] = requests {
        return Ok(vec![alone(connection, scripts, request).await?]);
    }
    let call = call_of_several(&scripts.several, requests);
    node::run(connection, &scripts.several, &call).await
}

async fn alone(
    connection: &mut MultiplexedConnection,
    scripts: &Scripts,
    request: &Request,
) -> Result<i64, RedisError> {
    match request.step {
        Step::Take { .. } => {
            let mut call = node::call_of(&scripts.take_one, &request.name, &HOLDER);
            request.say(&mut call);
            node::run(connection, &scripts.take_one, &call).await
        }
        Step::Free => {
            let mut call = redis::cmd("HDEL");
            node::keys(&mut call, &request.name, &HOLDER[..1]);
            request.say(&mut call);
            call.query_async(connection).await
        }
    }
}

fn call_of_several(script: &Script, requests: &[Waiting]) -> Cmd {
    let mut call = node::begin(script, requests.len() * HOLDER.len());
    for Waiting { request, .. } in requests {
        node::keys(&mut call, &request.name, &HOLDER);
    }
    for Waiting { request, .. } in requests {
        request.say(&mut call);
        if let Step::Free = request.step {
            call.arg("").arg("");
        }
    }
    call
}
