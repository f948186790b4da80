//! `handfast demo`, as it is run from an installed program.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::process::{Command, Output};

fn demo(more: &[&str]) -> Output {
    let place = tempfile::tempdir().unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_handfast"));
    // Elsewhere, and without a variable: nothing of the source tree is needed.
    program.arg("demo").args(more).current_dir(place.path()).output().unwrap()
}

fn report(more: &[&str]) -> serde_json::Value {
    let output = demo(&[&["--json"], more].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn orders_go_through_and_the_proof_holds() {
    let report = report(&[]);
    assert_eq!((&report["orders"], &report["failed"]), (&120.into(), &0.into()), "{report}");
    assert_eq!((&report["locks_left"], &report["unfinished"]), (&0.into(), &0.into()), "{report}");
}

/// The coordinator is a child process then: this program again, by `demo coordinator`.
#[test]
fn the_coordinator_may_be_killed_on_the_way() {
    let report = report(&["--crash-coordinator", "2", "--concurrency", "8"]);
    assert_eq!((&report["orders"], &report["failed"]), (&120.into(), &0.into()), "{report}");
    assert_eq!((&report["locks_left"], &report["unfinished"]), (&0.into(), &0.into()), "{report}");
}

#[test]
fn what_keeps_it_from_running_has_a_code() {
    let output = demo(&["--database", "oracle://somewhere"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("HF-CLI-DEMO") && said.contains("sqlite, postgres://"), "{said}");
}
