//! One connection, from its first bytes to its end.
//!
//! Requests are handled concurrently, since a request that waits for a lock must not delay others.
//! Requests that are one call to the engine are submitted together. Other requests, and those whose
//! answers go in one frame, have a task. Registrations, heartbeats and phase-two answers are
//! handled in order. BOUNDED: if too many requests are in progress, the next one is completed
//! before anything else is read, and does not wait for anything that is still to be read.

mod registering;

use std::convert::Infallible;
use std::future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::{Buf as _, BytesMut};
use futures::future::join_all;
use handfast_seata_wire::frame::{Frame, HEADER_ONLY_BYTES, Header, MessageKind, Piece, split, v0};
use handfast_seata_wire::message::{BranchEnded, MergedWarp, Message, MessageType, Registered};
use handfast_seata_wire::{
    ClientVersion, DecodedMessage, Dialect, Encoding, FrameVersion, WireError, decode, refuse,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::client::Client;
use super::closing::ConnectionEnd;
use super::merged::merge_or_split;
use super::pending_requests::{ExpectedReply, PendingRequests, UnansweredDecision};
use super::reading::{detect_version, read_more};
use super::request::{RequestPlan, ended, plan_of};
use super::request_handler::{RequestHandler, WaitPolicy};
use super::send_queue::{ReplyAddress, SendQueue};
use super::traced::{self, traceparent_of};
use super::undo_logs::ListedClient;
use super::{SERVER_VERSION, SeataFrontend};
use crate::dispatch::ProcessRegistration;
use crate::presence::Present;
use crate::turned_away::{PortName, Why, note};

/// The first client version that expects a separate answer to each part of a merged request.
const ANSWERED_APART: ClientVersion = ClientVersion::new(2, 3, 0);

/// How long a client may take to read the remaining frames when its connection ends.
pub(super) const LAST_WORDS_LIMIT: Duration = Duration::from_secs(1);

/// Serves a connection until either side ends it. `first` are the bytes that have been read
/// already.
pub(super) async fn serve_connection(
    frontend: SeataFrontend,
    io: impl AsyncRead + AsyncWrite + Send,
    first: BytesMut,
    peer: SocketAddr,
    stop: CancellationToken,
) {
    let (reader, writer) = tokio::io::split(io);
    let (send_queue, mut outgoing) = SendQueue::new(frontend.shared.settings.queue_frames_max);
    let connection = Connection::new(frontend, peer, send_queue.clone());
    let client = Arc::clone(&connection.client);
    let family = move || lock(&client).dialect.family;
    let finish = CancellationToken::new();
    let reading = async {
        let ended = tokio::select! {
            ended = connection.read(reader, first) => ended,
            () = send_queue.overfull() => ConnectionEnd::Overfull,
            () = stop.cancelled() => ConnectionEnd::Stopping,
        };
        // Nothing more is read, and what is queued is still written.
        finish.cancel();
        ended
    };
    let writing = outgoing.write_all(writer, family, finish.clone());
    let writing = async {
        tokio::select! {
            written = writing => written,
            // A client that does not read the remaining frames gets little time, or none.
            () = send_queue.overfull() => Ok(()),
            () = async { finish.cancelled().await; sleep(LAST_WORDS_LIMIT).await } => Ok(()),
        }
    };
    let (ended, written) = tokio::join!(reading, writing);
    ended.report(peer, written.err());
}

/// Locks the client. The lock must be held briefly: the engine's task takes it to send calls.
fn lock(client: &Mutex<Arc<Client>>) -> MutexGuard<'_, Arc<Client>> {
    client.lock().expect("no holder of a client's lock panics")
}

/// The reading side of a connection.
#[derive(Debug)]
struct Connection {
    frontend: SeataFrontend,
    peer: SocketAddr,
    send_queue: SendQueue,
    client: Arc<Mutex<Arc<Client>>>,
    registration: Option<(ProcessRegistration, ListedClient)>,
    pending: PendingRequests,
    /// The requests that have a task. Dropping it gives up their places in the lock queues.
    requests: JoinSet<()>,
    /// Has a clone for each part of a merged request in progress but the first, which has its task.
    further_parts: Arc<()>,
    /// Phase-two answers that have arrived and are not recorded yet.
    answers: Vec<(i32, BranchEnded)>,
    /// Where the requests of the frame at hand stand in a trace; empty for nowhere.
    traceparent: String,
    /// Set by the first registration. The last field, so that it is dropped last: the engine must
    /// learn that the client has gone after everything else.
    present: Option<Present>,
}

impl Connection {
    fn new(frontend: SeataFrontend, peer: SocketAddr, send_queue: SendQueue) -> Self {
        let client = Client::unknown(Dialect::default(), peer);
        let engine = frontend.shared.engine.clone();
        let pending = PendingRequests::new(engine, send_queue.clone(), client.asker());
        let client = Arc::new(Mutex::new(Arc::new(client)));
        let (requests, further_parts, answers) = (JoinSet::new(), Arc::new(()), Vec::new());
        let (registration, present, traceparent) = (None, None, String::new());
        Self {
            frontend,
            peer,
            send_queue,
            client,
            registration,
            pending,
            requests,
            further_parts,
            answers,
            traceparent,
            present,
        }
    }

    async fn read(mut self, mut io: impl AsyncRead + Unpin, first: BytesMut) -> ConnectionEnd {
        let Err(ended) = self.read_all(&mut io, first).await;
        // Requests that arrived before the end count, although their answers are lost.
        self.hand_over().await;
        ended
    }

    async fn read_all(
        &mut self,
        io: &mut (impl AsyncRead + Unpin),
        mut bytes: BytesMut,
    ) -> Result<Infallible, ConnectionEnd> {
        let limit = self.frontend.shared.settings.silence_limit;
        let first = async { detect_version(io, &mut bytes).await };
        let version = timeout(limit, first).await.map_err(|_elapsed| ConnectionEnd::Silent)??;
        self.update(|client| client.dialect.frame = version);
        match version {
            FrameVersion::V0 => self.read_frames_v0(io, bytes).await,
            FrameVersion::V1 | FrameVersion::V2 => self.read_frames(io, bytes).await,
        }
    }

    async fn read_frames(
        &mut self,
        io: &mut (impl AsyncRead + Unpin),
        mut bytes: BytesMut,
    ) -> Result<Infallible, ConnectionEnd> {
        let limits = self.frontend.shared.settings.limits.clone();
        let is_whole = |bytes: &[u8]| Ok(split(bytes, &limits)? != Piece::Incomplete);
        loop {
            let taken = match split(&bytes, &limits)? {
                Piece::Frame(frame, length) => {
                    self.take(&frame).await?;
                    length
                }
                Piece::HeaderOnly(id) => {
                    let what = format_args!("it could not write its answer to request {id}");
                    note(PortName::Seata, Why::Malformed, Some(&self.peer), &what);
                    HEADER_ONLY_BYTES
                }
                Piece::Incomplete => {
                    self.read_frame(io, &mut bytes, is_whole).await?;
                    continue;
                }
            };
            bytes.advance(taken);
        }
    }

    /// Like [`Self::read_frames`] for clients before 0.7, whose frames have no length.
    async fn read_frames_v0(
        &mut self,
        io: &mut (impl AsyncRead + Unpin),
        mut bytes: BytesMut,
    ) -> Result<Infallible, ConnectionEnd> {
        let limits = self.frontend.shared.settings.limits.clone();
        let is_whole = |bytes: &[u8]| Ok(v0::split(bytes, &limits)?.is_some());
        loop {
            let Some((frame, length)) = v0::split(&bytes, &limits)? else {
                self.read_frame(io, &mut bytes, is_whole).await?;
                continue;
            };
            bytes.advance(length);
            let DecodedMessage { header, message, encoding } = frame.try_into()?;
            self.take_message(header, message, encoding).await?;
        }
    }

    /// Reads until the next frame is complete, or the stream has ended.
    async fn read_frame(
        &mut self,
        io: &mut (impl AsyncRead + Unpin),
        bytes: &mut BytesMut,
        is_whole: impl Fn(&[u8]) -> Result<bool, WireError>,
    ) -> Result<(), ConnectionEnd> {
        // Every frame that has arrived is taken: their requests go to the engine together.
        self.hand_over().await;
        let more = async {
            while !is_whole(bytes)? {
                read_more(io, bytes).await?;
            }
            Ok(())
        };
        let more = timeout(self.frontend.shared.settings.silence_limit, more);
        tokio::pin!(more);
        loop {
            let next_overdue = self.pending.next_overdue();
            tokio::select! {
                // A client that sends without a pause must not delay the answers that are overdue.
                biased;
                () = reach(next_overdue) => self.end_overdue(),
                read = &mut more => return read.map_err(|_elapsed| ConnectionEnd::Silent)?,
            }
        }
    }

    /// Handles one frame. A frame whose body cannot be read is refused, if that can be expressed.
    async fn take(&mut self, frame: &Frame<'_>) -> Result<(), ConnectionEnd> {
        let (dialect, known) = {
            let client = lock(&self.client);
            (client.dialect, client.encoding)
        };
        let received = match decode(frame, &dialect, &self.frontend.shared.settings.limits) {
            Ok(received) => received,
            Err(error) => return self.refuse(frame, &dialect, error),
        };
        let DecodedMessage { header, message, encoding } = received;
        let is_heartbeat = matches!(header.kind, MessageKind::Ping | MessageKind::Pong);
        // A heartbeat has no body, so its encoding does not show how the client reads calls.
        if encoding != known && !is_heartbeat {
            self.update(|client| client.encoding = encoding);
        }
        self.traceparent = traceparent_of(frame.head_map);
        self.take_message(header, message, encoding).await
    }

    async fn take_message(
        &mut self,
        header: Header,
        message: Message,
        encoding: Encoding,
    ) -> Result<(), ConnectionEnd> {
        let id = header.id;
        if message == Message::Ping {
            self.send(&Message::Pong, id, Encoding::default());
        } else if let Message::RegisterTm(it) = message {
            let one_way = header.kind == MessageKind::OneWay;
            let answer = Message::RegisterTmResult(self.register_tm(&it, one_way));
            self.send(&answer, id, encoding);
        } else if let Message::RegisterRm(it) = message {
            let answer = Message::RegisterRmResult(self.register_rm(&it));
            self.send(&answer, id, encoding);
        } else if let Message::UnregisterRm(_) = message {
            let refused = Registered::refused(SERVER_VERSION, "resources are not given up");
            self.send(&Message::UnregisterRmResult(refused), id, encoding);
        } else if let Message::BranchCommitResult(it) | Message::BranchRollbackResult(it) = message
        {
            self.answers.push((id, it));
        } else if let Message::MergedWarp(it) = message {
            self.work_on_merged(id, it, encoding).await;
        } else if let Message::BranchRegister(it) = &message {
            let shown = self.learn_resource(&it.resource_id);
            self.work_on(id, message, encoding).await;
            return shown;
        } else {
            self.work_on(id, message, encoding).await;
        }
        Ok(())
    }

    /// Answers a frame whose body cannot be read with the reason, and ends the connection: the
    /// meaning of the next frames is not known either. A frame that is itself an answer gets none:
    /// its id is one of the coordinator's, under which the client may wait for something else.
    fn refuse(
        &self,
        frame: &Frame<'_>,
        dialect: &Dialect,
        error: WireError,
    ) -> Result<(), ConnectionEnd> {
        if frame.header.kind == MessageKind::Answer {
            return Err(error.into());
        }
        let mut answer = Vec::new();
        let reason = format!("{}: {error}", error.code());
        if refuse(frame, SERVER_VERSION, &reason, dialect, &mut answer).is_ok() {
            self.send_queue.put(answer);
        }
        Err(error.into())
    }

    /// Handles a merged request. Clients from 2.3 on get a separate answer to each part. Older ones
    /// get one frame with the answers in order. A request for a status is understood only in one
    /// frame.
    async fn work_on_merged(&mut self, id: i32, merged: MergedWarp, encoding: Encoding) {
        let MergedWarp { parts, ids } = merged;
        let is_status = |part: &Message| part.kind() == Some(MessageType::GlobalStatus);
        let apart = lock(&self.client).dialect.client >= ANSWERED_APART
            && ids.len() == parts.len()
            && !parts.iter().any(is_status);
        if apart {
            for (id, part) in ids.into_iter().zip(parts) {
                self.work_on(id, part, encoding).await;
            }
            return;
        }
        let has_room = self.has_room_for(parts.len());
        let counted = vec![Arc::clone(&self.further_parts); parts.len().saturating_sub(1)];
        let wait_policy = if has_room { WaitPolicy::Configured } else { WaitPolicy::None };
        let (to, handler, send_queue) =
            (self.addressee(id, encoding), self.handler(wait_policy), self.send_queue.clone());
        let work = async move {
            let answers = join_all(parts.into_iter().map(|part| handler.answer(part))).await;
            for (id, answer) in merge_or_split(id, &ids, answers) {
                send_queue.answer(ReplyAddress { id, ..to }, &answer);
            }
            drop(counted);
        };
        if has_room {
            self.requests.spawn(Box::pin(work));
        } else {
            // Requests in progress may wait for those that arrived with this one.
            self.hand_over().await;
            work.await;
        }
    }

    async fn work_on(&mut self, id: i32, request: Message, encoding: Encoding) {
        let to = self.addressee(id, encoding);
        if !self.has_room_for(1) {
            // Requests in progress may wait for those that arrived with this one.
            self.hand_over().await;
            if let Some(answer) = self.handler(WaitPolicy::None).answer(request).await {
                self.send_queue.answer(to, &answer);
            }
            return;
        }
        let settings = &self.frontend.shared.settings;
        let limits = WaitPolicy::Configured.limits(settings);
        let client = self.client();
        let spans = &self.frontend.shared.spans;
        let span = traced::begin(spans, &self.traceparent, &request, &client);
        let plan = plan_of(request, &client, limits);
        match plan {
            RequestPlan::Single(command, context) => {
                let until = Instant::now().checked_add(settings.phase_two_wait);
                self.pending.ask(command, span, ExpectedReply { to, context, until });
            }
            RequestPlan::Answered(answer) => self.send_queue.answer(to, &answer),
            RequestPlan::MultiStep(request) => self
                .spawn(to, async move |handler: RequestHandler| {
                    handler.answer_multi_step(request).await
                }),
        }
    }

    /// Submits the gathered requests, and records the gathered phase-two answers.
    async fn hand_over(&mut self) {
        // Those for which the engine has no room: a decision cannot be refused, so a task waits.
        for UnansweredDecision { to, xid, decision } in self.pending.hand_over() {
            self.spawn(to, async move |handler: RequestHandler| {
                handler.end_with_timeout(xid, decision, &to.dialect).await
            });
        }
        self.end_overdue();
        if !self.answers.is_empty() {
            let by = Arc::clone(&lock(&self.client).id);
            self.frontend.answered(std::mem::take(&mut self.answers), &by).await;
        }
    }

    /// Answers decisions whose phase two takes too long with the current status.
    fn end_overdue(&mut self) {
        for UnansweredDecision { to, xid, decision } in self.pending.overdue(Instant::now()) {
            self.spawn(to, async move |handler: RequestHandler| {
                let status = handler.end_at_once(xid, decision).await?;
                Some(ended(decision, status, &to.dialect))
            });
        }
    }

    fn has_room_for(&mut self, requests: usize) -> bool {
        // Tasks that have ended count until they are removed.
        while self.requests.try_join_next().is_some() {}
        let further_parts = Arc::strong_count(&self.further_parts) - 1;
        let under_way = self.pending.len() + self.requests.len() + further_parts;
        under_way + requests <= self.frontend.shared.settings.requests_max.max(1)
    }

    fn handler(&self, wait_policy: WaitPolicy) -> RequestHandler {
        RequestHandler { frontend: self.frontend.clone(), client: self.client(), wait_policy }
    }

    /// Returns a snapshot of the client.
    fn client(&self) -> Arc<Client> {
        Arc::clone(&lock(&self.client))
    }

    /// Replaces the client by a changed copy. Only this task changes it, so the lock need not be
    /// held during the change.
    fn update<T>(&self, change: impl FnOnce(&mut Client) -> T) -> T {
        let mut client = Client::clone(&self.client());
        let changed = change(&mut client);
        *lock(&self.client) = Arc::new(client);
        changed
    }

    /// Handles a request in a task of its own.
    fn spawn<Working>(&mut self, to: ReplyAddress, work: impl FnOnce(RequestHandler) -> Working)
    where
        Working: Future<Output = Option<Message>> + Send + 'static,
    {
        let working = work(self.handler(WaitPolicy::Configured));
        let send_queue = self.send_queue.clone();
        // Boxed, because a spawned future is moved several times.
        self.requests.spawn(Box::pin(async move {
            if let Some(answer) = working.await {
                send_queue.answer(to, &answer);
            }
        }));
    }

    fn send(&self, answer: &Message, id: i32, encoding: Encoding) {
        self.send_queue.answer(self.addressee(id, encoding), answer);
    }

    fn addressee(&self, id: i32, encoding: Encoding) -> ReplyAddress {
        ReplyAddress { id, encoding, dialect: lock(&self.client).dialect }
    }
}

async fn reach(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time.into()).await,
        None => future::pending().await,
    }
}
