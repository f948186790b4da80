//! Clients of a coordinator with TLS and tokens: the accepted ones, and the errors of the others.
#![expect(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use std::time::Duration;

use handfast::{Connect, Error, Handfast};
use handfast_server::config::Config;
use handfast_server::security::{NewToken, Role};
use handfast_server::serve::{RunningServer, Server};
use handfast_test_services::SignedCertificate;
use tempfile::TempDir;

/// Longer than a connection takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Long enough for several attempts on a busy machine, of which none succeeds.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A coordinator that encrypts and requires tokens.
struct Secured {
    server: RunningServer,
    directory: TempDir,
    authority: String,
    token: String,
}

impl Secured {
    async fn start() -> Self {
        Self::start_before(None).await
    }

    /// Starts a coordinator, which requires certificates of its clients if an authority for them is
    /// given.
    async fn start_before(client_authority: Option<&str>) -> Self {
        let (signed, directory) = (SignedCertificate::make(), TempDir::new().unwrap());
        let write = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            Some(path)
        };
        let orders = NewToken::draw("orders", Role::Client).unwrap();
        let mut config = Config::tiny();
        config.tls.certificate = write("certificate.pem", &signed.certificate);
        config.tls.private_key = write("key.pem", &signed.key);
        config.tls.client_authority = client_authority.and_then(|pem| write("clients.pem", pem));
        config.security.tokens = write("tokens", &orders.line);
        let server = Server::start(config).await.unwrap();
        Self { server, directory, authority: signed.authority, token: orders.token }
    }

    /// Replaces the content of the tokens file.
    fn set_tokens(&self, lines: &str) {
        std::fs::write(self.directory.path().join("tokens"), lines).unwrap();
        self.server.reload_tokens().unwrap().unwrap();
    }

    fn connect(&self) -> Connect {
        let port = self.server.grpc_address.port();
        Handfast::connect(format!("https://localhost:{port}"))
            .tls_ca(&self.authority)
            .connect_timeout(PATIENCE)
    }
}

fn unauthenticated(connected: Result<Handfast, Error>) -> String {
    let error = connected.unwrap_err();
    assert!(matches!(error, Error::Unauthenticated { .. }), "{error:?}");
    assert_eq!(error.code(), "HF-TM-UNAUTHENTICATED");
    error.to_string()
}

fn unreachable(connected: Result<Handfast, Error>) -> String {
    let error = connected.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    error.to_string()
}

#[tokio::test]
async fn a_client_with_authority_and_token_is_accepted() {
    let secured = Secured::start().await;
    let handfast = secured.connect().token(&secured.token).await.unwrap();
    let done = handfast.transaction("place-order").run(async |_tx| Ok::<_, Error>(7)).await;
    assert_eq!(done.unwrap(), 7);
    handfast.close().await;
}

#[tokio::test]
async fn a_wrong_token_is_reported_at_once() {
    let secured = Secured::start().await;
    // Waiting would not help: another attempt with the same token has the same result.
    let connect = || secured.connect().connect_timeout(Duration::from_secs(3_600));
    let said = unauthenticated(connect().await);
    assert!(said.contains("a known token is needed"), "{said}");
    let said = unauthenticated(connect().token("hft_of_nobody").await);
    assert!(said.contains("a known token is needed"), "{said}");
    assert!(!said.contains("hft_of_nobody"), "{said}");
    let viewer = NewToken::draw("grafana", Role::Viewer).unwrap();
    secured.set_tokens(&viewer.line);
    let said = unauthenticated(connect().token(&viewer.token).await);
    assert!(said.contains("the role of `grafana` does not allow this"), "{said}");
}

#[tokio::test]
async fn a_wrong_authority_or_scheme_is_named() {
    let secured = Secured::start().await;
    let port = secured.server.grpc_address.port();
    let stranger = SignedCertificate::make().authority;
    let wrong_authority = secured.connect().token(&secured.token).tls_ca(stranger);
    let wrong_authority = wrong_authority.connect_timeout(CONNECT_TIMEOUT);
    let plain_to_tls = Handfast::connect(format!("http://localhost:{port}"))
        .token(&secured.token)
        .connect_timeout(CONNECT_TIMEOUT);
    let open = Server::start(Config::tiny()).await.unwrap();
    let tls_to_plain = Handfast::connect(format!("https://localhost:{}", open.grpc_address.port()))
        .tls_ca(&secured.authority)
        .connect_timeout(CONNECT_TIMEOUT);
    let (authority, plain, tls) = tokio::join!(
        wrong_authority.into_future(),
        plain_to_tls.into_future(),
        tls_to_plain.into_future(),
    );
    let said = unreachable(authority);
    assert!(said.contains("invalid peer certificate"), "{said}");
    let said = unreachable(plain);
    assert!(said.contains("https"), "{said}");
    let said = unreachable(tls);
    assert!(said.contains("http://"), "{said}");
}

#[tokio::test]
async fn an_invalid_authority_is_reported_before_dialling() {
    let no_pem = Handfast::connect("https://localhost:1").tls_ca("/etc/ca.pem").await;
    let error = no_pem.unwrap_err();
    assert_eq!(error.code(), "HF-CFG-CLIENT");
    assert!(error.to_string().contains("the text of the file"), "{error}");
    let missing = Handfast::connect("https://localhost:1").await.unwrap_err();
    assert!(missing.to_string().contains("see tls_ca"), "{missing}");
}

// A coordinator that reloads its tokens ends the streams. Clients whose token is still valid
// reconnect and go on.
#[tokio::test]
async fn a_client_survives_changes_of_other_tokens_only() {
    let secured = Secured::start().await;
    let file = std::fs::read_to_string(secured.directory.path().join("tokens")).unwrap();
    let other = NewToken::draw("stock", Role::Client).unwrap();
    secured.set_tokens(&format!("{file}\n{}", other.line));
    let deadline = Duration::from_secs(60);
    let back_off = Duration::from_millis(1);
    let connect = || secured.connect().back_off(back_off, back_off);
    let orders = connect().token(&secured.token).request_deadline(deadline).await.unwrap();
    let stock = connect().token(&other.token).request_deadline(CONNECT_TIMEOUT).await.unwrap();

    secured.set_tokens(&file);
    let done = orders.transaction("place-order").run(async |_tx| Ok::<_, Error>(7)).await;
    assert_eq!(done.unwrap(), 7);
    let refused = stock.transaction("restock").begin().await.unwrap_err();
    assert!(refused.to_string().contains("a known token is needed"), "{refused}");
}

/// The coordinator could require certificates, but no client could present one.
#[tokio::test]
async fn a_required_client_certificate_admits_its_owner() {
    let (clients, strangers) = (SignedCertificate::make(), SignedCertificate::make());
    let secured = Secured::start_before(Some(&clients.authority)).await;
    let connect = || secured.connect().token(&secured.token);
    let known = connect().tls_identity(&clients.certificate, &clients.key);
    let handfast = known.await.unwrap();
    let done = handfast.transaction("place-order").run(async |_tx| Ok::<_, Error>(7)).await;
    assert_eq!(done.unwrap(), 7);
    let refused = || connect().connect_timeout(CONNECT_TIMEOUT);
    let stranger = refused().tls_identity(&strangers.certificate, &strangers.key);
    let (without, stranger) = tokio::join!(refused().into_future(), stranger.into_future());
    let said = unreachable(without);
    assert!(said.contains("see tls_identity"), "{said}");
    let said = unreachable(stranger);
    assert!(said.contains("another authority than the one that signed tls_identity"), "{said}");
}

#[tokio::test]
async fn an_invalid_identity_is_reported_before_dialling() {
    let (signed, other) = (SignedCertificate::make(), SignedCertificate::make());
    let broken = signed.key.replace("\nM", "\n!");
    let (certificate, key) = (signed.certificate.as_str(), signed.key.as_str());
    for (certificate, key, expected) in [
        ("/etc/client.pem", key, "no PEM certificate: it takes the text of the file"),
        (certificate, "/etc/client.key", "no PEM private key: it takes the text of the file"),
        (certificate, &broken, "certificate and key cannot be used"),
        (certificate, &other.key, "certificate and key cannot be used"),
    ] {
        let connect = Handfast::connect("https://localhost:1").tls_ca(&signed.authority);
        let error = connect.tls_identity(certificate, key).await.unwrap_err();
        assert_eq!(error.code(), "HF-CFG-CLIENT", "{error}");
        assert!(error.to_string().contains(expected), "{error}");
        assert!(error.to_string().starts_with("tls_identity: "), "{error}");
    }
    let plain = Handfast::connect("http://localhost:1").tls_identity(certificate, key).await;
    let error = plain.unwrap_err().to_string();
    assert!(error.contains("must begin with https://"), "{error}");
}
