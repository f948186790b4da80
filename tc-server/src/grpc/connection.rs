//! One stream of one client process, from its hello to its end.

use std::sync::Arc;

use futures::stream::{self, BoxStream, Stream, StreamExt, TryStreamExt};
use handfast_core::{Asker, Command, Correlation};
use handfast_proto::v1 as wire;
use handfast_proto::v1::client_message::Body;
use handfast_proto::v1::server_message;
use tonic::{Code, Status};

use super::GrpcFrontend;
use super::bounds::{BadRequest, at_most};
use super::refusal::{self, status_of_request};
use super::send_queue::SendQueue;
use super::traced;
use crate::dispatch::{CallReply, CallSink, ProcessRegistration};
use crate::engine::{EngineError, ReplySink};
use crate::presence::{Present, client_of};
use crate::spans::RequestSpan;
use crate::turned_away::{PortName, Why, count, note};

/// How long a client that has said hello is kept waiting until a leader is known. It asks the other
/// nodes meanwhile. Too short: it is sent away during a change of leader, and comes back after a
/// pause. Too long: it gives up by itself, without learning why.
const LEADER_WAIT_MS: u64 = 3_000;

/// The response stream of `Connect`.
pub(super) type Frames<F> = BoxStream<'static, Result<F, Status>>;

/// The reading side. The writing side is the send queue's stream of frames.
#[derive(Debug)]
struct Connection {
    front: GrpcFrontend,
    queue: Arc<SendQueue>,
    sink: Arc<dyn ReplySink>,
    peer: Arc<str>,
    greeted: Option<Greeted>,
    present: Option<Present>,
}

/// A client whose hello has been read.
#[derive(Debug)]
struct Greeted {
    client_id: Arc<str>,
    application: Arc<str>,
    seat: ProcessRegistration,
}

/// The requests and answers of one frame, to be handed over together.
#[derive(Debug, Default)]
struct Gathered {
    requests: Vec<(Correlation, Command)>,
    answers: Vec<CallReply>,
}

/// A client's frames, whatever carries them.
pub(super) trait Inbound:
    Stream<Item = Result<wire::ClientFrame, Status>> + Send + Unpin
{
}

impl<S: Stream<Item = Result<wire::ClientFrame, Status>> + Send + Unpin> Inbound for S {}

/// Returns the reader of a stream, to be run, and what is to be written to it.
pub(super) fn connect<I: Inbound>(
    front: GrpcFrontend,
    inbound: I,
    peer: Arc<str>,
) -> Result<(impl Future<Output = ()> + Send + use<I>, Frames<wire::ServerFrame>), Status> {
    let queue = front.open_queue().map_err(|error| front.status_of_engine(error))?;
    let sink: Arc<dyn ReplySink> = Arc::<SendQueue>::clone(&queue);
    let (greeted, present) = (None, None);
    let connection = Connection { front, queue: Arc::clone(&queue), sink, peer, greeted, present };
    let (failed, failure) = tokio::sync::oneshot::channel();
    let reader = async move {
        let peer = Arc::clone(&connection.peer);
        if let Err(status) = connection.read(inbound).await {
            note_ending(&status, &peer);
            // The writer may have gone with the client.
            drop(failed.send(status));
        }
    };
    let failure = stream::once(failure).filter_map(async |failed| failed.ok().map(Err));
    let frames = stream::unfold(Writer { queue }, async |writer| {
        writer.queue.next_frame().await.map(|frame| (frame, writer))
    });
    // The error is sent after everything that was queued before it.
    Ok((reader, frames.chain(failure).boxed()))
}

/// Opens a stream of phase-two calls for a client that makes unary calls otherwise.
pub(super) fn subscribe(
    front: &GrpcFrontend,
    hello: wire::Hello,
    peer: Arc<str>,
) -> Result<Frames<wire::PhaseTwoFrame>, Status> {
    let decoder = &front.shared.decoder;
    let process = decoder.process(&hello, peer).map_err(|error| status_of_request(&error))?;
    let resources =
        decoder.resources(hello.resources).map_err(|error| status_of_request(&error))?;
    // A node that does not lead would never call the subscriber, which could not notice it.
    let queue = front.open_queue().map_err(|error| front.status_of_engine(error))?;
    // Checked after the queue is open: a loss of the lead from here on ends it.
    let elsewhere = |_| front.status_of_engine(EngineError::NotLeading);
    front.epoch().map_err(elsewhere)?;
    let sink: Arc<dyn CallSink> = Arc::<SendQueue>::clone(&queue);
    let seat = front.shared.dispatcher.connect(process, sink);
    seat.register(resources);
    let subscriber = (Writer { queue }, seat);
    let frames = stream::unfold(subscriber, async |subscriber| {
        subscriber.0.queue.next_calls().await.map(|frame| (frame, subscriber))
    });
    Ok(frames.boxed())
}

/// The response stream. Its end, by either side, ends the connection.
#[derive(Debug)]
struct Writer {
    queue: Arc<SendQueue>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue.leave();
    }
}

impl Connection {
    /// Reads until either side ends. An error is sent to the client at the end of its stream.
    async fn read(mut self, mut inbound: impl Inbound) -> Result<(), Status> {
        let read = self.read_frames(&mut inbound).await;
        // From here on no phase-two call goes to this process, which could not answer it on this
        // stream.
        self.greeted = None;
        // A client that has only closed its side still gets its replies. After an error the stream
        // ends with what is queued, and the error behind it.
        if read.is_ok() {
            self.queue.drain();
        } else {
            self.queue.finish();
        }
        self.queue.ended_or_answered().await;
        self.front.shared.engine.forget(self.queue.abandon());
        // Last: the engine must see this after everything that came over the connection.
        self.present = None;
        read
    }

    async fn read_frames(&mut self, inbound: &mut impl Inbound) -> Result<(), Status> {
        let queue = Arc::clone(&self.queue);
        loop {
            let frame = tokio::select! {
                biased;
                () = queue.ended() => return Ok(()),
                frame = inbound.try_next() => frame?,
            };
            let Some(frame) = frame else { return Ok(()) };
            self.take(frame).await?;
        }
    }

    async fn take(&mut self, frame: wire::ClientFrame) -> Result<(), Status> {
        let max = self.front.shared.decoder.bounds.frame_messages_max;
        at_most("messages", frame.messages.len(), max)
            .map_err(|error| status_of_request(&error))?;
        let mut gathered = Gathered::default();
        for message in frame.messages {
            let id = message.id;
            match (message.body, &self.greeted) {
                (Some(Body::Hello(hello)), None) => self.handshake(id, hello).await?,
                (_, None) => return Err(status_of_request(&BadRequest::Hello)),
                (body, Some(greeted)) => self.gather(greeted, id, body, &mut gathered),
            }
        }
        self.hand_over(gathered).await;
        Ok(())
    }

    /// Greets the client, or sends it to the leader. Without a valid hello there is no connection.
    async fn handshake(&mut self, id: u64, hello: wire::Hello) -> Result<(), Status> {
        self.await_leader().await;
        let decoder = &self.front.shared.decoder;
        let bad = |error: BadRequest| status_of_request(&error);
        // The queue is among those of the front end since the stream was opened. If the lead is
        // lost after this look, `keep_watch` ends the stream.
        let epoch = match self.front.epoch() {
            Ok(epoch) => epoch,
            Err(leader) => {
                self.queue.leave_to_the_leader(&leader);
                return Ok(());
            }
        };
        let process = decoder.process(&hello, Arc::clone(&self.peer)).map_err(bad)?;
        let client = client_of("native", &process.client_id);
        let asker = Asker { client, application: Arc::clone(&process.application) };
        let resources = decoder.resources(hello.resources).map_err(bad)?;
        let server_version = env!("CARGO_PKG_VERSION").to_owned();
        let reply = wire::HelloReply { server_version, epoch };
        // Queued before the process is registered: registering puts its owed calls into this queue,
        // and a client expects the greeting first.
        self.queue.say(id, server_message::Body::Hello(reply));
        let sink: Arc<dyn CallSink> = Arc::<SendQueue>::clone(&self.queue);
        let (client_id, application) =
            (Arc::clone(&process.client_id), Arc::clone(&process.application));
        let seat = self.front.shared.dispatcher.connect(process, sink);
        seat.register(resources);
        self.greeted = Some(Greeted { client_id, application, seat });
        self.queue.belongs_to(asker);
        self.present = Some(self.front.shared.presence.enter(client));
        Ok(())
    }

    /// Waits for a while until this node leads or knows which one does. The caller checks which
    /// afterwards, when a loss of the lead ends the connection again.
    async fn await_leader(&self) {
        let shared = &self.front.shared;
        // Created before the check, so that a leader that is found meanwhile wakes it.
        let leader_known = shared.leader_known.notified();
        if shared.leadership.borrow().is_settled() {
            return;
        }
        self.queue.set_awaits_leader(true);
        let clock = shared.dispatcher.clock();
        let limit = clock.reach(clock.now().after_ms(LEADER_WAIT_MS));
        // How the wait ends does not matter: the caller acts on what the node knows then.
        tokio::select! {
            biased;
            () = self.queue.ended() => {}
            () = leader_known => {}
            () = limit => {}
        }
        self.queue.set_awaits_leader(false);
    }

    /// Handles one message of a greeted client. A bad message is refused alone.
    fn gather(&self, from: &Greeted, id: u64, body: Option<Body>, gathered: &mut Gathered) {
        let decoder = &self.front.shared.decoder;
        let spans = &self.front.shared.spans;
        let span = body.as_ref().and_then(|body| traced::of_message(spans, body));
        let command = match body {
            Some(Body::Begin(request)) => decoder.begin_of_stream(request),
            Some(Body::RegisterBranch(request)) => {
                decoder.register_branch_of(Some(Arc::clone(&from.client_id)), request)
            }
            Some(Body::ReportBranch(request)) => decoder.report_branch(request),
            Some(Body::CheckLocks(request)) => decoder.check_locks(request),
            Some(Body::ReportDatabaseWait(request)) => decoder.report_database_wait(request),
            Some(Body::End(request)) => decoder.end(request),
            Some(Body::GetStatus(request)) => decoder.get_status(&request),
            Some(Body::StartSaga(request)) => decoder.start_saga(request),
            Some(Body::GetSaga(request)) => decoder.get_saga(&request),
            Some(Body::SignalSaga(request)) => decoder.signal_saga(request),
            Some(Body::CancelSaga(request)) => decoder.cancel_saga(&request),
            Some(Body::AcquireLock(request)) => decoder.acquire_lock(request),
            Some(Body::RenewLocks(request)) => decoder.renew_locks(request),
            Some(Body::ReleaseLock(request)) => decoder.release_lock(request),
            Some(Body::FindLock(request)) => decoder.find_lock(request),
            Some(Body::RegisterResources(request)) => return self.register(id, request),
            Some(Body::TryBranch(request)) => return self.try_branch(id, request, span),
            Some(Body::ReportOutbox(request)) => return self.report_outbox(from, id, request),
            Some(Body::Finished(outcome)) => match decoder.answers(outcome) {
                Ok(answers) => return gathered.answers.extend(answers),
                Err(error) => Err(error),
            },
            Some(Body::Hello(_)) => Err(BadRequest::Hello),
            None => Err(BadRequest::Missing { field: "body" }),
        };
        match command {
            Ok(mut what) => {
                let correlation = self.front.shared.engine.next_correlation();
                // Expected before it is submitted: the engine may answer at once.
                self.queue.expect(correlation, id);
                if let Some(span) = span {
                    what = span.traced(what);
                    self.queue.trace(correlation, span);
                }
                gathered.requests.push((correlation, what));
            }
            Err(error) => self.refuse(id, &error),
        }
    }

    fn register(&self, id: u64, request: wire::RegisterResources) {
        match self.add_resources(request.resources) {
            Ok(()) => {
                let reply = wire::RegisterResourcesReply {};
                self.queue.say(id, server_message::Body::RegisterResources(reply));
            }
            Err(error) => self.refuse(id, &error),
        }
    }

    /// Adds all of the resources, or none. Together with its earlier ones, a connection may have no
    /// more than one message may name.
    fn add_resources(&self, resources: Vec<wire::Resource>) -> Result<(), BadRequest> {
        let decoder = &self.front.shared.decoder;
        let resources = decoder.resources(resources)?;
        let seat = self.greeted.as_ref().map(|it| &it.seat).ok_or(BadRequest::Hello)?;
        at_most("resources", seat.count_with(&resources), decoder.bounds.resources_max)?;
        seat.register(resources);
        Ok(())
    }

    /// Has a try called in a task of its own, since a participant may take long to answer.
    fn try_branch(&self, id: u64, request: wire::TryBranchRequest, span: Option<RequestSpan>) {
        let (front, promised) = (self.front.clone(), self.queue.promise(id));
        tokio::spawn(async move {
            let body = match front.try_branch(request, span).await {
                Ok(reply) => server_message::Body::TryBranch(reply),
                Err(refusal) => server_message::Body::Rejected(refusal.into_message()),
            };
            promised.say(body);
        });
    }

    /// Takes the report of a relay. Its answer is kept back in a task of its own, of which each
    /// relay has one: a further report ends the wait of the one before.
    fn report_outbox(&self, from: &Greeted, id: u64, request: wire::ReportOutboxRequest) {
        let decoder = &self.front.shared.decoder;
        let report = match decoder.outbox_report(&from.application, &self.peer, request) {
            Ok(report) => report,
            Err(error) => return self.refuse(id, &error),
        };
        let reports = self.front.shared.relay_reports.clone();
        let promised = self.queue.promise(id);
        tokio::spawn(async move { promised.say(report.answer(&reports).await) });
    }

    fn refuse(&self, id: u64, error: &BadRequest) {
        count(PortName::Grpc, Why::Malformed);
        let rejection = refusal::of_request(error);
        self.queue.say(id, server_message::Body::Rejected(rejection));
    }

    async fn hand_over(&self, gathered: Gathered) {
        let Gathered { requests, answers } = gathered;
        if !requests.is_empty() {
            self.front.shared.engine.submit(&self.sink, requests);
        }
        if let (false, Some(greeted)) = (answers.is_empty(), &self.greeted) {
            self.front.record(|| greeted.seat.outcomes(answers)).await;
        }
    }
}

impl GrpcFrontend {
    /// Waits for room in the engine's queue, and then records the answers that count, as `count`
    /// returns them. If the engine ends, they are lost with it, and the next leader owes the calls
    /// again (EFFECTS-REPEAT).
    pub(super) async fn record(&self, count: impl FnOnce() -> Vec<CallReply>) {
        let permit = self.shared.engine.reserve().await;
        // Counted and sent without a wait in between: the dispatcher no longer owes a counted call,
        // so an answer that was dropped here would be missing until the next leader.
        let whats = count().into_iter().map(CallReply::into_command).collect();
        if let Err(error) = permit.notify(whats) {
            tracing::debug!(%error, "phase-two answers not recorded");
        }
    }
}

/// Counts a stream that ended with an error: its client sent something unreadable, unless it has
/// gone.
fn note_ending(status: &Status, peer: &str) {
    if !matches!(status.code(), Code::Cancelled | Code::Unknown | Code::Unavailable) {
        note(PortName::Grpc, Why::Malformed, Some(&peer), &status.message());
    }
}
