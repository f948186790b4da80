//! Finds server programs, which distributions keep outside `PATH`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The programs of a server.
#[derive(Debug, Clone, Copy)]
pub struct Programs {
    /// The server's name, for messages.
    pub name: &'static str,
    /// The programs that must be installed, in one folder or several.
    pub programs: &'static [&'static str],
    /// Where distributions keep them outside `PATH`; `*` stands for the rest of a path component.
    pub folders: &'static [&'static str],
}

impl Programs {
    /// Returns whether all of them are installed on this machine.
    #[must_use]
    pub fn are_installed(&self) -> bool {
        self.programs.iter().all(|program| self.find(program).is_some())
    }

    /// Returns the full path of one of them.
    pub(crate) fn require(&self, program: &str) -> Result<PathBuf> {
        let found = self.find(program);
        found.with_context(|| format!("{program} of {} is not installed", self.name))
    }

    fn find(&self, program: &str) -> Option<PathBuf> {
        let path = env::var_os("PATH").unwrap_or_default();
        // The distribution's own folder comes first: a wrapper in `PATH` may pick another
        // version.
        let folders = self.folders.iter().flat_map(|pattern| matching_folders(Path::new(pattern)));
        let folders = folders.chain(env::split_paths(&path));
        folders.map(|dir| dir.join(program)).find(|file| file.is_file())
    }
}

/// Returns the folders that match a pattern, the greatest version first.
fn matching_folders(pattern: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    for component in pattern.components() {
        let part = component.as_os_str().to_string_lossy();
        found = match part.split_once('*') {
            None => found.into_iter().map(|dir| dir.join(component)).collect(),
            Some((start, _rest)) => {
                found.iter().flat_map(|dir| children_starting_with(dir, start)).collect()
            }
        };
    }
    found.retain(|dir| dir.is_dir());
    found.sort_by_key(|dir| std::cmp::Reverse(version_in(dir)));
    found
}

fn children_starting_with(dir: &Path, start: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(start));
    named.map(|entry| entry.path()).collect()
}

/// Returns the numbers in a path, in order: as text, 15 would sort before 9.
fn version_in(dir: &Path) -> Vec<u64> {
    let text = dir.to_string_lossy();
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_version_comes_first() {
        let root = tempfile::tempdir().unwrap();
        for version in ["9", "15", "10"] {
            fs::create_dir_all(root.path().join("lib").join(version).join("bin")).unwrap();
        }
        let found = matching_folders(&root.path().join("lib/*/bin"));
        let expected = ["15", "10", "9"].map(|v| root.path().join("lib").join(v).join("bin"));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_pattern_without_a_match_finds_no_folder() {
        assert!(matching_folders(Path::new("/nowhere-at-all/*/bin")).is_empty());
    }
}
