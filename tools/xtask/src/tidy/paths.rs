//! Paths of one machine, which mean nothing on another.

use crate::tree::SourceFile;

use super::Complaint;

/// Folders in which people and workplaces keep their files. Split, so as not to find itself.
const FOLDERS: &[&str] =
    &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/Us", "ers/")];

/// Finds them in any text file.
pub(super) fn check(files: &[SourceFile]) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for file in files {
        for (at, line) in file.lines() {
            if let Some(folder) = FOLDERS.iter().find(|folder| names_path(line, folder)) {
                complaints.push(Complaint::at(file, at, format!("a machine's path: {folder}")));
            }
        }
    }
    complaints
}

/// Whether a path starts there: not in the middle of a longer one, such as a URL.
fn names_path(line: &str, folder: &str) -> bool {
    let starts = |at: usize| !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '.');
    line.match_indices(folder).any(|(at, _)| starts(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_a_home_is_found() {
        let line = format!("See {}someone/notes.txt.\n", FOLDERS[2]);
        assert_eq!(check(&[SourceFile::sample("README.md", &line)]).len(), 1);
    }

    #[test]
    fn a_part_of_a_url_is_not() {
        let line = format!("https://example.org{}page\n", FOLDERS[0]);
        assert!(check(&[SourceFile::sample("README.md", &line)]).is_empty());
    }
}
