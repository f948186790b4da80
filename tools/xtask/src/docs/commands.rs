//! Commands of this repository that pages quote: their subcommands, packages and examples exist.
//! Those of the program `handfast` are in `program`.

use std::collections::BTreeSet;

use clap::CommandFactory;

use crate::Task;
use crate::tree::SourceFile;

/// Returns the names of the subcommands of `cargo xtask`.
pub(super) fn subcommands() -> BTreeSet<String> {
    Task::command().get_subcommands().map(|command| command.get_name().to_owned()).collect()
}

/// Finds commands that are not there.
pub(super) fn check(files: &[SourceFile], subcommands: &BTreeSet<String>) -> Vec<String> {
    let packages: BTreeSet<&str> = files.iter().filter_map(package_name).collect();
    let examples: BTreeSet<&str> = files.iter().filter_map(|file| example(&file.path)).collect();
    let mut complaints = Vec::new();
    for page in files.iter().filter(|file| file.path.ends_with(".md")) {
        for (number, line) in page.lines() {
            let mut complain = |what: String| {
                complaints.push(format!("{}:{number}: {what}", page.path));
            };
            for name in words_after(line, "cargo xtask ") {
                if !subcommands.contains(name) {
                    complain(format!("cargo xtask has no {name}"));
                }
            }
            if !["cargo run", "cargo test", "cargo build"].iter().any(|it| line.contains(it)) {
                continue;
            }
            for name in words_after(line, " -p ").filter(|name| !packages.contains(name)) {
                complain(format!("no package {name}"));
            }
            for name in words_after(line, " --example ").filter(|name| !examples.contains(name)) {
                complain(format!("no example {name}"));
            }
        }
    }
    complaints
}

/// Returns the names that follow the places of `before`. A placeholder in capitals is none.
fn words_after<'a>(line: &'a str, before: &'a str) -> impl Iterator<Item = &'a str> {
    let rest = line.match_indices(before).map(move |(at, _)| &line[at + before.len()..]);
    rest.filter_map(|rest| {
        let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
        let name = &rest[..rest.find(|c| !is_part(c)).unwrap_or(rest.len())];
        name.starts_with(|c: char| c.is_ascii_lowercase()).then_some(name)
    })
}

fn package_name(file: &SourceFile) -> Option<&str> {
    if !file.path.ends_with("Cargo.toml") {
        return None;
    }
    let (_, package) = file.text.split_once("[package]")?;
    let (_, name) = package.split_once("name = \"")?;
    name.split_once('"').map(|(name, _)| name)
}

/// Returns the name of the example that a path holds: `examples/NAME.rs` or
/// `examples/NAME/main.rs`, in any package.
fn example(path: &str) -> Option<&str> {
    let (_, name) = path.split_once("/examples/")?;
    name.strip_suffix("/main.rs").or_else(|| name.strip_suffix(".rs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(line: &str) -> Vec<String> {
        let files = [
            SourceFile::sample("docs/a.md", line),
            SourceFile::sample("b/Cargo.toml", "[package]\nname = \"handfast-b\"\n"),
            SourceFile::sample("b/examples/hello.rs", ""),
        ];
        check(&files, &BTreeSet::from(["tidy".to_owned()]))
    }

    #[test]
    fn commands_that_are_there_are_fine() {
        assert!(complaints("`cargo xtask tidy`, `cargo xtask NAME`").is_empty());
        assert!(complaints("cargo run -p handfast-b --example hello").is_empty());
    }

    #[test]
    fn commands_that_are_gone_are_found() {
        assert_eq!(complaints("`cargo xtask tydi`"), ["docs/a.md:1: cargo xtask has no tydi"]);
        assert_eq!(complaints("cargo test -p gone"), ["docs/a.md:1: no package gone"]);
        let example = "cargo run -p handfast-b --example gone";
        assert_eq!(complaints(example), ["docs/a.md:1: no example gone"]);
    }
}
