//! As much of Markdown as the checks need: lines in and outside of code, links, headings.

use std::collections::BTreeMap;
use std::ops::Range;

/// A line of a page, without its end.
#[derive(Debug, Clone, Copy)]
pub(super) struct PageLine<'a> {
    /// From 1.
    pub(super) number: usize,
    pub(super) text: &'a str,
    /// Whether it stands in a fenced block or is one of its fences.
    pub(super) is_code: bool,
}

/// Returns the lines of a page.
pub(super) fn lines(page: &str) -> Vec<PageLine<'_>> {
    let mut is_inside = false;
    let mut found = Vec::new();
    for (at, text) in page.lines().enumerate() {
        let is_fence = text.trim_start().starts_with("```");
        found.push(PageLine { number: at + 1, text, is_code: is_inside || is_fence });
        is_inside ^= is_fence;
    }
    found
}

/// A link within a line, by the places of its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Link {
    /// From the opening bracket to the closing parenthesis.
    pub(super) whole: Range<usize>,
    pub(super) text: Range<usize>,
    pub(super) target: Range<usize>,
}

/// Returns the inline links of a line of prose. A link in a code span is none.
pub(super) fn links(line: &str) -> Vec<Link> {
    let mut found = Vec::new();
    for (middle, _) in line.match_indices("](") {
        let is_in_code = line[..middle].matches('`').count() % 2 == 1;
        let Some(start) = opening_bracket(&line[..middle]) else { continue };
        let Some(length) = line[middle + 2..].find(')') else { continue };
        if is_in_code {
            continue;
        }
        let end = middle + 2 + length;
        found.push(Link {
            whole: start..end + 1,
            text: start + 1..middle,
            target: middle + 2..end,
        });
    }
    found
}

/// Returns the place of the bracket that the end of the text would close.
fn opening_bracket(text: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, character) in text.char_indices().rev() {
        match character {
            ']' => depth += 1,
            '[' if depth == 0 => return Some(at),
            '[' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Returns the anchors of a page's headings, as GitHub and mdBook make them.
pub(super) fn anchors(page: &str) -> Vec<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut found = Vec::new();
    for line in lines(page).iter().filter(|line| !line.is_code) {
        let Some(heading) = heading(line.text) else { continue };
        let anchor = anchor_of(heading);
        let earlier = seen.entry(anchor.clone()).or_default();
        found.push(match *earlier {
            0 => anchor,
            count => format!("{anchor}-{count}"),
        });
        *earlier += 1;
    }
    found
}

fn heading(line: &str) -> Option<&str> {
    let text = line.trim_start_matches('#');
    (text.len() < line.len()).then_some(text)?.strip_prefix(' ').map(str::trim)
}

fn anchor_of(heading: &str) -> String {
    let mut plain = heading.to_owned();
    for link in links(heading).iter().rev() {
        plain.replace_range(link.whole.clone(), &heading[link.text.clone()]);
    }
    let kept = plain.chars().filter_map(|character| match character {
        ' ' => Some('-'),
        '-' | '_' => Some(character),
        other => other.is_alphanumeric().then_some(other),
    });
    kept.flat_map(char::to_lowercase).collect()
}

/// Returns the path that a link in `page` means, both relative to the root; `None` above the root.
pub(super) fn resolve(page: &str, target: &str) -> Option<String> {
    let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            other => parts.push(other),
        }
    }
    Some(parts.join("/"))
}

/// Whether a link leads out of the tree.
pub(super) fn is_external(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_outside_of_code() {
        let line = "See [a `b`](c.md#d), `[no](x)` and [e](f).";
        let found: Vec<(&str, &str)> =
            links(line).into_iter().map(|link| (&line[link.text], &line[link.target])).collect();
        assert_eq!(found, [("a `b`", "c.md#d"), ("e", "f")]);
    }

    #[test]
    fn lines_of_a_fenced_block_are_code() {
        let page = "a\n```sh\n# b\n```\nc\n";
        let code: Vec<bool> = lines(page).iter().map(|line| line.is_code).collect();
        assert_eq!(code, [false, true, true, true, false]);
    }

    #[test]
    fn anchors_are_those_of_github() {
        let page = "# The journal's own `tests`\n## A\n```\n# no\n```\n## A\n#no\n";
        assert_eq!(anchors(page), ["the-journals-own-tests", "a", "a-1"]);
    }

    #[test]
    fn paths_are_resolved_from_the_page() {
        assert_eq!(resolve("docs/a/b.md", "../c.md").as_deref(), Some("docs/c.md"));
        assert_eq!(resolve("README.md", "docs/c.md").as_deref(), Some("docs/c.md"));
        assert_eq!(resolve("README.md", "../c.md"), None);
    }
}
