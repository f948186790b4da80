//! The called side: a request that carries an XID is served within that global.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context as Poller, Poll};

use http::{HeaderValue, Request, Response, StatusCode};
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::header;
use crate::context::{self, Context, Scoped};
use crate::error::Error;

/// Serves requests that carry an XID within that global. For axum, tonic, and any server made of
/// `tower` services over `http` requests. Requests without one are served as they are.
///
/// A request whose XID is malformed is refused before the service sees it, with status 400 (gRPC:
/// `INVALID_ARGUMENT`) and the code in the header `handfast-code`: served outside the transaction
/// that it belongs to, it could not be rolled back.
///
/// ```no_run
/// use axum::Router;
/// use axum::routing::post;
/// use handfast::propagation::XidLayer;
///
/// # async fn debit() {}
/// let app: Router = Router::new().route("/debit", post(debit)).layer(XidLayer::new());
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct XidLayer;

/// What [`XidLayer`] makes of a service.
#[derive(Clone, Copy, Debug)]
pub struct XidService<S> {
    inner: S,
}

impl XidLayer {
    /// The layer.
    #[must_use]
    pub fn new() -> Self {
        Self
    }
}

impl<S> Layer<S> for XidLayer {
    type Service = XidService<S>;

    fn layer(&self, inner: S) -> XidService<S> {
        XidService { inner }
    }
}

impl<S, B, R> Service<Request<B>> for XidService<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Default,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Served<S::Future, R>;

    fn poll_ready(&mut self, poller: &mut Poller<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(poller)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let serving = match header::read(request.headers()) {
            Ok(None) => Serving::Plain { future: self.inner.call(request) },
            Ok(Some(xid)) => {
                let context = Some(Context::new(xid));
                // A service may look for the XID before it returns its future.
                let call = || self.inner.call(request);
                let future = context::sync_scope(context.clone(), call);
                Serving::Within { future: context::scope(context, future) }
            }
            Err(error) => Serving::Refused { response: Some(refusal(&request, &error)) },
        };
        Served { serving }
    }
}

pin_project! {
    /// The answer to a request, to be.
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct Served<F, R> {
        #[pin]
        serving: Serving<F, R>,
    }
}

pin_project! {
    #[project = ServingProjection]
    #[derive(Debug)]
    enum Serving<F, R> {
        Plain { #[pin] future: F },
        Within { #[pin] future: Scoped<F> },
        Refused { response: Option<Response<R>> },
    }
}

impl<F, R, E> Future for Served<F, R>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Result<Response<R>, E>;

    fn poll(self: Pin<&mut Self>, poller: &mut Poller<'_>) -> Poll<Self::Output> {
        match self.project().serving.project() {
            ServingProjection::Plain { future } => future.poll(poller),
            ServingProjection::Within { future } => future.poll(poller),
            ServingProjection::Refused { response } => {
                Poll::Ready(Ok(response.take().expect("a future is not polled after its end")))
            }
        }
    }
}

/// The answer to a request whose XID cannot be read.
fn refusal<B, R: Default>(request: &Request<B>, error: &Error) -> Response<R> {
    let mut response = Response::new(R::default());
    let content_type = request.headers().get(http::header::CONTENT_TYPE);
    let grpc = content_type.filter(|value| value.as_bytes().starts_with(b"application/grpc"));
    let message = match grpc {
        None => {
            *response.status_mut() = StatusCode::BAD_REQUEST;
            "handfast-message"
        }
        Some(content_type) => {
            let invalid_argument = HeaderValue::from_static("3");
            response.headers_mut().insert(http::header::CONTENT_TYPE, content_type.clone());
            response.headers_mut().insert("grpc-status", invalid_argument);
            "grpc-message"
        }
    };
    // What the header held is not repeated: it may be anything.
    let text = HeaderValue::from_static("malformed xid in the TX_XID header");
    response.headers_mut().insert(message, text);
    if let Ok(code) = HeaderValue::from_str(error.code()) {
        response.headers_mut().insert("handfast-code", code);
    }
    response
}
