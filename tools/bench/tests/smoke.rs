//! Every benchmark still runs, without errors, and its report is whole. How fast anything was is no
//! matter here: the runs are as short as they can be, and the machine is as busy as it is.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

use serde::Deserialize;

/// The report, as far as it is judged.
#[derive(Debug, Deserialize)]
struct Report {
    rows: Vec<Row>,
    series: Vec<serde_json::Value>,
}

#[derive(Debug, Deserialize)]
struct Row {
    name: String,
    per_second: Spread,
    latency: Option<BTreeMap<String, f64>>,
    cpu_us: Option<BTreeMap<String, f64>>,
    resident_bytes: Option<u64>,
    errors: BTreeMap<String, u64>,
    figures: BTreeMap<String, Spread>,
}

#[derive(Debug, Deserialize)]
struct Spread {
    median: f64,
}

/// One run, without the pauses that make figures comparable.
const ONCE: &[&str] = &["--warm-up", "0.1", "--runs", "1", "--idle-wait", "0", "--repeat-max", "0"];

/// How many seconds a run lasts. On a machine that other work keeps busy, no transaction may have
/// ended by the end of a short run; the next one is longer.
const SECONDS: [&str; 3] = ["1", "5", "25"];

/// One at a time: together they would only wait for one another.
static TURN: Mutex<()> = Mutex::new(());

fn output(arguments: &[&str], rest: &[&str]) -> Output {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut command = Command::new(env!("CARGO_BIN_EXE_handfast-bench"));
    command.args(arguments).args(rest).arg("--json").output().unwrap()
}

fn bench(arguments: &[&str], rest: &[&str]) -> Report {
    let output = output(arguments, rest);
    let errors = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{arguments:?}: {errors}{text}");
    let report: Report = serde_json::from_str(&text).unwrap();
    for row in &report.rows {
        assert!(row.errors.is_empty(), "{row:?}");
        assert!(!row.name.is_empty(), "{row:?}");
    }
    report
}

/// Runs a benchmark for longer and longer, until every row has a result.
fn load(arguments: &[&str]) -> Report {
    load_until(arguments, |report| report.rows.iter().all(has_result))
}

/// Runs a benchmark for longer and longer, until its report will do. Returns the last report if
/// none of them does.
fn load_until(arguments: &[&str], will_do: impl Fn(&Report) -> bool) -> Report {
    let [shorter @ .., longest] = SECONDS;
    let run = |seconds| bench(arguments, &[&["--seconds", seconds], ONCE].concat());
    shorter.into_iter().map(run).find(will_do).unwrap_or_else(|| run(longest))
}

fn has_result(row: &Row) -> bool {
    row.per_second.median > 0.0
}

/// A row of a load: how much, how fast, and what it cost either side.
fn assert_load(row: &Row) {
    assert!(row.per_second.median > 0.0, "{row:?}");
    let latency = row.latency.as_ref().unwrap();
    for percentile in ["p50_us", "p90_us", "p99_us", "p999_us"] {
        assert!(latency[percentile] > 0.0, "{percentile} of {row:?}");
    }
    let cpu = row.cpu_us.as_ref().unwrap();
    assert!(cpu["client"] > 0.0 && cpu["server"] > 0.0, "{row:?}");
    assert!(row.resident_bytes.unwrap() > 0, "{row:?}");
}

#[test]
fn bounds_are_measured() {
    let report = load(&["bound", "--in-flight", "4"]);
    let [sync, echoes @ ..] = &report.rows[..] else { unreachable!("{report:?}") };
    assert!(sync.per_second.median > 0.0);
    assert_eq!(echoes.len(), 5, "two wires, each volatile and durable, and unary calls");
    echoes.iter().for_each(assert_load);
}

#[test]
fn globals_go_over_the_stream_in_a_closed_loop() {
    let report = load(&["tc", "--in-flight", "4", "--in-flight", "8"]);
    assert_eq!(report.rows.len(), 2);
    report.rows.iter().for_each(assert_load);
}

#[test]
fn globals_go_over_several_streams_at_a_rate_and_some_are_rolled_back() {
    let arguments = ["tc", "--rate", "200", "--connections", "2", "--rollback-share", "0.3"];
    let hot = ["--hot-share", "0.1", "--branches", "1", "--rows", "2"];
    let report = load(&[&arguments[..], &hot[..]].concat());
    assert_load(&report.rows[0]);
}

#[test]
fn globals_go_by_unary_calls() {
    let report = load(&["tc", "--wire", "unary", "--in-flight", "4"]);
    assert_load(&report.rows[0]);
}

#[test]
fn globals_go_over_the_wire_of_seata_and_some_are_rolled_back() {
    let arguments = ["tc", "--wire", "seata", "--in-flight", "4", "--rollback-share", "0.3"];
    let report = load(&arguments);
    assert_load(&report.rows[0]);
}

#[test]
fn a_server_that_runs_already_is_loaded() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_handfast-bench"));
    command.args(["child", "echo", "--wire", "seata", "--listen", &address]);
    let mut server = command.stdin(Stdio::piped()).spawn().unwrap();
    while TcpStream::connect(&address).is_err() {
        assert!(server.try_wait().unwrap().is_none(), "the server has ended");
        std::thread::yield_now();
    }
    let process = server.id().to_string();
    let target = ["tc", "--wire", "seata", "--in-flight", "4", "--target", &address];
    let unseen = load(&target);
    assert!(unseen.rows[0].per_second.median > 0.0 && unseen.rows[0].cpu_us.is_none());
    let seen = load(&[&target[..], &["--target-process", &process]].concat());
    assert_load(&seen.rows[0]);
    drop(server.stdin.take());
    server.wait().unwrap();
}

#[test]
fn the_core_alone_is_measured() {
    let report = load(&["core", "--open", "64"]);
    assert!(report.rows[0].per_second.median > 0.0);
    assert!(report.rows[0].figures["bytes encoded a global"].median > 0.0);
}

#[test]
fn a_coordinator_recovers() {
    let report = bench(&["recovery", "--globals", "200"], &[]);
    let figures = &report.rows[0].figures;
    for name in ["seconds to the first transaction", "resident MB idle", "disk MB"] {
        assert!(figures[name].median > 0.0, "{name} of {figures:?}");
    }
}

#[test]
fn a_soak_shows_the_course_of_its_figures_and_is_drawn() {
    let directory = tempfile::tempdir().unwrap();
    let plot = directory.path().join("soak.svg");
    let plot_text = plot.display().to_string();
    let soak = |minutes: &str| {
        let arguments = ["soak", "--minutes", minutes, "--points", "2", "--rate", "100"];
        bench(&arguments, &["--plot", &plot_text])
    };
    // On a machine that other work keeps busy nothing may have ended by the end of a short one.
    let mut soaks = ["0.02", "0.2"].into_iter().map(soak);
    let report = soaks.find(|report| report.rows[0].latency.is_some());
    let report = report.unwrap_or_else(|| soak("1"));
    assert_load(&report.rows[0]);
    assert_eq!(report.series.len(), 5);
    assert!(std::fs::read_to_string(plot).unwrap().contains("<polyline"));
}

#[test]
fn branches_and_globals_run_on_every_database() {
    let clients = ["at", "--clients", "2"];
    let report = load(&clients);
    // Two servers with twelve ways each, and SQLite, which has no two-phase commit of its own.
    assert_eq!(report.rows.len(), 12 + 12 + 11);
    report.rows.iter().for_each(assert_load);
    let general = ["at", "--clients", "2", "--statement", "general", "--database", "sqlite"];
    load(&general).rows.iter().for_each(assert_load);
}

#[test]
fn locks_run_on_every_backend_beside_their_recipes() {
    let report = load(&["locks", "--clients", "2", "--waiters", "2"]);
    // The coordinator has no recipe of its own; nine other backends have.
    assert_eq!(report.rows.len(), 2 * (1 + 2 * 9));
    for row in &report.rows {
        assert!(row.per_second.median > 0.0 && row.latency.is_some(), "{row:?}");
        let has_share = row.figures.contains_key("share of the plain recipe");
        let library = row.name.ends_with(": library") && !row.name.starts_with("coordinator");
        assert_eq!(has_share, library, "{row:?}");
    }
}

#[test]
fn every_mode_does_the_same_action_on_every_database() {
    let report = load(&["modes", "--clients", "2"]);
    // Two servers with six modes each, and SQLite, which has no two-phase commit.
    assert_eq!(report.rows.len(), 6 + 6 + 5);
    for row in &report.rows {
        assert_load(row);
        let is_local = row.name.ends_with("plain local transactions");
        assert_ne!(row.figures.contains_key("times slower than local"), is_local, "{row:?}");
    }
}

#[test]
fn contended_globals_add_up() {
    let report = load(&["at", "--contention", "--clients", "3", "--database", "postgres"]);
    assert_load(&report.rows[0]);
}

#[test]
fn hot_rows_are_queued_for_and_polled_for() {
    let arguments = ["at", "--hot", "--clients", "3", "--database", "postgres"];
    // Clients that cross and wait with row locks may all refuse one another for so short a time.
    let judged = |report: &Report| [0, 4, 9].iter().all(|row| has_result(&report.rows[*row]));
    let report = load_until(&arguments, judged);
    assert_eq!(report.rows.len(), 12);
    let [one, another] = [&report.rows[0], &report.rows[4]];
    for row in [one, another] {
        assert_load(row);
        assert!(row.figures["share of 1 / hold time"].median > 0.0, "{row:?}");
    }
    assert_load(&report.rows[9]);
}

#[test]
fn the_table_of_goals_is_printed() {
    let parts = ["table", "--part", "load", "--part", "alone", "--part", "core"];
    let rest = ["--part", "recovery", "--globals", "300"];
    let report = load_until(&[&parts[..], &rest[..]].concat(), |_| true);
    assert_eq!(report.rows.len(), 6 + 3 + 2 + 1);
}

/// The programs of others cannot be had offline, so what they do is measured elsewhere.
#[test]
fn without_java_the_command_says_what_to_install() {
    let empty = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_handfast-bench"));
    let output = command.arg("peers").env("PATH", empty.path()).output().unwrap();
    assert!(!output.status.success());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("java, javac, mvn not in the path: install a JDK"), "{errors}");
}

/// A report that a part fails to fill in still holds what the other parts have measured.
#[test]
fn a_part_of_the_table_that_fails_is_a_row_of_it() {
    let unreachable = ["--mysql", "mysql://bench@127.0.0.1:1/none"];
    let parts = ["table", "--part", "hot", "--part", "alone"];
    let arguments = [&parts[..], &unreachable[..], &["--seconds", SECONDS[0]]].concat();
    let output = output(&arguments, ONCE);
    assert!(!output.status.success());
    let report: Report = serde_json::from_slice(&output.stdout).unwrap();
    let failed: Vec<bool> = report.rows.iter().map(|row| !row.errors.is_empty()).collect();
    assert_eq!(failed, [true, false, false, false]);
}
