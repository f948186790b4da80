//! Metrics for Prometheus: names, buckets and the process's one recorder.
//!
//! Histograms are recorded where the work is done. Gauges are read from the coordinator when they
//! are requested, so that they cannot drift from it.

mod counters;

use std::sync::OnceLock;
use std::time::Duration;

use handfast_core::{Counts, Epoch};
use metrics::Unit;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use crate::recent::{self, Timed};
use crate::relay_reports::OutboxTotals;
use crate::turned_away;

pub(crate) use counters::{
    AlertResult, SpanResult, count_alert, count_deadlock, count_dirty_write, count_ended,
    count_retries, count_spans,
};

/// From the reply of a healthy disk to a delay that users notice.
const LATENCY_BUCKETS: [f64; 14] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0,
];
/// Phase two and lock waits can also last as long as a service is down.
const LONG_BUCKETS: [f64; 12] =
    [0.000_5, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0];
const COUNT_BUCKETS: [f64; 11] =
    [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1_024.0];

/// A histogram: name, buckets, unit and meaning.
struct Histogram(&'static str, &'static [f64], Unit, &'static str);

const HISTOGRAMS: [Histogram; 10] = [
    Histogram("handfast_begin_seconds", &LATENCY_BUCKETS, Unit::Seconds, "begin, to its reply"),
    Histogram(
        "handfast_register_seconds",
        &LATENCY_BUCKETS,
        Unit::Seconds,
        "branch registration, to its reply",
    ),
    Histogram(
        "handfast_commit_seconds",
        &LATENCY_BUCKETS,
        Unit::Seconds,
        "decision to commit, to its reply",
    ),
    Histogram(
        "handfast_phase_two_seconds",
        &LONG_BUCKETS,
        Unit::Seconds,
        "phase-two call of a branch, to its outcome",
    ),
    Histogram(
        "handfast_lock_wait_seconds",
        &LONG_BUCKETS,
        Unit::Seconds,
        "wait for global locks, to grant or refusal",
    ),
    Histogram(
        "handfast_lock_acquire_seconds",
        &LONG_BUCKETS,
        Unit::Seconds,
        "request for a named lock, to its answer, by result",
    ),
    Histogram("handfast_batch_requests", &COUNT_BUCKETS, Unit::Count, "requests of one batch"),
    Histogram("handfast_batch_changes", &COUNT_BUCKETS, Unit::Count, "record changes of one batch"),
    Histogram(
        "handfast_store_commit_seconds",
        &LATENCY_BUCKETS,
        Unit::Seconds,
        "one batch made durable, sync included",
    ),
    Histogram(
        VIEW_SECONDS,
        &LATENCY_BUCKETS,
        Unit::Seconds,
        "view or part of a list: how long the engine did nothing else",
    ),
];

const VIEW_SECONDS: &str = "handfast_view_seconds";

/// A gauge: name and meaning.
const GAUGES: [(&str, &str); 16] = [
    ("handfast_epoch", "the epoch of the leader that this node knows"),
    ("handfast_leading", "1 while the coordinator leads"),
    ("handfast_answering", "1 while the engine answers: its store does not hang"),
    ("handfast_globals", "unfinished globals and sagas, by state"),
    ("handfast_sagas", "unfinished sagas, by state"),
    ("handfast_locks", "global locks held"),
    ("handfast_waiters", "requests waiting for global locks"),
    ("handfast_leases", "leases of named locks"),
    ("handfast_lock_queue", "requests waiting for named locks"),
    ("handfast_pending_branches", "branches and steps that are owed a call"),
    (PROCESSES, "connected processes, and participants that are called over HTTP"),
    (BUILD, "1, with the version of the program"),
    (RELAYS, "relays of outboxes, by whether they report"),
    (RELAY_EVENTS, "events that reporting relays see in their outboxes, by state"),
    (RELAY_OLDEST, "how long the oldest event waits that a reporting relay is to publish"),
    (SEATA_PASSED_ON, "connections of Seata clients that this node passes on to the leader"),
];

const SEATA_PASSED_ON: &str = "handfast_seata_passed_on";

/// Counts the changes of leader that this node has seen.
const LEADER_CHANGES: &str = "handfast_leader_changes_total";

const RELAYS: &str = "handfast_relays";
const RELAY_EVENTS: &str = "handfast_relay_events";
const RELAY_OLDEST: &str = "handfast_relay_oldest_new_seconds";

const PROCESSES: &str = "handfast_processes";

/// Is 1, with the version of the program in a label.
const BUILD: &str = "handfast_build_info";

/// Returns the name of every metric, for the check of the documentation.
pub fn names() -> impl Iterator<Item = &'static str> {
    let histograms = HISTOGRAMS.iter().map(|histogram| histogram.0);
    let counters = [turned_away::METRIC, LEADER_CHANGES];
    let counters = counters.into_iter().chain(counters::names());
    histograms.chain(GAUGES.iter().map(|(name, _)| *name)).chain(counters)
}

/// Returns the process's recorder, which the first call creates. Several coordinators in one
/// process share it.
pub fn recorder() -> &'static PrometheusHandle {
    static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();
    RECORDER.get_or_init(install)
}

/// Sets the gauges to the coordinator's counts, of which `sagas` are those of sagas.
pub fn set_gauges(counts: &Counts, sagas: &Counts) {
    let states = [
        ("active", counts.active),
        ("committing", counts.committing),
        ("rolling_back", counts.rolling_back),
        ("needs_operator", counts.needs_operator),
    ];
    for (state, count) in states {
        metrics::gauge!("handfast_globals", "state" => state).set(as_gauge(count));
    }
    let states = [
        ("running", sagas.active + sagas.committing),
        ("compensating", sagas.rolling_back),
        ("needs_operator", sagas.needs_operator),
    ];
    for (state, count) in states {
        metrics::gauge!("handfast_sagas", "state" => state).set(as_gauge(count));
    }
    metrics::gauge!("handfast_leading").set(1.0);
    metrics::gauge!("handfast_answering").set(1.0);
    metrics::gauge!("handfast_locks").set(as_gauge(counts.locks));
    metrics::gauge!("handfast_waiters").set(as_gauge(counts.waiters));
    metrics::gauge!("handfast_leases").set(as_gauge(counts.leases));
    metrics::gauge!("handfast_lock_queue").set(as_gauge(counts.lock_queue));
    metrics::gauge!("handfast_pending_branches").set(as_gauge(counts.pending_branches));
}

/// Sets the gauges of a process that does not lead.
pub fn set_not_leading() {
    metrics::gauge!("handfast_leading").set(0.0);
    metrics::gauge!("handfast_answering").set(0.0);
}

/// Notes the epoch of the leader, and whether there was another leader before.
pub(crate) fn set_epoch(epoch: Epoch, is_change: bool) {
    metrics::gauge!("handfast_epoch").set(epoch.0 as f64);
    metrics::counter!(LEADER_CHANGES).increment(u64::from(is_change));
}

/// Records how long a batch took to become durable.
pub(crate) fn record_store_commit(took: Duration) {
    metrics::histogram!("handfast_store_commit_seconds").record(took);
    recent::record(Timed::StoreCommit, took);
}

/// Records how long a view, or a part of a list, kept the engine from everything else.
pub(crate) fn record_view(took: Duration) {
    metrics::histogram!(VIEW_SECONDS).record(took);
}

/// Sets the gauge of connected processes, which every node has.
pub fn set_processes(count: usize) {
    metrics::gauge!(PROCESSES).set(as_gauge(count));
}

/// Sets the gauges of what relays of outboxes report. They report to the leader alone.
pub(crate) fn set_outboxes(totals: &OutboxTotals) {
    let OutboxTotals { reporting, silent, held, new, parked, oldest_new_ms } = *totals;
    for (state, count) in [("reporting", reporting), ("silent", silent)] {
        metrics::gauge!(RELAYS, "state" => state).set(as_gauge(count));
    }
    for (state, count) in [("held", held), ("new", new), ("parked", parked)] {
        metrics::gauge!(RELAY_EVENTS, "state" => state).set(count as f64);
    }
    metrics::gauge!(RELAY_OLDEST).set(Duration::from_millis(oldest_new_ms).as_secs_f64());
}

/// Returns the gauge of the connections of Seata clients that are passed on to the leader.
pub(crate) fn passed_on_connections() -> metrics::Gauge {
    metrics::gauge!(SEATA_PASSED_ON)
}

/// Sets the gauge of an engine that does not answer in time.
pub fn set_stuck() {
    metrics::gauge!("handfast_answering").set(0.0);
}

/// Exact up to 2^53, far above every limit.
fn as_gauge(count: usize) -> f64 {
    count as f64
}

/// Keeps the histograms' buffers small while no metrics are requested.
pub async fn keep_up(handle: &PrometheusHandle) {
    let mut interval = tokio::time::interval(Duration::from_secs(5));
    loop {
        interval.tick().await;
        handle.run_upkeep();
    }
}

fn install() -> PrometheusHandle {
    let builder = HISTOGRAMS.iter().fold(PrometheusBuilder::new(), |builder, histogram| {
        let matcher = Matcher::Full(histogram.0.to_owned());
        builder.set_buckets_for_metric(matcher, histogram.1).expect("every histogram has buckets")
    });
    let recorder = builder.build_recorder();
    let handle = recorder.handle();
    if metrics::set_global_recorder(recorder).is_err() {
        tracing::warn!("this process records its metrics elsewhere: /metrics stays empty");
        return handle;
    }
    for Histogram(name, _, unit, meaning) in &HISTOGRAMS {
        metrics::describe_histogram!(*name, *unit, *meaning);
    }
    for (name, meaning) in GAUGES {
        metrics::describe_gauge!(name, Unit::Count, meaning);
    }
    let meaning = "connections and requests turned away, by port and reason";
    metrics::describe_counter!(turned_away::METRIC, Unit::Count, meaning);
    turned_away::register();
    metrics::describe_counter!(LEADER_CHANGES, Unit::Count, "changes of leader seen");
    metrics::counter!(LEADER_CHANGES).absolute(0);
    counters::register();
    metrics::gauge!(BUILD, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    metrics::gauge!(SEATA_PASSED_ON).set(0.0);
    set_outboxes(&OutboxTotals::default());
    handle
}
