//! The names that a release promises to keep: error codes, configuration keys, commands, requests
//! of the HTTP API with their messages, metrics, and the fields of the native API.
//!
//! `cargo xtask release` writes the list, from pages that tests compare with the program and from
//! the `.proto` file. `cargo xtask tidy` finds what is on the list and gone. Behind a name nothing
//! is compared here: records and wire have tests of their own.

use std::collections::BTreeSet;

use crate::tree::SourceFile;

/// The list. It is missing until the first release.
pub(crate) const LIST: &str = "quality/promises.txt";

/// Returns the lines of the list that the tree does not keep.
pub(crate) fn broken(files: &[SourceFile]) -> Vec<String> {
    let Some(list) = files.iter().find(|file| file.path == LIST) else { return Vec::new() };
    let kept = collect(files);
    list.text.lines().filter(|line| !kept.contains(*line)).map(str::to_owned).collect()
}

/// Returns everything that the tree offers, a line each.
pub(crate) fn collect(files: &[SourceFile]) -> BTreeSet<String> {
    let mut promises = BTreeSet::new();
    for file in files {
        let found = match file.path.as_str() {
            "docs/errors.md" => words(file, "code", "- **", "**"),
            "docs/reference/configuration.md" => words(file, "key", "| `", "`"),
            "docs/reference/metrics.md" => words(file, "metric", "| `", "`"),
            "docs/reference/command-line.md" => commands(file),
            "docs/reference/http-api.md" => requests(file),
            "proto/proto/handfast/v1/coordinator.proto" => fields(file),
            _ => continue,
        };
        promises.extend(found);
    }
    promises
}

/// Returns the words that begin lines, between two marks.
fn words(file: &SourceFile, kind: &str, begin: &str, end: &str) -> Vec<String> {
    let words = file.text.lines().filter_map(|line| line.strip_prefix(begin)?.split_once(end));
    words.map(|(word, _)| format!("{kind} {word}")).collect()
}

/// The commands with their options, and the exit codes.
fn commands(file: &SourceFile) -> Vec<String> {
    let mut found = Vec::new();
    let mut command = "";
    for line in file.text.lines() {
        if let Some(name) = line.strip_prefix("### ") {
            command = name;
            found.push(format!("command {name}"));
        }
        // Further lines of a description stand further in.
        let option = line.strip_prefix("      --").or_else(|| line.strip_prefix("  -h, --"));
        if let Some(name) = option.and_then(|rest| rest.split([' ', '[']).next()) {
            found.push(format!("command {command} --{name}"));
        }
        let cell = line.strip_prefix("| ").and_then(|rest| rest.split_once(" | "));
        if let Some((code, _)) = cell.filter(|(code, _)| code.parse::<u8>().is_ok()) {
            found.push(format!("exit {code}"));
        }
    }
    found
}

/// The requests, and the fields of their messages.
fn requests(file: &SourceFile) -> Vec<String> {
    let mut found = Vec::new();
    let mut message = None;
    for line in file.text.lines() {
        if let Some(name) = line.strip_prefix("### ") {
            message = Some(name.trim_matches('`'));
            found.push(format!("http {}", name.trim_matches('`')));
        } else if let (Some(name), Some((field, _))) =
            (message, line.strip_prefix("| `").and_then(|rest| rest.split_once('`')))
        {
            found.push(format!("http {name}: {field}"));
        }
    }
    found
}

/// The methods of services, the fields of messages and the values of enums, with their numbers.
fn fields(file: &SourceFile) -> Vec<String> {
    let mut found = Vec::new();
    let mut scopes: Vec<&str> = Vec::new();
    for line in file.text.lines().map(str::trim).filter(|line| !line.starts_with("//")) {
        let mut words = line.split_whitespace();
        let scope = match (words.next(), words.next()) {
            (Some("message" | "enum" | "service"), Some(name)) => Some(name),
            // The cases of a choice are fields of the message.
            (Some("oneof"), Some(_)) => scopes.last().copied(),
            _ => None,
        };
        if let Some(scope) = scope.filter(|_| line.ends_with('{')) {
            scopes.push(scope);
        } else if line == "}" {
            scopes.pop();
        } else if let Some(scope) = scopes.last().filter(|_| line.ends_with(';')) {
            let line = line.trim_end_matches(';');
            // Options in brackets do not change the wire.
            let line = line.split(" [").next().unwrap_or(line);
            found.push(format!("wire {scope}: {line}"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(list: &str) -> Vec<SourceFile> {
        vec![
            SourceFile::sample(LIST, list),
            SourceFile::sample("docs/errors.md", "- **HF-A** What.\n"),
            SourceFile::sample("docs/reference/configuration.md", "| `a.b` | `1` | What. |\n"),
            SourceFile::sample(
                "docs/reference/command-line.md",
                "| 3 | none |\n### handfast tx\n```text\nOptions:\n      --json  As JSON\n  \
                 -h, --help  Help\n                 --not-this\n```\n",
            ),
            SourceFile::sample(
                "docs/reference/http-api.md",
                "| `x` |\n### `GET /a`\n### Branch\n| `id` | string |\n",
            ),
            SourceFile::sample(
                "proto/proto/handfast/v1/coordinator.proto",
                "service C {\n  rpc Begin(A) returns (B);\n}\nmessage A {\n  // A name.\n  \
                 string name = 1;\n  oneof body {\n    B b = 2;\n  }\n}\nmessage E {}\n\
                 enum M {\n  M_A = 0;\n}\n",
            ),
        ]
    }

    #[test]
    fn everything_with_a_name_is_found() {
        let found: Vec<String> = collect(&tree("")).into_iter().collect();
        assert_eq!(
            found,
            [
                "code HF-A",
                "command handfast tx",
                "command handfast tx --help",
                "command handfast tx --json",
                "exit 3",
                "http Branch",
                "http Branch: id",
                "http GET /a",
                "key a.b",
                "wire A: B b = 2",
                "wire A: string name = 1",
                "wire C: rpc Begin(A) returns (B)",
                "wire M: M_A = 0",
            ]
        );
    }

    #[test]
    fn what_is_gone_is_found() {
        assert!(broken(&tree("code HF-A\nwire A: string name = 1\n")).is_empty());
        assert_eq!(broken(&tree("wire A: string name = 3\n")), ["wire A: string name = 3"]);
        assert!(broken(&tree("")[1..]).is_empty(), "nothing is promised before a release");
    }
}
