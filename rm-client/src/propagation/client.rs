//! The calling side: requests made within a global carry its XID.

use std::sync::atomic::{AtomicBool, Ordering};
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
/// The XID is that of the task that makes the call, so the layer belongs outside any buffer. It is
/// not ready before the coordinator knows the global, so it is to be made ready within the global,
/// as generated clients do.
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
        // A refusal reaches the caller from the called service, to which the global is unknown.
        if let Some(answer) = context::begin_answer()
            && answer.poll(poller).is_pending()
        {
            return Poll::Pending;
        }
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

/// Whether the XID leaves this process by ways that cannot wait for the answer to a begin.
static CANNOT_WAIT: AtomicBool = AtomicBool::new(false);

/// Returns whether the answer to a begin is to be waited for by the begin itself.
pub(crate) fn begins_are_waited_for() -> bool {
    CANNOT_WAIT.load(Ordering::Relaxed)
}

/// Adds the XID to a request, as [`CarryXidLayer`] does. For use as the interceptor of a tonic
/// client: `OrdersClient::with_interceptor(channel, handfast::propagation::with_xid)`.
///
/// An interceptor cannot wait for the coordinator's answer to a begin, as the layer does. So the
/// begins of a process wait for it themselves once this has been called within a global of its own;
/// the first call may bring its callee an XID that the coordinator does not know yet.
///
/// # Errors
/// Never fails. The signature is that of an interceptor.
pub fn with_xid(mut request: tonic::Request<()>) -> Result<tonic::Request<()>, tonic::Status> {
    if let Some(context) = context::current() {
        let is_begun_here = context.rollback_only.is_some();
        CANNOT_WAIT.fetch_or(is_begun_here, Ordering::Relaxed);
        let mut headers = std::mem::take(request.metadata_mut()).into_headers();
        header::write(&mut headers, &context.xid);
        trace::write_headers(&mut headers);
        *request.metadata_mut() = tonic::metadata::MetadataMap::from_headers(headers);
    }
    Ok(request)
}
