//! Commands of the program `handfast` that pages quote: the reference, where every help text stands
//! as the program prints it, knows their subcommands and options.

use std::collections::BTreeMap;

use super::markdown::{self, PageLine};
use crate::tree::SourceFile;

/// The page with every help text, each under a heading with its command.
const REFERENCE: &str = "docs/reference/command-line.md";
/// The command whose help text has the options of all that ask a running coordinator.
const REMOTE: &str = "handfast status";
/// Where commands of earlier versions may stand.
const HISTORY: [&str; 3] = ["CHANGELOG.md", "changes/", "tools/bench/results/"];
/// Words that the program understands without a help text of their own.
const BUILT_IN: [&str; 3] = ["help", "--help", "--version"];

/// The help texts by their commands, such as `handfast tx ls`.
type HelpTexts<'a> = BTreeMap<&'a str, &'a str>;

/// Finds subcommands and options that are not there.
pub(super) fn check(files: &[SourceFile]) -> Vec<String> {
    let Some(reference) = files.iter().find(|file| file.path == REFERENCE) else {
        return vec![format!("{REFERENCE}: is missing")];
    };
    let helps = help_texts(&reference.text);
    let is_history = |path: &str| HISTORY.iter().any(|it| path.starts_with(it));
    let mut complaints = Vec::new();
    for page in files.iter().filter(|file| file.path.ends_with(".md") && !is_history(&file.path)) {
        for line in markdown::lines(&page.text) {
            let faults = commands(line).into_iter().flat_map(|command| faults(command, &helps));
            complaints.extend(faults.map(|what| format!("{}:{}: {what}", page.path, line.number)));
        }
    }
    complaints
}

fn help_texts(reference: &str) -> HelpTexts<'_> {
    let sections = reference.split("\n### ").filter(|section| section.starts_with("handfast"));
    sections.filter_map(|section| section.split_once('\n')).collect()
}

/// Returns the commands of a line: in a block it is one by itself, in prose they are in code spans.
fn commands(line: PageLine<'_>) -> Vec<&str> {
    let is_command = |text: &&str| text.starts_with("handfast ");
    if line.is_code {
        let text = line.text.trim_start();
        return Some(text.strip_prefix("$ ").unwrap_or(text))
            .filter(is_command)
            .into_iter()
            .collect();
    }
    line.text.split('`').skip(1).step_by(2).filter(is_command).collect()
}

/// Finds what a command has that its help text does not.
fn faults(command: &str, helps: &HelpTexts<'_>) -> Vec<String> {
    // Behind it is a comment of the shell, or the value of a label.
    let command = command.split('#').next().unwrap_or_default();
    let mut path = "handfast".to_owned();
    for word in command.split_whitespace().skip(1) {
        let longer = format!("{path} {word}");
        if helps.contains_key(longer.as_str()) {
            path = longer;
        } else if has_subcommands(&path, helps) && is_word(word) && !BUILT_IN.contains(&word) {
            return vec![format!("{path} has no {word}")];
        } else {
            break;
        }
    }
    let helps: Vec<&str> =
        [path.as_str(), REMOTE].iter().filter_map(|it| helps.get(it).copied()).collect();
    let is_known = |option: &str| {
        BUILT_IN.contains(&option) || helps.iter().any(|help| has_option(help, option))
    };
    let unknown = options(command).filter(|option| !is_known(option));
    unknown.map(|option| format!("{path} has no {option}")).collect()
}

fn has_subcommands(path: &str, helps: &HelpTexts<'_>) -> bool {
    let start = format!("{path} ");
    helps.keys().any(|other| other.starts_with(&start))
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_lowercase() || c == '-')
}

/// Returns the long options of a command, wherever brackets and bars stand around them.
fn options(command: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let words = command.split(move |c| !is_part(c));
    words.filter(|word| word.strip_prefix("--").is_some_and(is_word))
}

fn has_option(help: &str, option: &str) -> bool {
    options(help).any(|known| known == option)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(page: &str) -> Vec<String> {
        let reference = "# The command line\n\n### handfast status\n\n--json\n\n### handfast tx\n\n\
                         ### handfast tx ls\n\n--label <LABEL>\n\n### handfast serve\n";
        let files =
            [SourceFile::sample(REFERENCE, reference), SourceFile::sample("docs/a.md", page)];
        check(&files)
    }

    #[test]
    fn commands_that_are_there_are_fine() {
        let block = "```\n$ handfast tx ls --label order=42 --json   # --gone\nhandfast = 1\n```\n";
        assert!(complaints(block).is_empty());
        let prose =
            "`handfast tx ls [--label L] [--json]`, `handfast serve --help`, a handfast gone";
        assert!(complaints(prose).is_empty());
    }

    #[test]
    fn commands_that_are_gone_are_found() {
        assert_eq!(complaints("`handfast gone`"), ["docs/a.md:1: handfast has no gone"]);
        assert_eq!(complaints("`handfast tx gone`"), ["docs/a.md:1: handfast tx has no gone"]);
        let expected = ["docs/a.md:2: handfast tx ls has no --key"];
        assert_eq!(complaints("```\nhandfast tx ls --key 7\n```"), expected);
    }

    #[test]
    fn history_may_name_what_is_gone() {
        let files = [
            SourceFile::sample(REFERENCE, "### handfast status\n"),
            SourceFile::sample("CHANGELOG.md", "`handfast gone`"),
        ];
        assert!(check(&files).is_empty());
    }
}
