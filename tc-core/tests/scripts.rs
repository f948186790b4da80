//! Runs the scripts in `tests/scripts/`: requests in, what leaves the coordinator out.
//!
//! After every command the invariants are checked, and a coordinator is loaded from the records
//! stored so far and compared (RECORDED). `UPDATE_GOLDENFILES=1` rewrites the expectations.

mod runner;
mod support;

use std::path::{Path, PathBuf};

use crate::runner::ScriptRunner;

#[test]
fn scripts() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let scripts = find_scripts(&root);
    assert!(scripts.len() >= 60, "only {} scripts found", scripts.len());
    for script in scripts {
        println!("{}", script.display());
        goldenscript::run(&mut ScriptRunner::new(), &script).expect("the script runs");
    }
}

fn find_scripts(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("the directory of scripts");
    let mut found: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .flat_map(|path| if path.is_dir() { find_scripts(&path) } else { vec![path] })
        .collect();
    found.sort();
    found
}
