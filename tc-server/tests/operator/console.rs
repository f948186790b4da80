//! The console's side of the server: its files, signing in, live views, the audit log and the last
//! minutes. `quality/console` drives the pages themselves in a browser.

use handfast_server::admin::model::{AdminRole, AuditPage, Me, Recent};
use handfast_server::config::{Config, StoreKind};
use handfast_server::serve::{RunningServer, Server, ShutdownOutcome};
use handfast_test_services::until_some;
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, COOKIE, SET_COOKIE};
use reqwest::Response;

use crate::application::Application;
use crate::port::{Admin, TokensFile, roomy, start, start_with};

/// A coordinator with tokens, and a client of its admin port without one.
async fn start_with_tokens(tokens: &TokensFile, config: Config) -> (RunningServer, Admin) {
    let mut config = config;
    config.security.tokens = Some(tokens.path());
    let server = Server::start(config).await.unwrap();
    let admin = Admin::new(&format!("http://{}", server.admin_address), None);
    (server, admin)
}

async fn get(admin: &Admin, path: &str, headers: &[(&str, &str)]) -> Response {
    let mut request = admin.http.get(format!("{}{path}", admin.base));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.send().await.unwrap()
}

/// Signs in as the console does, and returns the answer.
async fn sign_in(admin: &Admin, token: &str) -> Response {
    let url = format!("{}/api/v1/sign-in", admin.base);
    let body = serde_json::json!({ "token": token }).to_string();
    let request = admin.http.post(url).header(CONTENT_TYPE, "application/json").body(body);
    request.send().await.unwrap()
}

/// Returns the cookie as a browser sends it, and the `set-cookie` header.
fn cookie(response: &Response) -> (String, String) {
    let header = response.headers()[SET_COOKIE].to_str().unwrap().to_owned();
    (header.split(';').next().unwrap().to_owned(), header)
}

#[tokio::test]
async fn the_files_are_served_under_a_strict_policy() {
    let (_server, admin, _application) = start().await;
    let page = get(&admin, "/", &[]).await;
    assert_eq!(page.status(), StatusCode::OK);
    let policy = page.headers()[CONTENT_SECURITY_POLICY].to_str().unwrap().to_owned();
    for rule in ["default-src 'none'", "script-src 'self'", "require-trusted-types-for 'script'"] {
        assert!(policy.contains(rule), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(page.headers()[CACHE_CONTROL], "no-cache");
    let text = page.text().await.unwrap();
    let script = text.split('"').find(|part| part.ends_with("/app.js")).unwrap();
    let script = get(&admin, script, &[]).await;
    assert_eq!(script.headers()[CONTENT_TYPE], "text/javascript; charset=utf-8");
    assert_eq!(script.headers()[CACHE_CONTROL], "public, max-age=31536000, immutable");
    for missing in ["/console/0/app.js", "/console/0/..%2fCargo.toml"] {
        assert_eq!(get(&admin, missing, &[]).await.status(), StatusCode::NOT_FOUND, "{missing}");
    }
}

#[tokio::test]
async fn a_token_is_changed_for_a_cookie() {
    let tokens = TokensFile::draw();
    let (_server, admin) = start_with_tokens(&tokens, roomy()).await;
    assert_eq!(get(&admin, "/api/v1/me", &[]).await.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(sign_in(&admin, "hft_wrong").await.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(sign_in(&admin, "two\nlines").await.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(sign_in(&admin, &tokens.client).await.status(), StatusCode::FORBIDDEN);

    let answer = sign_in(&admin, &tokens.viewer).await;
    let (cookie, header) = cookie(&answer);
    for attribute in ["HttpOnly", "SameSite=Strict", "Path=/api/v1", "Max-Age=43200"] {
        assert!(header.contains(attribute), "{header}");
    }
    assert!(!header.contains(&tokens.viewer) && !header.contains("Secure"), "{header}");
    let me: Me = answer.json().await.unwrap();
    let expected = Me { name: "grafana".to_owned(), role: AdminRole::Viewer, has_tokens: true };
    assert_eq!(me, expected);
    let me = get(&admin, "/api/v1/me", &[(COOKIE.as_str(), &cookie)]).await;
    assert_eq!(me.json::<Me>().await.unwrap(), expected);
    let others = format!("a=b; {cookie}; c=d");
    let status = get(&admin, "/api/v1/status", &[(COOKIE.as_str(), &others)]).await.status();
    assert_eq!(status, StatusCode::OK);
    let changed = format!("{cookie}00");
    let status = get(&admin, "/api/v1/status", &[(COOKIE.as_str(), &changed)]).await.status();
    assert_eq!(status, StatusCode::UNAUTHORIZED);
}

// The browser adds the cookie to requests of other pages of the same host too.
#[tokio::test]
async fn a_cookie_counts_from_pages_of_the_console_alone() {
    let tokens = TokensFile::draw();
    let (server, admin) = start_with_tokens(&tokens, roomy()).await;
    let (cookie, _) = cookie(&sign_in(&admin, &tokens.operator).await);
    let own = format!("http://{}", server.admin_address);
    let act = async |headers: &[(&str, &str)]| {
        let url = format!("{}/api/v1/transactions/1/rollback", admin.base);
        let mut request = admin.http.post(url).header(COOKIE, &cookie);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send().await.unwrap().status()
    };
    // It is let in, and there is no such transaction.
    for own_page in [
        &[("origin", &*own)][..],
        &[("origin", &own), ("sec-fetch-site", "same-origin")],
        &[("sec-fetch-site", "same-origin")],
    ] {
        assert_eq!(act(own_page).await, StatusCode::NOT_FOUND, "{own_page:?}");
    }
    // A program has a token, and no cookie.
    assert_eq!(act(&[]).await, StatusCode::UNAUTHORIZED);
    assert_eq!(act(&[("sec-fetch-site", "none")]).await, StatusCode::UNAUTHORIZED);
    assert_eq!(act(&[("origin", "https://example.com")]).await, StatusCode::FORBIDDEN);
    let read = async |site: &str| {
        let headers = [(COOKIE.as_str(), &*cookie), ("sec-fetch-site", site)];
        get(&admin, "/api/v1/status", &headers).await.status()
    };
    assert_eq!(read("same-origin").await, StatusCode::OK);
    assert_eq!(read("none").await, StatusCode::OK);
    assert_eq!(read("same-site").await, StatusCode::UNAUTHORIZED);
    assert_eq!(read("cross-site").await, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_sign_in_outlives_a_restart_and_not_its_token() {
    let tokens = TokensFile::draw();
    let directory = tempfile::tempdir().unwrap();
    let config = || {
        let mut config = roomy();
        (config.store, config.data_dir) = (StoreKind::Embedded, directory.path().join("data"));
        config
    };
    let (server, admin) = start_with_tokens(&tokens, config()).await;
    let (cookie, _) = cookie(&sign_in(&admin, &tokens.operator).await);
    server.shutdown().await.unwrap();

    // On the same port, since the cookie is one port's.
    let mut again = config();
    again.admin.listen = admin.base.trim_start_matches("http://").parse().unwrap();
    let (server, admin) = start_with_tokens(&tokens, again).await;
    let me = async || get(&admin, "/api/v1/me", &[(COOKIE.as_str(), &cookie)]).await.status();
    assert_eq!(me().await, StatusCode::OK);
    std::fs::write(tokens.path(), "").unwrap();
    server.reload_tokens().unwrap().unwrap();
    assert_eq!(me().await, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn without_tokens_every_caller_may_act() {
    let (_server, admin, _application) = start().await;
    let me: Me = admin.get("/api/v1/me").await;
    let expected = Me { name: "anonymous".into(), role: AdminRole::Operator, has_tokens: false };
    assert_eq!(me, expected);
    assert!(!sign_in(&admin, "any").await.headers().contains_key(SET_COOKIE));
    let (status, _) = admin.post("/api/v1/sign-out", None).await;
    assert_eq!(status, StatusCode::OK);
}

/// A live view, read event by event.
struct Events {
    response: Response,
    read: String,
}

impl Events {
    async fn open(admin: &Admin, path: &str, last: Option<&str>) -> Self {
        let url = format!("{}/api/v1/live", admin.base);
        let mut request = admin.http.get(url).query(&[("path", path)]);
        if let Some(token) = &admin.token {
            request = request.bearer_auth(token);
        }
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()[CONTENT_TYPE], "text/event-stream");
        Self { response, read: String::new() }
    }

    /// Returns the next event; `None` at the end of the stream.
    async fn next(&mut self) -> Option<String> {
        loop {
            if let Some((event, rest)) = self.read.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.read = rest;
                return Some(event);
            }
            let chunk = self.response.chunk().await.unwrap()?;
            self.read.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }
}

fn field<'a>(event: &'a str, name: &str) -> &'a str {
    let mut fields = event.lines().filter_map(|line| line.split_once(": "));
    fields.find_map(|(field, value)| (field == name).then_some(value)).unwrap_or_default()
}

#[tokio::test]
async fn a_live_view_sends_what_changes_and_is_resumed() {
    let (server, admin, mut application) = start().await;
    let path = "/api/v1/transactions?name=place-order";
    let mut events = Events::open(&admin, path, None).await;
    let empty = events.next().await.unwrap();
    assert_eq!(field(&empty, "event"), "answer");
    assert_eq!(field(&empty, "data"), r#"{"items":[],"next":null}"#);
    // Of another name: no event.
    application.begin("other").await;
    let xid = application.begin("place-order").await;
    let begun = events.next().await.unwrap();
    assert!(field(&begun, "data").contains(&xid), "{begun}");
    assert!(!field(&begun, "data").contains("other"), "{begun}");

    // A client that has the last event gets no other one until there is a change.
    let mut resumed = Events::open(&admin, path, Some(field(&begun, "id"))).await;
    assert_eq!(resumed.next().await.unwrap(), ": unchanged");
    let mut fresh = Events::open(&admin, path, Some(field(&empty, "id"))).await;
    assert_eq!(field(&fresh.next().await.unwrap(), "id"), field(&begun, "id"));

    let mut gone = Events::open(&admin, "/api/v1/transactions/1", None).await;
    let problem = gone.next().await.unwrap();
    assert_eq!(field(&problem, "event"), "problem");
    assert!(field(&problem, "data").contains("HF-TC-UNKNOWN-XID"), "{problem}");

    // Open streams do not hold up the end.
    assert_eq!(server.shutdown().await.unwrap(), ShutdownOutcome::Drained);
    assert_eq!(events.next().await, None);
}

#[tokio::test]
async fn live_views_are_bounded_and_read_the_api_alone() {
    let mut config = roomy();
    config.admin.live_max = 1;
    let (_server, admin, _application) = start_with(config).await;
    let live = |path: &str| format!("/api/v1/live?path={path}");
    for path in ["/metrics", "http://example.com/api/v1/status", "/api/v1x", "%20"] {
        let problem = admin.problem(http::Method::GET, &live(path), None).await;
        assert_eq!(problem, (400, "HF-ADM-BAD-REQUEST".to_owned()), "{path}");
    }
    let mut first = Events::open(&admin, "/api/v1/status", None).await;
    first.next().await.unwrap();
    let second = admin.problem(http::Method::GET, &live("/api/v1/status"), None).await;
    assert_eq!(second, (429, "HF-ADM-TOO-MANY-LIVE-VIEWS".to_owned()));
    drop(first);
    until_some("the place is free again", async || {
        let answer = get(&admin, &live("/api/v1/status"), &[]).await;
        (answer.status() == StatusCode::OK).then_some(())
    })
    .await;
    // A stream of streams would never end.
    let mut nested = until_some("a place is free", async || {
        let answer = get(&admin, &live("/api/v1/live?path=/api/v1/status"), &[]).await;
        let read = String::new();
        (answer.status() == StatusCode::OK).then_some(Events { response: answer, read })
    })
    .await;
    assert_eq!(field(&nested.next().await.unwrap(), "event"), "problem");
}

#[tokio::test]
async fn a_live_view_ends_with_its_token() {
    let tokens = TokensFile::draw();
    let (server, admin) = start_with_tokens(&tokens, roomy()).await;
    let admin = Admin { token: Some(tokens.viewer.clone()), ..admin };
    let mut events = Events::open(&admin, "/api/v1/status", None).await;
    events.next().await.unwrap();
    std::fs::write(tokens.path(), "").unwrap();
    server.reload_tokens().unwrap().unwrap();
    assert_eq!(events.next().await, None);
}

#[tokio::test]
async fn actions_are_read_back_with_their_reasons() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = roomy();
    config.security.audit_log = Some(directory.path().join("audit.jsonl"));
    let (_server, admin, mut application) = start_with(config).await;
    let empty: AuditPage = admin.get("/api/v1/audit").await;
    assert_eq!(empty, AuditPage { is_kept: true, items: Vec::new(), next: None });
    let refused = application.refuse().await;
    let number = refused.rsplit_once(':').unwrap().1;
    let resolve = format!("/api/v1/transactions/{number}/branches/7/resolve");
    let answer = r#"{"resolution":"force_before","reason":"the counter says so"}"#;
    let (status, body) = admin.post(&resolve, Some(answer)).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let other = application.begin("place-order").await;
    admin.post(&format!("/api/v1/transactions/{other}/rollback"), None).await;

    let all: AuditPage = admin.get("/api/v1/audit").await;
    assert_eq!(all.items.len(), 4);
    assert_eq!((&*all.items[0].action, &*all.items[0].stage), ("rollback", "answered"));
    let one: AuditPage = admin.get(&format!("/api/v1/audit?xid={number}")).await;
    assert_eq!(one.items, all.items[2..]);
    assert_eq!(one.items[0].detail.as_deref(), Some("force_before: the counter says so"));
    assert_eq!(one.items[0].outcome.as_deref(), Some("done"));
    assert_eq!(one.items[1].stage, "asked");
    let problem = admin.problem(http::Method::GET, "/api/v1/audit?cursor=x", None).await;
    assert_eq!(problem, (400, "HF-ADM-BAD-REQUEST".to_owned()));
}

#[tokio::test]
async fn a_long_log_is_read_part_by_part() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.jsonl");
    let line = |at: usize| {
        format!(
            "{{\"at\":\"2026-11-21T00:00:00.000Z\",\"stage\":\"asked\",\"id\":\"{at}\",\
             \"operator\":\"alice\",\"action\":\"retry\"}}\n"
        )
    };
    std::fs::write(&path, (0..2_000).map(line).collect::<String>()).unwrap();
    let mut config = roomy();
    config.security.audit_log = Some(path);
    let (_server, admin, _application) = start_with(config).await;
    let mut seen = Vec::new();
    let mut page: AuditPage = admin.get("/api/v1/audit").await;
    loop {
        assert!(!page.items.is_empty());
        seen.extend(page.items.into_iter().map(|line| line.id.parse::<usize>().unwrap()));
        let Some(next) = page.next else { break };
        page = admin.get(&format!("/api/v1/audit?cursor={next}")).await;
    }
    assert_eq!(seen, (0..2_000).rev().collect::<Vec<_>>());
}

#[tokio::test]
async fn without_a_file_the_log_says_so() {
    let (_server, admin, _application) = start().await;
    let page: AuditPage = admin.get("/api/v1/audit").await;
    assert!(!page.is_kept);
}

#[tokio::test]
async fn the_last_minutes_are_counted() {
    let server = Server::start(roomy()).await.unwrap();
    let admin = Admin::new(&format!("http://{}", server.admin_address), None);
    let mut application = Application::connect(server.grpc_address).await;
    let first: Recent = admin.get("/api/v1/recent").await;
    assert_eq!((first.step_ms, first.steps.len()), (10_000, 0));
    application.begin("place-order").await;
    let step = until_some("a step has ended", async || {
        let recent: Recent = admin.get("/api/v1/recent").await;
        recent.steps.into_iter().next()
    })
    .await;
    assert_eq!(step.active, Some(1));
    let begin = step.begin.unwrap();
    assert!(begin.count >= 1 && begin.p50_us > 0 && begin.p50_us <= begin.p99_us, "{begin:?}");
}
