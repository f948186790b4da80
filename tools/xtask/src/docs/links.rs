//! Links between pages, to headings, and to files of the tree.

use std::collections::{BTreeMap, BTreeSet};

use crate::tree::SourceFile;

use super::markdown::{anchors, is_external, lines, links, resolve};
use super::stage::SUMMARY;

/// Finds links to files and headings that are not there. Pictures are files without text.
pub(super) fn check(files: &[SourceFile], pictures: &[String]) -> Vec<String> {
    let texts = files.iter().map(|file| file.path.as_str());
    let paths: BTreeSet<&str> = texts.chain(pictures.iter().map(String::as_str)).collect();
    let headings: BTreeMap<&str, Vec<String>> =
        pages(files).map(|page| (page.path.as_str(), anchors(&page.text))).collect();
    let mut complaints = Vec::new();
    for page in pages(files) {
        for (number, target) in targets(page) {
            if let Some(what) = fault(page, target, &paths, &headings) {
                complaints.push(format!("{}:{number}: {target}: {what}", page.path));
            }
        }
    }
    complaints
}

/// Finds pages of `docs/` that the book leaves out.
pub(super) fn check_summary(files: &[SourceFile]) -> Vec<String> {
    let Some(summary) = files.iter().find(|file| file.path == SUMMARY) else {
        return vec![format!("{SUMMARY}: is missing")];
    };
    let listed: BTreeSet<String> =
        targets(summary).into_iter().filter_map(|(_, target)| resolve(SUMMARY, target)).collect();
    let of_the_book = |page: &&SourceFile| page.path.starts_with("docs/") && page.path != SUMMARY;
    pages(files)
        .filter(of_the_book)
        .filter(|page| !listed.contains(&page.path))
        .map(|page| format!("{}: is not in {SUMMARY}", page.path))
        .collect()
}

fn pages(files: &[SourceFile]) -> impl Iterator<Item = &SourceFile> {
    files.iter().filter(|file| file.path.ends_with(".md"))
}

/// Returns the targets of a page's links into the tree, with their lines.
pub(super) fn targets(page: &SourceFile) -> Vec<(usize, &str)> {
    let prose = lines(&page.text).into_iter().filter(|line| !line.is_code);
    prose
        .flat_map(|line| {
            links(line.text).into_iter().map(move |link| (line.number, &line.text[link.target]))
        })
        .filter(|(_, target)| !is_external(target))
        .collect()
}

fn fault(
    page: &SourceFile,
    target: &str,
    paths: &BTreeSet<&str>,
    headings: &BTreeMap<&str, Vec<String>>,
) -> Option<&'static str> {
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let resolved = match path {
        "" => Some(page.path.clone()),
        path => resolve(&page.path, path),
    };
    let Some(resolved) = resolved else { return Some("leads out of the tree") };
    let folder = format!("{resolved}/");
    if !paths.contains(resolved.as_str()) && !paths.iter().any(|path| path.starts_with(&folder)) {
        return Some("no such file");
    }
    if anchor.is_empty() {
        return None;
    }
    match headings.get(resolved.as_str()) {
        Some(found) if found.iter().any(|heading| heading == anchor) => None,
        Some(_) => Some("no such heading"),
        None => Some("headings are known of pages alone"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(readme: &str) -> Vec<String> {
        let files = [
            SourceFile::sample("README.md", readme),
            SourceFile::sample("docs/a.md", "# One\n"),
            SourceFile::sample("src/lib.rs", ""),
        ];
        check(&files, &["docs/images/a.png".to_owned()])
    }

    #[test]
    fn links_to_what_is_there_are_fine() {
        let page = "# Top\n[a](docs/a.md#one) [b](src) [c](#top) [d](https://example.org/x)\n";
        assert!(complaints(page).is_empty());
        assert!(complaints("![a](docs/images/a.png)\n").is_empty());
    }

    #[test]
    fn links_to_nowhere_are_found() {
        assert_eq!(complaints("[a](b.md)\n"), ["README.md:1: b.md: no such file"]);
        assert_eq!(
            complaints("\n[a](docs/a.md#two)\n"),
            ["README.md:2: docs/a.md#two: no such heading"]
        );
        assert_eq!(complaints("[a](../x)\n"), ["README.md:1: ../x: leads out of the tree"]);
    }

    #[test]
    fn a_page_outside_of_the_book_is_found() {
        let files = [
            SourceFile::sample("docs/SUMMARY.md", "- [A](a.md)\n"),
            SourceFile::sample("docs/a.md", ""),
            SourceFile::sample("docs/b.md", ""),
        ];
        assert_eq!(check_summary(&files), ["docs/b.md: is not in docs/SUMMARY.md"]);
    }
}
