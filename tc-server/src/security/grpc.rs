//! The token check of each gRPC call, as a `tower` layer.
//!
//! A call may wait for an hour, for rows that other globals hold. While it waits, it is checked
//! again when a token is shut out. Dropping the call has the effect of a cancellation by its
//! client. Streams are ended by the front end, since their calls are over once they are open.
//!
//! The health service needs no token: orchestrators probe it without one, and it reveals nothing
//! else.

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

/// Passes permitted calls on and refuses the others.
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
    /// Creates the layer.
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
                // Looked at first: a stream that is ready at once would be opened with a token that
                // was shut out since the check, after the streams with such tokens were ended.
                error = access.until_revoked(credentials, Permission::UseGrpc) => {
                    Ok(refusal(&error).into_http())
                }
                answer = answer => answer,
            }
        })
    }
}

/// Returns the headers that the check of a call needs.
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::fs;
    use std::sync::Arc;

    use futures::FutureExt as _;

    use super::super::{NewToken, Role, Tokens};
    use super::*;

    /// Regression: a stream that was ready at once was opened with a token that had been shut out
    /// since the check, and stayed open.
    #[test]
    fn a_token_that_is_shut_out_behind_the_check_opens_no_stream() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let drawn = NewToken::draw("orders", Role::Client).unwrap();
        fs::write(&file, &drawn.line).unwrap();
        let tokens = Arc::new(Tokens::read(file.path()).unwrap());
        let layer = GrpcAccessLayer::new(Access::Tokens(Arc::clone(&tokens)));
        let opened = |_: Request<()>| std::future::ready(Ok::<_, Infallible>(Response::new(())));
        let mut service = layer.layer(tower::service_fn(opened));
        let mut call = || {
            let request = Request::builder().uri("/handfast.v1.Coordinator/Connect");
            let request = request.header(AUTHORIZATION, format!("Bearer {}", drawn.token));
            service.call(request.body(()).unwrap())
        };
        let is_refused = |answer: Response<()>| answer.headers().contains_key("handfast-code");
        assert!(!is_refused(call().now_or_never().unwrap().unwrap()));
        let call = call();
        fs::write(&file, "").unwrap();
        tokens.reload().unwrap();
        assert!(is_refused(call.now_or_never().unwrap().unwrap()));
    }
}
