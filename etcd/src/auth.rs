//! Authentication at an etcd cluster: a token, which it gives for a password.

use std::fmt;

use tokio::sync::Mutex;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use crate::api::AuthenticateRequest;
use crate::api::auth_client::AuthClient;
use crate::error::{EtcdError, failed};
use crate::options::User;

/// The metadata key of the token.
const TOKEN: &str = "token";
/// The texts by which etcd denies access, where its code does not say so.
const DENIED: &[&str] =
    &["authentication failed", "user name is empty", "authentication is not enabled"];
/// The texts by which either side refuses a certificate.
const UNTRUSTED: &[&str] = &["invalid peer certificate", "received fatal alert"];
/// The texts by which etcd refuses an outdated token: after five minutes without a request, after a
/// change of users or rights, after a restart.
const OUTDATED: &[&str] = &["invalid auth token", "revision of auth store is old"];

/// A connection on which every request carries its token.
pub(crate) type Service = InterceptedService<Channel, AuthToken>;

type Token = MetadataValue<Ascii>;

/// The token of a request. None for a cluster without authentication.
#[derive(Clone, Debug, Default)]
pub(crate) struct AuthToken(Option<Token>);

impl Interceptor for AuthToken {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            request.metadata_mut().insert(TOKEN, token.clone());
        }
        Ok(request)
    }
}

/// The tokens of one user, one after the other.
pub(crate) struct AuthTokens {
    user: User,
    last: Mutex<Option<Token>>,
}

impl AuthTokens {
    pub(crate) fn of(user: User) -> Self {
        Self { user, last: Mutex::default() }
    }

    /// Returns a token other than the outdated one.
    pub(crate) async fn get(
        &self,
        channel: &Channel,
        outdated: Option<&AuthToken>,
    ) -> Result<AuthToken, EtcdError> {
        // The mutex is held while authenticating: of the requests that met the same outdated token
        // one fetches another, and the rest find it here.
        let mut last = self.last.lock().await;
        let is_good = |token: &&Token| outdated.is_none_or(|auth| auth.0.as_ref() != Some(*token));
        if let Some(token) = last.as_ref().filter(is_good) {
            return Ok(AuthToken(Some(token.clone())));
        }
        let (name, password) = (self.user.name.clone(), self.user.password.clone());
        let mut client = AuthClient::new(channel.clone());
        let answer = client.authenticate(AuthenticateRequest { name, password }).await;
        let token = answer.map_err(failed)?.into_inner().token;
        let token = token.parse::<Token>().map_err(|source| EtcdError::Token { source })?;
        Ok(AuthToken(Some(last.insert(token).clone())))
    }
}

impl fmt::Debug for AuthTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthTokens").field("user", &self.user.name).finish_non_exhaustive()
    }
}

/// Returns whether another token may help.
pub(crate) fn is_outdated(status: &Status) -> bool {
    status.code() == Code::Unauthenticated || says(status.message(), OUTDATED)
}

/// Returns the error of a denied access, if the text says so.
pub(crate) fn denied(text: &str) -> Option<EtcdError> {
    let is_denied = says(text, DENIED) || says(text, UNTRUSTED);
    is_denied.then(|| EtcdError::Denied { reason: text.to_owned() })
}

fn says(text: &str, words: &[&str]) -> bool {
    words.iter().any(|words| text.contains(words))
}
