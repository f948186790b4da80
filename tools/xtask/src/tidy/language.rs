//! Sentences without a named subject or a main verb, and names that the glossary has ruled out.
//!
//! `docs/glossary.md` gives each word one meaning. Its table under "Not used here" is read here: no
//! type is declared under a name that stands in the first column.

use std::collections::{BTreeMap, BTreeSet};

use crate::tree::SourceFile;

use super::Complaint;
use super::words::declared_type;

/// Pronouns that stand where a sentence should name the request, the client or the program.
const PRONOUNS: &[&str] =
    &["whoever", "nobody", "somebody", "anybody", "everybody", "he", "him", "his"];
/// Words that begin a summary which names its item by a question, and mostly has no main verb.
const QUESTIONS: &[&str] = &["What", "Who", "Whose", "Whom", "Of"];
/// Files in which pronouns are names of other people's things, and the text around each.
const QUOTATIONS: &[(&str, &str)] = &[
    // The account of Unix that servers run under where root may not run them.
    ("quality/test-services/src/process.rs", "\"nobody\""),
    ("quality/test-services/src/process.rs", "nor nobody"),
    ("quality/test-services/src/process.rs", "or `nobody`"),
    // Pages that say which words are not used.
    (GLOSSARY, "whoever, who does"),
    (GLOSSARY, "nobody, somebody, anybody, everybody"),
    (GLOSSARY, "he, him, his, she"),
    ("docs/contribute/style.md", "whoever goes away while he waits"),
];
/// The file with the pronouns above.
const SELF: &str = "tools/xtask/src/tidy/language.rs";

const GLOSSARY: &str = "docs/glossary.md";
const NOT_USED: &str = "## Not used here";

/// The number of crates from which on a type name that all of them declare is a complaint.
const CRATES_MAX: usize = 3;

/// Type names that mean the same in each crate that declares them.
const ONE_MEANING: &[&str] = &[
    // The words of a command line or a request.
    "Arguments",
    "Command",
    "Options",
    // The product's nouns, which each side of a wire has its own type for.
    "Branch",
    "BranchState",
    "Change",
    "Coordinator",
    "Effect",
    "Event",
    "Global",
    "GlobalStatus",
    "LockMode",
    "Mode",
    "Outcome",
    "Query",
    "Request",
    "Resource",
    "RollbackReason",
    "RowLock",
    "Settings",
    // The terms of the field.
    "Broker",
    "Connection",
    "Dialect",
    "Fault",
    "Frame",
    "Plan",
    "Process",
    "Role",
    "Row",
    "Server",
    "Service",
    "Table",
    "Wire",
    // The example's business.
    "Product",
    "Report",
];

/// Finds pronouns, questions for summaries, and names of types.
pub(super) fn check(files: &[SourceFile]) -> Vec<Complaint> {
    let mut complaints: Vec<Complaint> = files.iter().flat_map(check_pronouns).collect();
    complaints.extend(files.iter().flat_map(check_summaries));
    complaints.extend(check_glossary(files));
    complaints.extend(check_types(files));
    complaints
}

fn check_pronouns(file: &SourceFile) -> Vec<Complaint> {
    let is_script = file.path.contains("/scripts/");
    let is_prose = file.is_rust() || file.path.ends_with(".md") || is_script;
    if !is_prose || file.path == SELF {
        return Vec::new();
    }
    let complain = |(at, line): (usize, &str)| {
        let pronoun = pronoun_in(&without_quotations(&file.path, line))?;
        Some(Complaint::at(file, at, format!("`{pronoun}`: name the subject")))
    };
    file.lines().filter_map(complain).collect()
}

/// Looks at the first line of each doc comment.
fn check_summaries(file: &SourceFile) -> Vec<Complaint> {
    if !file.is_rust() {
        return Vec::new();
    }
    let docs = file.lines().map(|(at, line)| (at, doc_text(line)));
    let mut complaints = Vec::new();
    let mut is_first = true;
    for (at, text) in docs {
        let word = text.filter(|_| is_first).and_then(|text| text.split(' ').next());
        if let Some(word) = word.filter(|word| QUESTIONS.contains(word)) {
            let what = format!("a summary that begins with `{word}`: begin with a noun or a verb");
            complaints.push(Complaint::at(file, at, what));
        }
        is_first = text.is_none();
    }
    complaints
}

fn doc_text(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))?;
    Some(text.trim_start())
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

/// Finds type names that so many crates declare that a reader cannot know which one is meant. A
/// type that only its own file sees, and the tests of a crate, are named for themselves.
fn check_types(files: &[SourceFile]) -> Vec<Complaint> {
    let declared = crates_that_declare(files);
    let homes = |name: &str| declared.get(name).map_or(0, BTreeSet::len);
    let mut complaints = Vec::new();
    for (name, homes) in declared.iter().filter(|(_, homes)| homes.len() >= CRATES_MAX) {
        if !ONE_MEANING.contains(&name.as_str()) {
            let places: Vec<&str> = homes.iter().copied().collect();
            let what = format!("{} crates declare a type `{name}`", homes.len());
            complaints.push(Complaint::about(&places.join(", "), what));
        }
    }
    for name in ONE_MEANING.iter().filter(|name| homes(name) < CRATES_MAX) {
        let what = format!("`{name}` is listed, and fewer than {CRATES_MAX} crates declare it");
        complaints.push(Complaint::about(SELF, what));
    }
    complaints
}

fn crates_that_declare(files: &[SourceFile]) -> BTreeMap<String, BTreeSet<&str>> {
    let crates: BTreeSet<&str> =
        files.iter().filter_map(|file| file.path.strip_suffix("/Cargo.toml")).collect();
    let mut declared: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for (file, at, name) in declared_types(files) {
        if !is_visible(file, at) {
            continue;
        }
        let home = home_of(&file.path, &crates).filter(|_| file.path.contains("/src/"));
        if let Some(home) = home {
            declared.entry(name).or_default().insert(home);
        }
    }
    declared
}

fn is_visible(file: &SourceFile, at: usize) -> bool {
    let line = file.lines().find_map(|(number, line)| (number == at).then_some(line));
    line.is_some_and(|line| line.trim_start().starts_with("pub"))
}

fn home_of<'c>(path: &str, crates: &BTreeSet<&'c str>) -> Option<&'c str> {
    let within = |home: &&&str| path.strip_prefix(**home).is_some_and(|rest| rest.starts_with('/'));
    crates.iter().filter(within).max_by_key(|home| home.len()).copied()
}

fn declared_types(files: &[SourceFile]) -> impl Iterator<Item = (&SourceFile, usize, String)> {
    files.iter().filter(|file| file.is_rust()).flat_map(|file| {
        let named = |(at, line): (usize, String)| {
            declared_type(&line).map(|name| (file, at, name.to_owned()))
        };
        file.code_lines().filter_map(named).collect::<Vec<_>>()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(files: &[(&str, &str)]) -> Vec<String> {
        let glossary = "# Glossary\n\n## Not used here\n\n| not used | use instead |\n| --- | --- |\n\
                        | `Desk`, `Works` | pending replies |\n";
        let files: Vec<SourceFile> = [(GLOSSARY, glossary)]
            .iter()
            .chain(files)
            .map(|(path, text)| SourceFile::sample(path, text))
            .collect();
        let complaints = check(&files).into_iter().map(|it| it.to_string());
        complaints.filter(|it| !it.contains("is listed")).collect()
    }

    #[test]
    fn a_pronoun_is_found_in_code_and_pages() {
        let found = complaints(&[
            ("a/src/lib.rs", "/// Whoever asks.\nfn ask() {} // The shell.\n"),
            ("docs/a.md", "He waits.\n"),
            ("a/tests/scripts/a", "# Nobody waits.\n"),
            ("a/data.toml", "his = 1\n"),
        ]);
        let expected = [
            "a/src/lib.rs:1: `whoever`: name the subject",
            "docs/a.md:1: `he`: name the subject",
            "a/tests/scripts/a:1: `nobody`: name the subject",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_question_for_a_summary_is_found() {
        let text =
            "//! Who asks.\n\n/// What it is.\n/// What follows is text.\nstruct Whatever;\n";
        let found = complaints(&[("a/src/lib.rs", text)]);
        let expected = [
            "a/src/lib.rs:1: a summary that begins with `Who`: begin with a noun or a verb",
            "a/src/lib.rs:3: a summary that begins with `What`: begin with a noun or a verb",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_quotation_is_not_a_pronoun() {
        let file = "quality/test-services/src/process.rs";
        assert!(complaints(&[(file, "for name in [preferred, \"nobody\"] {\n")]).is_empty());
        assert_eq!(complaints(&[(file, "// nobody\n")]).len(), 1);
    }

    #[test]
    fn a_name_that_the_glossary_rules_out_is_found() {
        let found = complaints(&[("a/src/lib.rs", "struct Desk;\nstruct Workshop;\n")]);
        assert_eq!(found, ["a/src/lib.rs:1: `Desk`: the glossary says pending replies"]);
    }

    #[test]
    fn a_glossary_without_its_table_is_found() {
        let found = check_glossary(&[SourceFile::sample(GLOSSARY, "# Glossary\n")]);
        assert_eq!(found.len(), 1);
        assert_eq!(check_glossary(&[]).len(), 1);
    }

    #[test]
    fn a_type_name_of_three_crates_is_found() {
        let crates = ["a", "b", "quality/c"];
        let declare = |visibility: &str, name: &str| {
            let mut files = vec![];
            for home in crates {
                files.push(SourceFile::sample(&format!("{home}/Cargo.toml"), ""));
                let text = format!("{visibility}struct {name};\n");
                files.push(SourceFile::sample(&format!("{home}/src/lib.rs"), &text));
            }
            let complaints = check_types(&files).into_iter().map(|it| it.to_string());
            complaints.filter(|it| !it.contains("is listed")).collect::<Vec<_>>()
        };
        assert_eq!(
            declare("pub(crate) ", "Lane"),
            ["a, b, quality/c: 3 crates declare a type `Lane`"]
        );
        assert!(declare("", "Lane").is_empty(), "its file alone sees it");
        assert!(declare("pub ", "Options").is_empty());
        let stale = check_types(&[]);
        assert_eq!(stale.len(), ONE_MEANING.len());
    }
}
