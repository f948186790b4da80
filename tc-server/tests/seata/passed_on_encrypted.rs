//! Connections that are passed on between nodes with certificates.

use handfast_core::Epoch;
use handfast_seata_wire::frame::MessageKind;
use handfast_seata_wire::message::Message;
use handfast_server::config::Config;
use handfast_server::engine::Leadership;
use handfast_test_services::SignedCertificate;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::client::PATIENCE;
use crate::nodes::{Node, impatient};

/// A configuration with these certificates, by which nodes also know each other.
fn config_with(signed: &SignedCertificate) -> Config {
    let path = |name: &str| Some(signed.path(name));
    let mut config = Config::tiny();
    config.tls.certificate = path("certificate.pem");
    config.tls.private_key = path("key.pem");
    config.tls.client_authority = path("authority.pem");
    config.cluster.authority = path("authority.pem");
    config
}

/// Returns whether a client of a node with one configuration is served by a leader with another.
async fn is_served(follower: &Config, leader: &Config) -> bool {
    let leader = Node::start_as(leader, |_| {}).await;
    leader.stands(Leadership::Leading(Epoch(1)));
    let follower = Node::start_as(follower, impatient).await;
    follower.follows(format!("localhost:{}", leader.address.port()), 1);
    let mut client = follower.client().await;
    client.send(&Message::RegisterTm(client.identity()), MessageKind::Request).await;
    timeout(PATIENCE, client.read()).await.expect("served or closed").is_some()
}

#[tokio::test]
async fn nodes_with_certificates_speak_tls() {
    let (signed, stranger) = (SignedCertificate::make(), SignedCertificate::make());
    let (config, plain) = (config_with(&signed), Config::tiny());
    assert!(is_served(&config, &config).await);
    for (follower, leader, what) in [
        (&plain, &config, "a node without a certificate"),
        (&config, &plain, "a leader without a certificate"),
        (&config_with(&stranger), &config, "a certificate of another authority"),
    ] {
        assert!(!is_served(follower, leader).await, "{what}");
    }
    let mut without_identity = config_with(&signed);
    without_identity.tls.client_authority = None;
    assert!(!is_served(&without_identity, &config).await, "a node that does not show who it is");
}

/// A client's own protocol is not encrypted, and what comes encrypted is from a node.
#[tokio::test]
async fn clients_of_nodes_with_certificates_speak_as_before() {
    let leader = Node::start_as(&config_with(&SignedCertificate::make()), |_| {}).await;
    leader.stands(Leadership::Leading(Epoch(1)));
    let mut client = leader.client().await;
    client.register_tm().await.outcome.unwrap();
    let mut pretender = TcpStream::connect(leader.address).await.unwrap();
    pretender.write_all(b"HANDFAST-SEATA/1 10.0.0.5:41822\n").await.unwrap();
    let read = timeout(PATIENCE, pretender.read_to_end(&mut Vec::new())).await.unwrap();
    assert_eq!(read.unwrap(), 0, "it is closed without an answer");
}
