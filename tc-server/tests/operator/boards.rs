//! The alert rules for Prometheus and the boards for Grafana against `/metrics` of a running
//! coordinator: what they name is there, with its labels.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use handfast_proto::v1::Decision;
use handfast_server::admin::model::Status;
use http::Method;

use crate::application::registration;
use crate::port::start;

/// Labels that Prometheus adds when it scrapes, and those of series that rules make.
const OF_PROMETHEUS: [&str; 4] = ["job", "instance", "le", "by"];

/// A metric as a query names it: its name, and the labels that select from it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Named {
    metric: String,
    labels: Vec<(String, String)>,
}

/// Returns the metrics that a file names.
fn named(text: &str) -> BTreeSet<Named> {
    let is_part = |c: char| c.is_ascii_lowercase() || c == '_';
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices("handfast_") {
        let before = text[..at].chars().next_back();
        if before.is_some_and(|c| is_part(c) || c == '/') {
            continue;
        }
        let rest = &text[at..];
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let selector = rest[end..].strip_prefix('{').and_then(|it| it.split_once('}'));
        let labels = selector.map(|(labels, _)| labels).unwrap_or_default();
        found.insert(Named { metric: rest[..end].to_owned(), labels: pairs(labels) });
    }
    found
}

/// Returns the labels of a selector, those of alternatives one by one.
fn pairs(selector: &str) -> Vec<(String, String)> {
    let unquoted = selector.replace('\\', "");
    let parts = unquoted.split("\",").filter_map(|pair| pair.split_once('='));
    let pairs = parts.flat_map(|(name, value)| {
        let value = value.trim_start_matches('~').trim_matches('"').to_owned();
        let name = name.trim_end_matches('!').to_owned();
        let values: Vec<String> = value.split('|').map(str::to_owned).collect();
        values.into_iter().map(move |value| (name.clone(), value))
    });
    pairs.filter(|(name, _)| !OF_PROMETHEUS.contains(&&**name)).collect()
}

/// Returns whether a line of `/metrics` is of the metric, as a histogram's are in three ways.
fn is_of(line: &str, metric: &str) -> bool {
    line.strip_prefix(metric).is_some_and(|rest| rest.starts_with(['{', ' ']))
}

/// Returns what a file names that `/metrics` does not have.
fn missing(text: &str, metrics: &str) -> Vec<String> {
    let mut missing = Vec::new();
    for Named { metric, labels } in named(text) {
        let series: Vec<&str> = metrics.lines().filter(|line| is_of(line, &metric)).collect();
        if series.is_empty() {
            missing.push(metric);
            continue;
        }
        for (name, value) in labels {
            let label = format!("{name}=\"{value}\"");
            if !series.iter().any(|line| line.contains(&label)) {
                missing.push(format!("{metric}{{{label}}}"));
            }
        }
    }
    missing
}

fn files() -> Vec<PathBuf> {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
    let boards = std::fs::read_dir(deploy.join("grafana")).unwrap();
    let boards = boards.map(|entry| entry.unwrap().path());
    boards.chain([deploy.join("prometheus/handfast.rules.yml")]).collect()
}

#[tokio::test]
async fn every_metric_of_rules_and_boards_exists() {
    let (_server, admin, mut application) = start().await;
    // A histogram is there once it has a value.
    let xid = application.begin("place-order").await;
    application.register(&xid, 7, "2:42").await.unwrap();
    let other = application.begin("place-order").await;
    let request = registration(&other, 9, "2:42", 1);
    application.client.register_branch(request).await.unwrap_err();
    application.end(&xid, Decision::Commit).await;
    application.finish().await;
    admin.until(&xid, Status::Committed).await;
    let (_, metrics) = admin.send(Method::GET, "/metrics", None).await;

    let files = files();
    assert_eq!(files.len(), 3, "{files:?}");
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(named(&text).len() > 10, "{} names nothing", file.display());
        assert_eq!(missing(&text, &metrics), Vec::<String>::new(), "{}", file.display());
    }
}

#[test]
fn a_name_and_a_label_that_are_not_there_are_found() {
    let metrics = "handfast_a_total{outcome=\"x\",reason=\"\"} 1\nhandfast_b_bucket{le=\"1\"} 0\n";
    let of_board = r#"rate(handfast_a_total{job=~\"$job\",outcome=\"x\"}[1m])"#;
    let there = format!("{of_board} / handfast_b_bucket");
    let there = &there;
    assert!(missing(there, metrics).is_empty(), "{:?}", missing(there, metrics));
    assert_eq!(missing("handfast_a > 0", metrics), ["handfast_a"]);
    assert_eq!(
        missing("handfast_a_total{outcome=~\"x|y\"}", metrics),
        ["handfast_a_total{outcome=\"y\"}"]
    );
}
