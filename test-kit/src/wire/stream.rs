//! One stream of one service.
//!
//! Two tasks carry it, one each way. A frame is taken apart, since a fault may be about one message
//! of it; the order of the others stays.

use std::sync::Arc;

use futures::StreamExt;
use handfast_proto::v1::client_message::Body as Asked;
use handfast_proto::v1::server_message::Body as Said;
use handfast_proto::v1::{
    ClientFrame, ClientMessage, PhaseTwoCall, PhaseTwoOutcome, ServerFrame, ServerMessage,
};
use tokio::sync::mpsc::{Sender, channel};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Status, Streaming};

use super::TestWire;
use crate::faults::Faults;
use crate::traffic::{CallName, Traffic};

/// Frames that wait, either way. More of them wait at their sender (BOUNDED).
const FRAMES_MAX: usize = 64;

type Down = Sender<Result<ServerFrame, Status>>;

/// The frames for a service.
pub(super) type Frames = ReceiverStream<Result<ServerFrame, Status>>;

/// The two directions' common part.
#[derive(Clone, Debug)]
struct Carrier {
    faults: Arc<Faults>,
    traffic: Arc<Traffic>,
    down: Down,
}

impl TestWire {
    /// Opens a stream to the coordinator and carries it.
    pub(super) async fn carry(&self, inbound: Streaming<ClientFrame>) -> Result<Frames, Status> {
        let mut client = self.client().await?;
        let (up, to_coordinator) = channel(FRAMES_MAX);
        let (down, to_service) = channel(FRAMES_MAX);
        let (faults, traffic) = (Arc::clone(&self.faults), Arc::clone(&self.traffic));
        let carrier = Carrier { faults, traffic, down };
        // Before the stream is open: the coordinator may wait for the first message.
        let upward = tokio::spawn(carrier.clone().carry_up(inbound, up));
        let opened = client.connect(Request::new(ReceiverStream::new(to_coordinator))).await;
        let outbound = opened.inspect_err(|_| upward.abort())?.into_inner();
        tokio::spawn(async move {
            carrier.carry_down(outbound).await;
            upward.abort();
        });
        Ok(ReceiverStream::new(to_service))
    }
}

impl Carrier {
    async fn carry_up(self, mut inbound: Streaming<ClientFrame>, up: Sender<ClientFrame>) {
        while let Some(Ok(frame)) = inbound.next().await {
            let mut messages = Vec::with_capacity(frame.messages.len());
            for message in frame.messages {
                messages.extend(self.up(message).await);
            }
            if !messages.is_empty() && up.send(ClientFrame { messages }).await.is_err() {
                return;
            }
        }
    }

    /// Returns what reaches the coordinator of a message.
    async fn up(&self, mut message: ClientMessage) -> Option<ClientMessage> {
        match &mut message.body {
            Some(Asked::RegisterBranch(request)) => {
                self.faults.at_registration(&mut request.branch_id);
            }
            Some(Asked::TryBranch(request)) => self.faults.at_registration(&mut request.branch_id),
            Some(Asked::Finished(outcome)) => {
                self.answer(outcome).await;
                if outcome.branches.is_empty() {
                    return None;
                }
            }
            Some(_) | None => {}
        }
        Some(message)
    }

    /// Takes the answers out that are lost, and makes their calls again.
    async fn answer(&self, outcome: &mut PhaseTwoOutcome) {
        let mut arrived = Vec::with_capacity(outcome.branches.len());
        for branch in std::mem::take(&mut outcome.branches) {
            let name = CallName::of_outcome(&branch);
            let call = self.traffic.open(&name);
            match call.filter(|call| self.faults.at_outcome(call, &branch)) {
                Some(call) => self.send(vec![said(call)]).await,
                None => {
                    self.traffic.answered(&name);
                    arrived.push(branch);
                }
            }
        }
        outcome.branches = arrived;
    }

    async fn carry_down(&self, mut outbound: Streaming<ServerFrame>) {
        loop {
            // A service that is gone takes nothing more, which ends the coordinator's stream too.
            let frame = tokio::select! {
                frame = outbound.next() => frame,
                () = self.down.closed() => return,
            };
            match frame {
                Some(Ok(frame)) => self.frame_down(frame).await,
                Some(Err(status)) => {
                    // The service may be gone.
                    let _ = self.down.send(Err(status)).await;
                    return;
                }
                None => return,
            }
        }
    }

    async fn frame_down(&self, frame: ServerFrame) {
        let mut messages = Vec::with_capacity(frame.messages.len());
        for message in frame.messages {
            match message.body {
                Some(Said::PhaseTwo(call)) => {
                    for call in one_by_one(call) {
                        messages.extend(self.call_down(call).await);
                    }
                }
                body => {
                    self.note(body.as_ref());
                    messages.push(ServerMessage { id: message.id, body });
                }
            }
        }
        if !messages.is_empty() {
            self.send(messages).await;
        }
    }

    /// Returns the call, unless it takes longer than the other messages of its frame.
    async fn call_down(&self, call: PhaseTwoCall) -> Option<ServerMessage> {
        let mut arriving = call.clone();
        let on_the_way = self.faults.at_call(&mut arriving);
        if on_the_way.is_zero() {
            return Some(self.arrive(&call, arriving).await);
        }
        let carrier = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(on_the_way).await;
            let message = carrier.arrive(&call, arriving).await;
            carrier.send(vec![message]).await;
        });
        None
    }

    /// Remembers a call as it was sent, and returns it as it arrives.
    async fn arrive(&self, call: &PhaseTwoCall, arriving: PhaseTwoCall) -> ServerMessage {
        self.traffic.called(call);
        self.faults.before(&arriving).await;
        said(arriving)
    }

    fn note(&self, body: Option<&Said>) {
        match body {
            Some(Said::Begin(reply)) => self.traffic.begun(&reply.xid),
            Some(Said::Saga(reply)) => self.traffic.begun(&reply.xid),
            Some(_) | None => {}
        }
    }

    async fn send(&self, messages: Vec<ServerMessage>) {
        // The service may be gone; the coordinator then calls it again.
        let _ = self.down.send(Ok(ServerFrame { messages })).await;
    }
}

fn said(call: PhaseTwoCall) -> ServerMessage {
    ServerMessage { id: 0, body: Some(Said::PhaseTwo(call)) }
}

/// A call for each branch: faults are about one.
fn one_by_one(call: PhaseTwoCall) -> impl Iterator<Item = PhaseTwoCall> {
    let PhaseTwoCall { resource_id, mode, decision, branches, question } = call;
    branches.into_iter().map(move |branch| PhaseTwoCall {
        resource_id: resource_id.clone(),
        mode,
        decision,
        branches: vec![branch],
        question,
    })
}
