//! `handfast saga explain`: what is drawn of a file, and what is refused.

use expect_test::expect;

use crate::serving::handfast;

/// The manual's example.
fn example() -> String {
    let manual = include_str!("../../../docs/saga.md");
    let (_, example) = manual.split_once("```json\n").unwrap();
    example.split_once("```").unwrap().0.to_owned()
}

/// What is printed about a saga, and how the process exits.
fn explain(json: &str, flags: &[&str]) -> (String, Option<i32>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("saga.json");
    std::fs::write(&file, json).unwrap();
    let file = file.to_str().unwrap();
    let told = handfast(&[&["saga", "explain", file], flags].concat()).output().unwrap();
    let printed = String::from_utf8([told.stdout, told.stderr].concat()).unwrap();
    (printed.replace(file, "FILE"), told.status.code())
}

#[test]
fn a_saga_is_drawn_as_text() {
    let (printed, exit) = explain(&example(), &[]);
    assert_eq!(exit, Some(0));
    expect![[r#"
        saga place-order, taken back after 60000 ms unless its pivot has begun

          1  reserve   compensable  reserve at stock, at most 5 attempts, given up after 20000 ms
          2  approval  signal
          3  pay       pivot        debit at account
             ---- from here on there is no way back ----
          4  ship      retriable    ship at warehouse, takes pay
             thank     retriable    send at mail

        to be taken back: reserve
    "#]]
    .assert_eq(&printed);
}

#[test]
fn a_saga_is_drawn_for_graphviz() {
    let json = r#"{"name": "the \"saga\"", "steps": [
        {"name": "a", "kind": "compensable", "resource": "r", "action": "x"},
        {"name": "b", "kind": "compensable", "resource": "r", "action": "y", "takes": ["a"]},
        {"name": "yes", "kind": "signal"},
        {"name": "c", "kind": "pivot", "resource": "r", "action": "z"}
    ]}"#;
    let (printed, exit) = explain(json, &["--dot"]);
    assert_eq!(exit, Some(0));
    expect![[r#"
        digraph "the \"saga\"" {
          rankdir=LR;
          node [shape=box];
          "a" [label="a\nx", style=solid];
          "b" [label="b\ny", style=solid];
          "yes" [label="yes", shape=ellipse];
          "c" [label="c\nz", peripheries=2];
          "a" -> "b" [style=solid];
          "b" -> "yes" [style=solid];
          "yes" -> "c" [style=solid];
          "b" -> "a" [style=dashed, constraint=false];
          "a" -> "b" [style=dotted, constraint=false];
        }
    "#]]
    .assert_eq(&printed);
}

/// The steps of a saga that is refused, and what is printed of it.
fn refused(steps: &str, exit: i32) -> String {
    let (printed, got) = explain(&format!(r#"{{"name": "s", "steps": {steps}}}"#), &[]);
    assert_eq!(got, Some(exit), "{printed}");
    printed
}

#[test]
fn a_file_of_another_form_is_refused_with_its_place() {
    let printed = handfast(&["saga", "explain", "/nowhere/saga.json"]).output().unwrap();
    assert_eq!(printed.status.code(), Some(2));
    expect![[r#"
        error[HF-CLI-SAGA-FILE]: /nowhere/saga.json: No such file or directory (os error 2)
    "#]]
    .assert_eq(&String::from_utf8(printed.stderr).unwrap());
    expect![[r#"
        error[HF-SAGA-JSON]: FILE: EOF while parsing an object at line 1 column 1
    "#]]
    .assert_eq(&explain("{", &[]).0);
    let unknown = r#"[{"name": "a", "kind": "pivot", "resorce": "r", "action": "x"}]"#;
    expect![[r#"
        error[HF-SAGA-JSON]: FILE: unknown field `resorce`, expected one of `name`, `kind`, `resource`, `action`, `input`, `takes`, `retry`, `timeout_ms` at line 1 column 64
    "#]].assert_eq(&refused(unknown, 2));
    let nobody = r#"[{"name": "a", "kind": "pivot", "resource": "r", "action": "x",
        "takes": ["b"]}]"#;
    expect![[r#"
        error[HF-SAGA-JSON]: FILE: step a takes from b, which is none
    "#]]
    .assert_eq(&refused(nobody, 2));
}

#[test]
fn what_no_coordinator_would_start_is_refused() {
    let two_pivots = r#"[{"name": "a", "kind": "pivot", "resource": "r", "action": "x"},
        {"name": "b", "kind": "pivot", "resource": "r", "action": "x"}]"#;
    expect![[r#"
        error[HF-TC-SAGA-INVALID]: FILE: step b: there is one pivot at most, and it is alone in its group
    "#]].assert_eq(&refused(two_pivots, 4));
    let named_twice = r#"[{"name": "a", "kind": "harmless", "resource": "r", "action": "x"},
        {"name": "a", "kind": "harmless", "resource": "r", "action": "x"}]"#;
    expect![[r#"
        error[HF-TC-SAGA-INVALID]: FILE: two steps are named a
    "#]]
    .assert_eq(&refused(named_twice, 4));
    let takes_later = r#"[{"name": "a", "kind": "signal", "takes": ["b"]},
        {"name": "b", "kind": "signal"}]"#;
    expect![[r#"
        error[HF-TC-SAGA-INVALID]: FILE: step a takes the output of a step that does not come before it
    "#]].assert_eq(&refused(takes_later, 4));
    let never_reached = r#"[{"name": "a", "kind": "retriable", "resource": "r", "action": "x"}]"#;
    expect![[r#"
        error[HF-TC-SAGA-INVALID]: FILE: step a is retriable: it must come after a pivot
    "#]]
    .assert_eq(&refused(never_reached, 4));
    let long = "n".repeat(2000);
    let too_long = format!(r#"[{{"name": "{long}", "kind": "signal"}}]"#);
    expect![[r#"
        error[HF-TC-TOO-LARGE]: FILE: step name has 2000 bytes: at most 1024 are allowed
    "#]]
    .assert_eq(&refused(&too_long, 4));
}
