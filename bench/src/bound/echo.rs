//! The echo server: one runtime of one thread, as the coordinator has.

use std::process::ExitCode;

use anyhow::{Context, Result};
use futures::stream::{self, BoxStream, StreamExt};
use handfast_proto::v1::coordinator_server::{Coordinator, CoordinatorServer};
use handfast_proto::v1::server_message::Body as Answer;
use handfast_proto::v1::{self as wire, ServerFrame, ServerMessage};
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

use super::EchoOptions;
use super::answer::{Echo, Echoes, together};
use super::log::{Answers, Log};

/// Serves until the process is killed.
pub(crate) fn serve(options: &EchoOptions) -> Result<ExitCode> {
    let log = options.log.as_deref().map(Log::open).transpose()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let service = CoordinatorServer::new(EchoService { log }).max_decoding_message_size(64 << 20);
    let serving = Server::builder().tcp_nodelay(true).add_service(service).serve(options.listen);
    runtime.block_on(serving).context("serving the echo")?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Clone, Debug)]
struct EchoService {
    log: Option<Log>,
}

/// One connection.
struct Talk {
    log: Option<Log>,
    echoes: Echoes,
    outgoing: mpsc::UnboundedSender<ServerFrame>,
    bytes: Vec<u8>,
}

impl Talk {
    async fn read(mut self, mut incoming: Streaming<wire::ClientFrame>) {
        // A broken stream is the client's end.
        while let Ok(Some(frame)) = incoming.message().await {
            self.answer(frame);
        }
    }

    /// All answers that need no disk leave as one frame, the others as one with the next sync.
    fn answer(&mut self, frame: wire::ClientFrame) {
        let (mut at_once, mut durable, mut calls) = (Vec::new(), Vec::new(), Vec::new());
        self.bytes.clear();
        for message in frame.messages {
            let bytes_before = self.bytes.len();
            if self.log.is_some() {
                append(&message, &mut self.bytes);
            }
            let Some(ask) = message.body else { continue };
            match self.echoes.echo(message.id, ask, &mut calls) {
                Echo::AtOnce(answer) => {
                    self.bytes.truncate(bytes_before);
                    at_once.push(answer);
                }
                Echo::Durable(answer) => durable.push(answer),
                Echo::Silent => {}
            }
        }
        durable.extend(
            together(calls)
                .into_iter()
                .map(|call| ServerMessage { id: 0, body: Some(Answer::PhaseTwo(call)) }),
        );
        self.let_out(at_once, durable);
    }

    fn let_out(&mut self, mut at_once: Vec<ServerMessage>, durable: Vec<ServerMessage>) {
        match &self.log {
            None => at_once.extend(durable),
            Some(log) if !self.bytes.is_empty() => {
                log.append(&self.bytes, Answers { messages: durable, to: self.outgoing.clone() });
            }
            Some(_) => {}
        }
        if !at_once.is_empty() {
            // The client may have gone.
            let _ = self.outgoing.send(ServerFrame { messages: at_once });
        }
    }
}

fn append(message: &wire::ClientMessage, bytes: &mut Vec<u8>) {
    bytes.reserve(message.encoded_len());
    message.encode_raw(bytes);
}

type Frames<F> = BoxStream<'static, Result<F, Status>>;

#[tonic::async_trait]
impl Coordinator for EchoService {
    type ConnectStream = Frames<ServerFrame>;
    type SubscribeStream = Frames<wire::PhaseTwoFrame>;

    async fn connect(
        &self,
        request: Request<Streaming<wire::ClientFrame>>,
    ) -> Result<Response<Self::ConnectStream>, Status> {
        let (outgoing, frames) = mpsc::unbounded_channel();
        let echoes = Echoes::default();
        let talk = Talk { log: self.log.clone(), echoes, outgoing, bytes: Vec::new() };
        tokio::spawn(talk.read(request.into_inner()));
        Ok(Response::new(UnboundedReceiverStream::new(frames).map(Ok).boxed()))
    }

    async fn begin(
        &self,
        _request: Request<wire::BeginRequest>,
    ) -> Result<Response<wire::BeginReply>, Status> {
        Err(no_state())
    }

    async fn register_branch(
        &self,
        request: Request<wire::RegisterBranchRequest>,
    ) -> Result<Response<wire::RegisterBranchReply>, Status> {
        let fencing_token = request.into_inner().branch_id;
        Ok(Response::new(wire::RegisterBranchReply { fencing_token }))
    }

    async fn try_branch(
        &self,
        _request: Request<wire::TryBranchRequest>,
    ) -> Result<Response<wire::TryBranchReply>, Status> {
        Err(no_state())
    }

    async fn report_branch(
        &self,
        _request: Request<wire::ReportBranchRequest>,
    ) -> Result<Response<wire::ReportBranchReply>, Status> {
        Err(no_state())
    }

    async fn check_locks(
        &self,
        _request: Request<wire::CheckLocksRequest>,
    ) -> Result<Response<wire::CheckLocksReply>, Status> {
        Err(no_state())
    }

    async fn end(
        &self,
        _request: Request<wire::EndRequest>,
    ) -> Result<Response<wire::EndReply>, Status> {
        Err(no_state())
    }

    async fn get_status(
        &self,
        _request: Request<wire::GetStatusRequest>,
    ) -> Result<Response<wire::GetStatusReply>, Status> {
        Err(no_state())
    }

    async fn subscribe(
        &self,
        _request: Request<wire::Hello>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        Ok(Response::new(stream::pending().boxed()))
    }

    async fn finish_phase_two(
        &self,
        _request: Request<wire::FinishPhaseTwoRequest>,
    ) -> Result<Response<wire::FinishPhaseTwoReply>, Status> {
        Err(no_state())
    }
}

fn no_state() -> Status {
    Status::unimplemented("by unary calls only a registration is echoed")
}
