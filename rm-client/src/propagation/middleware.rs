//! The calling side for reqwest.

use async_trait::async_trait;
use reqwest::{Request, Response};
use reqwest_middleware::{Error, Middleware, Next, Result};

use super::header;
use crate::context;
use crate::trace;

/// A middleware that adds the XID to every request made within a global. Outside a global it
/// changes nothing.
///
/// ```no_run
/// use handfast::propagation::XidMiddleware;
///
/// let client = reqwest_middleware::ClientBuilder::new(reqwest::Client::new())
///     .with(XidMiddleware::new())
///     .build();
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct XidMiddleware;

impl XidMiddleware {
    /// Returns the middleware.
    #[must_use]
    pub fn new() -> Self {
        Self
    }
}

#[async_trait]
impl Middleware for XidMiddleware {
    async fn handle(
        &self,
        mut request: Request,
        extensions: &mut http::Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        if let Some(context) = context::current() {
            context::begun().await.map_err(Error::middleware)?;
            header::write(request.headers_mut(), &context.xid);
            trace::write_headers(request.headers_mut());
        }
        next.run(request, extensions).await
    }
}
