//! Labels of transactions, and lists that are searched: by label, content, time and text.

use handfast_proto::v1::{BeginRequest, Decision};
use handfast_server::admin::model::{SagaPage, Status, TransactionPage};
use http::{Method, StatusCode};
use serde_json::json;

use crate::application::{Application, RESOURCE};
use crate::command_line::run;
use crate::port::{Admin, start};
use crate::serving::handfast;

async fn begin(application: &mut Application, name: &str, labels: &[(&str, &str)]) -> String {
    let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let request =
        BeginRequest { name: name.to_owned(), labels: labels.collect(), ..BeginRequest::default() };
    application.client.begin(request).await.unwrap().into_inner().xid
}

/// Follows a list to its end.
async fn listed(admin: &Admin, query: &str) -> Vec<String> {
    let (mut listed, mut cursor) = (Vec::new(), String::new());
    loop {
        let page: TransactionPage =
            admin.get(&format!("/api/v1/transactions?{query}{cursor}")).await;
        listed.extend(page.items.into_iter().map(|item| item.xid));
        let Some(next) = page.next else { return listed };
        cursor = format!("&cursor={next}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_is_found_by_its_label() {
    let (server, admin, mut application) = start().await;
    let labels = [("order", "42"), ("country", "de")];
    let first = begin(&mut application, "place-order", &labels).await;
    begin(&mut application, "place-order", &[("order", "43")]).await;
    let second = begin(&mut application, "return-order", &[("order", "42")]).await;
    application.register(&first, 7, "2:42").await.unwrap();

    let shown = admin.show(&first).await.transaction;
    let given = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(shown.labels, given.into());
    assert_eq!(listed(&admin, "label=order=42").await, [&*second, &*first]);
    assert_eq!(listed(&admin, "label=order%3D42&order=oldest").await, [&*first, &*second]);
    assert_eq!(listed(&admin, "label=country=de").await, [&*first]);
    assert_eq!(listed(&admin, "label=order=44").await, [""; 0]);

    application.end(&first, Decision::Commit).await;
    application.finish().await;
    admin.until(&first, Status::Committed).await;
    assert_eq!(listed(&admin, "label=order=42&limit=1").await, [&*second, &*first]);

    let output = run(server.admin_address, "tx ls --label order=42 --oldest-first").await;
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].contains("LABELS"), "{text}");
    assert!(lines[1].starts_with(&*first) && lines[1].contains("country=de order=42"), "{text}");
    assert!(lines[2].starts_with(&*second), "{text}");
    let output = run(server.admin_address, &format!("tx show {first}")).await;
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("\nlabels country=de order=42\n"), "{text}");
}

#[tokio::test]
async fn labels_beyond_the_limits_are_refused_with_the_limit() {
    let (_server, _admin, mut application) = start().await;
    let long = "x".repeat(257);
    let many: Vec<String> = (0..17).map(|number| format!("label-{number}")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|name| (&**name, "")).collect();
    let cases = [
        (many, "HF-TC-TOO-LARGE", "17 labels: at most 16 are allowed"),
        (
            vec![("order", &*long)],
            "HF-TC-TOO-LARGE",
            "label value has 257 bytes: at most 256 are allowed",
        ),
        (
            vec![(&long[..65], "")],
            "HF-TC-TOO-LARGE",
            "label name has 65 bytes: at most 64 are allowed",
        ),
        (
            vec![("", "42")],
            "HF-TC-BAD-REQUEST",
            "`` is no name of a label: a name has at least one character and no `=`",
        ),
        (
            vec![("a=b", "42")],
            "HF-TC-BAD-REQUEST",
            "`a=b` is no name of a label: a name has at least one character and no `=`",
        ),
    ];
    for (labels, code, message) in cases {
        let labels =
            labels.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let request = BeginRequest { labels, ..BeginRequest::default() };
        let status = application.client.begin(request).await.unwrap_err();
        assert_eq!(status.metadata().get("handfast-code").unwrap(), code);
        assert_eq!(status.message(), message);
    }
}

#[tokio::test]
async fn a_begin_is_repeated_under_its_key() {
    let (_server, admin, mut application) = start().await;
    let request = |key: &str| BeginRequest { key: key.to_owned(), ..BeginRequest::default() };
    let mut client = application.client.clone();
    let mut begin = async |key: &str| client.begin(request(key)).await;
    let xid = begin("order-42").await.unwrap().into_inner().xid;
    assert_eq!(begin("order-42").await.unwrap().into_inner().xid, xid);
    assert_ne!(begin("order-43").await.unwrap().into_inner().xid, xid);
    assert_ne!(
        begin("").await.unwrap().into_inner().xid,
        begin("").await.unwrap().into_inner().xid
    );
    application.register(&xid, 7, "2:42").await.unwrap();
    application.end(&xid, Decision::Commit).await;
    application.finish().await;
    admin.until(&xid, Status::Committed).await;
    assert_eq!(begin("order-42").await.unwrap().into_inner().xid, xid, "it is remembered");
    let refused = begin(&"x".repeat(257)).await.unwrap_err();
    assert_eq!(refused.metadata().get("handfast-code").unwrap(), "HF-TC-TOO-LARGE");
    assert_eq!(refused.message(), "key has 257 bytes: at most 256 are allowed");
}

#[tokio::test]
async fn transactions_are_found_by_content_text_and_time() {
    let (_server, admin, mut application) = start().await;
    let first = begin(&mut application, "place-order", &[("customer", "Ada-7")]).await;
    application.register(&first, 7, "2:42").await.unwrap();
    let second = begin(&mut application, "transfer", &[]).await;
    for query in [
        &*format!("resource={RESOURCE}"),
        "table=stock",
        "text=PLACE",
        "text=ada-7",
        &*format!("text={first}"),
    ] {
        assert_eq!(listed(&admin, query).await, [&*first], "{query}");
    }
    for query in ["table=absent", "resource=absent", "text=absent"] {
        assert_eq!(listed(&admin, query).await, [""; 0], "{query}");
    }
    let begun_at = admin.show(&first).await.transaction.begun_at;
    let both = [&*second, &*first];
    assert_eq!(listed(&admin, &format!("since={begun_at}")).await, both);
    assert_eq!(listed(&admin, &format!("until={begun_at}")).await, [""; 0]);
    assert_eq!(listed(&admin, "younger_than=1h&since=2026-01-01T00:00:00%2B01:00").await, both);
    assert_eq!(listed(&admin, "older_than=1h").await, [""; 0]);
    assert_eq!(listed(&admin, "until=2100-01-01T00:00:00Z&order=oldest").await, [&*first, &second]);
    for wrong in ["label=order", "since=yesterday", "order=odd", "younger_than=1"] {
        let path = format!("/api/v1/transactions?{wrong}");
        let problem = admin.problem(Method::GET, &path, None).await;
        assert_eq!(problem, (400, "HF-ADM-BAD-REQUEST".to_owned()), "{wrong}");
    }
}

/// Started by the command line or by REST, a saga is found by its label among sagas and among
/// transactions.
#[tokio::test(flavor = "multi_thread")]
async fn a_saga_has_labels() {
    let (_server, admin, _application) = start().await;
    let folder = tempfile::tempdir().unwrap();
    let step = json!({"name": "reserve", "kind": "compensable", "resource": "r", "action": "a"});
    let saga = json!({"name": "place-order", "steps": [step]});
    let file = folder.path().join("saga.json");
    std::fs::write(&file, saga.to_string()).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = handfast(&[&["saga"], arguments].concat());
        command.env("HANDFAST_SERVER", &admin.base);
        tokio::task::spawn_blocking(move || command.output().unwrap())
    };
    let file = file.to_str().unwrap();
    let labels = ["--label", "order=42", "--label", "country=de"];
    let started = run(&[&["start", file, "--key", "a"], &labels[..]].concat()).await.unwrap();
    assert!(started.status.success(), "{started:?}");
    let body = json!({"key": "b", "saga": saga, "labels": {"order": "43"}}).to_string();
    let (status, text) = admin.post("/api/v1/sagas", Some(&body)).await;
    assert_eq!(status, StatusCode::OK, "{text}");

    let listed = run(&["ls", "--label", "order=42", "--json"]).await.unwrap();
    let page: SagaPage = serde_json::from_slice(&listed.stdout).unwrap();
    let [found] = &*page.items else { panic!("{page:?}") };
    assert_eq!((&*found.key, &*found.labels["country"]), ("a", "de"));
    let shown = run(&["show", "key=a"]).await.unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("\nlabels country=de order=42\n"), "{shown}");
    let page: TransactionPage = admin.get("/api/v1/transactions?label=order%3D43").await;
    let [found] = &*page.items else { panic!("{page:?}") };
    assert_eq!(&*found.labels["order"], "43");

    let many: serde_json::Map<_, _> =
        (0..17).map(|number| (format!("l{number}"), "1".into())).collect();
    let body = json!({"key": "c", "saga": saga, "labels": many}).to_string();
    let refused = admin.problem(Method::POST, "/api/v1/sagas", Some(&body)).await;
    assert_eq!(refused, (400, "HF-TC-TOO-LARGE".to_owned()));
}
