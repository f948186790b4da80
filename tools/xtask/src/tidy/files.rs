//! Files that no other file includes, and files that must be there.

use std::collections::BTreeSet;

use crate::tree::SourceFile;

use super::Complaint;

const REQUIRED: &[&str] =
    &["ARCHITECTURE.md", "CHANGELOG.md", "Cargo.lock", "LICENSE", "README.md", "rustfmt.toml"];

/// Checks both.
pub(super) fn check(files: &[SourceFile]) -> Vec<Complaint> {
    let mut complaints = check_required(files);
    complaints.extend(check_modules(files));
    complaints.extend(check_migrations(files));
    complaints.extend(check_pages(files));
    complaints
}

fn check_required(files: &[SourceFile]) -> Vec<Complaint> {
    let there: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
    let missing = REQUIRED.iter().filter(|path| !there.contains(*path));
    missing.map(|path| Complaint::about(path, "is missing")).collect()
}

/// Checks that some source file includes each page with Rust, so that its fragments are compiled.
fn check_pages(files: &[SourceFile]) -> Vec<Complaint> {
    let has_rust = |page: &&SourceFile| page.path.ends_with(".md") && page.text.contains("```rust");
    let is_included = |page: &SourceFile| {
        let end = format!("/{}\")]", page.path);
        files.iter().any(|file| file.is_rust() && file.text.contains(&end))
    };
    let untested = files.iter().filter(has_rust).filter(|page| !is_included(page));
    untested
        .map(|page| Complaint::about(&page.path, "no test compiles the Rust in this page"))
        .collect()
}

/// A module below `src/` or `tests/` must be declared by a file that can declare it.
fn check_modules(files: &[SourceFile]) -> Vec<Complaint> {
    let rust: Vec<&SourceFile> = files.iter().filter(|file| file.is_rust()).collect();
    let mut complaints = Vec::new();
    for file in &rust {
        let Some((name, parents)) = module_and_parents(&file.path) else { continue };
        let declares = |parent: &&&SourceFile| {
            is_one_of(&parent.path, &parents) && declares_module(parent, name)
        };
        if !rust.iter().any(|parent| declares(&parent)) {
            complaints.push(Complaint::about(&file.path, "no file declares this module"));
        }
    }
    complaints
}

/// A module's name and the files that may declare it; `None` for a crate's root.
fn module_and_parents(path: &str) -> Option<(&str, Vec<String>)> {
    let (folder, file) = path.rsplit_once('/')?;
    let stem = file.strip_suffix(".rs")?;
    let is_root = ["lib", "main", "build"].contains(&stem)
        || ["tests", "benches", "bin", "examples", "fuzz_targets", "cases"]
            .iter()
            .any(|roots| folder.rsplit('/').next() == Some(roots));
    if is_root {
        return None;
    }
    let (name, place) =
        if stem == "mod" { folder.rsplit_once('/').map(|(p, n)| (n, p))? } else { (stem, folder) };
    let mut parents: Vec<String> = ["lib.rs", "main.rs", "mod.rs", "*.rs"]
        .iter()
        .map(|root| format!("{place}/{root}"))
        .collect();
    parents.push(format!("{place}.rs"));
    Some((name, parents))
}

/// `folder/*.rs` stands for the roots of test programs beside a shared module.
fn is_one_of(path: &str, parents: &[String]) -> bool {
    parents.iter().any(|parent| match parent.strip_suffix("/*.rs") {
        Some(folder) => {
            folder.ends_with("tests") && path.rsplit_once('/').is_some_and(|(dir, _)| dir == folder)
        }
        None => parent == path,
    })
}

fn declares_module(file: &SourceFile, name: &str) -> bool {
    let declaration = format!("mod {name};");
    file.code_lines().any(|(_, line)| {
        line.trim().split_once("mod ").is_some_and(|(before, _)| {
            (before.is_empty() || before.starts_with("pub")) && line.contains(&declaration)
        })
    })
}

fn check_migrations(files: &[SourceFile]) -> Vec<Complaint> {
    let library = files.iter().find(|file| file.path == "migrations/lib.rs");
    let embeds = |file: &&SourceFile| {
        let name = file.path.trim_start_matches("migrations/");
        library.is_some_and(|library| library.text.contains(&format!("include_str!(\"{name}\")")))
    };
    let sql =
        |file: &&SourceFile| file.path.starts_with("migrations/") && file.path.ends_with(".sql");
    let stray = files.iter().filter(sql).filter(|file| !embeds(file));
    stray.map(|file| Complaint::about(&file.path, "migrations/lib.rs does not embed it")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stray(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<SourceFile> =
            files.iter().map(|(path, text)| SourceFile::sample(path, text)).collect();
        check_modules(&files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_module_without_a_declaration_is_found() {
        let found = stray(&[("a/src/lib.rs", "mod b;\n"), ("a/src/b.rs", ""), ("a/src/c.rs", "")]);
        assert_eq!(found, ["a/src/c.rs: no file declares this module"]);
    }

    #[test]
    fn nested_modules_and_test_modules_are_followed() {
        let found = stray(&[
            ("a/src/lib.rs", "pub(crate) mod b;\n"),
            ("a/src/b/mod.rs", "mod c;\n"),
            ("a/src/b/c.rs", "mod d;\n"),
            ("a/src/b/c/d.rs", ""),
            ("a/tests/all.rs", "mod common;\n"),
            ("a/tests/common/mod.rs", ""),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn a_missing_lock_file_is_found() {
        let found = check_required(&[SourceFile::sample("README.md", "")]);
        assert!(found.contains(&Complaint::about("Cargo.lock", "is missing")));
    }

    #[test]
    fn a_migration_that_is_not_embedded_is_found() {
        let files = [
            SourceFile::sample("migrations/lib.rs", "include_str!(\"mysql/1.sql\")"),
            SourceFile::sample("migrations/mysql/1.sql", ""),
            SourceFile::sample("migrations/mysql/2.sql", ""),
        ];
        let found = check_migrations(&files);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].path, "migrations/mysql/2.sql");
    }
    #[test]
    fn rust_in_a_page_that_nothing_compiles_is_found() {
        let page = "```rust\nfn main() {}\n```\n";
        let files = [
            SourceFile::sample("a/src/lib.rs", "#[doc = include_str!(\"../../README.md\")]"),
            SourceFile::sample("README.md", page),
            SourceFile::sample("docs/more.md", page),
            SourceFile::sample("docs/words.md", "No code."),
        ];
        let found = check_pages(&files);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].path, "docs/more.md");
    }
}
