//! Cross-site requests of web pages in a browser on the coordinator's machine.

use handfast_server::config::Config;
use handfast_server::serve::{RunningServer, Server};
use http::{Method, StatusCode};

use crate::port::{Admin, TokensFile, roomy, start};

async fn start_admin(config: Config) -> (RunningServer, Admin) {
    let server = Server::start(config).await.unwrap();
    let base = format!("http://127.0.0.1:{}", server.admin_address.port());
    (server, Admin::new(&base, None))
}

/// Returns the status, and the code if there is one.
async fn ask(
    admin: &Admin,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
) -> (StatusCode, String) {
    let mut request = admin.http.request(method, format!("{}{path}", admin.base));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = request.send().await.unwrap();
    let status = response.status();
    let body = response.text().await.unwrap();
    let problem = serde_json::from_str::<serde_json::Value>(&body).ok();
    let code = problem.and_then(|problem| Some(problem["code"].as_str()?.to_owned()));
    (status, code.unwrap_or_default())
}

// A page can send a request without a body and content type without asking the coordinator first.
#[tokio::test]
async fn a_page_of_another_site_cannot_act() {
    let (server, admin, mut application) = start().await;
    let xid = application.begin("place-order").await;
    let commit = format!("/api/v1/transactions/{xid}/commit");
    let refused = (StatusCode::FORBIDDEN, "HF-ADM-FOREIGN-PAGE".to_owned());
    let address = server.admin_address.to_string();
    let other_port = format!("http://127.0.0.1:{}", server.grpc_address.port());
    let own = format!("http://{address}");
    let foreign: [&[(&str, &str)]; 9] = [
        &[("origin", "https://example.com")],
        &[("origin", "null")],
        &[("origin", "")],
        &[("origin", "http://localhost")],
        &[("origin", &other_port)],
        &[("origin", &format!("{own}.example.com"))],
        &[("origin", "https://example.com"), ("sec-fetch-site", "cross-site")],
        &[("origin", &own), ("sec-fetch-site", "same-site")],
        &[("sec-fetch-site", "cross-site")],
    ];
    for headers in foreign {
        assert_eq!(ask(&admin, Method::POST, &commit, headers).await, refused, "{headers:?}");
    }
    let release = "/api/v1/named-locks/release";
    assert_eq!(ask(&admin, Method::POST, release, foreign[0]).await, refused);
    assert_eq!(admin.show(&xid).await.timeline.last().unwrap().what, "begun");
    // Reading changes nothing, and the browser hides the answer from such a page.
    let read = ask(&admin, Method::GET, "/api/v1/status", foreign[6]).await;
    assert_eq!(read.0, StatusCode::OK);
}

#[tokio::test]
async fn own_pages_and_programs_can_act() {
    let (server, admin, mut application) = start().await;
    let own = format!("http://{}", server.admin_address);
    let localhost = format!("LOCALHOST:{}", server.admin_address.port());
    let origin = format!("http://{}", localhost.to_lowercase());
    let allowed: [&[(&str, &str)]; 6] = [
        &[],
        &[("origin", &own)],
        &[("origin", &own), ("sec-fetch-site", "same-origin")],
        &[("origin", &origin), ("host", &localhost)],
        &[("sec-fetch-site", "none")],
        // Behind a proxy that sends its own host.
        &[("origin", "https://tc.example.com"), ("sec-fetch-site", "same-origin")],
    ];
    for headers in allowed {
        let xid = application.begin("place-order").await;
        let commit = format!("/api/v1/transactions/{xid}/commit");
        let done = ask(&admin, Method::POST, &commit, headers).await;
        assert_eq!(done, (StatusCode::OK, String::new()), "{headers:?}");
    }
}

// Such a site points its own name at this machine's address: to the browser it is same-site.
#[tokio::test]
async fn a_site_with_the_coordinators_address_is_refused() {
    let mut config = roomy();
    config.advertised_address = Some("tc.internal:7091".to_owned());
    let (server, admin) = start_admin(config).await;
    let port = server.admin_address.port();
    let refused = (StatusCode::FORBIDDEN, "HF-ADM-FOREIGN-HOST".to_owned());
    let status = async |path, host: &str| ask(&admin, Method::GET, path, &[("host", host)]).await;
    let foreign = [
        &*format!("example.com:{port}"),
        "localhost.example.com",
        "127.0.0.1.example.com",
        "192.0.2.1",
        "tc.internal.example.com",
        "[2001:db8::1]:80",
        "a b",
    ];
    for host in foreign {
        assert_eq!(status("/api/v1/status", host).await, refused, "{host}");
        // Probes and Prometheus may use any host name.
        for path in ["/livez", "/readyz", "/metrics"] {
            assert_eq!(status(path, host).await.0, StatusCode::OK, "{path} {host}");
        }
    }
    let own =
        ["127.0.0.1", "127.8.0.1:80", "[::1]:7092", "LocalHost:1", "localhost.", "tc.internal"];
    for host in own {
        assert_eq!(status("/api/v1/status", host).await.0, StatusCode::OK, "{host}");
    }
}

#[tokio::test]
async fn any_host_is_accepted_with_tokens_or_other_addresses() {
    let tokens = TokensFile::draw();
    let mut config = roomy();
    config.security.tokens = Some(tokens.path());
    let (_server, admin) = start_admin(config).await;
    let bearer = format!("Bearer {}", tokens.viewer);
    let headers = [("host", "tc.example.com"), ("authorization", &*bearer)];
    let status = ask(&admin, Method::GET, "/api/v1/status", &headers).await.0;
    assert_eq!(status, StatusCode::OK);

    let mut config = roomy();
    config.admin.listen = "0.0.0.0:0".parse().unwrap();
    config.security.insecure_allow_plaintext_and_anonymous_on_non_loopback = true;
    let (_server, admin) = start_admin(config).await;
    let headers = [("host", "tc.example.com")];
    let status = ask(&admin, Method::GET, "/api/v1/status", &headers).await.0;
    assert_eq!(status, StatusCode::OK);
}
