//! Certificates for ports that speak TLS.

use std::fs;
use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;

/// An authority of its own, and the certificate for `localhost` that it signed, each as text and as
/// a file, in PEM.
#[derive(Debug)]
pub struct SignedCertificate {
    folder: TempDir,
    /// The authority's certificate, also in `authority.pem`.
    pub authority: String,
    /// The certificate, also in `certificate.pem`.
    pub certificate: String,
    /// Its private key, also in `key.pem`.
    pub key: String,
}

impl SignedCertificate {
    /// Makes an authority and lets it sign.
    ///
    /// # Panics
    /// If the keys cannot be made, or the files cannot be written.
    #[must_use]
    pub fn make() -> Self {
        let generate = || KeyPair::generate().expect("there is randomness for a key");
        let params = |names: Vec<String>| CertificateParams::new(names).expect("they are names");
        let mut of_authority = params(Vec::new());
        of_authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(of_authority, generate());
        let (authority, key) = (authority.expect("the key fits"), generate());
        let certificate = params(vec!["localhost".to_owned()]).signed_by(&key, &authority);
        let signed = Self {
            folder: tempfile::tempdir().expect("there is a place for files"),
            authority: authority.pem(),
            certificate: certificate.expect("the key fits").pem(),
            key: key.serialize_pem(),
        };
        for (name, text) in [
            ("authority.pem", &signed.authority),
            ("certificate.pem", &signed.certificate),
            ("key.pem", &signed.key),
        ] {
            fs::write(signed.path(name), text).expect("the folder can be written");
        }
        signed
    }

    /// Returns the path of a file beside the certificate.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}
