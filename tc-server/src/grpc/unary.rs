//! The gRPC service: the stream's opening, and one request per call.

use std::sync::Arc;

use handfast_core::{Asker, Command, Reply};
use handfast_proto::v1 as wire;
use handfast_proto::v1::coordinator_server::Coordinator;
use handfast_proto::v1::server_message::Body;
use tonic::{Request, Response, Status, Streaming};

use super::GrpcFrontend;
use super::bounds::BadRequest;
use super::connection::{self, Frames};
use super::refusal::{status_of_core, status_of_request};
use super::to_wire;
use super::traced;
use crate::presence::client_of;
use crate::spans::RequestSpan;

impl GrpcFrontend {
    /// Asks the engine; a refusal becomes a status. A cancelled call drops this future, which gives
    /// up the request's place in the lock queues. The connection has its share of the limits. The
    /// end of a client is not visible, since its next call may come over another connection.
    async fn ask(&self, peer: &str, command: Result<Command, BadRequest>) -> Result<Body, Status> {
        self.ask_within(None, peer, command).await
    }

    /// As [`GrpcFrontend::ask`], for a request that may have a span.
    async fn ask_within(
        &self,
        span: Option<RequestSpan>,
        peer: &str,
        command: Result<Command, BadRequest>,
    ) -> Result<Body, Status> {
        let mut what = command.map_err(|error| status_of_request(&error))?;
        if let Some(span) = &span {
            what = span.traced(what);
        }
        let asker = Asker { client: client_of("unary", peer), ..Asker::default() };
        let answered = self.shared.engine.call_of(asker, what).await;
        if let Some(span) = span {
            span.end_with(&answered);
        }
        match answered {
            Err(error) => Err(self.status_of_engine(error)),
            Ok(Reply::Rejected(rejection)) => Err(status_of_core(&rejection)),
            Ok(reply) => Ok(to_wire::body(Ok(reply))),
        }
    }
}

/// Each request has one kind of reply; another would be a fault of the core.
macro_rules! expect_reply {
    ($body:expr, $variant:path) => {
        match $body {
            $variant(reply) => Ok(Response::new(reply)),
            other => unreachable!("the core answers a request with its own reply, not {other:?}"),
        }
    };
}

#[tonic::async_trait]
impl Coordinator for GrpcFrontend {
    type ConnectStream = Frames<wire::ServerFrame>;
    type SubscribeStream = Frames<wire::PhaseTwoFrame>;

    async fn connect(
        &self,
        request: Request<Streaming<wire::ClientFrame>>,
    ) -> Result<Response<Self::ConnectStream>, Status> {
        let peer = peer(&request);
        let (reader, frames) = self.serve_connection(request.into_inner(), peer)?;
        tokio::spawn(reader);
        Ok(Response::new(frames))
    }

    async fn begin(
        &self,
        request: Request<wire::BeginRequest>,
    ) -> Result<Response<wire::BeginReply>, Status> {
        let (peer, request) = (peer(&request), traced::message!(request));
        let span = traced::of_begin(&self.shared.spans, &request);
        let command = self.shared.decoder.begin(request);
        expect_reply!(self.ask_within(span, &peer, command).await?, Body::Begin)
    }

    async fn register_branch(
        &self,
        request: Request<wire::RegisterBranchRequest>,
    ) -> Result<Response<wire::RegisterBranchReply>, Status> {
        let (peer, request) = (peer(&request), traced::message!(request));
        let span = traced::of_registration(&self.shared.spans, &request);
        let command = self.shared.decoder.register_branch(request);
        expect_reply!(self.ask_within(span, &peer, command).await?, Body::RegisterBranch)
    }

    async fn try_branch(
        &self,
        request: Request<wire::TryBranchRequest>,
    ) -> Result<Response<wire::TryBranchReply>, Status> {
        let request = traced::message!(request);
        let span = traced::of_try(&self.shared.spans, &request);
        let tried = Self::try_branch(self, request, span).await;
        tried.map(Response::new).map_err(|refusal| refusal.into_status(self.leader()))
    }

    async fn report_branch(
        &self,
        request: Request<wire::ReportBranchRequest>,
    ) -> Result<Response<wire::ReportBranchReply>, Status> {
        let peer = peer(&request);
        let command = self.shared.decoder.report_branch(request.into_inner());
        expect_reply!(self.ask(&peer, command).await?, Body::ReportBranch)
    }

    async fn check_locks(
        &self,
        request: Request<wire::CheckLocksRequest>,
    ) -> Result<Response<wire::CheckLocksReply>, Status> {
        let peer = peer(&request);
        let command = self.shared.decoder.check_locks(request.into_inner());
        expect_reply!(self.ask(&peer, command).await?, Body::CheckLocks)
    }

    async fn report_database_wait(
        &self,
        request: Request<wire::ReportDatabaseWaitRequest>,
    ) -> Result<Response<wire::ReportBranchReply>, Status> {
        let peer = peer(&request);
        let command = self.shared.decoder.report_database_wait(request.into_inner());
        expect_reply!(self.ask(&peer, command).await?, Body::ReportBranch)
    }

    async fn end(
        &self,
        request: Request<wire::EndRequest>,
    ) -> Result<Response<wire::EndReply>, Status> {
        let (peer, request) = (peer(&request), traced::message!(request));
        let span = traced::of_end(&self.shared.spans, &request);
        let command = self.shared.decoder.end(request);
        expect_reply!(self.ask_within(span, &peer, command).await?, Body::End)
    }

    async fn get_status(
        &self,
        request: Request<wire::GetStatusRequest>,
    ) -> Result<Response<wire::GetStatusReply>, Status> {
        let peer = peer(&request);
        let command = self.shared.decoder.get_status(request.get_ref());
        expect_reply!(self.ask(&peer, command).await?, Body::GetStatus)
    }

    async fn subscribe(
        &self,
        request: Request<wire::Hello>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        let peer = peer(&request);
        connection::subscribe(self, request.into_inner(), peer).map(Response::new)
    }

    async fn finish_phase_two(
        &self,
        request: Request<wire::FinishPhaseTwoRequest>,
    ) -> Result<Response<wire::FinishPhaseTwoReply>, Status> {
        let wire::FinishPhaseTwoRequest { outcome, client_id } = request.into_inner();
        let decoder = &self.shared.decoder;
        let answers = decoder
            .client_id(&client_id)
            .and_then(|()| decoder.answers(outcome.unwrap_or_default()))
            .map_err(|error| status_of_request(&error))?;
        self.record(|| self.shared.dispatcher.outcomes(&client_id, answers)).await;
        Ok(Response::new(wire::FinishPhaseTwoReply {}))
    }
}

fn peer<T>(request: &Request<T>) -> Arc<str> {
    request.remote_addr().map_or_else(|| "".into(), |address| address.to_string().into())
}
