//! The called side: a request that carries an XID is served within that global.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context as Poller, Poll};

use http::{HeaderValue, Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use prost::bytes::Bytes;
use tower_layer::Layer;
use tower_service::Service;
use tracing::Instrument;
use tracing::instrument::Instrumented;

use super::header;
use super::refused::{Refused, XidBody};
use crate::context::{self, Context, Scoped};
use crate::trace;

/// A layer that serves requests that carry an XID within that global. It suits axum, tonic, and any
/// server made of `tower` services over `http` requests.
///
/// Requests without an XID are served unchanged. Their work is then plain local work: it is
/// committed at once, and no caller can roll it back. If that would be a mistake, as in a service
/// that is only ever called within globals, use the layer that is [`required`](Self::required): it
/// detects a caller without its middleware, and a proxy that drops the header.
///
/// A request whose XID is malformed, or required and missing, is refused before it reaches the
/// service: with status 400 and a JSON body of `code` and `message` (gRPC: `INVALID_ARGUMENT`), and
/// with the code in the header `handfast-code`.
///
/// ```no_run
/// use axum::Router;
/// use axum::routing::{get, post};
/// use handfast::propagation::XidLayer;
///
/// # async fn debit() {}
/// # async fn balance() {}
/// let app: Router = Router::new()
///     .route("/debit", post(debit))
///     .layer(XidLayer::required())
///     .route("/balance", get(balance));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct XidLayer {
    is_required: bool,
}

/// A service wrapped by [`XidLayer`].
#[derive(Clone, Copy, Debug)]
pub struct XidService<S> {
    inner: S,
    is_required: bool,
}

impl XidLayer {
    /// Returns a layer that serves requests without an XID outside any global.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a layer that refuses requests without an XID.
    #[must_use]
    pub fn required() -> Self {
        Self { is_required: true }
    }
}

impl<S> Layer<S> for XidLayer {
    type Service = XidService<S>;

    fn layer(&self, inner: S) -> XidService<S> {
        XidService { inner, is_required: self.is_required }
    }
}

impl<S, B, R> Service<Request<B>> for XidService<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Body<Data = Bytes>,
{
    type Response = Response<XidBody<R>>;
    type Error = S::Error;
    type Future = Served<S::Future, R>;

    fn poll_ready(&mut self, poller: &mut Poller<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(poller)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let serving = match header::read(request.headers()) {
            Ok(None) if self.is_required => refuse(&request, Refused::Missing),
            Ok(None) => {
                tracing::debug!("request without an XID is served outside any global");
                Serving::Plain { future: self.inner.call(request) }
            }
            Ok(Some(xid)) => {
                let span = trace::serve(&xid, &request);
                let context = Some(Context::new(xid));
                // A service may read the XID before it returns its future.
                let call = || span.in_scope(|| self.inner.call(request));
                let future = context::sync_scope(context.clone(), call);
                Serving::Within { future: context::scope(context, future).instrument(span) }
            }
            Err(_) => refuse(&request, Refused::Malformed),
        };
        Served { serving }
    }
}

fn refuse<B, F, R>(request: &Request<B>, refused: Refused) -> Serving<F, R> {
    let content_type = request.headers().get(http::header::CONTENT_TYPE);
    let is_grpc = |value: &&HeaderValue| value.as_bytes().starts_with(b"application/grpc");
    let response = match content_type.filter(is_grpc) {
        Some(content_type) => refused.to_grpc(content_type.clone()),
        None => refused.to_http(),
    };
    Serving::Refused { response: Some(response) }
}

pin_project! {
    /// The future response to a request.
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
        Within { #[pin] future: Instrumented<Scoped<F>> },
        Refused { response: Option<Response<XidBody<R>>> },
    }
}

impl<F, R, E> Future for Served<F, R>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Result<Response<XidBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, poller: &mut Poller<'_>) -> Poll<Self::Output> {
        let served = match self.project().serving.project() {
            ServingProjection::Plain { future } => future.poll(poller),
            ServingProjection::Within { future } => future.poll(poller),
            ServingProjection::Refused { response } => {
                let response = response.take().expect("a future is not polled after its end");
                return Poll::Ready(Ok(response));
            }
        };
        served.map_ok(|response| response.map(XidBody::served))
    }
}
