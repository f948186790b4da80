//! A dirty write from the refusal to its end, with each resolution, and the record of operators'
//! actions.

use handfast_proto::v1::Resolution as WireResolution;
use handfast_server::admin::model::{
    BranchState, DirtyRow, EventFate, HeldEvents, LockPage, RowChange, RowStanding, ServerStatus,
    Status,
};
use http::{Method, StatusCode};

use crate::port::{TokensFile, roomy, start, start_with};

async fn resolved(body: &str, asked: WireResolution) {
    let (_server, admin, mut application) = start().await;
    let xid = application.refuse().await;
    let detail = admin.until(&xid, Status::NeedsOperator).await;
    let refusal = detail.branches[0].refusal.as_ref().unwrap();
    let row = &refusal.rows[0];
    assert_eq!((&*row.table, &*row.key), ("stock", "42"));
    let column = &row.columns[0];
    let images = [&column.before, &column.after, &column.current].map(Option::as_deref);
    assert_eq!(images, [Some("10"), Some("7"), Some("3")]);
    // The row stays locked until an operator has decided.
    let locks: LockPage = admin.get("/api/v1/locks").await;
    assert_eq!(locks.items[0].holders[0].xid, xid);
    let status: ServerStatus = admin.get("/api/v1/status").await;
    assert_eq!(status.needs_operator, 1);

    let path = format!("/api/v1/transactions/{xid}/branches/7/resolve");
    let (status, answer) = admin.post(&path, Some(body)).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let (_call, branch) = application.finish().await;
    assert_eq!(branch.resolution(), asked);
    let detail = admin.until(&xid, Status::RolledBack).await;
    assert_eq!(detail.branches[0].state, BranchState::Finished);
    let locks: LockPage = admin.get("/api/v1/locks").await;
    assert_eq!(locks.items, []);
    let again = admin.problem(Method::POST, &path, Some(body)).await;
    assert_eq!(again.0, 409, "{}", again.1);
}

#[tokio::test]
async fn clean_rows_can_be_restored() {
    resolved(r#"{"resolution":"restore_clean"}"#, WireResolution::RestoreClean).await;
}

#[tokio::test]
async fn without_a_resolution_the_clean_rows_are_restored() {
    resolved("{}", WireResolution::RestoreClean).await;
}

/// Regression: a resolution kept or undid rows that were not dirty too.
#[tokio::test]
async fn every_row_is_shown_with_the_effect_of_each_resolution() {
    let (_server, admin, mut application) = start().await;
    let xid = application.refuse().await;
    let detail = admin.until(&xid, Status::NeedsOperator).await;
    let refusal = detail.branches[0].refusal.as_ref().unwrap();
    assert_eq!((refusal.rows_total, refusal.rows_dirty, refusal.rows.len()), (120, 1, 2));
    let shown = refusal.rows.iter().map(|row| {
        let DirtyRow { on_restore_clean, on_accept_current, on_force_before, .. } = *row;
        (row.standing, on_restore_clean.unwrap(), on_accept_current, on_force_before.unwrap())
    });
    use RowChange::{Left, Removed, WrittenBack};
    assert_eq!(
        shown.collect::<Vec<_>>(),
        [
            (RowStanding::Dirty, Left, Left, WrittenBack),
            (RowStanding::Clean, Removed, Left, Removed)
        ]
    );
    let events = HeldEvents {
        held: 1,
        on_restore_clean: EventFate::Dropped,
        on_accept_current: EventFate::Released,
        on_force_before: EventFate::Dropped,
    };
    assert_eq!(refusal.events, Some(events));
}

#[tokio::test]
async fn current_data_can_be_accepted() {
    resolved(r#"{"resolution":"accept_current"}"#, WireResolution::AcceptCurrent).await;
}

#[tokio::test]
async fn the_before_image_can_be_forced() {
    resolved(r#"{"resolution":"force_before"}"#, WireResolution::ForceBefore).await;
}

#[tokio::test]
async fn every_action_is_in_the_audit_log_with_its_outcome() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.jsonl");
    let mut config = roomy();
    config.security.audit_log = Some(path.clone());
    let (_server, admin, mut application) = start_with(config).await;
    let xid = application.refuse().await;
    admin.until(&xid, Status::NeedsOperator).await;
    admin.post("/api/v1/transactions/99/pause", None).await;
    let resolve = format!("/api/v1/transactions/{xid}/branches/7/resolve");
    admin.post(&resolve, Some(r#"{"resolution":"accept_current"}"#)).await;

    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told = |line: &serde_json::Value| {
        ["operator", "action", "xid", "branch", "detail", "stage", "outcome"]
            .map(|key| line.get(key).and_then(|value| value.as_str()).unwrap_or("-").to_owned())
            .join(" ")
    };
    let number = xid.rsplit_once(':').unwrap().1;
    let expected = [
        "anonymous pause 99 - - asked -".to_owned(),
        "anonymous pause 99 - - answered HF-TC-UNKNOWN-XID".to_owned(),
        format!("anonymous resolve {number} 7 accept_current asked -"),
        format!("anonymous resolve {number} 7 accept_current answered done"),
    ];
    assert_eq!(lines.iter().map(told).collect::<Vec<_>>(), expected);
    assert_eq!(lines[0]["id"], lines[1]["id"]);
    assert_ne!(lines[1]["id"], lines[2]["id"]);
}

#[tokio::test]
async fn an_action_that_cannot_be_recorded_is_not_executed() {
    let mut config = roomy();
    // Every write to this device fails, as on a full disk.
    config.security.audit_log = Some("/dev/full".into());
    let (_server, admin, mut application) = start_with(config).await;
    let xid = application.begin("place-order").await;
    application.register(&xid, 7, "2:42").await.unwrap();
    let rollback = format!("/api/v1/transactions/{xid}/rollback");
    let problem = admin.problem(Method::POST, &rollback, None).await;
    assert_eq!(problem, (500, "HF-ADM-NOT-RECORDED".to_owned()));
    assert_eq!(admin.show(&xid).await.transaction.status, Status::Active);
}

#[tokio::test]
async fn the_audit_log_names_the_bearer_of_the_token() {
    let tokens = TokensFile::draw();
    let path = tokens.directory.path().join("audit.jsonl");
    let mut config = roomy();
    config.security.tokens = Some(tokens.path());
    config.security.audit_log = Some(path.clone());
    let server = handfast_server::serve::Server::start(config).await.unwrap();
    let base = format!("http://{}", server.admin_address);
    let mut admin = crate::port::Admin::new(&base, Some(tokens.operator.clone()));
    admin.post("/api/v1/transactions/1/commit", None).await;
    // A caller without permission leaves no line: no request was made to the coordinator.
    admin.token = Some(tokens.viewer.clone());
    let refused = admin.problem(Method::POST, "/api/v1/transactions/2/commit", None).await;
    assert_eq!(refused, (403, "HF-ADM-FORBIDDEN".to_owned()));
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().count(), 2);
    assert!(text.lines().all(|line| line.contains(r#""operator":"alice""#)), "{text}");
    assert!(!text.contains("hft_"), "a token is in the audit log");
}
