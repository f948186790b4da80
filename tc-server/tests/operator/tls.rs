//! TLS on both ports, with certificates made for the test.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use handfast_proto::v1::BeginRequest;
use handfast_proto::v1::coordinator_client::CoordinatorClient;
use handfast_server::config::Config;
use handfast_server::serve::{Server, StartError};
use handfast_test_services::{SignedCertificate, until};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use crate::port::{Admin, TokensFile, roomy};
use crate::serving::handfast;

fn config_with(signed: &SignedCertificate) -> Config {
    let mut config = roomy();
    config.tls.certificate = Some(signed.path("certificate.pem"));
    config.tls.private_key = Some(signed.path("key.pem"));
    config
}

fn client_of(signed: &SignedCertificate) -> ClientTlsConfig {
    let authority = Certificate::from_pem(&signed.authority);
    ClientTlsConfig::new().ca_certificate(authority).domain_name("localhost")
}

async fn begin(port: u16, tls: Option<ClientTlsConfig>, token: &str) -> Result<(), String> {
    let scheme = if tls.is_some() { "https" } else { "http" };
    let mut endpoint = Endpoint::from_shared(format!("{scheme}://127.0.0.1:{port}")).unwrap();
    if let Some(tls) = tls {
        endpoint = endpoint.tls_config(tls).unwrap();
    }
    let channel = endpoint.connect().await.map_err(|error| error.to_string())?;
    let mut request = tonic::Request::new(BeginRequest::default());
    let bearer = format!("Bearer {token}").parse().unwrap();
    request.metadata_mut().insert("authorization", bearer);
    let begun = CoordinatorClient::new(channel).begin(request).await;
    begun.map(drop).map_err(|status| status.to_string())
}

fn trusting(signed: &SignedCertificate, base: &str, token: &str) -> Admin {
    let mut admin = Admin::new(base, Some(token.to_owned()));
    let authority = reqwest::Certificate::from_pem(signed.authority.as_bytes()).unwrap();
    admin.http = reqwest::Client::builder().no_proxy().tls_certs_only([authority]).build().unwrap();
    admin
}

#[tokio::test]
async fn both_ports_accept_only_tls() {
    let (signed, tokens) = (SignedCertificate::make(), TokensFile::draw());
    let mut config = config_with(&signed);
    config.security.tokens = Some(tokens.path());
    let server = Server::start(config).await.unwrap();
    let grpc = server.grpc_address.port();
    begin(grpc, Some(client_of(&signed)), &tokens.client).await.unwrap();
    assert!(begin(grpc, Some(client_of(&signed)), &tokens.viewer).await.is_err());
    assert!(begin(grpc, None, &tokens.client).await.is_err());
    let stranger = SignedCertificate::make();
    assert!(begin(grpc, Some(client_of(&stranger)), &tokens.client).await.is_err());

    let base = format!("https://localhost:{}", server.admin_address.port());
    let admin = trusting(&signed, &base, &tokens.viewer);
    let status: handfast_server::admin::model::ServerStatus = admin.get("/api/v1/status").await;
    assert_eq!(status.store, "memory");
    let mistrusting = trusting(&stranger, &base, &tokens.viewer);
    assert!(mistrusting.http.get(format!("{base}/livez")).send().await.is_err());
    let plain = format!("http://localhost:{}/livez", server.admin_address.port());
    assert!(admin.http.get(plain).send().await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_trusts_the_given_authority() {
    let (signed, tokens) = (SignedCertificate::make(), TokensFile::draw());
    let mut config = config_with(&signed);
    config.security.tokens = Some(tokens.path());
    let server = Server::start(config).await.unwrap();
    let base = format!("https://localhost:{}", server.admin_address.port());
    let exit = async |authority: PathBuf| {
        let mut command = handfast(&["status", "--server", &base, "--ca"]);
        command.arg(authority).env("HANDFAST_TOKEN", &tokens.viewer);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(exit(signed.path("authority.pem")).await, (Some(0), String::new()));
    let (code, said) = exit(signed.path("missing.pem")).await;
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("error[HF-CLI-CA]"), "{said}");
    let stranger = SignedCertificate::make();
    let (code, said) = exit(stranger.path("authority.pem")).await;
    assert_eq!(code, Some(5), "{said}");
    assert!(said.contains("certificate"), "{said}");
}

#[tokio::test]
async fn a_client_authority_refuses_other_certificates() {
    let (signed, stranger) = (SignedCertificate::make(), SignedCertificate::make());
    let mut config = config_with(&signed);
    config.tls.client_authority = Some(signed.path("authority.pem"));
    let server = Server::start(config).await.unwrap();
    let grpc = server.grpc_address.port();
    let identity = |of: &SignedCertificate| Identity::from_pem(&of.certificate, &of.key);
    begin(grpc, Some(client_of(&signed).identity(identity(&signed))), "").await.unwrap();
    assert!(begin(grpc, Some(client_of(&signed)), "").await.is_err());
    let strange = client_of(&signed).identity(identity(&stranger));
    assert!(begin(grpc, Some(strange), "").await.is_err());
}

// A client that connects and stays silent must not block others.
#[tokio::test]
async fn a_silent_handshake_does_not_delay_others() {
    let signed = SignedCertificate::make();
    let server = Server::start(config_with(&signed)).await.unwrap();
    let silent = TcpStream::connect(server.admin_address).await.unwrap();
    let base = format!("https://localhost:{}", server.admin_address.port());
    let admin = trusting(&signed, &base, "");
    let (status, _) = admin.send(http::Method::GET, "/livez", None).await;
    assert_eq!(status, http::StatusCode::OK);
    drop(silent);
}

/// Completes the handshake of an HTTP/2 client, and sends nothing after it.
async fn shake_hands(
    signed: &SignedCertificate,
    address: SocketAddr,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(signed.authority.as_bytes()).unwrap();
    roots.add(authority).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.alpn_protocols = vec![b"h2".to_vec()];
    let name = ServerName::try_from("localhost").unwrap();
    let tcp = TcpStream::connect(address).await.unwrap();
    TlsConnector::from(Arc::new(client)).connect(name, tcp).await
}

// Clients that begin and go no further must not occupy connections forever.
#[tokio::test]
async fn a_client_that_stops_during_setup_is_disconnected() {
    let signed = SignedCertificate::make();
    let mut config = config_with(&signed);
    config.grpc.silence_timeout_ms = 200;
    config.admin.silence_timeout_ms = 200;
    let server = Server::start(config).await.unwrap();
    for address in [server.grpc_address, server.admin_address] {
        let mut silent = TcpStream::connect(address).await.unwrap();
        // A reset is an end too.
        let _ = silent.read_to_end(&mut Vec::new()).await;
    }
    // On a busy machine a whole setup may take longer than the limit too.
    let served = async {
        let mut shaken = loop {
            if let Ok(shaken) = shake_hands(&signed, server.grpc_address).await {
                break shaken;
            }
        };
        let _ = shaken.read_to_end(&mut Vec::new()).await;
        let port = server.grpc_address.port();
        let begun = async || begin(port, Some(client_of(&signed)), "").await.is_ok();
        until("others are served", begun).await;
    };
    tokio::time::timeout(Duration::from_secs(60), served).await.expect("others are served");
}

#[tokio::test]
async fn unusable_files_are_named() {
    let (signed, other) = (SignedCertificate::make(), SignedCertificate::make());
    let empty = signed.path("empty.pem");
    std::fs::write(&empty, "").unwrap();
    let cases = [
        (empty.clone(), signed.path("key.pem")),
        (signed.path("certificate.pem"), empty),
        (signed.path("certificate.pem"), other.path("key.pem")),
    ];
    for (certificate, key) in cases {
        let mut config = roomy();
        config.tls.certificate = Some(certificate);
        config.tls.private_key = Some(key);
        let error = Server::start(config).await.unwrap_err();
        assert!(matches!(error, StartError::Tls(_)), "{error}");
        assert_eq!(error.code(), "HF-CFG-TLS");
    }
    let mut config = config_with(&signed);
    config.tls.client_authority = Some(signed.path("key.pem"));
    let error = Server::start(config).await.unwrap_err();
    assert!(error.to_string().contains("key.pem"), "{error}");
}

#[tokio::test]
async fn other_machines_are_refused_without_tls_and_tokens() {
    let mut config = roomy();
    config.admin.listen = "192.0.2.1:0".parse().unwrap();
    let error = Server::start(config).await.unwrap_err();
    assert_eq!(error.code(), "HF-CFG-INVALID");
    assert!(error.to_string().contains("admin.listen"), "{error}");
}
