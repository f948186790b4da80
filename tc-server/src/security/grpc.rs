//! The token check of each gRPC call, as a `tower` layer.
//!
//! A call may wait for an hour, for rows that others hold. It is checked again while it waits, when
//! a token is shut out; to drop it is as if its client had cancelled it. Streams are ended by the
//! front end: their calls are over when they are open.
//!
//! The health service stays open: orchestrators probe it without a token and it tells nothing else.

use std::fmt::Display;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{HeaderMap, Request, Response};
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
    S::Future: Send + 'static,
    Out: Default,
{
    type Response = Response<Out>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<In>) -> Self::Future {
        if request.uri().path().starts_with(HEALTH_SERVICE) {
            return Box::pin(self.inner.call(request));
        }
        if let Err(error) = self.access.check(request.headers(), Permission::UseGrpc) {
            let connection = request.extensions().get::<TcpConnectInfo>();
            let peer = connection.and_then(TcpConnectInfo::remote_addr);
            let peer = peer.as_ref().map(|peer| peer as &dyn Display);
            note(PortName::Grpc, Why::Token, peer, &error);
            return Box::pin(async move { Ok(refusal(&error).into_http()) });
        }
        let (access, credentials) = (self.access.clone(), credentials(request.headers()));
        let answer = self.inner.call(request);
        Box::pin(async move {
            tokio::select! {
                biased;
                answer = answer => answer,
                error = access.shuts_out(credentials, Permission::UseGrpc) => {
                    Ok(refusal(&error).into_http())
                }
            }
        })
    }
}

/// What a call is checked by.
fn credentials(headers: &HeaderMap) -> HeaderMap {
    let shown = headers.get(AUTHORIZATION);
    shown.map(|shown| (AUTHORIZATION, shown.clone())).into_iter().collect()
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
