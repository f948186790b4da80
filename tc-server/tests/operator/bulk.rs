//! One action on several transactions, by the API and on the command line.

use handfast_proto::v1::{Decision, Resolution};
use handfast_server::admin::model::{
    AuditLine, AuditPage, BulkItem, BulkOutcome, BulkReply, Status,
};
use handfast_server::config::Config;
use handfast_server::serve::Server;
use http::{Method, StatusCode};
use serde_json::json;

use crate::command_line::run;
use crate::port::{Admin, TokensFile, roomy, start};

const BULK: &str = "/api/v1/transactions/bulk";

async fn bulk(admin: &Admin, body: serde_json::Value) -> BulkReply {
    let (status, answer) = admin.post(BULK, Some(&body.to_string())).await;
    assert_eq!(status, StatusCode::OK, "{body}: {answer}");
    serde_json::from_str(&answer).unwrap()
}

/// Carries out what a dry run would change.
fn confirmed(dry: &BulkReply) -> serde_json::Value {
    json!({
        "action": dry.action,
        "targets": targets(dry, BulkOutcome::WouldChange),
        "confirmation": dry.confirmation,
        "dry_run": false,
        "reason": "night shift",
    })
}

fn targets(reply: &BulkReply, outcome: BulkOutcome) -> Vec<&str> {
    let items = reply.items.iter().filter(|item| item.outcome == outcome);
    items.map(|item| &*item.target).collect()
}

fn item<'a>(reply: &'a BulkReply, xid: &str) -> &'a BulkItem {
    reply.items.iter().find(|item| item.target == xid).expect("the target is named")
}

#[tokio::test]
async fn what_a_filter_finds_is_named_first_and_then_rolled_back() {
    let (_server, admin, mut application) = start().await;
    let open = application.begin("nightly").await;
    let decided = application.begin("nightly").await;
    application.register(&decided, 7, "2:42").await.unwrap();
    application.end(&decided, Decision::Commit).await;
    let other = application.begin("daily").await;
    let ended = application.begin("nightly").await;
    application.end(&ended, Decision::Commit).await;

    let ask = json!({ "action": "rollback", "filter": { "name": "nightly" } });
    let dry = bulk(&admin, ask.clone()).await;
    assert!(dry.dry_run && dry.next.is_none());
    assert_eq!((dry.changes, dry.refusals), (1, 1));
    assert_eq!(targets(&dry, BulkOutcome::WouldChange), [&*open]);
    let named = item(&dry, &open);
    assert_eq!(named.status, Some(Status::Active));
    assert_eq!(named.name.as_deref(), Some("nightly"));
    assert_eq!(named.effect.as_deref(), Some("is rolled back; it has no branch"));
    let refused = item(&dry, &decided);
    assert_eq!(refused.code.as_deref(), Some("HF-TC-ALREADY-DECIDED"));
    assert!(refused.message.as_deref().unwrap().contains("committing"), "{refused:?}");
    assert_eq!(admin.show(&open).await.transaction.status, Status::Active, "nothing is changed");

    // What begins after the dry run was not named by it.
    let late = application.begin("nightly").await;
    let done = bulk(&admin, confirmed(&dry)).await;
    assert_eq!(targets(&done, BulkOutcome::Done), [&*open]);
    assert_eq!(item(&done, &open).status, Some(Status::RolledBack));
    assert_eq!((done.changes, done.refusals, done.confirmation), (1, 0, None));
    for (xid, status) in
        [(&open, Status::RolledBack), (&other, Status::Active), (&late, Status::Active)]
    {
        assert_eq!(admin.show(xid).await.transaction.status, status);
    }
    let timeline = admin.show(&open).await.timeline;
    assert!(timeline.iter().any(|it| it.what.contains("night shift")), "{timeline:?}");
}

#[tokio::test]
async fn the_limit_holds_and_the_next_dry_run_goes_on() {
    let (_server, admin, mut application) = start().await;
    let mut begun = Vec::new();
    for _ in 0..70 {
        begun.push(application.begin("many").await);
    }
    let ask = |cursor: Option<&String>| {
        let filter = json!({ "name": "many", "order": "oldest", "limit": 40, "cursor": cursor });
        json!({ "action": "rollback", "filter": filter })
    };
    let first = bulk(&admin, ask(None)).await;
    assert_eq!(targets(&first, BulkOutcome::WouldChange), begun[..40]);
    let second = bulk(&admin, ask(first.next.as_ref())).await;
    assert_eq!(targets(&second, BulkOutcome::WouldChange), begun[40..]);
    assert_eq!(second.next, None);
    // More than are asked for at a time.
    let done = bulk(&admin, confirmed(&first)).await;
    assert_eq!(targets(&done, BulkOutcome::Done), begun[..40]);
    let left = json!({ "action": "rollback", "filter": { "name": "many", "limit": 1_000 } });
    assert_eq!(bulk(&admin, left).await.changes, 30);
    let many: Vec<String> = (0..1_001).map(|number| number.to_string()).collect();
    let body = json!({ "action": "retry", "targets": many }).to_string();
    let refused = admin.problem(Method::POST, BULK, Some(&body)).await;
    assert_eq!(refused, (400, "HF-ADM-BAD-REQUEST".to_owned()));
}

#[tokio::test]
async fn only_what_a_dry_run_has_named_is_carried_out() {
    let (_server, admin, mut application) = start().await;
    let first = application.begin("place-order").await;
    let second = application.begin("place-order").await;
    let dry = bulk(&admin, json!({ "action": "rollback", "targets": [first] })).await;
    let confirmation = dry.confirmation.clone();
    let wrong = [
        json!({ "action": "rollback", "targets": [first], "dry_run": false }),
        json!({ "action": "rollback", "targets": [], "dry_run": false,
            "confirmation": confirmation }),
        json!({ "action": "rollback", "targets": [second], "dry_run": false,
            "confirmation": confirmation }),
        json!({ "action": "rollback", "targets": [first, second], "dry_run": false,
            "confirmation": confirmation }),
        json!({ "action": "rollback", "filter": { "name": "place-order" }, "dry_run": false,
            "confirmation": confirmation }),
        json!({ "action": "pause", "targets": [first], "dry_run": false,
            "confirmation": confirmation }),
    ];
    for body in wrong {
        let refused = admin.problem(Method::POST, BULK, Some(&body.to_string())).await;
        assert_eq!(refused, (409, "HF-ADM-NOT-CONFIRMED".to_owned()), "{body}");
    }
    for body in [
        json!({ "action": "rollback" }),
        json!({ "action": "rollback", "filter": {}, "targets": [first] }),
        json!({ "action": "commit", "targets": [first] }),
        json!({ "action": "retry", "targets": ["nonsense"] }),
        json!({ "action": "retry", "filter": { "odd": 1 } }),
    ] {
        let (status, _) = admin.problem(Method::POST, BULK, Some(&body.to_string())).await;
        assert_eq!(status, 400, "{body}");
    }
    // What has changed since the dry run is refused one by one.
    let dry = bulk(&admin, json!({ "action": "rollback", "targets": [first, second] })).await;
    application.end(&first, Decision::Commit).await;
    let done = bulk(&admin, confirmed(&dry)).await;
    assert_eq!(item(&done, &first).code.as_deref(), Some("HF-TC-ALREADY-DECIDED"));
    assert_eq!(targets(&done, BulkOutcome::Done), [&*second]);
    assert_eq!((done.changes, done.refusals), (1, 1));
}

#[tokio::test]
async fn dirty_writes_are_resolved_branch_by_branch() {
    let (_server, admin, mut application) = start().await;
    let xid = application.refuse().await;
    admin.until(&xid, Status::NeedsOperator).await;
    let open = application.begin("place-order").await;
    let ask = json!({
        "action": "resolve", "resolution": "force_before", "filter": { "name": "place-order" }
    });
    let dry = bulk(&admin, ask).await;
    let branch = format!("{xid}/7");
    assert_eq!(targets(&dry, BulkOutcome::WouldChange), [&*branch]);
    let effect = item(&dry, &branch).effect.as_deref();
    assert_eq!(effect, Some("the before image is written over every row"));
    assert_eq!(item(&dry, &open).code.as_deref(), Some("HF-TC-NOT-APPLICABLE"));
    // The other answer is not the one that was named.
    let other = confirmed(&dry).to_string();
    let refused = admin.problem(Method::POST, BULK, Some(&other)).await;
    assert_eq!(refused, (409, "HF-ADM-NOT-CONFIRMED".to_owned()));
    let mut body = confirmed(&dry);
    body["resolution"] = json!("force_before");
    let done = bulk(&admin, body.clone()).await;
    assert_eq!(targets(&done, BulkOutcome::Done), [&*branch]);
    let again = bulk(&admin, body).await;
    assert_eq!(targets(&again, BulkOutcome::Done), [&*branch], "repeated it is answered alike");
    let (_call, called) = application.finish().await;
    assert_eq!(called.resolution(), Resolution::ForceBefore);
    admin.until(&xid, Status::RolledBack).await;
}

#[tokio::test]
async fn phase_two_is_paused_and_resumed_and_retried() {
    let (_server, admin, mut application) = start().await;
    let mut decided = Vec::new();
    for key in ["2:41", "2:42"] {
        let xid = application.begin("place-order").await;
        application.register(&xid, 7, key).await.unwrap();
        application.end(&xid, Decision::Commit).await;
        decided.push(xid);
    }
    let act = async |action: &str| {
        let ask = json!({ "action": action, "filter": { "status": "committing" } });
        let dry = bulk(&admin, ask).await;
        if dry.confirmation.is_some() {
            bulk(&admin, confirmed(&dry)).await;
        }
        dry
    };
    assert_eq!(act("resume").await.items[0].outcome, BulkOutcome::Unchanged);
    assert_eq!(act("pause").await.changes, 2);
    assert_eq!(act("pause").await.changes, 0);
    assert!(admin.show(&decided[0]).await.transaction.paused);
    let refused = act("retry").await;
    assert_eq!((refused.changes, refused.refusals), (0, 2));
    assert_eq!(refused.items[0].code.as_deref(), Some("HF-TC-NOT-APPLICABLE"));
    assert_eq!(act("resume").await.changes, 2);
    assert_eq!(act("retry").await.changes, 2);
}

fn with_tokens(tokens: &TokensFile) -> Config {
    let mut config = roomy();
    config.security.tokens = Some(tokens.path());
    config.security.audit_log = Some(tokens.directory.path().join("audit.jsonl"));
    config
}

#[tokio::test]
async fn each_target_and_the_whole_are_in_the_audit_log_and_viewers_are_refused() {
    let tokens = TokensFile::draw();
    let server = Server::start(with_tokens(&tokens)).await.unwrap();
    let base = format!("http://{}", server.admin_address);
    let operator = Admin::new(&base, Some(tokens.operator.clone()));
    let viewer = Admin::new(&base, Some(tokens.viewer.clone()));
    for dry_run in [true, false] {
        let body = json!({ "action": "rollback", "targets": ["1"], "dry_run": dry_run });
        let refused = viewer.problem(Method::POST, BULK, Some(&body.to_string())).await;
        assert_eq!(refused, (403, "HF-ADM-FORBIDDEN".to_owned()));
    }
    // Unknown, so that it is refused when it is carried out, too.
    let action = "rollback 1 2";
    let confirmation = format!("{:032x}", xxhash_rust::xxh3::xxh3_128(action.as_bytes()));
    let body = json!({
        "action": "rollback", "targets": ["1", "2"], "dry_run": false,
        "confirmation": confirmation, "reason": "night shift"
    });
    let done = bulk(&operator, body).await;
    assert_eq!((done.changes, done.refusals), (0, 2));
    assert_eq!(done.items[0].code.as_deref(), Some("HF-TC-UNKNOWN-XID"));

    let page: AuditPage = operator.get("/api/v1/audit").await;
    let told = |line: &AuditLine| {
        let (xid, outcome) = (line.xid.as_deref(), line.outcome.as_deref());
        let words = [line.action.as_str(), xid.unwrap_or("-"), outcome.unwrap_or("asked")];
        format!("{}: {}", words.join(" "), line.detail.as_deref().unwrap_or("-"))
    };
    let lines: Vec<String> = page.items.iter().rev().map(told).collect();
    let expected = [
        "bulk - asked: rollback, 2 targets: night shift",
        "rollback 1 asked: night shift",
        "rollback 2 asked: night shift",
        "rollback 1 HF-TC-UNKNOWN-XID: night shift",
        "rollback 2 HF-TC-UNKNOWN-XID: night shift",
        "bulk - done: rollback, 2 targets, 0 done, 2 refused: night shift",
    ];
    assert_eq!(lines, expected);
    assert!(page.items.iter().all(|line| line.operator == "alice"));
    let whole = &page.items[0].id;
    assert!(page.items[1..5].iter().all(|line| line.bulk.as_ref() == Some(whole)));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_shows_first_and_acts_with_yes() {
    let (server, admin, mut application) = start().await;
    let first = application.begin("nightly").await;
    let second = application.begin("nightly").await;
    application.register(&second, 7, "2:42").await.unwrap();
    application.end(&second, Decision::Commit).await;
    let tx = async |arguments: &str| {
        let output = run(server.admin_address, &format!("tx bulk {arguments}")).await;
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, shown, _) = tx("rollback --name nightly").await;
    assert_eq!(code, Some(0));
    for part in [
        &*first,
        "would_change",
        "is rolled back; it has no branch",
        "HF-TC-ALREADY-DECIDED",
        "rollback would change 1 and be refused by 1",
        "nothing is changed yet: the same command with --yes carries it out",
    ] {
        assert!(shown.contains(part), "{part}:\n{shown}");
    }
    assert_eq!(admin.show(&first).await.transaction.status, Status::Active);

    let (code, shown, errors) = tx("rollback --name nightly --yes --reason stuck").await;
    assert!(shown.contains("rollback: 1 done, 1 refused"), "{shown}");
    assert!(errors.contains("error[HF-CLI-BULK-REFUSED]: 1 of 2 were refused"), "{errors}");
    assert_eq!(code, Some(4));
    assert_eq!(admin.show(&first).await.transaction.status, Status::RolledBack);

    let (code, shown, _) = tx(&format!("pause --xid {second} --yes --json")).await;
    assert_eq!(code, Some(0), "{shown}");
    let reply: BulkReply = serde_json::from_str(&shown).unwrap();
    assert_eq!(targets(&reply, BulkOutcome::Done), [&*second]);
    assert!(admin.show(&second).await.transaction.paused);

    for wrong in ["rollback", "rollback --yes --oldest-first", "rollback --xid 1 --name x", "odd"] {
        let (code, _, errors) = tx(wrong).await;
        assert_eq!(code, Some(2), "{wrong}: {errors}");
    }
    let (code, _, errors) = tx("rollback --xid 1 --yes").await;
    assert_eq!(code, Some(4), "nothing is left to be changed: {errors}");
    let (code, shown, _) = tx("retry --name absent").await;
    assert_eq!((code, shown.trim()), (Some(0), "no transactions"));
}

#[tokio::test]
async fn a_saga_is_named_and_not_rolled_back_as_a_transaction() {
    let (_server, admin, _application) = start().await;
    let definition = json!({
        "name": "order", "steps": [{ "name": "approve", "kind": "signal" }]
    });
    let body = json!({ "key": "order-1", "saga": definition }).to_string();
    let (status, answer) = admin.post("/api/v1/sagas", Some(&body)).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let dry = bulk(&admin, json!({ "action": "rollback", "filter": { "name": "order" } })).await;
    assert_eq!((dry.changes, dry.refusals), (0, 1));
    let message = dry.items[0].message.as_deref().unwrap();
    assert!(
        message.starts_with("a decision about a saga (cancel it, or give its signals)"),
        "{message}"
    );
    let single = dry.items[0].target.clone();
    let path = format!("/api/v1/transactions/{single}/rollback");
    let refused = admin.problem(Method::POST, &path, None).await;
    assert_eq!(refused, (409, "HF-TC-NOT-APPLICABLE".to_owned()));
}
