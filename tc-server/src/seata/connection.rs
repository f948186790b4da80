//! One connection, from its first bytes to its end.
//!
//! Requests are worked on beside each other, since one that waits for a lock must hold up no other:
//! those that are one question at the engine are handed to it together; others, and those whose
//! answers leave in one frame, have a task.
//! Registrations, heartbeats and phase-two answers are taken in order. BOUNDED: where too many are
//! under way the next is worked on before anything else is read, and waits for nothing that is
//! still to be read.

use std::convert::Infallible;
use std::future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::{Buf as _, BytesMut};
use futures::future::join_all;
use handfast_seata_wire::frame::{
    FirstBytes, Frame, HEADER_ONLY_BYTES, Header, MessageKind, Piece, first_bytes, split, v0,
};
use handfast_seata_wire::message::{
    BranchEnded, MergeResult, MergedWarp, Message, MessageType, Register, RegisterResources,
    Registered,
};
use handfast_seata_wire::{
    ClientVersion, Dialect, Encoding, FrameVersion, Received, WireError, decode, refuse,
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::answer::{Desk, Patience};
use super::client::Client;
use super::closing::Ended;
use super::outbox::{Addressee, Outbox};
use super::pending::{Ending, Pending};
use super::phase_two::Sink;
use super::request::{Step, ended, step_of};
use super::undo_logs::Listed;
use super::{Front, SERVER_VERSION};
use crate::dispatch::{CallSink, ProcessRegistration};
use crate::presence::Present;
use crate::turned_away::{PortName, Why, note};

/// The first clients that wait for one answer to each part of a merged request.
const ANSWERED_APART: ClientVersion = ClientVersion::new(2, 3, 0);

/// What one read may take in, at least.
const READ_BYTES: usize = 8 * 1_024;

/// How long a client may take to read what is left when its connection ends.
const LAST_WORDS_LIMIT: Duration = Duration::from_secs(1);

/// Serves a connection until either side ends it.
pub(super) async fn converse(
    front: Front,
    io: impl AsyncRead + AsyncWrite + Send,
    peer: SocketAddr,
    stop: CancellationToken,
) {
    let (reader, writer) = tokio::io::split(io);
    let (outbox, mut outgoing) = Outbox::new(front.shared.settings.queue_frames_max);
    let connection = Connection::new(front, peer, outbox.clone());
    let client = Arc::clone(&connection.client);
    let family = move || lock(&client).dialect.family;
    let finish = CancellationToken::new();
    let reading = async {
        let ended = tokio::select! {
            ended = connection.read(reader) => ended,
            () = outbox.overfull() => Ended::Overfull,
            () = stop.cancelled() => Ended::Stopping,
        };
        finish.cancel();
        ended
    };
    let writing = outgoing.write_all(writer, family, finish.clone());
    let writing = async {
        tokio::select! {
            written = writing => written,
            // Who does not read what is left is not waited for, or not for long.
            () = outbox.overfull() => Ok(()),
            () = async { finish.cancelled().await; sleep(LAST_WORDS_LIMIT).await } => Ok(()),
        }
    };
    let (ended, written) = tokio::join!(reading, writing);
    ended.report(peer, written.err());
}

/// It is locked for moments only: the engine's task takes it to make calls.
fn lock(client: &Mutex<Arc<Client>>) -> MutexGuard<'_, Arc<Client>> {
    client.lock().expect("no holder of a client's lock panics")
}

/// The reading side.
#[derive(Debug)]
struct Connection {
    front: Front,
    peer: SocketAddr,
    outbox: Outbox,
    client: Arc<Mutex<Arc<Client>>>,
    seat: Option<(ProcessRegistration, Listed)>,
    pending: Pending,
    /// What has a task of its own. Dropping it gives up their places in the lock queues.
    requests: JoinSet<()>,
    /// Those of phase two that have come and are not recorded yet.
    answers: Vec<(i32, BranchEnded)>,
    /// From the first registration on. Dropped last: the engine hears of it after all else.
    present: Option<Present>,
}

impl Connection {
    fn new(front: Front, peer: SocketAddr, outbox: Outbox) -> Self {
        let client = Client::unknown(Dialect::default(), peer);
        let engine = front.shared.engine.clone();
        let pending = Pending::new(engine, outbox.clone(), client.asker());
        let client = Arc::new(Mutex::new(Arc::new(client)));
        let (requests, answers) = (JoinSet::new(), Vec::new());
        let (seat, present) = (None, None);
        Self { front, peer, outbox, client, seat, pending, requests, answers, present }
    }

    async fn read(mut self, mut io: impl AsyncRead + Unpin) -> Ended {
        let Err(ended) = self.read_all(&mut io).await;
        // What came before the end counts, although nobody is told of it.
        self.hand_over().await;
        ended
    }

    async fn read_all(&mut self, io: &mut (impl AsyncRead + Unpin)) -> Result<Infallible, Ended> {
        let limit = self.front.shared.settings.silence_limit;
        let mut bytes = BytesMut::new();
        let first = async { greet(io, &mut bytes).await };
        let version = timeout(limit, first).await.map_err(|_elapsed| Ended::Silent)??;
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
    ) -> Result<Infallible, Ended> {
        let limits = self.front.shared.settings.limits.clone();
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

    /// The same for clients before 0.7, whose frames end where their messages do.
    async fn read_frames_v0(
        &mut self,
        io: &mut (impl AsyncRead + Unpin),
        mut bytes: BytesMut,
    ) -> Result<Infallible, Ended> {
        let limits = self.front.shared.settings.limits.clone();
        let is_whole = |bytes: &[u8]| Ok(v0::split(bytes, &limits)?.is_some());
        loop {
            let Some((frame, length)) = v0::split(&bytes, &limits)? else {
                self.read_frame(io, &mut bytes, is_whole).await?;
                continue;
            };
            bytes.advance(length);
            let Received { header, message, encoding } = frame.try_into()?;
            self.take_message(header, message, encoding).await;
        }
    }

    /// Reads until the next frame is whole, or the stream is lost.
    async fn read_frame(
        &mut self,
        io: &mut (impl AsyncRead + Unpin),
        bytes: &mut BytesMut,
        is_whole: impl Fn(&[u8]) -> Result<bool, WireError>,
    ) -> Result<(), Ended> {
        self.hand_over().await;
        let more = async {
            while !is_whole(bytes)? {
                read_more(io, bytes).await?;
            }
            Ok(())
        };
        let more = timeout(self.front.shared.settings.silence_limit, more);
        tokio::pin!(more);
        loop {
            let next_overdue = self.pending.next_overdue();
            tokio::select! {
                biased;
                () = reach(next_overdue) => self.end_overdue(),
                read = &mut more => return read.map_err(|_elapsed| Ended::Silent)?,
            }
        }
    }

    /// One frame. A body that cannot be read is refused alone, if its client can be told.
    async fn take(&mut self, frame: &Frame<'_>) -> Result<(), Ended> {
        let (dialect, known) = {
            let client = lock(&self.client);
            (client.dialect, client.encoding)
        };
        let received = match decode(frame, &dialect, &self.front.shared.settings.limits) {
            Ok(received) => received,
            Err(error) => return self.refuse(frame, &dialect, error),
        };
        let Received { header, message, encoding } = received;
        let is_heartbeat = matches!(header.kind, MessageKind::Ping | MessageKind::Pong);
        if encoding != known && !is_heartbeat {
            self.update(|client| client.encoding = encoding);
        }
        self.take_message(header, message, encoding).await;
        Ok(())
    }

    async fn take_message(&mut self, header: Header, message: Message, encoding: Encoding) {
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
        } else {
            self.work_on(id, message, encoding).await;
        }
    }

    /// A client whose body cannot be read is told why, and then let go: what it meant by its next
    /// frames is not known either. An answer is not answered: its id is one of the coordinator's,
    /// under which the client may wait for something else.
    fn refuse(&self, frame: &Frame<'_>, dialect: &Dialect, error: WireError) -> Result<(), Ended> {
        if frame.header.kind == MessageKind::Answer {
            return Err(error.into());
        }
        let mut answer = Vec::new();
        let reason = format!("{}: {error}", error.code());
        if refuse(frame, SERVER_VERSION, &reason, dialect, &mut answer).is_ok() {
            self.outbox.put(answer);
        }
        Err(error.into())
    }

    fn register_tm(&mut self, it: &Register, one_way: bool) -> Registered {
        self.update(|client| client.introduce(it, one_way));
        self.sit_down();
        Registered::accepted(SERVER_VERSION)
    }

    fn register_rm(&mut self, it: &RegisterResources) -> Registered {
        let max = self.front.shared.settings.resources_max;
        let registered = self.update(|client| {
            client.introduce(&it.client, false);
            client.add_resources(it, max)
        });
        let Some(resources) = registered else {
            let reason = format!("HF-SEATA-TOO-LARGE: more than {max} resources");
            return Registered::refused(SERVER_VERSION, &reason);
        };
        self.sit_down();
        if let Some((seat, _)) = &self.seat {
            seat.register(resources);
        }
        Registered::accepted(SERVER_VERSION)
    }

    /// From the first registration on, operators see the client and calls reach it.
    fn sit_down(&mut self) {
        if self.seat.is_none() {
            let process = lock(&self.client).process();
            let sink: Arc<dyn CallSink> = Arc::new(Sink {
                front: self.front.clone(),
                outbox: self.outbox.clone(),
                client: Arc::clone(&self.client),
            });
            let seat = self.front.shared.dispatcher.connect(process, sink);
            let listed = Listed::add(&self.front, &self.client, &self.outbox);
            self.seat = Some((seat, listed));
            let asker = lock(&self.client).asker();
            self.present = Some(self.front.shared.presence.enter(asker.client));
            self.pending.belongs_to(asker);
        }
    }

    /// Clients from 2.3 on get an answer to each part; the others one, with the answers in order. A
    /// status among them is only understood there.
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
        let has_room = self.has_room();
        let patience = if has_room { Patience::Configured } else { Patience::None };
        let (to, desk, outbox) =
            (self.addressee(id, encoding), self.desk(patience), self.outbox.clone());
        let work = async move {
            let answers = join_all(parts.into_iter().map(|part| desk.answer(part))).await;
            for (id, answer) in in_one_or_apart(id, &ids, answers) {
                outbox.answer(Addressee { id, ..to }, &answer);
            }
        };
        if has_room {
            self.requests.spawn(Box::pin(work));
        } else {
            // Those under way may wait for what has come with it.
            self.hand_over().await;
            work.await;
        }
    }

    async fn work_on(&mut self, id: i32, request: Message, encoding: Encoding) {
        let to = self.addressee(id, encoding);
        if !self.has_room() {
            // Those under way may wait for what has come with it.
            self.hand_over().await;
            if let Some(answer) = self.desk(Patience::None).answer(request).await {
                self.outbox.answer(to, &answer);
            }
            return;
        }
        let settings = &self.front.shared.settings;
        let terms = Patience::Configured.terms(settings);
        let client = self.client();
        let step = step_of(request, &client, terms);
        match step {
            Step::Ask(what, question) => {
                let until = Instant::now().checked_add(settings.phase_two_wait);
                self.pending.ask(what, to, question, until);
            }
            Step::Say(answer) => self.outbox.answer(to, &answer),
            Step::Course(request) => {
                self.spawn(to, async move |desk: Desk| desk.answer_in_steps(request).await)
            }
        }
    }

    /// What has come together goes to the engine together.
    async fn hand_over(&mut self) {
        for Ending { to, xid, decision } in self.pending.hand_over() {
            self.spawn(to, async move |desk: Desk| {
                desk.end_within(xid, decision, &to.dialect).await
            });
        }
        self.end_overdue();
        if !self.answers.is_empty() {
            let by = Arc::clone(&lock(&self.client).id);
            self.front.answered(std::mem::take(&mut self.answers), &by).await;
        }
    }

    /// Of a decision whose phase two takes too long it is said how it stands.
    fn end_overdue(&mut self) {
        for Ending { to, xid, decision } in self.pending.overdue(Instant::now()) {
            self.spawn(to, async move |desk: Desk| {
                let status = desk.end_at_once(xid, decision).await?;
                Some(ended(decision, status, &to.dialect))
            });
        }
    }

    fn has_room(&mut self) -> bool {
        while self.requests.try_join_next().is_some() {}
        let under_way = self.pending.len() + self.requests.len();
        under_way < self.front.shared.settings.requests_max.max(1)
    }

    fn desk(&self, patience: Patience) -> Desk {
        Desk { front: self.front.clone(), client: self.client(), patience }
    }

    /// As it is known now.
    fn client(&self) -> Arc<Client> {
        Arc::clone(&lock(&self.client))
    }

    /// Nobody else changes it, so that it is not locked for as long as this takes.
    fn update<T>(&self, change: impl FnOnce(&mut Client) -> T) -> T {
        let mut client = Client::clone(&self.client());
        let changed = change(&mut client);
        *lock(&self.client) = Arc::new(client);
        changed
    }

    /// Works on a request beside the others.
    fn spawn<Working>(&mut self, to: Addressee, work: impl FnOnce(Desk) -> Working)
    where
        Working: Future<Output = Option<Message>> + Send + 'static,
    {
        let working = work(self.desk(Patience::Configured));
        let outbox = self.outbox.clone();
        // Moved to its place once: what is spawned is moved several times.
        self.requests.spawn(Box::pin(async move {
            if let Some(answer) = working.await {
                outbox.answer(to, &answer);
            }
        }));
    }

    fn send(&self, answer: &Message, id: i32, encoding: Encoding) {
        self.outbox.answer(self.addressee(id, encoding), answer);
    }

    fn addressee(&self, id: i32, encoding: Encoding) -> Addressee {
        Addressee { id, encoding, dialect: lock(&self.client).dialect }
    }
}

/// The answers to the parts of a merged request, in one frame. One short, the client would take the
/// others for each other's: then each has a frame of its own, which clients of all versions read.
/// From very old ones there are no ids, and nothing can be said.
fn in_one_or_apart(id: i32, ids: &[i32], answers: Vec<Option<Message>>) -> Vec<(i32, Message)> {
    if answers.iter().all(Option::is_some) {
        let parts = answers.into_iter().flatten().collect();
        return vec![(id, Message::MergeResult(MergeResult { parts }))];
    }
    let apart = ids.iter().zip(answers);
    apart.filter_map(|(&id, answer)| answer.map(|answer| (id, answer))).collect()
}

/// Reads until the protocol is told, and gives back the version in which to speak.
async fn greet(
    io: &mut (impl AsyncRead + Unpin),
    bytes: &mut BytesMut,
) -> Result<FrameVersion, Ended> {
    loop {
        match first_bytes(bytes) {
            FirstBytes::Seata(version) => return Ok(FrameVersion::answering(version)),
            FirstBytes::SeataV0 => return Ok(FrameVersion::V0),
            FirstBytes::Undecided => read_more(io, bytes).await?,
            other @ (FirstBytes::Http1 | FirstBytes::Http2 | FirstBytes::Unknown) => {
                return Err(Ended::Protocol(other));
            }
        }
    }
}

async fn reach(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time.into()).await,
        None => future::pending().await,
    }
}

async fn read_more(io: &mut (impl AsyncRead + Unpin), bytes: &mut BytesMut) -> Result<(), Ended> {
    // Without room a read takes a few bytes.
    bytes.reserve(READ_BYTES);
    match io.read_buf(bytes).await? {
        0 => Err(Ended::ByClient),
        _ => Ok(()),
    }
}
