//! Sagas as JSON: the manual's example, and texts that are refused.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use handfast_proto::saga_json;
use handfast_proto::v1::SagaStepKind;

#[test]
fn the_manuals_example_is_read() {
    let manual = include_str!("../../docs/saga.md");
    let (_, example) = manual.split_once("```json\n").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    let saga = saga_json::definition(example).unwrap();
    assert_eq!((&*saga.name, saga.timeout_ms), ("place-order", Some(60_000)));
    let steps: Vec<_> =
        saga.steps.iter().map(|step| (&*step.name, step.group, step.kind())).collect();
    let expected = [
        ("reserve", 0, SagaStepKind::Compensable),
        ("approval", 1, SagaStepKind::Signal),
        ("pay", 2, SagaStepKind::Pivot),
        ("ship", 3, SagaStepKind::Retriable),
        ("thank", 3, SagaStepKind::Retriable),
    ];
    assert_eq!(steps, expected);
    assert_eq!(saga.steps[0].input, br#"{"product":7,"units":2}"#);
    assert_eq!(saga.steps[3].takes, [2]);
    let retry = saga.steps[0].retry.unwrap();
    assert_eq!((retry.base_ms, retry.factor, retry.attempts), (100, 2, Some(5)));
}

fn refused(steps: &str) -> String {
    let json = format!(r#"{{"name": "s", "steps": {steps}}}"#);
    saga_json::definition(&json).unwrap_err().to_string()
}

#[test]
fn an_invalid_saga_is_refused_with_its_position() {
    let unknown_field = r#"[{"name": "a", "kind": "pivot", "resorce": "r"}]"#;
    assert!(refused(unknown_field).contains("unknown field `resorce`"));
    let unknown_kind = r#"[{"name": "a", "kind": "pivotal"}]"#;
    assert!(refused(unknown_kind).contains("unknown variant `pivotal`"));
    assert!(refused(r#"["a"]"#).contains("expected a step, or a list of steps"));
    assert!(refused("[[]]").contains("invalid length 0"));
    assert!(refused("[").contains("line 1 column"));
    let takes = r#"[{"name": "a", "kind": "harmless", "takes": ["b"]}]"#;
    assert_eq!(refused(takes), "step a takes from b, which is none");
}
