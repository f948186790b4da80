//! The entry of the library: connecting to the coordinator.

use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use handfast_proto::v1::GetStatusRequest;
use handfast_rm_core::GlobalStatus;
use handfast_rm_core::link::Settings;

use crate::coordinator::Coordinator;
use crate::error::Error;
use crate::link::{Dialler, Link, TlsSettings};
use crate::tm::NewTransaction;
use crate::xid::Xid;

/// A connection to the transaction coordinator: the beginning of everything else.
///
/// Cheap to clone; all clones share one stream, which is kept up in the background: when it breaks,
/// it is made again, and requests that had no answer are sent again under the same ids. When the
/// last clone is dropped the stream is closed, unless a resource, an action or a participant was
/// registered: then phase two is served until [`close`](Self::close).
///
/// ```no_run
/// # async fn example() -> Result<(), handfast::Error> {
/// use handfast::Handfast;
///
/// let handfast = Handfast::connect("http://127.0.0.1:7091").application("order-service").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Handfast {
    inner: Arc<Inner>,
}

struct Inner {
    coordinator: Coordinator,
    application: String,
    rollback_wait: Duration,
}

impl Handfast {
    /// Describes a connection to the coordinator at an endpoint such as `http://127.0.0.1:7091`.
    /// Awaiting it connects.
    pub fn connect(endpoint: impl Into<String>) -> Connect {
        Connect {
            endpoints: vec![endpoint.into()],
            application: default_application(),
            token: None,
            tls: TlsSettings::default(),
            connect_timeout: Duration::from_secs(10),
            request_deadline: Duration::from_secs(30),
            rollback_wait: Duration::from_secs(30),
            back_off_base: Duration::from_millis(100),
            back_off_max: Duration::from_secs(5),
            requests_max: 16_384,
        }
    }

    /// Describes a global transaction. `name` is what operators see, such as `place-order`.
    pub fn transaction(&self, name: impl Into<String>) -> NewTransaction {
        NewTransaction::new(self.clone(), name.into())
    }

    /// Asks how a global stands, also one whose end is unknown to this process, or to which another
    /// process holds the handle.
    ///
    /// # Errors
    /// When the coordinator cannot be asked.
    pub async fn outcome(&self, xid: &Xid) -> Result<GlobalStatus, Error> {
        let request = GetStatusRequest { xid: xid.as_str().to_owned() };
        let reply = self.inner.coordinator.get_status(request).await?;
        Ok(GlobalStatus::from_wire(reply.status(), reply.rollback_reason()))
    }

    /// Waits until every request that is under way is answered or has run out of time, then closes
    /// the connection of all clones. Requests after that fail with [`Error::Closed`].
    ///
    /// Worth calling before the process ends: rollbacks of dropped transactions are sent in the
    /// background.
    pub async fn close(&self) {
        self.inner.coordinator.close().await;
    }

    pub(crate) fn coordinator(&self) -> &Coordinator {
        &self.inner.coordinator
    }

    pub(crate) fn application(&self) -> &str {
        &self.inner.application
    }

    /// How long to wait for the branches of a rollback to be undone.
    pub(crate) fn rollback_wait(&self) -> Duration {
        self.inner.rollback_wait
    }
}

impl fmt::Debug for Handfast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handfast")
            .field("application", &self.inner.application)
            .finish_non_exhaustive()
    }
}

/// A connection to be made; awaiting it makes it. See [`Handfast::connect`].
#[derive(Clone)]
#[must_use = "a connection is made when this is awaited"]
pub struct Connect {
    endpoints: Vec<String>,
    application: String,
    token: Option<String>,
    tls: TlsSettings,
    connect_timeout: Duration,
    request_deadline: Duration,
    rollback_wait: Duration,
    back_off_base: Duration,
    back_off_max: Duration,
    requests_max: usize,
}

impl Connect {
    /// Another place where the coordinator may be. One coordinator is active at a time; which of
    /// its places serves is found out: they are dialled one after another, each a moment after
    /// the one before if that is silent, at all the addresses that their names have, and the first
    /// that greets is used. A coordinator that owes answers and gives no sign of life is left
    /// within 3 s.
    pub fn endpoint(mut self, endpoint: impl Into<String>) -> Self {
        self.endpoints.push(endpoint.into());
        self
    }

    /// The name of this application, as operators know it. Default: the name of the executable.
    pub fn application(mut self, name: impl Into<String>) -> Self {
        self.application = name.into();
        self
    }

    /// The token that shows the coordinator who this is. Default: none, which only a coordinator on
    /// loopback accepts.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// The certificate authority that the coordinator's certificate is signed by, in PEM. Needed
    /// for `https` endpoints.
    pub fn tls_ca(mut self, pem: impl Into<String>) -> Self {
        self.tls.authority = Some(pem.into());
        self
    }

    /// The certificate that shows the coordinator who this is, with its chain if it has one, and
    /// its private key, both in PEM. Needed where the coordinator has a `tls.client_authority`,
    /// which must have signed it; otherwise it is not asked for.
    pub fn tls_identity(
        mut self,
        certificate_pem: impl Into<String>,
        key_pem: impl Into<String>,
    ) -> Self {
        self.tls.identity = Some((certificate_pem.into(), key_pem.into()));
        self
    }

    /// How long to try to connect, the first time as a whole and later per attempt. Too short: no
    /// connection over a slow network. Too long: a wrong address is told late. Default 10 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long a request may go unanswered, reconnecting included; waiting for locks or for a
    /// rollback to finish comes on top. Too short: outcomes are unknown that a moment later would
    /// be known. Too long: callers hang while the coordinator is away. Default 30 s.
    pub fn request_deadline(mut self, deadline: Duration) -> Self {
        self.request_deadline = deadline;
        self
    }

    /// How long a rollback waits for its branches to be undone before it is told to be still under
    /// way. Default 30 s.
    pub fn rollback_wait(mut self, wait: Duration) -> Self {
        self.rollback_wait = wait;
        self
    }

    /// The first and the longest pause between attempts to reconnect; the pause doubles when all
    /// endpoints have had their turn, and half of it is random. Too short: clients storm a
    /// coordinator that starts. Too long: they come late. Default 100 ms to 5 s.
    pub fn back_off(mut self, base: Duration, max: Duration) -> Self {
        (self.back_off_base, self.back_off_max) = (base, max);
        self
    }

    /// How many requests may be unanswered at a time; more fail with [`Error::QueueFull`]. Too few:
    /// bursts fail. Too many: an outage is paid for in memory. Default 16,384.
    pub fn requests_max(mut self, max: usize) -> Self {
        self.requests_max = max;
        self
    }

    async fn connect(self) -> Result<Handfast, Error> {
        let (token, timeout) = (self.token.as_deref(), self.connect_timeout);
        let dialler = Dialler::new(&self.endpoints, token, &self.tls, timeout)?;
        let settings = Settings {
            client_id: uuid::Uuid::new_v4().to_string(),
            application: self.application.clone(),
            endpoints: self.endpoints,
            connect_timeout: self.connect_timeout,
            back_off_base: self.back_off_base,
            back_off_max: self.back_off_max,
            requests_max: self.requests_max,
        };
        let link = Link::new(settings, dialler, self.request_deadline);
        link.greeted(self.connect_timeout).await?;
        let inner = Inner {
            coordinator: Coordinator::new(Arc::new(link)),
            application: self.application,
            rollback_wait: self.rollback_wait,
        };
        Ok(Handfast { inner: Arc::new(inner) })
    }
}

impl IntoFuture for Connect {
    type Output = Result<Handfast, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    /// Connects. Must be awaited within a tokio runtime, which then carries the connection.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.connect())
    }
}

impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the token and the key.
        f.debug_struct("Connect")
            .field("endpoints", &self.endpoints)
            .field("application", &self.application)
            .finish_non_exhaustive()
    }
}

fn default_application() -> String {
    let executable = std::env::current_exe().ok();
    let name = executable.as_deref().and_then(|path| path.file_stem());
    name.map_or_else(|| "unnamed".to_owned(), |name| name.to_string_lossy().into_owned())
}
