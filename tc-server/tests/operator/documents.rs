//! The manual against the code.

use std::collections::BTreeSet;
use std::path::Path;

/// Codes of these areas are this crate's own to explain.
const AREAS: [&str; 3] = ["HF-CFG-", "HF-CLI-", "HF-ADM-"];

#[test]
fn every_code_is_explained_and_every_explained_code_exists() {
    let mut used = BTreeSet::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut used);
    let errors = include_str!("../../../docs/errors.md");
    let explained: BTreeSet<String> = errors
        .lines()
        .filter_map(|line| line.strip_prefix("- **")?.split_once("**"))
        .map(|(code, _)| code.to_owned())
        .filter(|code| AREAS.iter().any(|area| code.starts_with(area)))
        .collect();
    assert!(used.len() > 20, "the sources were not found");
    assert_eq!(used, explained);
}

/// The codes in string literals of the sources.
fn collect(directory: &Path, used: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, used);
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let literals = text.split('"').filter(|part| {
            let plain = |c: char| c.is_ascii_uppercase() || c == '-';
            part.chars().all(plain) && AREAS.iter().any(|area| part.starts_with(area))
        });
        used.extend(literals.map(str::to_owned));
    }
}

#[test]
fn every_exit_code_is_in_the_manual() {
    use handfast_server::cli::Exit;
    let manual = include_str!("../../../docs/operate.md");
    let exits = [
        Exit::Done,
        Exit::Failed,
        Exit::Usage,
        Exit::NotFound,
        Exit::Refused,
        Exit::Unreachable,
        Exit::Unauthorised,
        Exit::Configuration,
        Exit::ServerFailed,
        Exit::CutShort,
    ];
    for exit in exits {
        assert!(manual.contains(&format!("\n| {} | ", exit as u8)), "{exit:?} is missing");
    }
}
