//! The answer of the called side to a request that it refuses.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use prost::bytes::Bytes;

/// The reason why a request is refused. The answer does not repeat the header's value, which may be
/// anything.
#[derive(Clone, Copy, Debug)]
pub(super) enum Refused {
    /// The XID is malformed. Served outside the transaction that it belongs to, the request could
    /// not be rolled back.
    Malformed,
    /// The service accepts no work outside a global, and there is no XID.
    Missing,
}

impl Refused {
    fn code(self) -> &'static str {
        match self {
            Self::Malformed => "HF-TM-XID",
            Self::Missing => "HF-TM-XID-REQUIRED",
        }
    }

    fn message(self) -> &'static str {
        match self {
            Self::Malformed => "malformed xid in the TX_XID header",
            Self::Missing => {
                "no xid in the TX_XID header: this service is called within global transactions only"
            }
        }
    }

    pub(super) fn to_http<R>(self) -> Response<XidBody<R>> {
        let (code, message) = (self.code(), self.message());
        let body = serde_json::json!({ "code": code, "message": message }).to_string();
        let mut response = Response::new(XidBody::refused(body));
        *response.status_mut() = StatusCode::BAD_REQUEST;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert("handfast-code", HeaderValue::from_static(code));
        headers.insert("handfast-message", HeaderValue::from_static(message));
        response
    }

    /// Answers in headers alone, as gRPC does.
    pub(super) fn to_grpc<R>(self, content_type: HeaderValue) -> Response<XidBody<R>> {
        let mut response = Response::new(XidBody::refused(String::new()));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, content_type);
        let invalid_argument = HeaderValue::from_static("3");
        headers.insert("grpc-status", invalid_argument);
        headers.insert("grpc-message", HeaderValue::from_static(self.message()));
        headers.insert("handfast-code", HeaderValue::from_static(self.code()));
        response
    }
}

pin_project! {
    /// The body of a response: the service's own, or the reason why the request was refused.
    #[derive(Debug)]
    pub struct XidBody<R> {
        #[pin]
        kind: Kind<R>,
    }
}

pin_project! {
    #[project = KindProjection]
    #[derive(Debug)]
    enum Kind<R> {
        Served { #[pin] body: R },
        Refused { text: Option<Bytes> },
    }
}

impl<R> XidBody<R> {
    pub(super) fn served(body: R) -> Self {
        Self { kind: Kind::Served { body } }
    }

    fn refused(text: String) -> Self {
        let text = Some(Bytes::from(text)).filter(|text| !text.is_empty());
        Self { kind: Kind::Refused { text } }
    }
}

impl<R: Body<Data = Bytes>> Body for XidBody<R> {
    type Data = Bytes;
    type Error = R::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, R::Error>>> {
        match self.project().kind.project() {
            KindProjection::Served { body } => body.poll_frame(context),
            KindProjection::Refused { text } => Poll::Ready(text.take().map(Frame::data).map(Ok)),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Served { body } => body.is_end_stream(),
            Kind::Refused { text } => text.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Served { body } => body.size_hint(),
            Kind::Refused { text } => {
                let bytes = text.as_ref().map_or(0, Bytes::len);
                SizeHint::with_exact(u64::try_from(bytes).unwrap_or(u64::MAX))
            }
        }
    }
}
