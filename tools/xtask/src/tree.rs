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
    /// Its content.
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

    /// The lines without comments and without what stands in strings. A string over several lines
    /// is taken for code, which no check minds.
    pub(crate) fn code_lines(&self) -> impl Iterator<Item = (usize, String)> {
        self.lines().map(|(at, line)| (at, code_of(line)))
    }
}

/// Returns the code of a line: every other part between quotes is a string, and ` //` or a leading
/// `//` outside of one begins a comment.
fn code_of(line: &str) -> String {
    let mut code = String::new();
    for (at, part) in line.replace("\\\"", "").split('"').enumerate() {
        if at % 2 == 1 {
            code.push_str("\"\"");
        } else if let Some((before, _comment)) = part.split_once("//") {
            code.push_str(before);
            break;
        } else {
            code.push_str(part);
        }
    }
    code
}

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// Every text file of the tree, in order, but generated ones.
pub(crate) fn source_files() -> Result<Vec<SourceFile>> {
    let paths = paths()?;
    let written = paths.iter().filter(|path| !path.contains("/generated/"));
    Ok(written.filter_map(|path| read_text(path)).collect())
}

/// The paths of all files of the tree, in order.
pub(crate) fn paths() -> Result<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .context("running git")?;
    if !output.status.success() {
        bail!("git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    }
    let listed = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
    // What is deleted may still be in the index.
    let is_there = |path: &&str| !path.is_empty() && root().join(path).is_file();
    let mut paths: Vec<String> = listed.split('\0').filter(is_there).map(str::to_owned).collect();
    paths.sort();
    paths.dedup();
    Ok(paths)
}

/// `None` for what is not text.
fn read_text(path: &str) -> Option<SourceFile> {
    let text = String::from_utf8(fs::read(root().join(path)).ok()?).ok()?;
    Some(SourceFile { path: path.to_owned(), text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_what_is_neither_string_nor_comment() {
        assert_eq!(code_of("let a = \"// \\\" fn b\"; // c"), "let a = \"\"; ");
        assert_eq!(code_of("/// A doc."), "");
    }
}
