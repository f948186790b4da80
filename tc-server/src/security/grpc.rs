//! The token check of each gRPC call, as a `tower` layer.
//!
//! The health service stays open: orchestrators probe it without a token and it tells nothing else.

use std::fmt::Display;
use std::task::{Context, Poll};

use futures::future::{Either, Ready, ready};
use http::{Request, Response};
use tonic::metadata::MetadataValue;
use tonic::transport::server::TcpConnectInfo;
use tonic::{Code, Status};
use tower::{Layer, Service};

use super::{Access, AccessError, Permission};
use crate::turned_away::{PortName, Why, note};

const HEALTH_SERVICE: &str = "/grpc.health.v1.Health/";

/// Lets calls of clients through and answers the others.
#[derive(Clone, Debug)]
pub struct GrpcAccessLayer {
    access: Access,
}

/// A service behind the check.
#[derive(Clone, Debug)]
pub struct GrpcAccess<S> {
    access: Access,
    inner: S,
}

impl GrpcAccessLayer {
    /// A check of every call.
    #[must_use]
    pub fn new(access: Access) -> Self {
        Self { access }
    }
}

impl<S> Layer<S> for GrpcAccessLayer {
    type Service = GrpcAccess<S>;

    fn layer(&self, inner: S) -> Self::Service {
        GrpcAccess { access: self.access.clone(), inner }
    }
}

impl<S, In, Out> Service<Request<In>> for GrpcAccess<S>
where
    S: Service<Request<In>, Response = Response<Out>>,
    Out: Default,
{
    type Response = Response<Out>;
    type Error = S::Error;
    type Future = Either<S::Future, Ready<Result<Self::Response, Self::Error>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<In>) -> Self::Future {
        if request.uri().path().starts_with(HEALTH_SERVICE) {
            return Either::Left(self.inner.call(request));
        }
        match self.access.check(request.headers(), Permission::UseGrpc) {
            Ok(_caller) => Either::Left(self.inner.call(request)),
            Err(error) => {
                let connection = request.extensions().get::<TcpConnectInfo>();
                let peer = connection.and_then(TcpConnectInfo::remote_addr);
                let peer = peer.as_ref().map(|peer| peer as &dyn Display);
                note(PortName::Grpc, Why::Token, peer, &error);
                Either::Right(ready(Ok(refusal(&error).into_http())))
            }
        }
    }
}

fn refusal(error: &AccessError) -> Status {
    let code = match error {
        AccessError::Unauthenticated => Code::Unauthenticated,
        AccessError::Forbidden { .. } => Code::PermissionDenied,
    };
    let mut status = Status::new(code, error.to_string());
    status.metadata_mut().insert("handfast-code", MetadataValue::from_static(error.code()));
    status
}
