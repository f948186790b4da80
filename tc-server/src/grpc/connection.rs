//! One stream of one client process, from its hello to its end.

use std::sync::Arc;

use futures::stream::{self, BoxStream, Stream, StreamExt, TryStreamExt};
use handfast_core::{Asker, Correlation, What};
use handfast_proto::v1 as wire;
use handfast_proto::v1::client_message::Body;
use handfast_proto::v1::server_message;
use tonic::{Code, Status};

use super::Front;
use super::bounds::{BadRequest, at_most};
use super::outbox::Outbox;
use super::refusal::{self, status_of_engine, status_of_request};
use super::to_wire::Asked;
use crate::dispatch::{Answer, CallSink, ProcessRegistration};
use crate::engine::Mailbox;
use crate::presence::{Present, client_of};
use crate::turned_away::{PortName, Why, count, note};

/// What the response stream of `Connect` is made of.
pub(super) type Frames<F> = BoxStream<'static, Result<F, Status>>;

/// The reading side. The writing side is the outbox's stream of frames.
#[derive(Debug)]
struct Connection {
    front: Front,
    outbox: Arc<Outbox>,
    mailbox: Arc<dyn Mailbox>,
    peer: Arc<str>,
    greeted: Option<Greeted>,
    present: Option<Present>,
}

/// A client that has said its hello.
#[derive(Debug)]
struct Greeted {
    client_id: Arc<str>,
    seat: ProcessRegistration,
}

/// What one frame asks, to be handed over together.
#[derive(Debug, Default)]
struct Gathered {
    requests: Vec<(Correlation, What)>,
    answers: Vec<Answer>,
}

/// What a client sends on its stream, whatever carries it.
pub(super) trait Inbound:
    Stream<Item = Result<wire::ClientFrame, Status>> + Send + Unpin
{
}

impl<S: Stream<Item = Result<wire::ClientFrame, Status>> + Send + Unpin> Inbound for S {}

/// Gives back who reads a stream, to be run, and what is to be written to it.
pub(super) fn connect<I: Inbound>(
    front: Front,
    inbound: I,
    peer: Arc<str>,
) -> Result<(impl Future<Output = ()> + Send + use<I>, Frames<wire::ServerFrame>), Status> {
    let outbox = front.open_outbox().map_err(status_of_engine)?;
    let mailbox: Arc<dyn Mailbox> = Arc::<Outbox>::clone(&outbox);
    let (greeted, present) = (None, None);
    let connection =
        Connection { front, outbox: Arc::clone(&outbox), mailbox, peer, greeted, present };
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
    let frames = stream::unfold(Writer { outbox }, async |writer| {
        writer.outbox.next_frame().await.map(|frame| (frame, writer))
    });
    Ok((reader, frames.chain(failure).boxed()))
}

/// Opens a stream of phase-two calls for a client that makes unary calls otherwise.
pub(super) fn subscribe(
    front: &Front,
    hello: wire::Hello,
    peer: Arc<str>,
) -> Result<Frames<wire::PhaseTwoFrame>, Status> {
    let bounds = &front.shared.bounds;
    let process = bounds.process(&hello, peer).map_err(|error| status_of_request(&error))?;
    let resources = bounds.resources(hello.resources).map_err(|error| status_of_request(&error))?;
    let outbox = front.open_outbox().map_err(status_of_engine)?;
    let sink: Arc<dyn CallSink> = Arc::<Outbox>::clone(&outbox);
    let seat = front.shared.dispatcher.connect(process, sink);
    seat.register(resources);
    let subscriber = (Writer { outbox }, seat);
    let frames = stream::unfold(subscriber, async |subscriber| {
        subscriber.0.outbox.next_calls().await.map(|frame| (frame, subscriber))
    });
    Ok(frames.boxed())
}

/// The end of the response stream, whoever ends it, ends the connection.
#[derive(Debug)]
struct Writer {
    outbox: Arc<Outbox>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.outbox.leave();
    }
}

impl Connection {
    /// Reads until either side ends. An error is what the client is told at the end of its stream.
    async fn read(mut self, mut inbound: impl Inbound) -> Result<(), Status> {
        let read = self.read_frames(&mut inbound).await;
        // No phase-two call goes to a process that cannot answer it on this stream any more.
        self.greeted = None;
        if read.is_ok() {
            self.outbox.drain();
        } else {
            self.outbox.finish();
        }
        self.outbox.ended_or_answered().await;
        self.front.shared.engine.forget(self.outbox.abandon());
        // Last: the engine hears of it after all that came over this connection.
        self.present = None;
        read
    }

    async fn read_frames(&mut self, inbound: &mut impl Inbound) -> Result<(), Status> {
        let outbox = Arc::clone(&self.outbox);
        loop {
            let frame = tokio::select! {
                biased;
                () = outbox.ended() => return Ok(()),
                frame = inbound.try_next() => frame?,
            };
            let Some(frame) = frame else { return Ok(()) };
            self.take(frame).await?;
        }
    }

    async fn take(&mut self, frame: wire::ClientFrame) -> Result<(), Status> {
        let max = self.front.shared.bounds.frame_messages_max;
        at_most("messages", frame.messages.len(), max)
            .map_err(|error| status_of_request(&error))?;
        let mut gathered = Gathered::default();
        for message in frame.messages {
            let id = message.id;
            match (message.body, &self.greeted) {
                (Some(Body::Hello(hello)), None) => self.greet(id, hello)?,
                (_, None) => return Err(status_of_request(&BadRequest::Hello)),
                (body, Some(greeted)) => self.gather(greeted, id, body, &mut gathered),
            }
        }
        self.hand_over(gathered).await;
        Ok(())
    }

    /// Without a good hello there is no connection.
    fn greet(&mut self, id: u64, hello: wire::Hello) -> Result<(), Status> {
        let bounds = &self.front.shared.bounds;
        let bad = |error: BadRequest| status_of_request(&error);
        let epoch = self.front.epoch().map_err(status_of_engine)?;
        let process = bounds.process(&hello, Arc::clone(&self.peer)).map_err(bad)?;
        let client = client_of("native", &process.client_id);
        let asker = Asker { client, application: Arc::clone(&process.application) };
        let resources = bounds.resources(hello.resources).map_err(bad)?;
        let server_version = env!("CARGO_PKG_VERSION").to_owned();
        let reply = wire::HelloReply { server_version, epoch };
        self.outbox.say(id, server_message::Body::Hello(reply));
        let sink: Arc<dyn CallSink> = Arc::<Outbox>::clone(&self.outbox);
        let client_id = Arc::clone(&process.client_id);
        let seat = self.front.shared.dispatcher.connect(process, sink);
        seat.register(resources);
        self.greeted = Some(Greeted { client_id, seat });
        self.outbox.belongs_to(asker);
        self.present = Some(self.front.shared.presence.enter(client));
        Ok(())
    }

    /// One message of a greeted client. A bad one is refused alone.
    fn gather(&self, from: &Greeted, id: u64, body: Option<Body>, gathered: &mut Gathered) {
        let bounds = &self.front.shared.bounds;
        let what = match body {
            Some(Body::Begin(request)) => bounds.begin(request),
            Some(Body::RegisterBranch(request)) => {
                bounds.register_branch_of(Some(Arc::clone(&from.client_id)), request)
            }
            Some(Body::ReportBranch(request)) => bounds.report_branch(request),
            Some(Body::CheckLocks(request)) => bounds.check_locks(request),
            Some(Body::End(request)) => bounds.end(request),
            Some(Body::GetStatus(request)) => bounds.get_status(&request),
            Some(Body::StartSaga(request)) => bounds.start_saga(request),
            Some(Body::GetSaga(request)) => bounds.get_saga(&request),
            Some(Body::SignalSaga(request)) => bounds.signal_saga(request),
            Some(Body::CancelSaga(request)) => bounds.cancel_saga(&request),
            Some(Body::AcquireLock(request)) => bounds.acquire_lock(request),
            Some(Body::RenewLocks(request)) => bounds.renew_locks(request),
            Some(Body::ReleaseLock(request)) => bounds.release_lock(request),
            Some(Body::FindLock(request)) => bounds.find_lock(request),
            Some(Body::RegisterResources(request)) => return self.register(id, request),
            Some(Body::TryBranch(request)) => return self.try_branch(id, request),
            Some(Body::Finished(outcome)) => match bounds.answers(outcome) {
                Ok(answers) => return gathered.answers.extend(answers),
                Err(error) => Err(error),
            },
            Some(Body::Hello(_)) => Err(BadRequest::Hello),
            None => Err(BadRequest::Missing { field: "body" }),
        };
        match what {
            Ok(what) => {
                let correlation = self.front.shared.engine.next_correlation();
                self.outbox.expect(correlation, id, asked(&what));
                gathered.requests.push((correlation, what));
            }
            Err(error) => self.refuse(id, &error),
        }
    }

    fn register(&self, id: u64, request: wire::RegisterResources) {
        match self.add_resources(request.resources) {
            Ok(()) => {
                let reply = wire::RegisterResourcesReply {};
                self.outbox.say(id, server_message::Body::RegisterResources(reply));
            }
            Err(error) => self.refuse(id, &error),
        }
    }

    /// All of them, or none: with those it has already, a connection has no more than one message
    /// may name.
    fn add_resources(&self, resources: Vec<wire::Resource>) -> Result<(), BadRequest> {
        let bounds = &self.front.shared.bounds;
        let resources = bounds.resources(resources)?;
        let seat = self.greeted.as_ref().map(|it| &it.seat).ok_or(BadRequest::Hello)?;
        at_most("resources", seat.count_with(&resources), bounds.resources_max)?;
        seat.register(resources);
        Ok(())
    }

    /// A participant takes its time: its answer is said when it comes.
    fn try_branch(&self, id: u64, request: wire::TryBranchRequest) {
        let (front, outbox) = (self.front.clone(), Arc::clone(&self.outbox));
        tokio::spawn(async move {
            let body = match front.try_branch(request).await {
                Ok(reply) => server_message::Body::TryBranch(reply),
                Err(refusal) => server_message::Body::Rejected(refusal.into_message()),
            };
            outbox.say(id, body);
        });
    }

    fn refuse(&self, id: u64, error: &BadRequest) {
        count(PortName::Grpc, Why::Malformed);
        let rejection = refusal::of_request(error);
        self.outbox.say(id, server_message::Body::Rejected(rejection));
    }

    async fn hand_over(&self, gathered: Gathered) {
        let Gathered { requests, answers } = gathered;
        if !requests.is_empty() {
            self.front.shared.engine.submit(&self.mailbox, requests);
        }
        if let (false, Some(greeted)) = (answers.is_empty(), &self.greeted) {
            self.front.tell(|| greeted.seat.outcomes(answers)).await;
        }
    }
}

impl Front {
    /// Tells the core which answers count, as the dispatcher says. When the engine ends, they are
    /// lost with it, and the calls are owed again by the next leader (EFFECTS-REPEAT).
    pub(super) async fn tell(&self, count: impl FnOnce() -> Vec<Answer>) {
        let whats = || count().into_iter().map(Answer::into_what).collect();
        if let Err(error) = self.shared.engine.tell_counted(whats).await {
            tracing::debug!(%error, "phase-two answers not recorded");
        }
    }
}

/// A stream that ends with an error has carried what cannot be read, unless its client has gone.
fn note_ending(status: &Status, peer: &str) {
    if !matches!(status.code(), Code::Cancelled | Code::Unknown | Code::Unavailable) {
        note(PortName::Grpc, Why::Malformed, Some(&peer), &status.message());
    }
}

fn asked(what: &What) -> Asked {
    if matches!(what, What::End { .. }) {
        Asked::End
    } else if matches!(what, What::FindLock { .. }) {
        Asked::Find
    } else {
        Asked::Other
    }
}
