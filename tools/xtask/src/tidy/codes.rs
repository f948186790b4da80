//! Error codes: each one in the source has its paragraph in `docs/errors.md`, and vice versa.

use std::collections::BTreeMap;

use crate::tree::SourceFile;

use super::Complaint;

const PAGE: &str = "docs/errors.md";

/// A code in the source is a whole string literal; in the page it begins a paragraph.
const IN_SOURCE: (&str, char) = ("\"HF-", '"');
const IN_PAGE: (&str, char) = ("- **HF-", '*');

/// Checks both directions.
pub(super) fn check(files: &[SourceFile]) -> Vec<Complaint> {
    let ours = |file: &&SourceFile| file.is_rust() && is_program(&file.path);
    let raised = places(files.iter().filter(ours), IN_SOURCE);
    let explained = places(files.iter().filter(|file| file.path == PAGE), IN_PAGE);
    let mut complaints = Vec::new();
    for (code, (file, line)) in &raised {
        if !explained.contains_key(code) {
            complaints.push(Complaint::at(file, *line, format!("{code} is not in {PAGE}")));
        }
    }
    for (code, (file, line)) in &explained {
        if !raised.contains_key(code) {
            complaints.push(Complaint::at(file, *line, format!("nothing gives {code}")));
        }
    }
    complaints
}

/// Tests may name codes that are none.
fn is_program(path: &str) -> bool {
    path.contains("/src/") && !path.starts_with("tools/xtask/")
}

/// Every code and where it stands first.
fn places<'a>(
    files: impl Iterator<Item = &'a SourceFile>,
    (start, end): (&str, char),
) -> BTreeMap<String, (&'a SourceFile, usize)> {
    let mut places = BTreeMap::new();
    for file in files {
        for (at, line) in file.lines() {
            for rest in line.split(start).skip(1) {
                let Some((code, _)) = rest.split_once(end) else { continue };
                if code.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '-') {
                    places.entry(format!("HF-{code}")).or_insert((file, at));
                }
            }
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(source: &str, page: &str) -> Vec<String> {
        let files = [SourceFile::sample("a/src/error.rs", source), SourceFile::sample(PAGE, page)];
        check(&files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_page_and_the_source_name_the_same_codes() {
        let complaints = check(&crate::tree::source_files().unwrap());
        assert!(complaints.is_empty(), "{complaints:?}");
    }

    #[test]
    fn a_code_without_a_paragraph_is_found() {
        let page = "- **HF-TC-BUSY** Later.\n";
        let source = "match a {\n    A => \"HF-TC-BUSY\",\n    B => \"HF-TC-ODD\",\n}\n";
        assert_eq!(
            complaints(source, page),
            ["a/src/error.rs:3: HF-TC-ODD is not in docs/errors.md"]
        );
    }

    #[test]
    fn a_paragraph_without_a_code_is_found() {
        let page = "# Codes\n- **HF-TC-BUSY** Later.\n- **HF-TC-GONE** Never.\n";
        let source = "\"HF-TC-BUSY\" // as `HF-TC-GONE` once\n";
        assert_eq!(complaints(source, page), ["docs/errors.md:3: nothing gives HF-TC-GONE"]);
    }
}
