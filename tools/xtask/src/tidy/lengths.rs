//! How long a line, a function and a file may be.

use crate::tree::SourceFile;

use super::Complaint;

const COLUMNS_MAX: usize = 100;
const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 500;

/// Lines and files of Rust, SQL and protobuf; functions of Rust.
pub(super) fn check(files: &[SourceFile]) -> Vec<Complaint> {
    let measured = |file: &&SourceFile| {
        [".rs", ".sql", ".proto"].iter().any(|ending| file.path.ends_with(ending))
    };
    let measured: Vec<&SourceFile> = files.iter().filter(measured).collect();
    let mut complaints: Vec<Complaint> =
        measured.iter().flat_map(|file| check_columns(file)).collect();
    for file in measured.iter().filter(|file| file.is_rust()) {
        complaints.extend(check_file(file));
        complaints.extend(check_functions(file));
    }
    complaints
}

/// Counts what a reader sees. Lines with text in quotes cannot always be broken, nor can the data
/// of tests; there only comments count.
fn check_columns(file: &SourceFile) -> Vec<Complaint> {
    let is_test = is_test(&file.path);
    let counts = |line: &str| is_comment(line) || !(is_test || line.contains('"'));
    file.lines()
        .filter(|(_, line)| line.chars().count() > COLUMNS_MAX && counts(line))
        .map(|(at, _)| Complaint::at(file, at, format!("longer than {COLUMNS_MAX} columns")))
        .collect()
}

fn is_comment(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("//") || line.starts_with("--")
}

fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

/// Tests do not count, neither at the end of a file nor in files of their own.
fn check_file(file: &SourceFile) -> Option<Complaint> {
    if is_test(&file.path) {
        return None;
    }
    let own = file.lines().take_while(|(_, line)| !line.starts_with("#[cfg(test)]")).count();
    (own > FILE_LINES_MAX)
        .then(|| Complaint::about(&file.path, format!("{own} lines: it holds two concepts")))
}

/// rustfmt puts the closing brace of a function under its first letter.
fn check_functions(file: &SourceFile) -> Vec<Complaint> {
    let lines: Vec<&str> = file.text.lines().collect();
    let mut complaints = Vec::new();
    for (at, line) in lines.iter().enumerate().filter(|(at, _)| opens_function(&lines[*at..])) {
        let indent = line.len() - line.trim_start().len();
        let end = format!("{}}}", " ".repeat(indent));
        let Some(length) = lines[at..].iter().position(|line| *line == end) else { continue };
        if length > FUNCTION_LINES_MAX {
            let what = format!("a function of {length} lines, at most {FUNCTION_LINES_MAX}");
            complaints.push(Complaint::at(file, at + 1, what));
        }
    }
    complaints
}

/// Whether a function with a body of several lines begins at the first of these.
fn opens_function(lines: &[&str]) -> bool {
    let mut words = lines[0].split_whitespace();
    let qualifier = |word: &&str| {
        word.starts_with("pub") || ["const", "async"].contains(word) || word.ends_with(')')
    };
    let is_function = words.find(|word| !qualifier(word)) == Some("fn");
    // The signature goes on to a brace; a declaration in a trait ends with a semicolon before.
    let mut ends =
        lines.iter().map(|line| line.trim_end()).filter(|line| line.ends_with(['{', ';', '}']));
    is_function && ends.next().is_some_and(|line| line.ends_with('{'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(text: &str) -> Vec<String> {
        let file = SourceFile::sample("a/src/lib.rs", text);
        check(&[file]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_long_line_is_found_and_a_long_string_is_not() {
        let long = format!("let a = {};\n", "b".repeat(100));
        assert_eq!(complaints(&long), ["a/src/lib.rs:1: longer than 100 columns"]);
        assert!(complaints(&format!("    \"{}\",\n", "b".repeat(100))).is_empty());
    }

    #[test]
    fn a_long_function_is_found() {
        let function = |lines: usize| {
            format!("    pub(crate) fn a() {{\n{}    }}\n", "        b();\n".repeat(lines))
        };
        assert_eq!(
            complaints(&function(70)),
            ["a/src/lib.rs:1: a function of 71 lines, at most 70"]
        );
        assert!(complaints(&function(69)).is_empty());
    }

    #[test]
    fn a_declaration_in_a_trait_is_no_function() {
        let text = format!(
            "trait A {{\n    fn a(\n        b: u8,\n    );\n{}    }}\n",
            "    // c\n".repeat(80)
        );
        assert!(complaints(&text).is_empty());
    }

    #[test]
    fn a_long_file_is_found_and_its_tests_do_not_count() {
        let found = complaints(&"use a;\n".repeat(501));
        assert_eq!(found, ["a/src/lib.rs: 501 lines: it holds two concepts"]);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "    use a;\n".repeat(501));
        assert!(complaints(&tests).is_empty());
    }
}
