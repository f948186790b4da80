//! The source tree as checks see it: the files that git knows or would add.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// A text file of the tree.
#[derive(Debug, Clone)]
pub(crate) struct SourceFile {
    /// Relative to the root, with `/` between the parts.
    pub(crate) path: String,
    /// What is in it.
    pub(crate) text: String,
}

impl SourceFile {
    /// A file for a test.
    #[cfg(test)]
    pub(crate) fn sample(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    /// Whether it is Rust.
    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// The lines, numbered from 1.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(at, line)| (at + 1, line))
    }

    /// The lines without their `//` comments. A `//` inside a string ends the line too early, which
    /// no check minds.
    pub(crate) fn code_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.lines().map(|(at, line)| (at, line.split("//").next().unwrap_or_default()))
    }
}

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().map_or_else(|| here.to_owned(), Path::to_owned)
}

/// Every text file of the tree, in order.
pub(crate) fn source_files() -> Result<Vec<SourceFile>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .context("running git")?;
    if !output.status.success() {
        bail!("git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    }
    let listed = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
    let paths = listed.split('\0').filter(|path| !path.is_empty());
    let mut files: Vec<SourceFile> = paths.filter_map(read_text).collect();
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files.dedup_by(|a, b| a.path == b.path);
    Ok(files)
}

/// `None` for what is not text, and for what is deleted but still in the index.
fn read_text(path: &str) -> Option<SourceFile> {
    let text = String::from_utf8(fs::read(root().join(path)).ok()?).ok()?;
    Some(SourceFile { path: path.to_owned(), text })
}
