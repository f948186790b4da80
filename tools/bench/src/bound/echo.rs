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
use super::log::{Answers, AppendLog};
use crate::load::Wire;

/// Serves until the process is killed.
pub(crate) fn serve(options: &EchoOptions) -> Result<ExitCode> {
    let log = options.log.as_deref().map(AppendLog::open).transpose()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if options.wire == Wire::Seata {
        runtime.block_on(super::seata::serve(options.listen, log))?;
        return Ok(ExitCode::SUCCESS);
    }
    let service = CoordinatorServer::new(EchoService { log }).max_decoding_message_size(64 << 20);
    let serving = Server::builder().tcp_nodelay(true).add_service(service).serve(options.listen);
    runtime.block_on(serving).context("serving the echo")?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Clone, Debug)]
struct EchoService {
    log: Option<AppendLog>,
}

/// One connection, with the requests since the last flush.
#[derive(Debug)]
pub(super) struct EchoConnection {
    log: Option<AppendLog>,
    echoes: Echoes,
    outgoing: mpsc::UnboundedSender<ServerFrame>,
    /// The bytes to be logged.
    bytes: Vec<u8>,
    at_once: Vec<ServerMessage>,
    durable: Vec<ServerMessage>,
    calls: Vec<wire::PhaseTwoCall>,
}

impl EchoConnection {
    pub(super) fn new(
        log: Option<AppendLog>,
        outgoing: mpsc::UnboundedSender<ServerFrame>,
    ) -> Self {
        Self {
            log,
            echoes: Echoes::default(),
            outgoing,
            bytes: Vec::new(),
            at_once: Vec::new(),
            durable: Vec::new(),
            calls: Vec::new(),
        }
    }

    async fn read(mut self, mut incoming: Streaming<wire::ClientFrame>) {
        // An error of the stream ends the connection.
        while let Ok(Some(frame)) = incoming.message().await {
            frame.messages.into_iter().for_each(|message| self.receive(message, None));
            self.flush();
        }
    }

    /// Receives one request. Its frame is logged as it arrived, or encoded again if there are no
    /// `frame_bytes`.
    pub(super) fn receive(&mut self, message: wire::ClientMessage, frame_bytes: Option<&[u8]>) {
        let bytes_before = self.bytes.len();
        match frame_bytes {
            _ if self.log.is_none() => {}
            Some(frame_bytes) => self.bytes.extend_from_slice(frame_bytes),
            None => append(&message, &mut self.bytes),
        }
        let Some(ask) = message.body else { return };
        match self.echoes.echo(message.id, ask, &mut self.calls) {
            Echo::AtOnce(answer) => {
                self.bytes.truncate(bytes_before);
                self.at_once.push(answer);
            }
            Echo::Durable(answer) => self.durable.push(answer),
            Echo::Silent => {}
        }
    }

    /// Sends the replies that need no disk as one frame, and the others as one with the next sync.
    pub(super) fn flush(&mut self) {
        let mut at_once = std::mem::take(&mut self.at_once);
        let mut durable = std::mem::take(&mut self.durable);
        let calls = together(std::mem::take(&mut self.calls)).into_iter();
        durable
            .extend(calls.map(|call| ServerMessage { id: 0, body: Some(Answer::PhaseTwo(call)) }));
        match &self.log {
            None => at_once.extend(durable),
            Some(log) if !self.bytes.is_empty() => {
                log.append(&self.bytes, Answers { messages: durable, to: self.outgoing.clone() });
            }
            Some(_) => {}
        }
        self.bytes.clear();
        if !at_once.is_empty() {
            // The client may have disconnected.
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
        let connection = EchoConnection::new(self.log.clone(), outgoing);
        tokio::spawn(connection.read(request.into_inner()));
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
        Ok(Response::new(wire::RegisterBranchReply { fencing_token, decides: false }))
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

    async fn report_database_wait(
        &self,
        _request: Request<wire::ReportDatabaseWaitRequest>,
    ) -> Result<Response<wire::ReportBranchReply>, Status> {
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
