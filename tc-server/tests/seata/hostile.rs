//! Streams that are damaged, truncated, oversized, slow or of another protocol: they end their own
//! connection and do not affect others.

use handfast_seata_wire::frame::MessageKind;
use handfast_seata_wire::message::{GlobalEnd, Message};
use handfast_seata_wire::value::{BranchType, ExceptionCode, GlobalStatus};
use handfast_seata_wire::{Compression, Dialect, Encoding, encode};
use handfast_server::serve::RunningServer;
use rand::rngs::StdRng;
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::client::{Client, branch, start, start_with};

const STREAMS: u64 = 1_000;

/// Writes the bytes in pieces and reads until the coordinator closes, or everything is written.
async fn pour(server: &RunningServer, bytes: &[u8], piece: usize) {
    let mut io = TcpStream::connect(server.seata_address.unwrap()).await.unwrap();
    for piece in bytes.chunks(piece.max(1)) {
        // The coordinator may have closed the connection already.
        if io.write_all(piece).await.is_err() {
            return;
        }
        tokio::task::yield_now().await;
    }
    drop(io.shutdown().await);
    drop(io.read_to_end(&mut Vec::new()).await);
}

fn frames(random: &mut StdRng) -> Vec<u8> {
    let mut bytes = Vec::new();
    for id in 0..random.random_range(1..4) {
        let xid = format!("127.0.0.1:8091:{}", random.random::<u16>());
        let end = GlobalEnd { xid, extra_data: "x".repeat(random.random_range(0..300)) };
        let message = Message::GlobalStatus(end);
        let (encoding, dialect) = (Encoding::default(), Dialect::default());
        encode(&message, MessageKind::Request, id, encoding, &dialect, &mut bytes).unwrap();
    }
    bytes
}

/// Returns a stream of each kind in turn.
fn stream(seed: u64) -> Vec<u8> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut bytes = frames(&mut random);
    match seed % 5 {
        0 => random.fill_bytes(&mut bytes),
        1 => bytes.truncate(random.random_range(0..bytes.len())),
        2 => {
            for _ in 0..random.random_range(1..8) {
                let at = random.random_range(0..bytes.len());
                bytes[at] = random.random();
            }
        }
        // A frame whose length is above the limit, or above the bytes that follow.
        3 => bytes[3..7].copy_from_slice(&random.random::<u32>().to_be_bytes()),
        _ => {
            let at = random.random_range(0..bytes.len());
            bytes.splice(at..at, frames(&mut random));
        }
    }
    bytes
}

#[tokio::test]
async fn bad_streams_do_not_affect_others() {
    let server = start_with(|seata| seata.silence_timeout_ms = 2_000).await;
    let mut good = Client::tm(&server, "2.3.0").await;
    let xid = good.begin(60_000).await;
    for seeds in (0..STREAMS).collect::<Vec<_>>().chunks(50) {
        let streams: Vec<Vec<u8>> = seeds.iter().map(|&seed| stream(seed)).collect();
        let pouring = streams.iter().zip([1_000, 7, 64].into_iter().cycle());
        futures::future::join_all(pouring.map(|(bytes, piece)| pour(&server, bytes, piece))).await;
        assert_eq!(good.status(&xid).await, GlobalStatus::Begin);
    }
}

#[tokio::test]
async fn a_header_without_a_body_is_skipped() {
    let server = start().await;
    let mut client = Client::tm(&server, "2.3.0").await;
    let mut other = Client::tm(&server, "2.3.0").await;
    for [whole, head] in [[0x42, 16], [16, 16], [0, 0]] {
        client.send_bytes(&[0xDA, 0xDA, 1, 0, 0, 0, whole, 0, head, 1, 1, 0, 0, 0, 0, 2]).await;
        // The coordinator reads it meanwhile, without the next frame.
        assert_eq!(other.ask(Message::Ping).await, Message::Pong);
        assert_eq!(client.ask(Message::Ping).await, Message::Pong, "length {whole}");
    }
}

#[tokio::test]
async fn connections_of_other_protocols_are_closed() {
    let server = start().await;
    for bytes in [
        &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        // Version 0, with a body written by Hessian.
        b"\xDA\xDA\x00\x80\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01",
        // Version 0, with an id that no client uses.
        b"\xDA\xDA\x00\xA0\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01",
        b"\x16\x03\x01\x02\x00",
        b"\xDA\xDA\x01\xFF\xFF\xFF\xFF\x00\x10\x00\x01\x00\x00\x00\x00\x01",
    ] {
        let mut client = Client::connect(&server, "2.3.0").await;
        client.send_bytes(bytes).await;
        assert!(client.read().await.is_none(), "{bytes:?}");
    }
}

#[tokio::test]
async fn a_client_that_does_not_finish_a_frame_is_disconnected() {
    let server = start_with(|seata| seata.silence_timeout_ms = 50).await;
    for bytes in
        [&b""[..], b"\xDA", b"\xDA\xDA\x01\x00\x00\x00\x20", b"\xDA\xDA\x00\x90\x00\x01\x00"]
    {
        let mut client = Client::connect(&server, "2.3.0").await;
        client.send_bytes(bytes).await;
        assert!(client.read().await.is_none(), "{bytes:?}");
    }
}

#[tokio::test]
async fn a_seata_client_that_does_not_read_is_disconnected() {
    let server = start_with(|seata| seata.queue_frames_max = 4).await;
    let mut silent = Client::connect(&server, "2.3.0").await;
    let mut pings = Vec::new();
    for _ in 0..10_000 {
        let (encoding, dialect) = (Encoding::default(), Dialect::default());
        encode(&Message::Ping, MessageKind::Ping, 1, encoding, &dialect, &mut pings).unwrap();
    }
    let mut io = TcpStream::connect(server.seata_address.unwrap()).await.unwrap();
    while io.write_all(&pings).await.is_ok() {}
    assert_eq!(silent.ask(Message::Ping).await, Message::Pong);
}

#[tokio::test]
async fn an_excess_connection_is_closed_at_once() {
    let server = start_with(|seata| seata.connections_max = 1).await;
    let mut first = Client::tm(&server, "2.3.0").await;
    let mut second = Client::connect(&server, "2.3.0").await;
    assert!(second.read().await.is_none());
    assert_eq!(first.ask(Message::Ping).await, Message::Pong);
}

/// A frame that is too long ends its connection at once. A body that becomes too long when it is
/// decompressed is answered with a reason.
#[tokio::test]
async fn oversized_frames_are_not_read() {
    let server = start_with(|seata| seata.frame_bytes_max = 4_096).await;
    let status = |bytes: usize| {
        let (xid, extra_data) = ("127.0.0.1:8091:99".to_owned(), "x".repeat(bytes));
        Message::GlobalStatus(GlobalEnd { xid, extra_data })
    };
    let mut good = Client::tm(&server, "2.3.0").await;
    let mut client = Client::tm(&server, "2.3.0").await;
    client.send(&status(5_000), MessageKind::Request).await;
    assert!(client.read().await.is_none());

    let mut client = Client::connect(&server, "2.3.0").await;
    client.encoding.compression = Compression::Gzip;
    client.register_tm().await.outcome.unwrap();
    client.send(&status(30_000), MessageKind::Request).await;
    let received = client.read().await.expect("a reason");
    let Message::RegisterTmResult(refused) = received.message else { panic!("another answer") };
    assert!(refused.version.contains("HF-SEATA-TOO-LARGE"), "{}", refused.version);
    assert!(client.read().await.is_none());
    assert_eq!(good.ask(Message::Ping).await, Message::Pong);
}

/// Eight kilobytes on the wire are eight million rows. They are not even read: the malformed part
/// at the end would be noticed otherwise.
#[tokio::test]
async fn a_lock_key_of_millions_of_rows_is_not_read() {
    let server = start().await;
    let mut client = Client::connect(&server, "2.3.0").await;
    client.encoding.compression = Compression::Gzip;
    client.register_rm("jdbc:x").await.outcome.unwrap();
    let xid = client.begin(60_000).await;
    let rows = format!("t:{};no colon", ",".repeat(8_000_000));
    let long = branch(&xid, BranchType::At, "jdbc:x", &rows);
    let refused = client.register_branch(long.clone()).await.result.unwrap_err();
    assert_eq!(refused.code, ExceptionCode::FailedToAddBranch, "{}", refused.message);
    let Message::GlobalLockQueryResult(queried) = client.ask(Message::GlobalLockQuery(long)).await
    else {
        panic!("another answer")
    };
    let refused = queried.result.unwrap_err();
    assert_eq!(refused.code, ExceptionCode::LockableCheckFailed);
    assert!(refused.message.contains("more than 10000 rows"), "{}", refused.message);
    client.branch(&xid, "jdbc:x", "t:1").await;
}
