//! Quoted files: a page that shows a whole file of the tree shows it as it is.
//!
//! `<!-- quoted: PATH -->` stands in the line before the block.

use crate::tree::SourceFile;

use super::markdown::lines;

const MARK: (&str, &str) = ("<!-- quoted: ", " -->");

/// Finds quotations that differ from their files.
pub(super) fn check(files: &[SourceFile]) -> Vec<String> {
    let pages = files.iter().filter(|file| file.path.ends_with(".md"));
    pages.flat_map(|page| check_page(page, files)).collect()
}

fn check_page(page: &SourceFile, files: &[SourceFile]) -> Vec<String> {
    let lines = lines(&page.text);
    let mut complaints = Vec::new();
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| !line.is_code) {
        let Some(path) = line.text.strip_prefix(MARK.0).and_then(|rest| rest.strip_suffix(MARK.1))
        else {
            continue;
        };
        let block = lines[at + 1..].iter().take_while(|line| line.is_code).map(|line| line.text);
        let quoted: Vec<&str> = block.skip(1).take_while(|text| *text != "```").collect();
        let what = match files.iter().find(|file| file.path == path) {
            None => "no such file",
            Some(file) if file.text.lines().eq(quoted) => continue,
            Some(_) => "the quotation differs",
        };
        complaints.push(format!("{}:{}: {path}: {what}", page.path, line.number));
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(block: &str) -> Vec<String> {
        let page = format!("<!-- quoted: a.rs -->\n```rust\n{block}\n```\nMore.\n```\nb\n```\n");
        let file = SourceFile::sample("a.rs", "fn a() {}\n\nfn b() {}\n");
        check(&[SourceFile::sample("docs/a.md", &page), file])
    }

    #[test]
    fn a_quotation_that_has_changed_is_found() {
        assert!(complaints("fn a() {}\n\nfn b() {}").is_empty());
        assert_eq!(complaints("fn a() {}"), ["docs/a.md:1: a.rs: the quotation differs"]);
    }
}
