//! Vectors: lines of `name: hexadecimal bytes`, with comments between them.

use std::path::PathBuf;

/// Every vector of a file.
pub(crate) fn vectors(file: &str) -> Vec<(String, Vec<u8>)> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors").join(file);
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().filter(|line| !line.starts_with('#')).map(parse).collect()
}

/// One vector of a file.
pub(crate) fn vector(file: &str, name: &str) -> Vec<u8> {
    vectors(file).into_iter().find(|(it, _)| it == name).unwrap().1
}

fn parse(line: &str) -> (String, Vec<u8>) {
    let (name, digits) = line.split_once(": ").unwrap();
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (name.to_owned(), (0..digits.len()).step_by(2).map(byte).collect())
}
