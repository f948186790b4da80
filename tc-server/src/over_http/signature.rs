//! The signature by which a participant knows that the coordinator is calling.
//!
//! HMAC-SHA256 over what the call means: whoever changes or makes up any of it must know the
//! secret. Keeping an old call from being sent again is the fence's business, which each
//! participant needs anyway; the timestamp lets it refuse one that is very old.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Fewer are guessed.
const SECRET_BYTES_MIN: usize = 32;

/// What coordinator and participant alone know.
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
        /// Why.
        source: std::io::Error,
    },
    /// It could be guessed.
    #[error("secret {path} has {bytes} bytes: at least {SECRET_BYTES_MIN} are needed")]
    Short {
        /// The file.
        path: PathBuf,
        /// How many it has.
        bytes: usize,
    },
}

impl Secret {
    /// Takes the bytes as they are.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    /// Reads a secret: the bytes of the file, without white space at its end.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or holds too little.
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

/// What is signed.
#[derive(Clone, Copy, Debug)]
pub struct Signed<'a> {
    /// The method of the request.
    pub method: &'a str,
    /// The path of its URL.
    pub path: &'a str,
    /// The global's XID.
    pub xid: &'a str,
    /// The branch.
    pub branch: u64,
    /// The word for what is to be done.
    pub operation: &'a str,
    /// When it was signed, in milliseconds since 1970.
    pub timestamp_ms: u64,
    /// The body.
    pub body: &'a [u8],
}

impl Signed<'_> {
    /// The value of the signature's header. The body comes last and nothing before it can hold a
    /// line feed, so that no two calls are signed over the same bytes.
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

    fn debit() -> Signed<'static> {
        Signed {
            method: "POST",
            path: "/handfast/debit/try",
            xid: "127.0.0.1:7091:4294967297",
            branch: 7,
            operation: "try",
            timestamp_ms: 1_700_000_000_000,
            body: br#"{"customer":7,"points":30}"#,
        }
    }

    /// The example of docs/participants.md, where another language computes it.
    #[test]
    fn the_documented_example_has_the_documented_signature() {
        let signature = debit().by(&Secret::new(SECRET));
        assert_eq!(signature, EXAMPLE);
        let manual = include_str!("../../../docs/participants.md");
        assert!(manual.contains(&signature), "docs/participants.md shows another signature");
    }

    #[test]
    fn whatever_is_changed_changes_the_signature() {
        let secret = Secret::new(SECRET);
        let signed = debit();
        let others = [
            Signed { method: "PUT", ..signed },
            Signed { path: "/handfast/debit/confirm", ..signed },
            Signed { xid: "127.0.0.1:7091:4294967298", ..signed },
            Signed { branch: 8, ..signed },
            Signed { operation: "confirm", ..signed },
            Signed { timestamp_ms: 1_700_000_000_001, ..signed },
            Signed { body: br#"{"customer":8,"points":30}"#, ..signed },
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
