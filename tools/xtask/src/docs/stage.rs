//! The pages as mdBook wants them: all below one folder, with links among themselves alone.
//!
//! The tree keeps some pages of the book at its root, where a visitor looks for them. Links follow
//! the pages; a link to something that is no page of the book becomes its text. Pictures go along.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use crate::tree::SourceFile;

use super::links::targets;
use super::markdown::{is_external, lines, links, resolve};

/// The order of the book.
pub(super) const SUMMARY: &str = "docs/SUMMARY.md";
const SETTINGS: &str = "book.toml";
/// The folder of pages, in the tree and on the stage.
const PAGES: &str = "docs/";

/// Returns the pages of the stage: path and text. Pictures keep their paths, and are copied.
pub(super) fn pages(files: &[SourceFile], pictures: &[String]) -> Result<Vec<(String, String)>> {
    let file = |path: &str| files.iter().find(|file| file.path == path).context(path.to_owned());
    let own = places(file(SUMMARY)?);
    let mut places = own.clone();
    places.extend(
        pictures
            .iter()
            .filter_map(|path| Some((path.clone(), path.strip_prefix(PAGES)?.to_owned()))),
    );
    let mut staged = vec![(SETTINGS.to_owned(), file(SETTINGS)?.text.clone())];
    for (path, place) in &own {
        staged.push((format!("{PAGES}{place}"), rewritten(file(path)?, &places)));
    }
    Ok(staged)
}

/// Returns the pictures among the paths of the tree.
pub(super) fn pictures(paths: Vec<String>) -> Vec<String> {
    let is_picture = |path: &String| {
        path.starts_with(PAGES) && [".png", ".svg"].iter().any(|ending| path.ends_with(ending))
    };
    paths.into_iter().filter(is_picture).collect()
}

/// Returns the path of each page on the stage, by its path in the tree.
fn places(summary: &SourceFile) -> BTreeMap<String, String> {
    let paths = targets(summary).into_iter().filter_map(|(_, target)| resolve(SUMMARY, target));
    paths
        .chain([SUMMARY.to_owned()])
        .map(|path| {
            let place = place_of(path.strip_prefix(PAGES).unwrap_or(&path));
            (path, place)
        })
        .collect()
}

/// Returns the path of a page on the stage. The README of a folder becomes its index, as mdBook
/// names it, because mdBook leaves links to a README as they are.
fn place_of(path: &str) -> String {
    match path.strip_suffix("README.md") {
        Some(folder) => format!("{folder}index.md"),
        None => path.to_owned(),
    }
}

fn rewritten(page: &SourceFile, places: &BTreeMap<String, String>) -> String {
    let mut text = String::new();
    for line in lines(&page.text) {
        let mut changed = line.text.to_owned();
        let links = if line.is_code { Vec::new() } else { links(line.text) };
        // The last link comes first, so that the positions of the others stay right.
        for link in links.into_iter().rev() {
            let target = &line.text[link.target.clone()];
            if is_external(target) || target.starts_with('#') {
                continue;
            }
            match moved(page, target, places) {
                Some(target) => changed.replace_range(link.target, &target),
                None => changed.replace_range(link.whole, &line.text[link.text]),
            }
        }
        text.push_str(&changed);
        text.push('\n');
    }
    text
}

/// Returns what a link says on the stage; `None` where it leads to no page of the book.
fn moved(page: &SourceFile, target: &str, places: &BTreeMap<String, String>) -> Option<String> {
    let (path, anchor) = target.split_once('#').map_or((target, None), |(a, b)| (a, Some(b)));
    let path = resolve(&page.path, path)?;
    let place = places.get(&path).or_else(|| places.get(&format!("{path}/README.md")))?;
    let from = places.get(&page.path)?;
    let up = "../".repeat(from.matches('/').count());
    let anchor = anchor.map(|anchor| format!("#{anchor}")).unwrap_or_default();
    Some(format!("{up}{place}{anchor}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_follow_the_pages() {
        let files = [
            SourceFile::sample("book.toml", ""),
            SourceFile::sample(
                "docs/SUMMARY.md",
                "- [A](a.md)\n- [B](b/c.md)\n- [D](d/README.md)\n- [Top](../TOP.md)\n",
            ),
            SourceFile::sample("docs/a.md", "[t](../TOP.md#x) [s](../src/a.rs) [u](https://u)\n"),
            SourceFile::sample(
                "docs/b/c.md",
                "[a](../a.md) ![p](../images/p.svg)\n```\n[s](../src)\n```\n",
            ),
            SourceFile::sample("docs/d/README.md", "D\n"),
            SourceFile::sample("TOP.md", "[c](docs/b/c.md) [d](docs/d)\n"),
        ];
        let staged: BTreeMap<String, String> =
            pages(&files, &["docs/images/p.svg".to_owned()]).unwrap().into_iter().collect();
        assert_eq!(staged["docs/a.md"], "[t](TOP.md#x) s [u](https://u)\n");
        let with_picture = "[a](../a.md) ![p](../images/p.svg)\n```\n[s](../src)\n```\n";
        assert_eq!(staged["docs/b/c.md"], with_picture);
        assert_eq!(staged["docs/TOP.md"], "[c](b/c.md) [d](d/index.md)\n");
        assert_eq!(staged["docs/d/index.md"], "D\n");
        let summary = "- [A](a.md)\n- [B](b/c.md)\n- [D](d/index.md)\n- [Top](TOP.md)\n";
        assert_eq!(staged["docs/SUMMARY.md"], summary);
    }
}
