//! Requests that are passed on between nodes with certificates and tokens.

use std::fs;
use std::process::Command;

use handfast_proto::v1::coordinator_client::CoordinatorClient;
use handfast_server::admin::model::{Cluster as View, NodeStanding};
use handfast_server::security::{NewToken, Role};
use handfast_test_services::{CoordinatorProcess, SignedCertificate, until};
use http::StatusCode;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Status};

use crate::cluster::{Cluster, begin};
use crate::shared::Postgres;

/// A certificate and tokens.
struct Secrets {
    signed: SignedCertificate,
    client: String,
    viewer: String,
}

/// A node that runs as a program. Dropping it kills it.
struct EncryptedNode<'a> {
    process: CoordinatorProcess,
    http: reqwest::Client,
    secrets: &'a Secrets,
}

impl Secrets {
    fn draw() -> Self {
        let signed = SignedCertificate::make();
        let client = NewToken::draw("orders", Role::Client).unwrap();
        let viewer = NewToken::draw("grafana", Role::Viewer).unwrap();
        let lines = format!("{}\n{}\n", client.line, viewer.line);
        fs::write(signed.path("tokens"), lines).unwrap();
        Self { signed, client: client.token, viewer: viewer.token }
    }
}

impl<'a> EncryptedNode<'a> {
    /// Starts a node whose system has the authorities of a file.
    fn start(
        cluster: &Cluster,
        name: &str,
        secrets: &'a Secrets,
        system: &SignedCertificate,
    ) -> Self {
        let (mut config, folder) = cluster.config(name);
        config.cluster.host = Some("localhost".to_owned());
        config.tls.certificate = Some(secrets.signed.path("certificate.pem"));
        config.tls.private_key = Some(secrets.signed.path("key.pem"));
        config.security.tokens = Some(secrets.signed.path("tokens"));
        let file = folder.join(format!("{name}.toml"));
        fs::write(&file, config.to_toml()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_handfast-server"));
        command.args(["serve", "--config"]).arg(file).env_clear();
        command.env("SSL_CERT_FILE", system.path("authority.pem"));
        let any_port = "127.0.0.1:0".parse().unwrap();
        let process = CoordinatorProcess::start(command, [any_port; 2], None).unwrap();
        // Another test may have installed it: an error says that it is there.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let authority =
            reqwest::Certificate::from_pem(secrets.signed.authority.as_bytes()).unwrap();
        let http = reqwest::Client::builder().no_proxy().tls_certs_only([authority]);
        Self { process, http: http.build().unwrap(), secrets }
    }

    async fn get(&self, path: &str, token: Option<&str>) -> (StatusCode, String) {
        let url = format!("https://localhost:{}{path}", self.process.admin().port());
        let mut request = self.http.get(url);
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let answer = request.send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    }

    async fn until_view(&self, wanted: impl Fn(&View) -> bool) {
        until("the view", async || {
            let (_, body) = self.get("/api/v1/cluster", Some(&self.secrets.viewer)).await;
            wanted(&serde_json::from_str(&body).unwrap())
        })
        .await;
    }

    async fn begin(&self, token: Option<&str>) -> Result<String, Status> {
        let url = format!("https://localhost:{}", self.process.grpc().port());
        let authority = Certificate::from_pem(&self.secrets.signed.authority);
        let tls = ClientTlsConfig::new().ca_certificate(authority);
        let endpoint = Endpoint::from_shared(url).unwrap().tls_config(tls).unwrap();
        let mut request = Request::new(begin());
        if let Some(token) = token {
            let token = format!("Bearer {token}").parse().unwrap();
            request.metadata_mut().insert("authorization", token);
        }
        let mut client = CoordinatorClient::new(endpoint.connect().await.unwrap());
        client.begin(request).await.map(|reply| reply.into_inner().xid)
    }
}

/// Regression: with `cluster.authority` unset, unary calls were passed on by a client that trusted
/// no authority.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_trust_the_authorities_of_the_system() {
    let (cluster, secrets) = (Cluster::new::<Postgres>().await, Secrets::draw());
    let leader = EncryptedNode::start(&cluster, "one", &secrets, &secrets.signed);
    leader.until_view(|view| view.standing == NodeStanding::Leading).await;
    let follower = EncryptedNode::start(&cluster, "two", &secrets, &secrets.signed);
    follower.until_view(|view| view.leader.is_some()).await;

    let (status, body) = follower.get("/api/v1/status", Some(&secrets.viewer)).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    assert_eq!(follower.get("/api/v1/status", None).await.0, StatusCode::UNAUTHORIZED);
    let xid = follower.begin(Some(&secrets.client)).await.unwrap();
    let (status, body) =
        leader.get(&format!("/api/v1/transactions/{xid}"), Some(&secrets.viewer)).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    assert_eq!(follower.begin(None).await.unwrap_err().code(), Code::Unauthenticated);

    let stranger = SignedCertificate::make();
    let distrustful = EncryptedNode::start(&cluster, "three", &secrets, &stranger);
    distrustful.until_view(|view| view.leader.is_some()).await;
    let (status, body) = distrustful.get("/api/v1/status", Some(&secrets.viewer)).await;
    assert_eq!(status, StatusCode::BAD_GATEWAY, "{body}");
    let refused = distrustful.begin(Some(&secrets.client)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused:?}");
}
