//! Connections that are passed on between nodes with certificates.

use handfast_core::Epoch;
use handfast_seata_wire::frame::MessageKind;
use handfast_seata_wire::message::Message;
use handfast_server::config::Config;
use handfast_server::engine::Standing;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::client::PATIENCE;
use crate::nodes::{Node, impatient};

/// An authority, and the certificate that it signed for `localhost`.
struct Signed {
    folder: TempDir,
}

impl Signed {
    fn make() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &authority).unwrap();
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("authority.pem", authority.pem()),
            ("certificate.pem", certificate.pem()),
            ("key.pem", key.serialize_pem()),
        ] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        Self { folder }
    }

    /// A configuration with these certificates, by which nodes also know each other.
    fn config(&self) -> Config {
        let path = |name: &str| Some(self.folder.path().join(name));
        let mut config = Config::tiny();
        config.tls.certificate = path("certificate.pem");
        config.tls.private_key = path("key.pem");
        config.tls.client_authority = path("authority.pem");
        config.cluster.authority = path("authority.pem");
        config
    }
}

/// Returns whether a client of a node with one configuration is served by a leader with another.
async fn is_served(follower: &Config, leader: &Config) -> bool {
    let leader = Node::start_as(leader, |_| {}).await;
    leader.stands(Standing::Leading(Epoch(1)));
    let follower = Node::start_as(follower, impatient).await;
    follower.follows(format!("localhost:{}", leader.address.port()), 1);
    let mut client = follower.client().await;
    client.send(&Message::RegisterTm(client.identity()), MessageKind::Request).await;
    timeout(PATIENCE, client.read()).await.expect("served or closed").is_some()
}

#[tokio::test]
async fn nodes_with_certificates_speak_tls() {
    let (signed, stranger) = (Signed::make(), Signed::make());
    let (config, plain) = (signed.config(), Config::tiny());
    assert!(is_served(&config, &config).await);
    for (follower, leader, what) in [
        (&plain, &config, "a node without a certificate"),
        (&config, &plain, "a leader without a certificate"),
        (&stranger.config(), &config, "a certificate of another authority"),
    ] {
        assert!(!is_served(follower, leader).await, "{what}");
    }
    let mut without_identity = signed.config();
    without_identity.tls.client_authority = None;
    assert!(!is_served(&without_identity, &config).await, "a node that does not show who it is");
}

/// A client's own protocol is not encrypted, and what comes encrypted is from a node.
#[tokio::test]
async fn clients_of_nodes_with_certificates_speak_as_before() {
    let leader = Node::start_as(&Signed::make().config(), |_| {}).await;
    leader.stands(Standing::Leading(Epoch(1)));
    let mut client = leader.client().await;
    client.register_tm().await.outcome.unwrap();
    let mut pretender = TcpStream::connect(leader.address).await.unwrap();
    pretender.write_all(b"HANDFAST-SEATA/1 10.0.0.5:41822\n").await.unwrap();
    let read = timeout(PATIENCE, pretender.read_to_end(&mut Vec::new())).await.unwrap();
    assert_eq!(read.unwrap(), 0, "it is closed without an answer");
}
