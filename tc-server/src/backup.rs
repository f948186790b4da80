//! Backups: the records of one moment as bytes, to be kept in a file.
//!
//! The format is described in module `format`, its reasons in
//! `docs/decisions/0023-backups-and-moves.md`. Nothing here knows stores or files: pages of records
//! in, bytes out, and the other way round.

mod format;
mod reader;
mod writer;

use serde::{Deserialize, Serialize};

pub use reader::{BackupError, read_backup};
pub use writer::BackupWriter;

/// The description of a backup, at its beginning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupHead {
    /// The store that it was made from, without secrets.
    pub store: String,
    /// Tells stores of the same name apart, if the store has an identity.
    pub identity: Option<String>,
    /// The last epoch that the store had given out.
    pub epoch: u64,
    /// The number of the last batch that is in it.
    pub number: u64,
    /// When it was made, in milliseconds of the Unix epoch.
    pub at_ms: u64,
    /// The version of the program that made it.
    pub version: String,
}
