//! The file of tokens: names, roles and SHA-256 hashes, never a token.
//!
//! A token is 256 random bits, which cannot be guessed, so a plain hash is enough. The file is read
//! at the start and again on request. A file that cannot be read changes nothing.

use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, PoisonError, RwLock};

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::sync::watch;

use super::Caller;

/// The role of a token. The roles do not include one another: an application's token cannot end
/// transactions, and an operator's token is of no use in an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Role {
    /// Uses the native API: begins globals, registers branches, executes phase two.
    Client,
    /// Reads the admin API.
    Viewer,
    /// Reads the admin API and acts on transactions.
    Operator,
}

/// The valid tokens, and their file.
#[derive(Debug)]
pub struct Tokens {
    path: PathBuf,
    entries: RwLock<Vec<Entry>>,
    /// Notified when a token is shut out.
    shut_out: watch::Sender<()>,
}

/// The result of reading the file again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reloaded {
    /// The number of valid tokens.
    pub tokens: usize,
    /// The number of earlier tokens that are no longer valid or have another role.
    pub shut_out: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    name: Arc<str>,
    role: Role,
    hash: [u8; 32],
}

/// A newly drawn token.
pub struct NewToken {
    /// The secret, for its bearer.
    pub token: String,
    /// The line for the coordinator's file.
    pub line: String,
}

/// The file of tokens cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokensError {
    /// It cannot be read.
    #[error("tokens file {path}: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A line is not `name role hash`.
    #[error("tokens file {path}, line {line}: {what}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The problem.
        what: &'static str,
    },
}

impl Role {
    fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Viewer => "viewer",
            Self::Operator => "operator",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Client, Self::Viewer, Self::Operator]
            .into_iter()
            .find(|role| role.as_str() == text)
            .ok_or("the role is client, viewer or operator")
    }
}

impl fmt::Debug for NewToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewToken").field("line", &self.line).finish_non_exhaustive()
    }
}

impl NewToken {
    /// Draws a token.
    ///
    /// # Errors
    ///
    /// The name is empty or contains white space or `#`.
    pub fn draw(name: &str, role: Role) -> Result<Self, &'static str> {
        check_name(name)?;
        let secret: [u8; 32] = rand::random();
        let token = format!("hft_{}", hexadecimal(&secret));
        let line = format!("{name} {role} {}", hexadecimal(&hash(&token)));
        Ok(Self { token, line })
    }
}

impl Tokens {
    /// Reads the file: a line `name role hash` per token; empty lines and lines that begin with `#`
    /// are skipped.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or a line cannot.
    pub fn read(path: &Path) -> Result<Self, TokensError> {
        let entries = RwLock::new(read_file(path)?);
        Ok(Self { path: path.to_owned(), entries, shut_out: watch::Sender::new(()) })
    }

    /// Returns a receiver that is notified when a token is shut out.
    pub(super) fn subscribe(&self) -> watch::Receiver<()> {
        self.shut_out.subscribe()
    }

    /// Reads the file again.
    ///
    /// # Errors
    ///
    /// The errors of [`read`](Self::read). The tokens stay as they were then.
    pub fn reload(&self) -> Result<Reloaded, TokensError> {
        let entries = read_file(&self.path)?;
        let mut known = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        let shut_out = known.iter().filter(|entry| !entries.contains(entry)).count();
        let tokens = entries.len();
        *known = entries;
        drop(known);
        // The entries are in place before waiting calls wake up, which check against them again.
        if shut_out > 0 {
            self.shut_out.send_replace(());
        }
        Ok(Reloaded { tokens, shut_out })
    }

    /// Returns the bearer of a token. Takes the same time whichever entry matches.
    #[must_use]
    pub fn authenticate(&self, token: &str) -> Option<Caller> {
        let hash = hash(token);
        let mut found = None;
        for entry in &*self.entries.read().unwrap_or_else(PoisonError::into_inner) {
            if bool::from(entry.hash.ct_eq(&hash)) {
                found = Some(Caller::bearer(Arc::clone(&entry.name), entry.role));
            }
        }
        found
    }
}

fn read_file(path: &Path) -> Result<Vec<Entry>, TokensError> {
    let unreadable = |source| TokensError::Unreadable { path: path.to_owned(), source };
    let text = std::fs::read_to_string(path).map_err(unreadable)?;
    let mut entries = Vec::new();
    for (index, line) in text.lines().map(str::trim).enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let malformed =
            |what| TokensError::Malformed { path: path.to_owned(), line: index + 1, what };
        entries.push(read_line(line).map_err(malformed)?);
    }
    Ok(entries)
}

fn read_line(line: &str) -> Result<Entry, &'static str> {
    let mut words = line.split_whitespace();
    let (Some(name), Some(role), Some(hash), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err("a line is `name role hash`");
    };
    check_name(name)?;
    Ok(Entry { name: Arc::from(name), role: role.parse()?, hash: read_hash(hash)? })
}

fn check_name(name: &str) -> Result<(), &'static str> {
    let plain = |c: char| !c.is_whitespace() && !c.is_control() && c != '#';
    if !name.is_empty() && name.len() <= 64 && name.chars().all(plain) {
        Ok(())
    } else {
        Err("a name has 1 to 64 characters, none of them white space or `#`")
    }
}

fn read_hash(text: &str) -> Result<[u8; 32], &'static str> {
    const WRONG: &str = "the hash is 64 hexadecimal digits";
    from_hexadecimal(text).and_then(|hash| hash.try_into().ok()).ok_or(WRONG)
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes every write");
        text
    })
}

/// Returns the bytes of hexadecimal digits, if the text is nothing else.
pub(super) fn from_hexadecimal(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    let bytes = (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16));
    bytes.collect::<Result<_, _>>().ok()
}
