//! The entry point of the library: connecting to the coordinator.

use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use handfast_proto::v1::GetStatusRequest;
use handfast_rm_core::GlobalStatus;
use handfast_rm_core::link::Settings;

use crate::begin_keys::BeginKeys;
use crate::coordinator::Coordinator;
use crate::error::Error;
use crate::link::{Dialler, Link, TlsSettings};
use crate::tm::NewTransaction;
use crate::xid::Xid;

/// A connection to the transaction coordinator, through which everything else is made.
///
/// Cheap to clone. All clones share one stream, which a background task keeps up: if the stream
/// breaks, the task reconnects and sends unanswered requests again under the same ids. The stream
/// closes when the last clone is dropped, unless a resource, an action or a participant was
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
    begin_keys: BeginKeys,
}

impl Handfast {
    /// Describes a connection to the coordinator at an endpoint such as `http://127.0.0.1:7091`.
    /// Awaiting the description connects; [`Connect::lazy`] connects in the background.
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

    /// Describes a global transaction. Operators see it under `name`, such as `place-order`.
    pub fn transaction(&self, name: impl Into<String>) -> NewTransaction {
        NewTransaction::new(self.clone(), name.into())
    }

    /// Asks the coordinator for the status of a global. Works for a global whose end is unknown to
    /// this process, and for one whose handle another process holds.
    ///
    /// # Errors
    /// An [`Error`] if the coordinator cannot be asked.
    pub async fn outcome(&self, xid: &Xid) -> Result<GlobalStatus, Error> {
        let request = GetStatusRequest { xid: xid.as_str().to_owned() };
        let reply = self.inner.coordinator.get_status(request).await?;
        Ok(GlobalStatus::from_wire(reply.status(), reply.rollback_reason()))
    }

    /// Returns whether the coordinator is connected now: for the readiness probe of a service.
    /// While it is not, the library goes on connecting, and requests wait for it until their
    /// deadline.
    ///
    /// ```no_run
    /// # use handfast::Handfast;
    /// /// Answers `GET /readyz`.
    /// fn readiness(handfast: &Handfast) -> (u16, String) {
    ///     match handfast.ready() {
    ///         Ok(()) => (200, "ok".to_owned()),
    ///         Err(why) => (503, why.to_string()),
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::Unreachable`] and [`Error::Unauthenticated`] with the reason of the last attempt;
    /// [`Error::Closed`] after [`close`](Self::close).
    pub fn ready(&self) -> Result<(), Error> {
        self.inner.coordinator.standing()
    }

    /// Waits until the coordinator is connected, for at most this long.
    ///
    /// # Errors
    /// As [`ready`](Self::ready). A coordinator that does not accept this client is reported at
    /// once.
    pub async fn until_ready(&self, timeout: Duration) -> Result<(), Error> {
        self.inner.coordinator.greeted(timeout).await
    }

    /// Waits until every request under way is answered or has run out of time, then closes the
    /// connection for all clones. Later requests fail with [`Error::Closed`].
    ///
    /// Call it before the process ends: the rollbacks of dropped transactions are sent in the
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

    /// The keys of transactions that are under way.
    pub(crate) fn begin_keys(&self) -> &BeginKeys {
        &self.inner.begin_keys
    }

    /// Returns how long to wait for the branches of a rollback to be undone.
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

/// The description of a connection. Awaiting it connects. See [`Handfast::connect`].
#[derive(Clone)]
#[must_use = "a connection is made when this is awaited, or by `lazy`"]
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
    /// Adds another endpoint of the coordinator. One coordinator is active at a time, and the
    /// client finds the endpoint that serves: it dials them one after another, at all addresses
    /// that their names resolve to, each a moment after the one before if that is silent, and uses
    /// the first that greets. It abandons a coordinator that owes answers and gives no sign of life
    /// within 3 s.
    pub fn endpoint(mut self, endpoint: impl Into<String>) -> Self {
        self.endpoints.push(endpoint.into());
        self
    }

    /// Sets the name under which operators see this application. Default: the name of the
    /// executable.
    pub fn application(mut self, name: impl Into<String>) -> Self {
        self.application = name.into();
        self
    }

    /// Sets the token that identifies this client to the coordinator. Default: none, which only a
    /// coordinator on loopback accepts.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Sets the certificate authority that signed the coordinator's certificate, in PEM. Needed for
    /// `https` endpoints.
    pub fn tls_ca(mut self, pem: impl Into<String>) -> Self {
        self.tls.authority = Some(pem.into());
        self
    }

    /// Sets the certificate that identifies this client to the coordinator, with its chain if it
    /// has one, and its private key, both in PEM. Needed if the coordinator has a
    /// `tls.client_authority`, which must have signed the certificate. Other coordinators do not
    /// ask for one.
    pub fn tls_identity(
        mut self,
        certificate_pem: impl Into<String>,
        key_pem: impl Into<String>,
    ) -> Self {
        self.tls.identity = Some((certificate_pem.into(), key_pem.into()));
        self
    }

    /// Sets how long to try to connect: in all the first time, and per attempt later. Too short: no
    /// connection over a slow network. Too long: a wrong address is reported late. Default 10 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets how long a request may go unanswered, reconnecting included. Waiting for locks, or for
    /// a rollback to finish, comes on top. Too short: outcomes are unknown that would be known a
    /// moment later. Too long: callers hang while the coordinator is unreachable. Default 30 s.
    pub fn request_deadline(mut self, deadline: Duration) -> Self {
        self.request_deadline = deadline;
        self
    }

    /// Sets how long a rollback waits for its branches to be undone before it is reported as still
    /// under way. Default 30 s.
    pub fn rollback_wait(mut self, wait: Duration) -> Self {
        self.rollback_wait = wait;
        self
    }

    /// Sets the first and the longest pause between attempts to reconnect. The pause doubles after
    /// every round over all endpoints, and half of it is random. Too short: clients storm a
    /// coordinator that starts. Too long: they reconnect late. Default 100 ms to 5 s.
    pub fn back_off(mut self, base: Duration, max: Duration) -> Self {
        (self.back_off_base, self.back_off_max) = (base, max);
        self
    }

    /// Sets how many requests may be unanswered at a time. Further ones fail with
    /// [`Error::QueueFull`]. Too few: bursts fail. Too many: an outage costs memory. Default
    /// 16,384.
    pub fn requests_max(mut self, max: usize) -> Self {
        self.requests_max = max;
        self
    }

    /// Returns a connection that is made in the background, so that a service may start before its
    /// coordinator. Must be called within a tokio runtime, which then carries the connection.
    ///
    /// Resources can be registered and transactions begun at once: requests wait for the connection
    /// until [`request_deadline`](Self::request_deadline), and fail with [`Error::Unreachable`] if
    /// none is made by then. Attempts go on with the pauses of [`back_off`](Self::back_off).
    /// [`Handfast::ready`] shows whether there is a connection.
    ///
    /// ```no_run
    /// # fn example() -> Result<(), handfast::Error> {
    /// use handfast::Handfast;
    ///
    /// let handfast = Handfast::connect("http://tc-1:7091").application("order-service").lazy()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Configuration`] if a setting is wrong.
    pub fn lazy(self) -> Result<Handfast, Error> {
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
        let inner = Inner {
            coordinator: Coordinator::new(Arc::new(link)),
            application: self.application,
            rollback_wait: self.rollback_wait,
            begin_keys: BeginKeys::default(),
        };
        Ok(Handfast { inner: Arc::new(inner) })
    }

    /// Checks the settings without connecting.
    ///
    /// # Errors
    /// [`Error::Configuration`].
    pub(crate) fn check(&self) -> Result<(), Error> {
        let token = self.token.as_deref();
        Dialler::new(&self.endpoints, token, &self.tls, self.connect_timeout).map(drop)
    }

    async fn connect(self) -> Result<Handfast, Error> {
        let timeout = self.connect_timeout;
        let handfast = self.lazy()?;
        handfast.until_ready(timeout).await?;
        Ok(handfast)
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
        // The token and the key are left out.
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
