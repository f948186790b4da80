//! The options of a connection to an etcd cluster.

use std::fmt;
use std::time::Duration;

use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use crate::error::{EtcdError, with_sources};

/// How long a member may take to accept a connection.
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// How often a connection with requests under way is probed. etcd refuses less than 5 s.
const LOOK_AT: Duration = Duration::from_secs(6);
/// The marker that every certificate in PEM contains.
const PEM_CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";

/// The options of a connection to an etcd cluster: its members, certificates, the user.
///
/// ```no_run
/// use handfast_etcd::{EtcdClient, EtcdOptions};
///
/// # async fn connect() -> Result<EtcdClient, Box<dyn std::error::Error>> {
/// let options = EtcdOptions::new(["https://etcd-1:2379", "https://etcd-2:2379"])
///     .tls_ca(std::fs::read_to_string("/etc/etcd/ca.pem")?)
///     .user("orders", std::env::var("ETCD_PASSWORD")?);
/// let etcd = EtcdClient::connect(&options)?;
/// # Ok(etcd)
/// # }
/// ```
#[derive(Clone)]
#[must_use = "options do nothing by themselves"]
pub struct EtcdOptions {
    members: Vec<String>,
    ca_pem: Option<String>,
    identity: Option<Pair>,
    pub(crate) user: Option<User>,
}

/// A certificate and its key, in PEM.
type Pair = (Vec<u8>, Vec<u8>);

/// The certificates for a connection with TLS.
#[derive(Clone)]
pub(crate) struct Certificates {
    pub(crate) ca_pem: String,
    pub(crate) identity: Option<Pair>,
}

/// A user that etcd knows by a password.
#[derive(Clone)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) password: String,
}

impl EtcdOptions {
    /// Makes options from the URLs of some members, as `http://127.0.0.1:2379`. A member that does
    /// not answer is left out until it does.
    pub fn new<U: Into<String>>(members: impl IntoIterator<Item = U>) -> Self {
        let members = members.into_iter().map(Into::into).collect();
        Self { members, ca_pem: None, identity: None, user: None }
    }

    /// Sets the certificate of the authority that has signed the members' certificates, as text in
    /// PEM. URLs with `https` need it.
    pub fn tls_ca(self, pem: impl Into<String>) -> Self {
        Self { ca_pem: Some(pem.into()), ..self }
    }

    /// Sets the client's certificate and its key, as text in PEM, for members that ask for one. If
    /// the cluster has authentication on and no [`user`](Self::user) is given, the certificate's
    /// common name is the user.
    pub fn tls_identity(
        self,
        certificate_pem: impl AsRef<[u8]>,
        key_pem: impl AsRef<[u8]>,
    ) -> Self {
        let identity = (certificate_pem.as_ref().to_vec(), key_pem.as_ref().to_vec());
        Self { identity: Some(identity), ..self }
    }

    /// Sets the user and its password. The user needs the right to read and write the keys that are
    /// used.
    pub fn user(self, name: impl Into<String>, password: impl Into<String>) -> Self {
        let user = User { name: name.into(), password: password.into() };
        Self { user: Some(user), ..self }
    }

    /// Returns the certificates, or none for connections without TLS.
    pub(crate) fn certificates(&self) -> Option<Certificates> {
        let (ca_pem, identity) = (self.ca_pem.clone()?, self.identity.clone());
        Some(Certificates { ca_pem, identity })
    }

    pub(crate) fn endpoints(&self) -> Result<Vec<Endpoint>, EtcdError> {
        self.members.iter().map(|url| self.endpoint(url)).collect()
    }

    fn endpoint(&self, url: &str) -> Result<Endpoint, EtcdError> {
        let wrong =
            |reason: &str| options_error(format!("not the address of a member: {url:?}: {reason}"));
        let endpoint =
            Endpoint::from_shared(url.to_owned()).map_err(|error| wrong(&error.to_string()))?;
        let endpoint = endpoint.connect_timeout(CONNECT_MAX).http2_keep_alive_interval(LOOK_AT);
        let has_tls = self.ca_pem.is_some() || self.identity.is_some();
        match (endpoint.uri().scheme_str(), &self.ca_pem) {
            (Some("http"), None) if !has_tls => Ok(endpoint),
            (Some("http"), _) => Err(wrong("with certificates it must begin with https://")),
            (Some("https"), None) => Err(wrong("https needs the CA's certificate, see tls_ca")),
            // tonic ignores text that is not a certificate. Then none is trusted, without a
            // message.
            (Some("https"), Some(pem)) if !pem.contains(PEM_CERTIFICATE) => {
                let reason =
                    "tls_ca is not a certificate in PEM: it takes the text, not the file's name";
                Err(options_error(reason))
            }
            (Some("https"), Some(pem)) => {
                let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem));
                let tls = match &self.identity {
                    Some((certificate, key)) => tls.identity(Identity::from_pem(certificate, key)),
                    None => tls,
                };
                let failed =
                    |error| options_error(format!("certificates: {}", with_sources(&error)));
                endpoint.tls_config(tls).map_err(failed)
            }
            _ => Err(wrong("it must begin with http:// or https://")),
        }
    }
}

impl fmt::Debug for EtcdOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.user.as_ref().map(|user| &user.name);
        f.debug_struct("EtcdOptions")
            .field("members", &self.members)
            .field("user", &user)
            .finish_non_exhaustive()
    }
}

fn options_error(reason: impl Into<String>) -> EtcdError {
    EtcdError::Options { reason: reason.into() }
}
