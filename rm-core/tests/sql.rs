//! Runs the text cases of the AT planner in `tests/sql/`: a dialect, tables and statements in;
//! plans, image queries, undo SQL and lock keys, or refusals, out.
//!
//! A file is blocks separated by empty lines. `dialect D` and `reads committed` hold until changed.
//! `table NAME ...` describes a table (see `cases`). A statement is `> SQL` with `args=N` in front
//! where arguments are bound; what follows up to the empty line is the expected output.
//! `UPDATE_GOLDENFILES=1` rewrites it.

#[cfg(test)]
mod cases;

use std::{fs, path::Path};

use cases::Case;

#[test]
fn every_case_file() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sql");
    let mut files: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    files.sort();
    assert!(files.len() >= 14, "the case files are gone: {} found", files.len());
    let failed: Vec<String> = files.iter().filter_map(|file| check(file)).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

/// Runs one file, and returns the difference, if there is one.
fn check(file: &Path) -> Option<String> {
    let written = fs::read_to_string(file).expect("the file was listed");
    let found = run(&written);
    if found == written {
        return None;
    }
    if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
        fs::write(file, found).expect("case files can be written");
        return None;
    }
    let lines = written.lines().zip(found.lines()).enumerate();
    let first = lines
        .filter(|(_, (a, b))| a != b)
        .map(|(number, (a, b))| format!("{}:{}\n- {a}\n+ {b}", file.display(), number + 1));
    Some(first.take(1).next().unwrap_or_else(|| format!("{}: length differs", file.display())))
}

/// Returns the file's text with the planner's output as every expectation.
fn run(written: &str) -> String {
    let mut case = Case::default();
    let blocks: Vec<String> =
        written.trim_end().split("\n\n").map(|block| case.run(block)).collect();
    format!("{}\n", blocks.join("\n\n"))
}
