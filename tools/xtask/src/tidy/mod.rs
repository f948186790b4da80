//! Checks what clippy cannot: lengths, borders between crates, words, stray files, licences.
//!
//! Each check is a pure function from the tree, or from `cargo metadata`, to complaints, with a
//! test that shows it complain.

mod borders;
mod codes;
mod files;
mod language;
mod lengths;
mod licences;
mod mutations;
mod paths;
mod words;

use std::fmt;

use anyhow::{Result, bail};

use crate::promises;
use crate::say::say;
use crate::tree::{SourceFile, source_files};

use self::licences::Metadata;

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Complaint {
    path: String,
    /// From 1; 0 for the file as a whole.
    line: usize,
    what: String,
}

impl Complaint {
    fn at(file: &SourceFile, line: usize, what: impl Into<String>) -> Self {
        Self { path: file.path.clone(), line, what: what.into() }
    }

    fn about(path: &str, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line: 0, what: what.into() }
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{line}: {}", self.path, self.what),
        }
    }
}

fn broken_promises(files: &[SourceFile]) -> Vec<Complaint> {
    let broken = promises::broken(files).into_iter();
    broken
        .map(|line| Complaint::about(promises::LIST, format!("released, and gone: {line}")))
        .collect()
}

/// Runs every check over the tree and prints what it finds.
pub(crate) fn check_tree() -> Result<()> {
    let files = source_files()?;
    let metadata = Metadata::read()?;
    let checks = [
        lengths::check(&files),
        borders::check_imports(&files),
        borders::check_arrows(&metadata),
        words::check(&files),
        language::check(&files),
        codes::check(&files),
        files::check(&files),
        mutations::check(&files),
        paths::check(&files),
        broken_promises(&files),
        licences::check(&metadata),
    ];
    let complaints = checks.concat();
    for complaint in &complaints {
        say(complaint);
    }
    match complaints.len() {
        0 => Ok(()),
        count => bail!("tidy: {count} complaints"),
    }
}
