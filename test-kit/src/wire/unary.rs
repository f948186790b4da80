//! The API that services call: streams are carried, unary calls are passed on.

use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use handfast_proto::v1::coordinator_server::Coordinator;
use handfast_proto::v1::{
    BeginReply, BeginRequest, CheckLocksReply, CheckLocksRequest, ClientFrame, EndReply,
    EndRequest, FinishPhaseTwoReply, FinishPhaseTwoRequest, GetStatusReply, GetStatusRequest,
    Hello, PhaseTwoFrame, RegisterBranchReply, RegisterBranchRequest, ReportBranchReply,
    ReportBranchRequest, ReportDatabaseWaitRequest, TryBranchReply, TryBranchRequest,
};
use tonic::{Request, Response, Status, Streaming};

use super::TestWire;
use super::stream::Frames;

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl Coordinator for TestWire {
    type ConnectStream = Frames;
    type SubscribeStream = BoxStream<'static, Result<PhaseTwoFrame, Status>>;

    async fn connect(&self, request: Request<Streaming<ClientFrame>>) -> Answer<Frames> {
        self.carry(request.into_inner()).await.map(Response::new)
    }

    async fn begin(&self, request: Request<BeginRequest>) -> Answer<BeginReply> {
        let reply = self.client().await?.begin(request).await?;
        self.traffic.begun(&reply.get_ref().xid);
        Ok(reply)
    }

    async fn register_branch(
        &self,
        mut request: Request<RegisterBranchRequest>,
    ) -> Answer<RegisterBranchReply> {
        self.faults.at_registration(&mut request.get_mut().branch_id);
        self.client().await?.register_branch(request).await
    }

    async fn try_branch(&self, mut request: Request<TryBranchRequest>) -> Answer<TryBranchReply> {
        self.faults.at_registration(&mut request.get_mut().branch_id);
        self.client().await?.try_branch(request).await
    }

    async fn report_branch(
        &self,
        request: Request<ReportBranchRequest>,
    ) -> Answer<ReportBranchReply> {
        self.client().await?.report_branch(request).await
    }

    async fn check_locks(&self, request: Request<CheckLocksRequest>) -> Answer<CheckLocksReply> {
        self.client().await?.check_locks(request).await
    }

    async fn report_database_wait(
        &self,
        request: Request<ReportDatabaseWaitRequest>,
    ) -> Answer<ReportBranchReply> {
        self.client().await?.report_database_wait(request).await
    }

    async fn end(&self, request: Request<EndRequest>) -> Answer<EndReply> {
        self.client().await?.end(request).await
    }

    async fn get_status(&self, request: Request<GetStatusRequest>) -> Answer<GetStatusReply> {
        self.client().await?.get_status(request).await
    }

    async fn subscribe(&self, request: Request<Hello>) -> Answer<Self::SubscribeStream> {
        let called = self.client().await?.subscribe(request).boxed().await?;
        Ok(called.map(StreamExt::boxed))
    }

    async fn finish_phase_two(
        &self,
        request: Request<FinishPhaseTwoRequest>,
    ) -> Answer<FinishPhaseTwoReply> {
        self.client().await?.finish_phase_two(request).await
    }
}
