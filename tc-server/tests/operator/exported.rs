//! A transaction that is exported is shown elsewhere, without a coordinator that knows it.

use std::path::Path;
use std::process::Output;

use handfast_server::admin::model::Status;

use crate::command_line::run;
use crate::port::start;
use crate::serving::handfast;

/// Shows a file. No coordinator runs at the address.
fn show(file: &Path, more: &[&str]) -> Output {
    let arguments = [&["tx", "show", "--file", file.to_str().unwrap()][..], more].concat();
    let mut command = handfast(&arguments);
    command.env("HANDFAST_SERVER", "http://127.0.0.1:1").output().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exported_transaction_is_shown_as_it_was() {
    let (server, admin, mut application) = start().await;
    let xid = application.refuse().await;
    admin.until(&xid, Status::NeedsOperator).await;
    let folder = tempfile::tempdir().unwrap();
    let [by_console, by_command] =
        ["console.json", "command.json"].map(|it| folder.path().join(it));
    // The console saves the answer of the API.
    let (_, answer) =
        admin.send(http::Method::GET, &format!("/api/v1/transactions/{xid}"), None).await;
    std::fs::write(&by_console, answer).unwrap();
    let printed = run(server.admin_address, &format!("tx show {xid} --json")).await;
    std::fs::write(&by_command, printed.stdout).unwrap();
    drop((application, admin));
    drop(server);

    for file in [&by_console, &by_command] {
        let shown = show(file, &[]);
        let text = String::from_utf8(shown.stdout).unwrap();
        assert_eq!(shown.status.code(), Some(0), "{}", String::from_utf8_lossy(&shown.stderr));
        for part in [
            &*format!("{xid}  needs_operator (requested)"),
            "branch 7: attempt 1 failed: dirty write",
            "units   10      7      3",
            "handfast tx resolve",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
    }
    let json = show(&by_console, &["--json"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["xid"], xid);
}

#[test]
fn another_file_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing.json");
    let other = folder.path().join("other.json");
    std::fs::write(&other, r#"{"items":[]}"#).unwrap();
    for file in [&missing, &other] {
        let shown = show(file, &[]);
        let errors = String::from_utf8(shown.stderr).unwrap();
        assert_eq!(shown.status.code(), Some(2), "{errors}");
        assert!(errors.starts_with("error[HF-CLI-EXPORT-FILE]"), "{errors}");
        assert!(errors.contains("handfast tx show XID --json > FILE"), "{errors}");
    }
    let neither = handfast(&["tx", "show"]).output().unwrap();
    assert_eq!(neither.status.code(), Some(2));
    let both = show(&other, &["7"]);
    assert_eq!(both.status.code(), Some(2));
}
