//! The audit log: complete lines, one per stage, and no action without one.

use std::path::Path;

use handfast_server::audit::{Action, ActionStage, AuditLog};

fn action(xid: &str) -> Action {
    Action {
        id: "0011".to_owned(),
        xid: Some(xid.to_owned()),
        branch: Some("7".to_owned()),
        detail: Some("force_before".to_owned()),
        ..Action::new("alice", "resolve")
    }
}

/// Returns the lines without their times.
fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    let untimed = |line: &str| {
        let mut value: serde_json::Value = serde_json::from_str(line).ok()?;
        let at = value.as_object_mut()?.remove("at")?;
        assert!(at.as_str()?.ends_with('Z'));
        Some(value.to_string())
    };
    text.lines().map(|line| untimed(line).unwrap_or_else(|| format!("torn: {line}"))).collect()
}

#[tokio::test]
async fn both_stages_are_on_disk_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.jsonl");
    let log = AuditLog::open(&path).unwrap();
    log.record(&action("1"), ActionStage::Asked).await.unwrap();
    log.record(&action("1"), ActionStage::Answered("done")).await.unwrap();
    let common = r#""action":"resolve","branch":"7","detail":"force_before","id":"0011""#;
    let expected = [
        format!(r#"{{{common},"operator":"alice","stage":"asked","xid":"1"}}"#),
        format!(r#"{{{common},"operator":"alice","outcome":"done","stage":"answered","xid":"1"}}"#),
    ];
    assert_eq!(lines(&path), expected);
}

#[tokio::test]
async fn lines_of_several_actions_are_written_together() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.jsonl");
    let log = AuditLog::open(&path).unwrap();
    let [first, second] =
        ["1", "2"].map(|xid| Action { bulk: Some("0022".to_owned()), ..action(xid) });
    let refused = ActionStage::Answered("HF-TC-UNKNOWN-XID");
    log.record_all(&[(&first, ActionStage::Asked), (&second, refused)]).await.unwrap();
    log.record(&action("3"), ActionStage::Asked).await.unwrap();
    let lines = lines(&path);
    assert_eq!(lines.len(), 3);
    assert!(lines[0].contains(r#""bulk":"0022""#) && lines[0].contains(r#""xid":"1""#));
    assert!(lines[1].contains(r#""outcome":"HF-TC-UNKNOWN-XID""#), "{lines:?}");
    assert!(lines[2].contains(r#""xid":"3""#) && !lines[2].contains("bulk"));
}

// A crash in the middle of a line must not spoil the next line.
#[tokio::test]
async fn a_torn_line_does_not_spoil_other_lines() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.jsonl");
    std::fs::write(&path, "{\"at\":\"2026-11-21T00:00:00.000Z\",\"x\":1}\n{\"at\":\"20").unwrap();
    AuditLog::open(&path).unwrap().record(&action("2"), ActionStage::Asked).await.unwrap();
    let lines = lines(&path);
    assert_eq!(lines[..2], [r#"{"x":1}"#.to_owned(), r#"torn: {"at":"20"#.to_owned()]);
    assert_eq!(lines.len(), 3);
    assert!(lines[2].contains(r#""xid":"2""#));
}

#[tokio::test]
async fn an_unwritable_log_is_an_error() {
    // Every write to this device fails, as on a full disk.
    let log = AuditLog::open(Path::new("/dev/full")).unwrap();
    let error = log.record(&action("3"), ActionStage::Asked).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    assert!(AuditLog::open(Path::new("/nowhere/audit.jsonl")).is_err());
}
