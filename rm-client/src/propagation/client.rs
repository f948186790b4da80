//! The calling side: requests made within a global carry its XID.

use std::task::{Context as Poller, Poll};

use http::Request;
use tower_layer::Layer;
use tower_service::Service;

use super::header;
use crate::context;
use crate::trace;

/// A layer that adds the XID to every request made within a global. It suits clients made of
/// `tower` services over `http` requests, tonic's channel among them. Outside a global it changes
/// nothing.
///
/// The XID is that of the task that makes the call, so the layer belongs outside any buffer.
///
/// ```no_run
/// use handfast::propagation::CarryXidLayer;
/// use tower::ServiceBuilder;
///
/// # fn example(channel: tonic::transport::Channel) {
/// let channel = ServiceBuilder::new().layer(CarryXidLayer::new()).service(channel);
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct CarryXidLayer;

/// A service wrapped by [`CarryXidLayer`].
#[derive(Clone, Copy, Debug)]
pub struct CarryXid<S> {
    inner: S,
}

impl CarryXidLayer {
    /// Returns the layer.
    #[must_use]
    pub fn new() -> Self {
        Self
    }
}

impl<S> Layer<S> for CarryXidLayer {
    type Service = CarryXid<S>;

    fn layer(&self, inner: S) -> CarryXid<S> {
        CarryXid { inner }
    }
}

impl<S, B> Service<Request<B>> for CarryXid<S>
where
    S: Service<Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, poller: &mut Poller<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(poller)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        if let Some(context) = context::current() {
            header::write(request.headers_mut(), &context.xid);
            trace::write_headers(request.headers_mut());
        }
        self.inner.call(request)
    }
}

/// Adds the XID to a request, as [`CarryXidLayer`] does. For use as the interceptor of a tonic
/// client: `OrdersClient::with_interceptor(channel, handfast::propagation::with_xid)`.
///
/// # Errors
/// Never fails. The signature is that of an interceptor.
pub fn with_xid(mut request: tonic::Request<()>) -> Result<tonic::Request<()>, tonic::Status> {
    if let Some(context) = context::current() {
        let mut headers = std::mem::take(request.metadata_mut()).into_headers();
        header::write(&mut headers, &context.xid);
        trace::write_headers(&mut headers);
        *request.metadata_mut() = tonic::metadata::MetadataMap::from_headers(headers);
    }
    Ok(request)
}
