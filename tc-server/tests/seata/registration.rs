//! How clients introduce themselves, and what happens before they do.

use handfast_seata_wire::frame::MessageKind;
use handfast_seata_wire::message::{GlobalEnd, Message};
use handfast_seata_wire::value::GlobalStatus;
use handfast_seata_wire::{
    Compression, Dialect, Encoding, FrameVersion, Lz4Form, Package, Serializer,
};

use crate::client::{Client, start};

#[tokio::test]
async fn a_client_is_answered_in_the_version_of_its_first_frame() {
    let server = start().await;
    for (frame, byte) in [(FrameVersion::V1, 1), (FrameVersion::V2, 2)] {
        let mut client = Client::connect(&server, "2.3.0").await;
        client.dialect = Dialect { frame, ..client.dialect };
        let registered = client.register_tm().await;
        assert_eq!((registered.outcome, registered.version.as_str()), (Ok(()), "2.5.0"));
        client.send(&Message::Ping, MessageKind::Ping).await;
        assert_eq!(client.read().await.unwrap().header.version, byte);
    }
}

#[tokio::test]
async fn whoever_has_not_registered_is_served_all_the_same() {
    let server = start().await;
    let mut client = Client::connect(&server, "2.3.0").await;
    assert_eq!(client.ask(Message::Ping).await, Message::Pong);
    let xid = client.begin(60_000).await;
    assert_eq!(client.status(&xid).await, GlobalStatus::Begin);
}

#[tokio::test]
async fn requests_are_answered_in_their_serializer_and_compressor() {
    let server = start().await;
    for serializer in [Serializer::Seata, Serializer::Protobuf(Package::IoSeata)] {
        for compression in [Compression::Gzip, Compression::Lz4(Lz4Form::Blocks), Compression::Zstd]
        {
            let mut client = Client::connect(&server, "2.0.0").await;
            client.encoding = Encoding { serializer, compression };
            client.register_tm().await.outcome.unwrap();
            let xid = client.begin(60_000).await;
            let end = GlobalEnd { xid, extra_data: String::new() };
            let asked = Message::GlobalStatus(end);
            client.send(&asked, MessageKind::Request).await;
            assert_eq!(client.read().await.unwrap().encoding, client.encoding);
        }
    }
}

#[tokio::test]
async fn a_serializer_of_java_objects_is_refused_with_a_reason() {
    let server = start().await;
    let mut client = Client::connect(&server, "2.3.0").await;
    let frame = [0xDA, 0xDA, 1, 0, 0, 0, 17, 0, 16, 0, 22, 0, 0, 0, 0, 1, 0xFF];
    client.send_bytes(&frame).await;
    let Some(received) = client.read().await else { panic!("closed without a word") };
    let Message::RegisterTmResult(refused) = received.message else { panic!("another answer") };
    assert!(refused.version.contains("HF-SEATA-SERIALIZER"), "{}", refused.version);
    assert!(client.read().await.is_none(), "and then the connection is closed");
}

/// What is refused leaves nothing behind.
#[tokio::test]
async fn resources_too_many_are_refused() {
    let server = start().await;
    let mut client = Client::tm(&server, "2.3.0").await;
    client.dialect.frame = FrameVersion::V1;
    let list = |from: usize, to: usize| {
        (from..to).map(|at| format!("jdbc:{at}")).collect::<Vec<_>>().join(",")
    };
    let refused = client.register_rm(&list(0, 1_025)).await;
    refused.outcome.unwrap_err();
    client.register_rm(&list(0, 1_024)).await.outcome.unwrap();
    client.register_rm(&list(0, 1_024)).await.outcome.expect("they are the same");
    client.register_rm("jdbc:another").await.outcome.unwrap_err();
    let xid = client.begin(60_000).await;
    client.branch(&xid, "jdbc:7", "t:1").await;
    assert_eq!(client.commit(&xid).await, GlobalStatus::Committed);
    assert_eq!(client.carry_out_commit().await.resource_id, "jdbc:7");
}
