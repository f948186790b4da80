//! The OpenAPI document against the routes: every route is listed, and every route requires a
//! token.

use handfast_server::admin::openapi;
use handfast_server::serve::Server;
use http::Method;

use crate::application::Application;
use crate::port::{Admin, TokensFile, roomy};

const ROUTES: [(&str, &str); 35] = [
    ("get", "/api/v1/audit"),
    ("post", "/api/v1/backup"),
    ("get", "/api/v1/cluster"),
    ("post", "/api/v1/cluster/transfer"),
    ("get", "/api/v1/events"),
    ("post", "/api/v1/events/{event}/requeue"),
    ("post", "/api/v1/events/{event}/skip"),
    ("get", "/api/v1/live"),
    ("get", "/api/v1/locks"),
    ("get", "/api/v1/locks/deadlocks"),
    ("get", "/api/v1/locks/graph"),
    ("get", "/api/v1/locks/one"),
    ("get", "/api/v1/locks/queue"),
    ("get", "/api/v1/me"),
    ("get", "/api/v1/named-locks"),
    ("get", "/api/v1/named-locks/one"),
    ("post", "/api/v1/named-locks/release"),
    ("get", "/api/v1/processes"),
    ("get", "/api/v1/recent"),
    ("get", "/api/v1/resources"),
    ("get", "/api/v1/sagas"),
    ("post", "/api/v1/sagas"),
    ("get", "/api/v1/sagas/{xid}"),
    ("post", "/api/v1/sagas/{xid}/cancel"),
    ("post", "/api/v1/sagas/{xid}/signal"),
    ("get", "/api/v1/status"),
    ("get", "/api/v1/transactions"),
    ("post", "/api/v1/transactions/bulk"),
    ("get", "/api/v1/transactions/{xid}"),
    ("post", "/api/v1/transactions/{xid}/branches/{branch}/resolve"),
    ("post", "/api/v1/transactions/{xid}/commit"),
    ("post", "/api/v1/transactions/{xid}/pause"),
    ("post", "/api/v1/transactions/{xid}/resume"),
    ("post", "/api/v1/transactions/{xid}/retry"),
    ("post", "/api/v1/transactions/{xid}/rollback"),
];

/// The routes that need no token.
const OPEN: [(&str, &str); 3] =
    [("post", "/api/v1/sign-in"), ("post", "/api/v1/sign-out"), ("get", "/health")];

#[test]
fn the_document_lists_every_route() {
    let document = serde_json::to_value(openapi()).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let listed: Vec<(&str, &str)> = paths
        .iter()
        .flat_map(|(path, methods)| {
            methods.as_object().unwrap().keys().map(move |method| (&**method, &**path))
        })
        .collect();
    let mut sorted = listed.clone();
    sorted.sort_by_key(|(_, path)| *path);
    let mut routes = [&ROUTES[..], &OPEN[..]].concat();
    routes.sort_by_key(|(_, path)| *path);
    assert_eq!(sorted, routes);
    for (method, path) in listed {
        let operation = &document["paths"][path][method];
        assert!(operation["summary"].is_string(), "{method} {path} has no summary");
        let asks_for_token = operation["security"].is_array();
        assert_ne!(asks_for_token, OPEN.contains(&(method, path)), "{method} {path}");
        assert!(operation["responses"]["200"].is_object(), "{method} {path} has no answer");
    }
}

/// Calls every route with every role: the answer where the role does not allow it, and the access
/// where it does.
#[tokio::test]
async fn every_route_requires_its_role() {
    let tokens = TokensFile::draw();
    let mut config = roomy();
    config.security.tokens = Some(tokens.path());
    let server = Server::start(config).await.unwrap();
    let base = format!("http://{}", server.admin_address);
    let mut routes = ROUTES.to_vec();
    routes.extend([("get", "/metrics"), ("get", "/api/v1/openapi.json")]);
    for (method, path) in routes {
        let path = path.replace("{xid}", "1").replace("{branch}", "1").replace("{event}", "1");
        let (method, body) = match method {
            "get" => (Method::GET, None),
            _ if path.ends_with("resolve") => {
                (Method::POST, Some(r#"{"resolution":"accept_current"}"#))
            }
            _ => (Method::POST, None),
        };
        let status = async |token: Option<&String>| {
            let admin = Admin::new(&base, token.cloned());
            admin.send(method.clone(), &path, body).await.0.as_u16()
        };
        assert_eq!(status(None).await, 401, "{path} without a token");
        assert_eq!(status(Some(&"hft_0".to_owned())).await, 401, "{path} with a wrong token");
        assert_eq!(status(Some(&tokens.client)).await, 403, "{path} as client");
        let viewer = status(Some(&tokens.viewer)).await;
        assert_eq!(viewer == 403, method == Method::POST, "{path} as viewer: {viewer}");
        let operator = status(Some(&tokens.operator)).await;
        assert!(![401, 403].contains(&operator), "{path} as operator: {operator}");
    }
}

#[tokio::test]
async fn grpc_requires_the_client_role_except_for_health() {
    use handfast_proto::v1::BeginRequest;
    let tokens = TokensFile::draw();
    let mut config = roomy();
    config.security.tokens = Some(tokens.path());
    let server = Server::start(config).await.unwrap();
    let endpoint = format!("http://{}", server.grpc_address);
    let channel = tonic::transport::Endpoint::from_shared(endpoint).unwrap();
    let channel = channel.connect().await.unwrap();
    let begin = async |token: Option<&str>| {
        let mut request = tonic::Request::new(BeginRequest::default());
        if let Some(token) = token {
            let value = format!("Bearer {token}").parse().unwrap();
            request.metadata_mut().insert("authorization", value);
        }
        let mut client =
            handfast_proto::v1::coordinator_client::CoordinatorClient::new(channel.clone());
        match client.begin(request).await {
            Ok(_) => "begun".to_owned(),
            Err(status) => {
                status.metadata().get("handfast-code").unwrap().to_str().unwrap().to_owned()
            }
        }
    };
    assert_eq!(begin(None).await, "HF-ADM-UNAUTHENTICATED");
    assert_eq!(begin(Some("hft_0")).await, "HF-ADM-UNAUTHENTICATED");
    assert_eq!(begin(Some(&tokens.viewer)).await, "HF-ADM-FORBIDDEN");
    assert_eq!(begin(Some(&tokens.operator)).await, "HF-ADM-FORBIDDEN");
    assert_eq!(begin(Some(&tokens.client)).await, "begun");
    let mut health = tonic_health::pb::health_client::HealthClient::new(channel);
    let request = tonic_health::pb::HealthCheckRequest::default();
    assert_eq!(health.check(request).await.unwrap().into_inner().status, 1);
}

#[tokio::test]
async fn without_tokens_no_role_is_required() {
    let server = Server::start(roomy()).await.unwrap();
    let mut application = Application::connect(server.grpc_address).await;
    application.begin("place-order").await;
    let admin = Admin::new(&format!("http://{}", server.admin_address), None);
    let document: serde_json::Value = admin.get("/api/v1/openapi.json").await;
    assert_eq!(document["info"]["title"], "Handfast admin API");
}
