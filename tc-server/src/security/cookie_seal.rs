//! Seals a token into the cookie of the console, and opens it again.
//!
//! The browser keeps no token: a cookie is of no use without the server's key, counts only until
//! its time is over, and only for as long as the token in it is valid. Nothing is remembered about
//! it, so that a page stays signed in when the coordinator is restarted on its data directory.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use handfast_core::Timestamp;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use super::tokens::{from_hexadecimal, hexadecimal};

const KEY_BYTES: usize = 32;
/// Ties what is sealed to its purpose.
const PURPOSE: &[u8] = b"cookie of the handfast console";
/// The longest token that is sealed, several times the length of ours (BOUNDED).
const TOKEN_BYTES_MAX: usize = 256;
/// The longest cookie that is opened: a sealed token in hexadecimal digits.
const COOKIE_BYTES_MAX: usize = 1_024;

/// The key with which cookies are sealed.
pub struct CookieSeal {
    key: LessSafeKey,
}

impl fmt::Debug for CookieSeal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CookieSeal").finish_non_exhaustive()
    }
}

impl CookieSeal {
    /// Draws a key that ends with the process.
    #[must_use]
    pub fn draw() -> Self {
        Self::of(&rand::random())
    }

    /// Reads the key from a file, which is made if it is missing or not whole.
    ///
    /// # Errors
    ///
    /// The file can be neither read nor written.
    pub fn open(path: &Path) -> io::Result<Self> {
        let read = match fs::read(path) {
            Ok(bytes) => <[u8; KEY_BYTES]>::try_from(bytes).ok(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        match read {
            Some(key) => Ok(Self::of(&key)),
            None => make(path).map(|key| Self::of(&key)),
        }
    }

    fn of(key: &[u8; KEY_BYTES]) -> Self {
        let key = UnboundKey::new(&AES_256_GCM, key).expect("the key has the cipher's length");
        Self { key: LessSafeKey::new(key) }
    }

    /// Seals a token until a point in time. Returns `None` for a token that is too long.
    #[must_use]
    pub fn seal(&self, token: &str, until: Timestamp) -> Option<String> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        // Random: a key seals far fewer cookies than would make two alike.
        let nonce: [u8; NONCE_LEN] = rand::random();
        let mut sealed = [&until.0.to_be_bytes()[..], token.as_bytes()].concat();
        let nonce_of_it = Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(nonce_of_it, Aad::from(PURPOSE), &mut sealed).ok()?;
        Some(hexadecimal(&[&nonce[..], &sealed].concat()))
    }

    /// Returns the token of a cookie that this key has sealed and whose time is not over.
    #[must_use]
    pub fn open_cookie(&self, cookie: &str, now: Timestamp) -> Option<String> {
        if cookie.len() > COOKIE_BYTES_MAX {
            return None;
        }
        let bytes = from_hexadecimal(cookie)?;
        let (nonce, sealed) = bytes.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut sealed = sealed.to_vec();
        let opened = self.key.open_in_place(nonce, Aad::from(PURPOSE), &mut sealed).ok()?;
        let (until, token) = opened.split_first_chunk()?;
        let token = std::str::from_utf8(token).ok()?;
        (now.0 < u64::from_be_bytes(*until)).then(|| token.to_owned())
    }
}

/// Draws a key and writes it. The file is complete under its name or not there at all.
fn make(path: &Path) -> io::Result<[u8; KEY_BYTES]> {
    let key: [u8; KEY_BYTES] = rand::random();
    let mut written_as = path.as_os_str().to_owned();
    written_as.push(".making");
    let written_as = PathBuf::from(written_as);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&written_as)?;
    file.write_all(&key)?;
    file.sync_all()?;
    fs::rename(&written_as, path)?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNTIL: Timestamp = Timestamp(1_000);

    #[test]
    fn a_cookie_is_opened_until_its_time_is_over() {
        let seal = CookieSeal::draw();
        let cookie = seal.seal("hft_1", UNTIL).unwrap();
        assert!(!cookie.contains("hft_1"));
        assert_eq!(seal.open_cookie(&cookie, Timestamp(999)).as_deref(), Some("hft_1"));
        assert_eq!(seal.open_cookie(&cookie, UNTIL), None);
        assert_ne!(cookie, seal.seal("hft_1", UNTIL).unwrap(), "sealed afresh");
    }

    #[test]
    fn a_changed_or_foreign_cookie_is_not_opened() {
        let seal = CookieSeal::draw();
        let cookie = seal.seal("hft_1", UNTIL).unwrap();
        let foreign = CookieSeal::draw().seal("hft_1", UNTIL).unwrap();
        let flipped = if cookie.ends_with('0') { "1" } else { "0" };
        let changed = format!("{}{flipped}", &cookie[..cookie.len() - 1]);
        let long = "0".repeat(COOKIE_BYTES_MAX + 2);
        for wrong in ["", "0", "zz", "é", &cookie[2..], &foreign, &changed, &long] {
            assert_eq!(seal.open_cookie(wrong, Timestamp(0)), None, "{wrong}");
        }
        assert_eq!(seal.seal(&"t".repeat(TOKEN_BYTES_MAX + 1), UNTIL), None);
    }

    #[test]
    fn a_key_outlives_the_process_and_a_torn_file_is_made_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("console.key");
        let cookie = CookieSeal::open(&path).unwrap().seal("hft_1", UNTIL).unwrap();
        let opened = |seal: &CookieSeal| seal.open_cookie(&cookie, Timestamp(0));
        assert_eq!(opened(&CookieSeal::open(&path).unwrap()).as_deref(), Some("hft_1"));
        fs::write(&path, "torn").unwrap();
        assert_eq!(opened(&CookieSeal::open(&path).unwrap()), None);
        assert_eq!(fs::read(&path).unwrap().len(), KEY_BYTES);
    }
}
