//! The signature by which a participant verifies that the coordinator is calling.
//!
//! It is an HMAC-SHA256 over everything that gives the call its meaning, so that changing or
//! forging any part requires the secret. It does not prevent a replay of an old call: that is the
//! purpose of the fence, which each participant needs anyway. The timestamp allows refusing very
//! old calls.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// A shorter secret could be guessed.
const SECRET_BYTES_MIN: usize = 32;

/// A secret that only coordinator and participant know.
#[derive(Clone)]
pub struct Secret(Arc<[u8]>);

/// Why a secret cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file cannot be read.
    #[error("secret {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The secret is so short that it could be guessed.
    #[error("secret {path} has {bytes} bytes: at least {SECRET_BYTES_MIN} are needed")]
    Short {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: usize,
    },
}

impl Secret {
    /// Creates a secret of these bytes, unchanged.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    /// Reads a secret: the bytes of the file, without white space at its end.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is too short.
    pub fn read(path: &Path) -> Result<Self, SecretError> {
        let path = path.to_owned();
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(source) => return Err(SecretError::Read { path, source }),
        };
        let secret = bytes.trim_ascii_end();
        if secret.len() < SECRET_BYTES_MIN {
            return Err(SecretError::Short { path, bytes: secret.len() });
        }
        Ok(Self::new(secret))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The signed parts of a request.
#[derive(Clone, Copy, Debug)]
pub struct SignedRequest<'a> {
    /// The method of the request.
    pub method: &'a str,
    /// The path of its URL.
    pub path: &'a str,
    /// The global's XID.
    pub xid: &'a str,
    /// The branch.
    pub branch: u64,
    /// The name of the operation.
    pub operation: &'a str,
    /// When it was signed, in milliseconds since 1970.
    pub timestamp_ms: u64,
    /// The body.
    pub body: &'a [u8],
}

impl SignedRequest<'_> {
    /// Returns the value of the signature's header. The body comes last and nothing before it can
    /// contain a line feed, so no two calls are signed over the same bytes.
    ///
    /// # Panics
    ///
    /// Never: HMAC takes keys of every length.
    #[must_use]
    pub fn by(&self, secret: &Secret) -> String {
        let Self { method, path, xid, branch, operation, timestamp_ms, body } = self;
        let head = format!("{method}\n{path}\n{xid}\n{branch}\n{operation}\n{timestamp_ms}\n");
        let mut code =
            Hmac::<Sha256>::new_from_slice(&secret.0).expect("HMAC takes keys of every length");
        code.update(head.as_bytes());
        code.update(body);
        let digest = code.finalize().into_bytes();
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("v1={hex}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";

    const EXAMPLE: &str = "v1=246a86d6e045fdd772d46d852e65858b33690adabcd917c990ac37c7a9989e0f";

    fn debit() -> SignedRequest<'static> {
        SignedRequest {
            method: "POST",
            path: "/handfast/debit/try",
            xid: "127.0.0.1:7091:4294967297",
            branch: 7,
            operation: "try",
            timestamp_ms: 1_700_000_000_000,
            body: br#"{"customer":7,"points":30}"#,
        }
    }

    /// The example of docs/participants.md, where it is computed in another language.
    #[test]
    fn the_documented_signature_is_correct() {
        let signature = debit().by(&Secret::new(SECRET));
        assert_eq!(signature, EXAMPLE);
        let manual = include_str!("../../../docs/participants.md");
        assert!(manual.contains(&signature), "docs/participants.md shows another signature");
    }

    #[test]
    fn any_change_of_the_call_changes_the_signature() {
        let secret = Secret::new(SECRET);
        let signed = debit();
        let others = [
            SignedRequest { method: "PUT", ..signed },
            SignedRequest { path: "/handfast/debit/confirm", ..signed },
            SignedRequest { xid: "127.0.0.1:7091:4294967298", ..signed },
            SignedRequest { branch: 8, ..signed },
            SignedRequest { operation: "confirm", ..signed },
            SignedRequest { timestamp_ms: 1_700_000_000_001, ..signed },
            SignedRequest { body: br#"{"customer":8,"points":30}"#, ..signed },
        ];
        for other in others {
            assert_ne!(other.by(&secret), signed.by(&secret), "{other:?}");
        }
        assert_ne!(signed.by(&Secret::new(b"another")), signed.by(&secret));
    }

    #[test]
    fn a_secret_is_never_shown() {
        assert_eq!(format!("{:?}", Secret::new(SECRET)), "Secret(..)");
    }

    #[test]
    fn a_secret_that_could_be_guessed_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "short \n").unwrap();
        let error = Secret::read(file.path()).unwrap_err();
        assert!(matches!(error, SecretError::Short { bytes: 5, .. }), "{error}");
        std::fs::write(file.path(), [SECRET, b"\r\n"].concat()).unwrap();
        let read = Secret::read(file.path()).unwrap();
        assert_eq!(debit().by(&read), debit().by(&Secret::new(SECRET)));
    }
}
