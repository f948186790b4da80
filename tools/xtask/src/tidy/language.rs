//! Sentences without a named subject, and names that the glossary has ruled out.
//!
//! `docs/glossary.md` gives each word one meaning. Its table under "Not used here" is read here: no
//! type is declared under a name that stands in the first column.

use std::collections::{BTreeMap, BTreeSet};

use crate::tree::SourceFile;

use super::Complaint;
use super::words::declared_type;

/// Pronouns that stand where a sentence should name the request, the client or the program.
const PRONOUNS: &[&str] = &["whoever", "nobody", "he", "him", "his"];
/// Files in which pronouns are names of other people's things, and the text around each.
const QUOTATIONS: &[(&str, &str)] = &[
    // The account of Unix that servers run under where root may not run them.
    ("quality/test-services/src/process.rs", "\"nobody\""),
    ("quality/test-services/src/process.rs", "nor nobody"),
];
/// The file with the pronouns above.
const SELF: &str = "tools/xtask/src/tidy/language.rs";

const GLOSSARY: &str = "docs/glossary.md";
const NOT_USED: &str = "## Not used here";

/// From this many crates on, a type name is asked about.
const CRATES_MAX: usize = 3;

/// Finds all three.
pub(super) fn check(files: &[SourceFile]) -> Vec<Complaint> {
    let mut complaints: Vec<Complaint> = files.iter().flat_map(check_pronouns).collect();
    complaints.extend(check_glossary(files));
    complaints.extend(check_types(files));
    complaints
}

fn check_pronouns(file: &SourceFile) -> Vec<Complaint> {
    let is_prose = file.is_rust() || file.path.ends_with(".md");
    if !is_prose || file.path == SELF {
        return Vec::new();
    }
    let complain = |(at, line): (usize, &str)| {
        let pronoun = pronoun_in(&without_quotations(&file.path, line))?;
        Some(Complaint::at(file, at, format!("`{pronoun}`: name the subject")))
    };
    file.lines().filter_map(complain).collect()
}

fn without_quotations(path: &str, line: &str) -> String {
    let quoted = QUOTATIONS.iter().filter(|(quoted_in, _)| *quoted_in == path);
    quoted.fold(line.to_owned(), |line, (_, text)| line.replace(text, ""))
}

fn pronoun_in(line: &str) -> Option<&'static str> {
    let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.find_map(|word| PRONOUNS.iter().find(|it| word.eq_ignore_ascii_case(it)).copied())
}

/// Finds types whose names the glossary rules out.
fn check_glossary(files: &[SourceFile]) -> Vec<Complaint> {
    let Some(glossary) = files.iter().find(|file| file.path == GLOSSARY) else {
        return vec![Complaint::about(GLOSSARY, "is missing")];
    };
    let not_used = not_used(&glossary.text);
    if not_used.is_empty() {
        return vec![Complaint::about(GLOSSARY, format!("no table under `{NOT_USED}`"))];
    }
    let mut complaints = Vec::new();
    for (file, at, name) in declared_types(files) {
        if let Some(instead) = not_used.get(name.as_str()) {
            let what = format!("`{name}`: the glossary says {instead}");
            complaints.push(Complaint::at(file, at, what));
        }
    }
    complaints
}

/// Returns the names of the table, each with what its second column says.
fn not_used(glossary: &str) -> BTreeMap<&str, &str> {
    let rows = glossary.lines().skip_while(|line| *line != NOT_USED).skip(1);
    let rows = rows.take_while(|line| !line.starts_with("## "));
    let mut names = BTreeMap::new();
    for row in rows.filter(|row| row.starts_with("| `")) {
        let mut cells = row.trim_matches('|').split('|').map(str::trim);
        let (Some(first), Some(instead)) = (cells.next(), cells.next()) else { continue };
        names.extend(first.split('`').skip(1).step_by(2).map(|name| (name, instead)));
    }
    names
}

/// Finds type names that so many crates declare that a reader cannot know which one is meant.
fn check_types(files: &[SourceFile]) -> Vec<Complaint> {
    let crates: BTreeSet<&str> =
        files.iter().filter_map(|file| file.path.strip_suffix("/Cargo.toml")).collect();
    let mut declared: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for (file, _, name) in declared_types(files) {
        if let Some(home) = home_of(&file.path, &crates) {
            declared.entry(name).or_default().insert(home);
        }
    }
    let allowed = |name: &str| ONE_MEANING.iter().any(|(names, _)| names.contains(&name));
    let several = declared.into_iter().filter(|(_, homes)| homes.len() >= CRATES_MAX);
    let several = several.filter(|(name, _)| !allowed(name));
    several
        .map(|(name, homes)| {
            let homes: Vec<&str> = homes.into_iter().collect();
            let what = format!("{} crates declare a type `{name}`", homes.len());
            Complaint::about(&homes.join(", "), what)
        })
        .collect()
}

fn home_of<'c>(path: &str, crates: &BTreeSet<&'c str>) -> Option<&'c str> {
    let within = |home: &&&str| path.strip_prefix(**home).is_some_and(|rest| rest.starts_with('/'));
    crates.iter().filter(within).max_by_key(|home| home.len()).copied()
}

fn declared_types(files: &[SourceFile]) -> impl Iterator<Item = (&SourceFile, usize, String)> {
    files.iter().filter(|file| file.is_rust()).flat_map(|file| {
        let named = |(at, line): (usize, String)| Some((file, at, declared_type(&line)?.to_owned()));
        file.code_lines().filter_map(named)
    })
}
