//! The alert rules for Prometheus: each names a heading of a page that says what to do, Prometheus'
//! own tool reads them and runs their tests, and the Helm chart has the same.
//!
//! That the metrics of rules and boards exist is tested against a running coordinator, in
//! `tc-server/tests/operator/boards.rs`.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::docs;
use crate::install::{Installer, Needed, in_path, install_missing};
use crate::interrupt::Interrupts;
use crate::say::say;
use crate::tree::{SourceFile, root, source_files};

const RULES: &str = "deploy/prometheus/handfast.rules.yml";
const TESTS: &str = "deploy/prometheus/handfast.rules.test.yml";
/// The rules in the chart, which can contain only what is in its own folder.
const IN_CHART: &str = "deploy/helm/handfast/files/handfast.rules.yml";

const PROMTOOL: Needed = Needed {
    name: "promtool",
    is_installed: || in_path("promtool"),
    packages: |installer| match installer {
        Installer::Apt | Installer::Brew => &["prometheus"],
        Installer::Dnf => &["golang-github-prometheus"],
        Installer::Apk => &["prometheus"],
    },
    otherwise: "put promtool of Prometheus where PATH finds it",
};

/// Checks the rules and runs their tests.
pub(crate) fn check(interrupts: &Interrupts) -> Result<()> {
    let complaints = complaints(&source_files()?)?;
    complaints.iter().for_each(say);
    if !complaints.is_empty() {
        bail!("{} complaint(s) about {RULES}", complaints.len());
    }
    install_missing(interrupts, &[PROMTOOL])?;
    for arguments in [["check", "rules", RULES], ["test", "rules", TESTS]] {
        interrupts.run(Command::new("promtool").args(arguments).current_dir(root()))?;
    }
    Ok(())
}

/// A rule, as far as it is checked here.
#[derive(Debug, PartialEq, Eq)]
struct Rule<'a> {
    name: &'a str,
    runbook: Option<&'a str>,
}

fn complaints(files: &[SourceFile]) -> Result<Vec<String>> {
    let text = |path: &str| {
        let file = files.iter().find(|file| file.path == path);
        file.map(|file| file.text.as_str()).with_context(|| format!("{path} is missing"))
    };
    let tests = text(TESTS)?;
    let mut complaints = Vec::new();
    if text(IN_CHART)? != text(RULES)? {
        complaints.push(format!("{IN_CHART}: differs from {RULES}, of which it is a copy"));
    }
    for Rule { name, runbook } in rules(text(RULES)?) {
        if !tests.contains(&format!("alertname: {name}\n")) {
            complaints.push(format!("{TESTS}: nothing tests {name}"));
        }
        let place = runbook.and_then(|runbook| runbook.split_once('#'));
        let Some((page, anchor)) = place else {
            complaints.push(format!("{RULES}: {name} has no runbook_url with a heading"));
            continue;
        };
        let found = text(page).is_ok_and(|text| docs::has_heading(text, anchor));
        if !found {
            complaints.push(format!("{RULES}: {name}: {page} has no heading #{anchor}"));
        }
    }
    Ok(complaints)
}

fn rules(text: &str) -> Vec<Rule<'_>> {
    let mut rules = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("- alert: ") {
            rules.push(Rule { name, runbook: None });
        } else if let (Some(runbook), Some(rule)) =
            (line.strip_prefix("runbook_url: "), rules.last_mut())
        {
            rule.runbook = Some(runbook);
        }
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(rules: &str) -> Vec<String> {
        let files = [
            SourceFile::sample(IN_CHART, rules),
            SourceFile::sample(RULES, rules),
            SourceFile::sample(TESTS, "alertname: Down\n"),
            SourceFile::sample("docs/alerts.md", "# Alerts\n\n## Down\n"),
        ];
        complaints(&files).unwrap()
    }

    #[test]
    fn a_rule_names_a_heading_that_is_there() {
        assert!(found("- alert: Down\n  runbook_url: docs/alerts.md#down\n").is_empty());
        assert_eq!(
            found("- alert: Down\n  runbook_url: docs/alerts.md#up\n"),
            [format!("{RULES}: Down: docs/alerts.md has no heading #up")]
        );
        assert_eq!(
            found("- alert: Down\n"),
            [format!("{RULES}: Down has no runbook_url with a heading")]
        );
    }

    #[test]
    fn a_chart_with_other_rules_is_found() {
        let files = [
            SourceFile::sample(IN_CHART, ""),
            SourceFile::sample(RULES, "- alert: Down\n  runbook_url: docs/alerts.md#down\n"),
            SourceFile::sample(TESTS, "alertname: Down\n"),
            SourceFile::sample("docs/alerts.md", "# Alerts\n\n## Down\n"),
        ];
        let differs = format!("{IN_CHART}: differs from {RULES}, of which it is a copy");
        assert_eq!(complaints(&files).unwrap(), [differs]);
    }

    #[test]
    fn a_rule_without_a_test_is_found() {
        let rule = "- alert: Slow\n  runbook_url: docs/alerts.md#down\n";
        assert_eq!(found(rule), [format!("{TESTS}: nothing tests Slow")]);
    }
}
