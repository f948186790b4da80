//! Names that say nothing, and words that are not the field's.

use crate::tree::SourceFile;

use super::Complaint;

/// A word that must not be part of a declared name, and why.
const WORDS: &[(&str, &str)] = &[
    ("manager", "say what it does"),
    ("helper", "say what it does"),
    ("util", "say what it does"),
    ("utils", "say what it does"),
    ("info", "say what is known"),
    ("rollbacked", "it is rolled back"),
];

/// Further banned names of types: functions and modules may speak of a database's session.
const TYPE_WORDS: &[(&str, &str)] = &[("session", "the distributed transaction is a global")];

/// Names that other people's traits and types dictate.
const FOREIGN: &[&str] = &["type_info", "connect_info", "ConnectInfo", "get_info"];

const DECLARING: &[&str] = &["struct", "enum", "trait", "type", "fn", "mod", "union"];

/// Finds declarations with such names. The Seata edge spells as Seata does.
pub(super) fn check(files: &[SourceFile]) -> Vec<Complaint> {
    let ours = |file: &&SourceFile| file.is_rust() && !file.path.starts_with("seata-wire/");
    files.iter().filter(ours).flat_map(check_file).collect()
}

fn check_file(file: &SourceFile) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for (at, line) in file.code_lines() {
        let Some(name) = declared_name(&line) else { continue };
        if let Some((word, why)) = refused_word(name) {
            complaints.push(Complaint::at(file, at, format!("`{name}`: no `{word}`: {why}")));
        }
    }
    complaints
}

fn declared_name(line: &str) -> Option<&str> {
    name_behind(line, DECLARING)
}

/// Returns the name of the type that a line declares. An associated type is a name of its trait.
pub(super) fn declared_type(line: &str) -> Option<&str> {
    let is_associated = line.starts_with(' ') && line.trim_start().starts_with("type ");
    name_behind(line, &["struct", "enum", "trait", "type", "union"]).filter(|_| !is_associated)
}

fn name_behind<'l>(line: &'l str, declaring: &[&str]) -> Option<&'l str> {
    let mut words = line.split_whitespace();
    words.find(|word| declaring.contains(word))?;
    let name = words.next()?;
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
    Some(&name[..end])
}

fn refused_word(name: &str) -> Option<(&'static str, &'static str)> {
    if FOREIGN.contains(&name) {
        return None;
    }
    let parts = parts_of(name);
    let is_type = name.starts_with(char::is_uppercase);
    let mut words = WORDS.iter().chain(TYPE_WORDS.iter().filter(|_| is_type));
    words.find(|(word, _)| parts.iter().any(|part| part == word)).copied()
}

/// The words of a name, in lower case: `RowKeyMap` and `row_key_map` have the same ones.
fn parts_of(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for c in name.chars() {
        if c == '_' || c.is_uppercase() {
            parts.push(String::new());
        }
        if let Some(part) = parts.last_mut().filter(|_| c != '_') {
            part.extend(c.to_lowercase());
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(text: &str) -> Vec<String> {
        let files = [SourceFile::sample("a/src/lib.rs", text)];
        check(&files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn empty_words_are_found_in_declarations() {
        assert_eq!(
            complaints("pub struct LockManager;\n"),
            ["a/src/lib.rs:1: `LockManager`: no `manager`: say what it does"]
        );
        assert_eq!(
            complaints("struct GlobalSession;\n"),
            [
                "a/src/lib.rs:1: `GlobalSession`: no `session`: the distributed transaction is a global"
            ]
        );
        assert_eq!(complaints("mod util;\n").len(), 1);
    }

    #[test]
    fn uses_and_longer_words_are_not() {
        assert!(
            complaints("let manager = 1;\nfn handle_begin() {}\nstruct Information;\n").is_empty()
        );
    }
}
