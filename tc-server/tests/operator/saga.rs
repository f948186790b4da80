//! `handfast saga explain`: drawings of files, and files that are refused.

use expect_test::expect;

use crate::serving::handfast;

/// The manual's example.
fn example() -> String {
    let manual = include_str!("../../../docs/saga.md");
    let (_, example) = manual.split_once("```json\n").unwrap();
    example.split_once("```").unwrap().0.to_owned()
}

/// Returns the output about a saga, and the exit code.
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
        saga place-order, compensated after 60000 ms unless its pivot has begun

          1  reserve   compensable  reserve at stock, at most 5 attempts, given up after 20000 ms
          2  approval  signal
          3  pay       pivot        debit at account
             ---- from here on there is no way back ----
          4  ship      retriable    ship at warehouse, takes pay
             thank     retriable    send at mail

        to be compensated: reserve
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

/// The manual's example of a child.
fn example_with_a_child() -> String {
    let manual = include_str!("../../../docs/saga.md");
    let (_, example) = manual.rsplit_once("```json\n").unwrap();
    example.split_once("```").unwrap().0.to_owned()
}

#[test]
fn a_child_is_drawn_at_its_place() {
    let (printed, exit) = explain(&example_with_a_child(), &[]);
    assert_eq!(exit, Some(0), "{printed}");
    let manual = include_str!("../../../docs/saga.md");
    assert!(manual.contains(&format!("```text\n{printed}```")), "the manual shows\n{printed}");
    let (printed, exit) = explain(&example_with_a_child(), &["--dot"]);
    assert_eq!(exit, Some(0), "{printed}");
    expect![[r#"
        digraph "place-order" {
          rankdir=LR;
          node [shape=box];
          "reserve" [label="reserve\nreserve", style=solid];
          subgraph "cluster billing" {
            label="billing";
            "billing/quote" [label="quote\nquote", style=rounded];
            "billing/charge" [label="charge\ncharge", style=solid];
            "billing/points" [label="points\nadd", style=solid];
          }
          "ship" [label="ship\nship", style=solid];
          "reserve" -> "billing/quote" [style=solid];
          "billing/charge" -> "ship" [style=solid];
          "billing/points" -> "ship" [style=solid];
          "billing/quote" -> "billing/charge" [style=solid];
          "billing/quote" -> "billing/points" [style=solid];
          "ship" -> "billing/charge" [style=dashed, constraint=false];
          "ship" -> "billing/points" [style=dashed, constraint=false];
          "billing/charge" -> "reserve" [style=dashed, constraint=false];
          "billing/points" -> "reserve" [style=dashed, constraint=false];
          "reserve" -> "billing/quote" [style=dotted, constraint=false];
          "billing/quote" -> "billing/charge" [style=dotted, constraint=false];
          "billing/quote" -> "billing/points" [style=dotted, constraint=false];
          "billing/charge" -> "ship" [style=dotted, constraint=false];
        }
    "#]]
    .assert_eq(&printed);
}

#[test]
fn concurrent_children_are_compensated_separately() {
    let json = r#"{"name": "s", "steps": [
        [{"name": "a", "kind": "child", "saga": {"name": "x", "steps": [
            {"name": "1", "kind": "compensable", "resource": "r", "action": "go"},
            {"name": "in", "kind": "child", "saga": {"name": "y", "steps": [
                {"name": "2", "kind": "compensable", "resource": "r", "action": "go"}]}}]}},
         {"name": "b", "kind": "compensable", "resource": "r", "action": "go"}],
        {"name": "c", "kind": "child", "saga": {"name": "z", "steps": [
            {"name": "pay", "kind": "pivot", "resource": "r", "action": "go"},
            {"name": "ship", "kind": "retriable", "resource": "r", "action": "go"}]}}
    ]}"#;
    let (printed, exit) = explain(json, &[]);
    assert_eq!(exit, Some(0), "{printed}");
    expect![[r#"
        saga s

              1  a       child        x
            1.1  a/1     compensable  go at r
            1.2  a/in    child        y
          1.2.1  a/in/2  compensable  go at r
                 b       compensable  go at r
              2  c       child        z
            2.1  c/pay   pivot        go at r
                 ---- from here on there is no way back ----
            2.2  c/ship  retriable    go at r

        to be compensated: (a/in/2, then a/1) and b
    "#]]
    .assert_eq(&printed);
}

/// Returns the output about a saga with these steps, which is refused.
fn refused(steps: &str, exit: i32) -> String {
    let (printed, got) = explain(&format!(r#"{{"name": "s", "steps": {steps}}}"#), &[]);
    assert_eq!(got, Some(exit), "{printed}");
    printed
}

#[test]
fn a_malformed_file_is_refused_with_its_position() {
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
        error[HF-SAGA-JSON]: FILE: unknown field `resorce`, expected one of `name`, `kind`, `resource`, `action`, `input`, `takes`, `retry`, `timeout_ms`, `saga` at line 1 column 64
    "#]].assert_eq(&refused(unknown, 2));
    let invalid = r#"[{"name": "a", "kind": "pivot", "resource": "r", "action": "x",
        "takes": ["b"]}]"#;
    expect![[r#"
        error[HF-SAGA-JSON]: FILE: step a takes from b, which is none
    "#]]
    .assert_eq(&refused(invalid, 2));
}

#[test]
fn an_impossible_saga_is_refused() {
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

#[test]
fn a_child_with_settings_of_a_step_is_refused() {
    let saga = r#"{"name": "s", "steps": [{"name": "b", "kind": "signal"}]}"#;
    let with = |more: &str| format!(r#"[{{"name": "a", "kind": "child", {more}}}]"#);
    let fault = "error[HF-TC-SAGA-INVALID]: FILE: step a: a child has a saga, and no resource, \
                 action, input, retry or timeout\n";
    assert_eq!(refused(&with(r#""takes": []"#), 4), fault, "it has no saga");
    for more in [
        r#""input": 1"#,
        r#""timeout_ms": 5"#,
        r#""retry": {"attempts": 2}"#,
        r#""resource": "r", "action": "x""#,
    ] {
        assert_eq!(refused(&with(&format!(r#""saga": {saga}, {more}"#)), 4), fault);
    }
    let step = format!(r#"[{{"name": "a", "kind": "signal", "saga": {saga}}}]"#);
    assert_eq!(refused(&step, 4), fault, "a step of another kind has no saga");
    let inside = r#"{"name": "s", "output": "c", "steps": [{"name": "b", "kind": "signal"}]}"#;
    let gives = refused(&with(&format!(r#""saga": {inside}"#)), 2);
    assert!(gives.contains("saga s gives the output of c, which is none of its steps"), "{gives}");
    let outside = r#"{"name": "s", "steps": [{"name": "b", "kind": "signal", "takes": ["z"]}]}"#;
    let takes = format!(
        r#"[{{"name": "z", "kind": "signal"}}, {{"name": "a", "kind": "child", "saga": {outside}}}]"#
    );
    let takes = refused(&takes, 2);
    assert!(takes.contains("step b takes from z, which is none"), "{takes}");
}

/// Children nested too deeply are refused with the code, and nothing overflows.
#[test]
fn children_have_a_depth() {
    let nested = |depth: usize| {
        let inner = r#"{"name": "s", "kind": "signal"}"#.to_owned();
        (0..depth).fold(inner, |inner, _| {
            format!(
                r#"{{"name": "a", "kind": "child", "saga": {{"name": "s", "steps": [{inner}]}}}}"#
            )
        })
    };
    let (printed, exit) = explain(&format!(r#"{{"name": "s", "steps": [{}]}}"#, nested(8)), &[]);
    assert_eq!(exit, Some(0), "{printed}");
    expect![[r#"
        error[HF-TC-SAGA-INVALID]: FILE: its children are 9 deep: at most 8 are allowed
    "#]]
    .assert_eq(&refused(&format!("[{}]", nested(9)), 4));
    let deep = refused(&format!("[{}]", nested(1_000)), 2);
    assert!(deep.contains("HF-SAGA-JSON") && deep.contains("recursion limit"), "{deep}");
}
