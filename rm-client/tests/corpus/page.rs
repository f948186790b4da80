//! The page about the coverage: its part below the marker is made here, and `UPDATE_EXPECT=1`
//! writes it again. The part above is written by hand and not read.

use std::collections::{BTreeMap, BTreeSet};

use expect_test::expect_file;

use crate::judge::Verdict;
use crate::run::{Coverage, Ran};

const MARKER: &str = "<!-- generated below -->\n";
/// The databases in the order of their columns.
const DATABASES: [&str; 3] = ["PostgreSQL", "MariaDB", "SQLite"];

/// Accepted statements, and all.
#[derive(Clone, Copy, Debug, Default)]
struct Accepted {
    accepted: usize,
    all: usize,
}

/// A refused statement, and the databases that refuse it with this code.
#[derive(Clone, Debug)]
struct RefusedLine<'r> {
    name: &'r str,
    code: &'r str,
    databases: Vec<&'static str>,
}

/// Compares the page with a run, or writes it.
pub(crate) fn check(coverage: &Coverage) {
    let path = format!("{}/../docs/at-coverage.md", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap();
    let (by_hand, _) = text.split_once(MARKER).expect("the page has the marker");
    expect_file![path].assert_eq(&format!("{by_hand}{MARKER}{}", generated(coverage)));
}

/// Prints the figures.
#[expect(clippy::print_stderr, reason = "the figures are for the person who runs the test")]
pub(crate) fn print(coverage: &Coverage) {
    eprintln!("{}\n{}", figures(coverage), codes(coverage));
}

fn generated(coverage: &Coverage) -> String {
    let advice = coverage.0.iter().flat_map(|ran| &ran.verdicts);
    let advice = advice.filter(|(entry, _)| entry.is_advice).count();
    format!(
        "\n## Figures\n\nAccepted statements of all, by application and database.\n\n{}\n\
         Beside refused statements stand {advice} rewritten ones, which are not counted here. All \
         of them are exact.\n\n## Refusals\n\nStatements by the code of their refusal.\n\n{}\n\
         ## Every refused statement\n{}",
        figures(coverage),
        codes(coverage),
        refusals(coverage),
    )
}

fn figures(coverage: &Coverage) -> String {
    let names: BTreeSet<&str> = coverage.0.iter().map(|ran| ran.application.as_str()).collect();
    let mut table = heading("application");
    for name in names {
        let of = |database: &str| {
            let runs = coverage.0.iter();
            share(runs.filter(|ran| ran.application == name && ran.database == database))
        };
        table += &row(name, DATABASES.map(|database| of(database).shown()));
    }
    let of = |database: &str| share(coverage.0.iter().filter(|ran| ran.database == database));
    table + &row("all", DATABASES.map(|database| of(database).shown()))
}

fn share<'r>(runs: impl Iterator<Item = &'r Ran>) -> Accepted {
    let mut share = Accepted::default();
    for (entry, verdict) in runs.flat_map(|ran| &ran.verdicts) {
        if entry.is_advice {
            continue;
        }
        share.all += 1;
        share.accepted += usize::from(*verdict == Verdict::Exact);
    }
    share
}

impl Accepted {
    fn shown(self) -> String {
        let Self { accepted, all } = self;
        if all == 0 {
            return "–".to_owned();
        }
        // Rounded down, so that 100 % means all.
        format!("{accepted} / {all} ({} %)", accepted * 100 / all)
    }
}

fn codes(coverage: &Coverage) -> String {
    let mut counts: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    for ran in &coverage.0 {
        for (_, verdict) in &ran.verdicts {
            if let Verdict::Refused(code) = verdict {
                *counts.entry(code).or_default().entry(ran.database).or_default() += 1;
            }
        }
    }
    let mut table = heading("code");
    for (code, counts) in counts {
        let count = |database| counts.get(database).map_or("–".to_owned(), usize::to_string);
        table += &row(&format!("`{code}`"), DATABASES.map(count));
    }
    table
}

/// Returns a table for each application. A statement that several databases refuse alike has one
/// line.
fn refusals(coverage: &Coverage) -> String {
    let mut by_name: BTreeMap<&str, Vec<RefusedLine<'_>>> = BTreeMap::new();
    for database in DATABASES {
        for ran in coverage.0.iter().filter(|ran| ran.database == database) {
            let lines = by_name.entry(&ran.application).or_default();
            for (entry, verdict) in &ran.verdicts {
                let Verdict::Refused(code) = verdict else { continue };
                let name = entry.name.as_str();
                let known = lines.iter_mut().find(|it| it.name == name && it.code == code);
                match known {
                    Some(line) => line.databases.push(database),
                    None => lines.push(RefusedLine { name, code, databases: vec![database] }),
                }
            }
        }
    }
    let mut text = String::new();
    for (application, lines) in by_name.iter().filter(|(_, lines)| !lines.is_empty()) {
        text += &format!("\n### {application}\n\n| statement | code | on |\n| --- | --- | --- |\n");
        for line in lines {
            let on = line.databases.join(", ");
            text += &format!("| {} | `{}` | {on} |\n", line.name, line.code);
        }
    }
    text
}

fn heading(first: &str) -> String {
    format!("| {first} | {} |\n| --- | --- | --- | --- |\n", DATABASES.join(" | "))
}

fn row(name: &str, cells: [String; 3]) -> String {
    format!("| {name} | {} |\n", cells.join(" | "))
}
