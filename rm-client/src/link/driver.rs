//! Carries out what the [protocol](handfast_rm_core::link::Protocol) decides: sockets, timer,
//! tasks, waiters.
//!
//! Everything that changes sits behind one mutex, which is held for a step of the state machine and
//! never over an await. One task keeps time, one more per connection reads; frames are made by the
//! transport itself, when it is ready for one, so that whatever has been queued by then goes in it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures::{Stream, StreamExt};
use handfast_proto::v1::client_message::Body as Ask;
use handfast_proto::v1::{self, Resource, ServerFrame};
use handfast_rm_core::link::{
    ConnectionFailure, ConnectionId, DialTarget, Event, Frame, Moment, Protocol, RequestId,
    Settings,
};
use hashbrown::HashMap;
use http::uri::PathAndQuery;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::{AbortHandle, yield_now};
use tokio::time::Instant;
use tonic::client::Grpc;
use tonic::service::interceptor::InterceptedService;
use tonic::{Request, Status};

use super::begin::LinkId;
use super::codec::FrameCodec;
use super::dial::{Dialler, failure};
use super::progress::Progress;
use super::resource_queues::{Outcomes, ResourceQueues};
use super::waiter::{Answered, OnLost, Waiter};
use crate::coordinator::BranchHandler;
use crate::error::Error;

/// Answers can be larger than requests: phase-two calls carry application data of many branches.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// How many of a frame's answers are handed out before the tasks that wait for them have their
/// turn. Too many: client and coordinator wait for each other; too few: more frames, each of which
/// costs a system call on both sides.
const ANSWERS_AT_ONCE: usize = 32;
/// If no more than this many would be left, they are handed out too: their requests would otherwise
/// travel in small frames of their own from then on.
const ANSWERS_LEFT: usize = 8;
/// The call that carries everything.
const CONNECT: &str = "/handfast.v1.Coordinator/Connect";
/// How long the timekeeper sleeps at most.
const SLEEP_MAX: Duration = Duration::from_secs(3_600);

/// The connection, for as long as the process wants it. Dropping it closes it.
pub(crate) struct Link {
    pub(super) shared: Arc<Driver>,
}

pub(super) struct Driver {
    pub(super) id: LinkId,
    state: Mutex<State>,
    dialler: Dialler,
    runtime: Handle,
    origin: Instant,
    pub(super) request_deadline: Duration,
    /// Wakes the timekeeper: the next deadline is earlier than the one it sleeps for.
    alarm_moved: Notify,
    /// Wakes a task that waits for the last answer.
    settled: Notify,
    progress: watch::Sender<Progress>,
}

/// The state that one step of the protocol may touch.
pub(super) struct State {
    pub(super) protocol: Protocol,
    pub(super) waiters: HashMap<RequestId, Waiter>,
    /// The connection, or the attempts to make one.
    connections: BTreeMap<ConnectionId, Connection>,
    /// Wakes the transport of the current connection when there is something to send.
    sending: Arc<Notify>,
    queues: ResourceQueues,
    /// The moment that the timekeeper sleeps for.
    alarm: Option<Moment>,
}

/// One attempt to connect, or the connection that came of it.
struct Connection {
    task: AbortHandle,
    sending: Arc<Notify>,
}

/// How long a caller waits for an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Timeout {
    /// The request deadline, and this much longer.
    Beyond(Duration),
    /// This long, if the request deadline is not shorter.
    #[cfg(feature = "locks")]
    Within(Duration),
}

impl Default for Timeout {
    fn default() -> Self {
        Self::Beyond(Duration::ZERO)
    }
}

impl Link {
    /// Makes a link and begins to connect. Must be called within a tokio runtime.
    pub(crate) fn new(settings: Settings, dialler: Dialler, request_deadline: Duration) -> Self {
        let state = State {
            protocol: Protocol::new(settings, rand::random()),
            waiters: HashMap::new(),
            connections: BTreeMap::new(),
            sending: Arc::new(Notify::new()),
            queues: ResourceQueues::default(),
            alarm: None,
        };
        let shared = Arc::new(Driver {
            id: LinkId::random(),
            state: Mutex::new(state),
            dialler,
            runtime: Handle::current(),
            origin: Instant::now(),
            request_deadline,
            alarm_moved: Notify::new(),
            settled: Notify::new(),
            progress: watch::Sender::new(Progress::Dialling),
        });
        shared.runtime.spawn(keep_time(Arc::clone(&shared)));
        Self { shared }
    }

    /// Waits until the coordinator greets, unless it has greeted and the connection stands.
    ///
    /// # Errors
    /// [`Error::Unauthenticated`] and [`Error::Closed`] at once, [`Error::Unreachable`] when the
    /// time is over.
    pub(crate) async fn greeted(&self, timeout: Duration) -> Result<(), Error> {
        let mut progress = self.shared.progress.subscribe();
        let ended = |progress: &Progress| match progress {
            Progress::Greeted
            | Progress::Failed(ConnectionFailure::Unauthenticated(_))
            | Progress::Closed => true,
            Progress::Dialling | Progress::Failed(ConnectionFailure::Passing(_)) => false,
        };
        // The wait itself cannot fail: `self` keeps the sender.
        let _ = tokio::time::timeout(timeout, progress.wait_for(ended)).await;
        let progress = progress.borrow().clone();
        progress.into_result(|| format!("no answer within {timeout:?}"))
    }

    /// Returns whether the connection stands now.
    ///
    /// # Errors
    /// Says why it does not.
    pub(crate) fn standing(&self) -> Result<(), Error> {
        let progress = self.shared.progress.borrow().clone();
        progress.into_result(|| "no coordinator has answered yet".to_owned())
    }

    /// Sends a request, again on each further connection, and waits for its answer for
    /// `timeout`. Dropping the future gives up the answer, but neither recalls what was sent nor
    /// stops the report of a branch.
    pub(crate) fn ask(
        &self,
        name: &'static str,
        ask: Ask,
        timeout: Timeout,
    ) -> impl Future<Output = Answered> {
        let (waiter, answer) = oneshot::channel();
        // Submitted before the future is polled, so that the future need not keep the request.
        let id = self.submit(name, ask, timeout, Some(Waiter::Caller(waiter)));
        let answer = id.map(|id| self.answer_to(id, answer));
        async move { answer?.await }
    }

    /// Waits for the answer to a request that is submitted.
    pub(super) fn answer_to(
        &self,
        id: RequestId,
        answer: oneshot::Receiver<Answered>,
    ) -> impl Future<Output = Answered> + use<'_> {
        let forget = ForgetOnDrop { shared: &self.shared, id, armed: true };
        async move {
            // All of it is moved in here, not only what is used.
            let mut forget = forget;
            let result = answer.await;
            forget.armed = false;
            result.unwrap_or(Err(Error::Closed))
        }
    }

    /// Identifies the link within the process.
    pub(crate) fn id(&self) -> LinkId {
        self.shared.id
    }

    /// Sends a request whose answer is not waited for.
    ///
    /// # Errors
    /// When it is not taken.
    pub(crate) fn notify(&self, name: &'static str, ask: Ask) -> Result<(), Error> {
        self.submit(name, ask, Timeout::default(), None).map(drop)
    }

    /// Sends the report of a local commit that has decided its global, without waiting for the
    /// answer.
    ///
    /// # Errors
    /// When it is not taken.
    pub(crate) fn report_last(&self, report: Ask, on_lost: Option<OnLost>) -> Result<(), Error> {
        let waiter = on_lost.map(Waiter::LastBranch);
        self.submit("report_branch", report, Timeout::default(), waiter).map(drop)
    }

    pub(crate) fn register_resource(&self, resource: Resource, phase_two: Arc<dyn BranchHandler>) {
        let shared = Arc::downgrade(&self.shared);
        let outcomes: Outcomes = Arc::new(move |outcomes| {
            if let Some(shared) = Weak::upgrade(&shared) {
                shared.step(|state, _| state.protocol.finished(outcomes));
            }
        });
        self.shared.step(|state, _| {
            state.queues.open(&resource, &phase_two, &outcomes, &self.shared.runtime);
            state.protocol.register_resource(resource);
        });
    }

    /// Runs a task on the runtime that carries the connection.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.shared.runtime.spawn(task);
    }

    /// Waits until every request is answered or out of time, then closes.
    pub(crate) async fn close(&self) {
        loop {
            // Before the look, or an answer between look and wait would wake no task.
            let settled = self.shared.settled.notified();
            if self.shared.step(|state, _| state.protocol.idle()) {
                break;
            }
            settled.await;
        }
        self.shared.close();
    }

    fn submit(
        &self,
        name: &'static str,
        ask: Ask,
        timeout: Timeout,
        waiter: Option<Waiter>,
    ) -> Result<RequestId, Error> {
        let timeout = match timeout {
            Timeout::Beyond(wait) => self.shared.request_deadline.saturating_add(wait),
            #[cfg(feature = "locks")]
            Timeout::Within(limit) => self.shared.request_deadline.min(limit),
        };
        self.shared.step(|state, now| {
            let id = state.protocol.submit(now, name, ask, now.after(timeout))?;
            if let Some(waiter) = waiter {
                state.waiters.insert(id, waiter);
            }
            Ok(id)
        })
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// Gives up the answer of a request whose caller is dropped.
struct ForgetOnDrop<'link> {
    shared: &'link Arc<Driver>,
    id: RequestId,
    armed: bool,
}

impl Drop for ForgetOnDrop<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.shared.step(|state, _| {
                state.waiters.remove(&self.id);
                state.protocol.cancel(self.id);
            });
        }
    }
}

impl Driver {
    /// Takes one step of the state machine and carries out what it decided.
    pub(super) fn step<R>(self: &Arc<Self>, step: impl FnOnce(&mut State, Moment) -> R) -> R {
        let now = Moment(self.origin.elapsed());
        // A panic within a step breaks an invariant of the protocol, and shows by itself.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let result = step(&mut state, now);
        while let Some(event) = state.protocol.next_event() {
            self.execute(&mut state, event);
        }
        if state.protocol.wants_to_send() {
            // The permit stays for a transport that is still busy with the frame before.
            state.sending.notify_one();
        }
        if state.protocol.idle() {
            self.settled.notify_waiters();
        }
        if state.protocol.next_deadline().is_some_and(|next| Some(next) < state.alarm) {
            self.alarm_moved.notify_one();
        }
        result
    }

    fn execute(self: &Arc<Self>, state: &mut State, event: Event) {
        match event {
            Event::Dial { connection, target } => {
                let sending = Arc::new(Notify::new());
                let task =
                    Arc::clone(self).keep_connection(connection, target, Arc::clone(&sending));
                let task = self.runtime.spawn(task).abort_handle();
                state.connections.insert(connection, Connection { task, sending });
            }
            Event::HangUp { connection } => {
                if let Some(ended) = state.connections.remove(&connection) {
                    // The protocol itself has ended the connection, so no report is needed.
                    ended.task.abort();
                }
            }
            Event::Greeted { connection, hello } => {
                tracing::info!(server = hello.server_version, epoch = hello.epoch, "connected");
                if let Some(greeted) = state.connections.get(&connection) {
                    state.sending = Arc::clone(&greeted.sending);
                }
                self.progress.send_replace(Progress::Greeted);
            }
            Event::AttemptFailed { failure } => {
                tracing::debug!(reason = %failure.reason(), "one of several places does not greet");
                self.progress.send_replace(Progress::Failed(failure));
            }
            Event::Disconnected { failure, retry_at } => {
                self.report_disconnected(failure, retry_at)
            }
            Event::Complete { id, result } => {
                // A one-way request has no waiter.
                if let Some(waiter) = state.waiters.remove(&id) {
                    waiter.send(result.map_err(Error::from));
                }
            }
            Event::PhaseTwo(call) => {
                if let Err(outcomes) = state.queues.put(call) {
                    state.protocol.finished(outcomes);
                }
            }
            Event::ResourceRefused { resource, refusal } => {
                let v1::Rejection { code, message, .. } = refusal;
                tracing::error!(resource = resource.id, code, message, "resource refused");
            }
        }
    }

    fn report_disconnected(&self, failure: ConnectionFailure, retry_at: Moment) {
        let reason = failure.reason();
        let in_ms = retry_at.0.saturating_sub(self.origin.elapsed()).as_millis();
        tracing::warn!(%reason, retry_in_ms = %in_ms, "no connection to the coordinator");
        self.progress.send_replace(Progress::Failed(failure));
    }

    fn close(self: &Arc<Self>) {
        self.step(|state, _| {
            state.protocol.close();
            state.queues = ResourceQueues::default();
        });
        self.progress.send_replace(Progress::Closed);
        self.alarm_moved.notify_one();
    }

    /// Makes one connection and reads from it until it ends.
    async fn keep_connection(
        self: Arc<Self>,
        connection: ConnectionId,
        target: DialTarget,
        sending: Arc<Notify>,
    ) {
        let failure = match self.read(connection, target, sending).await {
            Ok(()) => ConnectionFailure::Passing(Arc::from("the coordinator ended the stream")),
            Err(failure) => failure,
        };
        self.step(|state, now| {
            state.connections.remove(&connection);
            state.protocol.disconnected(now, connection, failure);
        });
    }

    async fn read(
        self: &Arc<Self>,
        connection: ConnectionId,
        target: DialTarget,
        sending: Arc<Notify>,
    ) -> Result<(), ConnectionFailure> {
        let found = |addresses| self.step(|state, _| state.protocol.found(connection, addresses));
        let channel = self.dialler.dial(target, found).await?;
        let channel = InterceptedService::new(channel, self.dialler.credentials());
        let mut client = Grpc::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX);
        if !self.step(|state, _| state.protocol.connected(connection)) {
            return Ok(());
        }
        // Dropped when reading ends or is aborted, it ends the sending side too: while one side
        // lasts, the transport keeps the stream and the coordinator goes on calling.
        let (_reads, stops_reading) = oneshot::channel::<()>();
        let outgoing = frames(Arc::downgrade(self), connection, sending).take_until(stops_reading);
        let no_stream = |status| self.dialler.no_stream(target.endpoint, &status);
        client.ready().await.map_err(|error| no_stream(Status::from_error(error.into())))?;
        let path = PathAndQuery::from_static(CONNECT);
        let opened = client.streaming(Request::new(outgoing), path, FrameCodec).await;
        let mut incoming = opened.map_err(no_stream)?.into_inner();
        while let Some(frame) = incoming.message().await.map_err(|status| failure(&status))? {
            self.take(connection, frame).await;
        }
        Ok(())
    }

    /// Hands out the answers of a frame. A task that gets its answer asks again, so the answers of
    /// a long frame leave room for that in between: otherwise the coordinator would have nothing to
    /// do while this process is busy with all of them, and this process nothing while the
    /// coordinator is, in turns.
    async fn take(self: &Arc<Self>, connection: ConnectionId, frame: ServerFrame) {
        let mut messages = frame.messages.into_iter();
        while messages.len() > 0 {
            let is_rest = messages.len() <= ANSWERS_AT_ONCE + ANSWERS_LEFT;
            let count = if is_rest { messages.len() } else { ANSWERS_AT_ONCE };
            let some = messages.by_ref().take(count);
            self.step(|state, now| state.protocol.receive(now, connection, some));
            if messages.len() > 0 {
                yield_now().await;
            }
        }
    }
}

/// The frames of one connection, each made when the transport asks for it.
fn frames(
    shared: Weak<Driver>,
    connection: ConnectionId,
    sending: Arc<Notify>,
) -> impl Stream<Item = Frame> {
    futures::stream::unfold((shared, sending), move |(shared, sending)| async move {
        loop {
            let link = Weak::upgrade(&shared)?;
            let frame = link.step(|state, _| state.protocol.next_frame(connection));
            // A stream that waits must not keep the driver alive.
            drop(link);
            if let Some(frame) = frame {
                return Some((frame, (shared, sending)));
            }
            sending.notified().await;
        }
    })
}

/// Ticks the protocol when it is due, until the link is closed.
async fn keep_time(shared: Arc<Driver>) {
    // When the runtime goes, this task is dropped, and nothing else would end the requests that are
    // left.
    let guard = CloseOnDrop(shared);
    let shared = &guard.0;
    loop {
        let alarm = shared.step(|state, now| {
            state.protocol.tick(now);
            // Most requests have the same time limit, so sleeping as long as that is early enough
            // for requests that come meanwhile, and they need not wake this task.
            let idle = now.after(shared.request_deadline.min(SLEEP_MAX));
            let next = state.protocol.next_deadline().map_or(idle, |next| next.min(idle));
            state.alarm = Some(next);
            if state.protocol.closed() { None } else { Some(next) }
        });
        let Some(alarm) = alarm else { return };
        tokio::select! {
            () = tokio::time::sleep_until(shared.origin + alarm.0) => {}
            () = shared.alarm_moved.notified() => {}
        }
    }
}

struct CloseOnDrop(Arc<Driver>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("dialler", &self.shared.dialler).finish_non_exhaustive()
    }
}
