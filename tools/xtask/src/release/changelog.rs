//! The changelog: the files of `changes/` join the section of a release, by kind and part.

use anyhow::{Context, Result, bail};

use crate::tree::SourceFile;

use super::CHANGES;
use super::version::Version;

/// The kinds, and their headings, in order.
const KINDS: [(&str, &str); 3] = [("added", "Added"), ("changed", "Changed"), ("fixed", "Fixed")];
/// The parts, and their headings, in order.
const PARTS: [(&str, &str); 11] = [
    ("coordinator", "Coordinator"),
    ("client", "Client library"),
    ("at", "AT mode"),
    ("tcc", "TCC mode"),
    ("xa", "Two-phase commit"),
    ("saga", "Sagas"),
    ("outbox", "Events"),
    ("locks", "Locks"),
    ("seata", "Clients of Apache Seata"),
    ("cli", "Command line"),
    ("tools", "Examples and tools"),
];

/// A file of `changes/`.
#[derive(Debug)]
pub(super) struct Change {
    /// Its path.
    pub(super) path: String,
    /// The heading of its kind.
    kind: &'static str,
    /// The heading of its part.
    part: &'static str,
    text: String,
}

/// Reads all files of `changes/`, ordered by kind and part.
pub(super) fn read_changes(files: &[SourceFile]) -> Result<Vec<Change>> {
    let is_change = |file: &&SourceFile| {
        file.path.starts_with(CHANGES)
            && file.path.ends_with(".md")
            && !file.path.ends_with("README.md")
    };
    let mut changes =
        files.iter().filter(is_change).map(read_change).collect::<Result<Vec<Change>>>()?;
    let place = |heading: &str, all: &[(&str, &str)]| all.iter().position(|it| it.1 == heading);
    changes.sort_by_key(|change| (place(change.kind, &KINDS), place(change.part, &PARTS)));
    Ok(changes)
}

fn read_change(file: &SourceFile) -> Result<Change> {
    let (head, text) = file.text.split_once("\n\n").unwrap_or((&file.text, ""));
    let value = |key: &str| head.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    let heading = |word: Option<&str>, all: &[(&str, &'static str)]| {
        all.iter().find(|(name, _)| Some(*name) == word).map(|(_, heading)| *heading)
    };
    let kind = heading(value("kind:"), &KINDS);
    let part = heading(value("part:"), &PARTS);
    if text.trim().is_empty() {
        bail!("{}: no text after kind and part", file.path);
    }
    Ok(Change {
        path: file.path.clone(),
        kind: kind.with_context(|| format!("{}: no known kind", file.path))?,
        part: part.with_context(|| format!("{}: no known part", file.path))?,
        text: text.trim().to_owned(),
    })
}

/// Returns the changelog with the changes in the section of the release. A section that is there
/// already, as one that is not released yet, is dated; otherwise one is made above the others.
pub(super) fn with_release(
    text: &str,
    version: Version,
    date: &str,
    changes: &[Change],
) -> Result<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let heading = format!("## [{version}]");
    let title = format!("{heading} - {date}");
    let is_section = |line: &String| line.starts_with("## ");
    let at = match lines.iter().position(|line| line.starts_with(&heading)) {
        Some(at) if lines[at].contains("not released") => {
            lines[at] = title;
            at
        }
        Some(at) => bail!("the changelog has {} already", lines[at]),
        None => {
            let at = lines.iter().position(is_section).unwrap_or(lines.len());
            lines.splice(at..at, [title, String::new()]);
            at
        }
    };
    for change in changes {
        let end = section_end(&lines, at);
        insert(&mut lines, at + 1, end, change);
    }
    Ok(lines.join("\n") + "\n")
}

/// Returns the section of a release.
pub(super) fn section(text: &str, version: Version) -> Option<String> {
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let at = lines.iter().position(|line| line.starts_with(&format!("## [{version}]")))?;
    Some(lines[at..section_end(&lines, at)].join("\n"))
}

fn section_end(lines: &[String], at: usize) -> usize {
    let next = lines[at + 1..].iter().position(|line| line.starts_with("## "));
    next.map_or(lines.len(), |offset| at + 1 + offset)
}

/// Inserts a change between two lines, under the headings of its kind and its part. Headings that
/// are missing are made behind those that are there.
fn insert(lines: &mut Vec<String>, begin: usize, end: usize, change: &Change) {
    let kind = format!("### {}", change.kind);
    let part = format!("**{}**", change.part);
    let begin = heading(lines, begin, end, |line| line == kind);
    let (kind_at, end) = match begin {
        Some(at) => (at, block_end(lines, at + 1, end, |line| line.starts_with("### "))),
        None => {
            let at = push_block(lines, end, &kind);
            (at, at + 1)
        }
    };
    let (part_at, end) = match heading(lines, kind_at + 1, end, |line| line.starts_with(&part)) {
        Some(at) => (at, block_end(lines, at + 1, end, |line| line.starts_with("**"))),
        None => {
            let at = push_block(lines, end, &part);
            (at, at + 1)
        }
    };
    let mut item: Vec<String> = change.text.lines().map(indented).collect();
    item[0] = item[0].replacen("  ", "- ", 1);
    let last = (part_at..end).rev().find(|&at| !lines[at].is_empty()).unwrap_or(part_at);
    if last == part_at {
        item.insert(0, String::new());
    }
    lines.splice(last + 1..last + 1, item);
}

fn indented(line: &str) -> String {
    if line.is_empty() { String::new() } else { format!("  {line}") }
}

fn heading(
    lines: &[String],
    begin: usize,
    end: usize,
    is_it: impl Fn(&str) -> bool,
) -> Option<usize> {
    (begin..end).find(|&at| is_it(&lines[at]))
}

fn block_end(lines: &[String], begin: usize, end: usize, ends: impl Fn(&str) -> bool) -> usize {
    (begin..end).find(|&at| ends(&lines[at])).unwrap_or(end)
}

/// Puts a heading at the end of a block, between blank lines, and returns its place.
fn push_block(lines: &mut Vec<String>, end: usize, heading: &str) -> usize {
    let last = (0..end).rev().find(|&at| !lines[at].is_empty()).map_or(0, |at| at + 1);
    lines.splice(last..last, [String::new(), heading.to_owned()]);
    last + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "# Changelog\n\n## [0.2.0], not released yet\n\n### Added\n\n\
        **Coordinator**\n\n- One.\n\n**Locks** (crate `l`)\n\n- Two.\n\n### Fixed\n\n\
        **Locks**\n\n- Three.\n\n## [0.1.0] - 2026-01-01\n\n### Added\n\n**Locks**\n\n- Old.\n";

    fn change(name: &str, head: &str, text: &str) -> SourceFile {
        SourceFile::sample(&format!("changes/{name}.md"), &format!("{head}\n\n{text}\n"))
    }

    fn release(files: &[SourceFile], version: &str) -> Result<String> {
        let changes = read_changes(files)?;
        with_release(BEFORE, version.parse().unwrap(), "2026-11-27", &changes)
    }

    #[test]
    fn changes_go_under_their_kind_and_part() {
        let files = [
            change("b", "kind: fixed\npart: at", "Five\nmore.\n\nAnd more."),
            change("a", "kind: added\npart: coordinator", "Four."),
            change("c", "kind: changed\npart: cli", "Six."),
            change("d", "kind: added\npart: locks", "Seven."),
        ];
        let text = release(&files, "0.2.0").unwrap();
        assert_eq!(
            text,
            "# Changelog\n\n## [0.2.0] - 2026-11-27\n\n### Added\n\n\
             **Coordinator**\n\n- One.\n- Four.\n\n**Locks** (crate `l`)\n\n- Two.\n- Seven.\n\n\
             ### Fixed\n\n**Locks**\n\n- Three.\n\n\
             **AT mode**\n\n- Five\n  more.\n\n  And more.\n\n\
             ### Changed\n\n**Command line**\n\n- Six.\n\n\
             ## [0.1.0] - 2026-01-01\n\n### Added\n\n**Locks**\n\n- Old.\n"
        );
    }

    #[test]
    fn a_release_without_a_section_gets_one_above_the_others() {
        let text = release(&[change("a", "kind: fixed\npart: xa", "Four.")], "0.3.0").unwrap();
        let begin = "# Changelog\n\n## [0.3.0] - 2026-11-27\n\n### Fixed\n\n**Two-phase commit**\n\n\
            - Four.\n\n## [0.2.0], not released yet\n";
        assert!(text.starts_with(begin), "{text}");
        let section = section(&text, "0.3.0".parse().unwrap()).unwrap();
        assert!(section.ends_with("- Four.\n"), "{section}");
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert!(release(&[], "0.1.0").is_err(), "released before");
        assert!(release(&[change("a", "kind: new\npart: at", "Text.")], "0.2.0").is_err());
        assert!(release(&[change("a", "kind: fixed\npart: x", "Text.")], "0.2.0").is_err());
        assert!(release(&[change("a", "kind: fixed\npart: at", "")], "0.2.0").is_err());
    }
}
