//! The coordinator's messages as frames of Seata's protocol, so that one load and one echo serve
//! every wire: [`client`] for the load, [`server`] for the echo.

pub(crate) mod client;
pub(crate) mod server;

use anyhow::{Context, Result};
use bytes::{Buf, BytesMut};
use handfast_seata_wire::frame::{MessageKind, Piece, split};
use handfast_seata_wire::message::Message;
use handfast_seata_wire::{
    ClientVersion, DecodedMessage, Dialect, Encoding, FrameVersion, Limits, decode, encode,
};

/// The version of the simulated client. It uses the protocol's most common form: frames of version
/// 1, serializer `seata`, no compression.
const VERSION: &str = "2.2.0";
const DIALECT: Dialect =
    Dialect { frame: FrameVersion::V1, ..Dialect::java(ClientVersion::new(2, 2, 0)) };

/// The room for a read. Without it a read would return a few bytes.
pub(crate) const READ_BYTES: usize = 64 << 10;

/// Appends a frame.
fn write(message: &Message, kind: MessageKind, id: i32, out: &mut Vec<u8>) -> Result<()> {
    encode(message, kind, id, Encoding::default(), &DIALECT, out).context("writing a frame")
}

/// Decodes the next complete frame of a stream's bytes without consuming it. Returns it with its
/// length.
fn read(bytes: &BytesMut) -> Result<Option<(DecodedMessage, usize)>> {
    let limits = Limits::default();
    match split(bytes, &limits).context("cutting the stream into frames")? {
        Piece::Frame(frame, length) => {
            let received = decode(&frame, &DIALECT, &limits).context("reading a frame")?;
            Ok(Some((received, length)))
        }
        Piece::HeaderOnly(_) | Piece::Incomplete => Ok(None),
    }
}

/// Takes the next complete frame from a stream's bytes.
fn take(bytes: &mut BytesMut) -> Result<Option<DecodedMessage>> {
    let Some((received, length)) = read(bytes)? else { return Ok(None) };
    bytes.advance(length);
    Ok(Some(received))
}

#[cfg(test)]
mod tests {
    use handfast_proto::v1::client_message::Body as Ask;
    use handfast_proto::v1::server_message::Body as Answer;
    use handfast_proto::v1::{self, ClientFrame, ClientMessage, ServerMessage};

    use super::*;

    fn heard(client: &mut client::ClientSide, ask: Ask) -> Vec<ClientMessage> {
        let mut bytes = Vec::new();
        let messages = vec![ClientMessage { id: 7, body: Some(ask) }];
        client.write(ClientFrame { messages }, &mut bytes).unwrap();
        let (mut bytes, mut server) = (BytesMut::from(&bytes[..]), server::ServerSide::default());
        let mut heard = Vec::new();
        while let Some(part) = server.read(&mut bytes).unwrap() {
            heard.extend(part.message);
        }
        heard
    }

    fn received(client: &mut client::ClientSide, answer: Answer) -> Vec<ServerMessage> {
        let mut bytes = Vec::new();
        let message = ServerMessage { id: 7, body: Some(answer) };
        server::ServerSide::default().write(message, &mut bytes).unwrap();
        client.read(&mut BytesMut::from(&bytes[..])).unwrap().messages
    }

    #[test]
    fn requests_arrive() {
        let mut client = client::ClientSide::default();
        let begin = v1::BeginRequest { name: "place-order".into(), ..v1::BeginRequest::default() };
        let begun = heard(&mut client, Ask::Begin(begin));
        assert!(matches!(&begun[..], [ClientMessage { id: 7, body: Some(Ask::Begin(it)) }]
            if it.name == "place-order"));
        let rows = vec![v1::RowKeys {
            table: "stock_item".into(),
            keys: vec![b"1:7".to_vec(), b"1:8".to_vec()],
            ..v1::RowKeys::default()
        }];
        let branch = v1::RegisterBranchRequest { xid: "a:1".into(), rows, ..Default::default() };
        let registered = heard(&mut client, Ask::RegisterBranch(branch));
        assert!(
            matches!(&registered[..], [ClientMessage { id: 7, body: Some(Ask::RegisterBranch(it)) }]
            if it.xid == "a:1" && it.branch_id > 0)
        );
        for decision in [v1::Decision::Commit, v1::Decision::RollBack] {
            let end = v1::EndRequest {
                xid: "a:1".into(),
                decision: decision.into(),
                ..v1::EndRequest::default()
            };
            let ended = heard(&mut client, Ask::End(end));
            assert!(matches!(&ended[..], [ClientMessage { body: Some(Ask::End(it)), .. }]
                if it.decision() == decision));
        }
    }

    #[test]
    fn answers_arrive() {
        let mut client = client::ClientSide::default();
        let begun =
            v1::BeginReply { xid: "a:1".into(), timeout_ms: 1, ..v1::BeginReply::default() };
        let begun = received(&mut client, Answer::Begin(begun));
        assert!(matches!(&begun[..], [ServerMessage { id: 7, body: Some(Answer::Begin(it)) }]
            if it.xid == "a:1"));
        let registered = v1::RegisterBranchReply { fencing_token: 3, decides: false };
        let registered = received(&mut client, Answer::RegisterBranch(registered));
        assert!(matches!(registered[0].body, Some(Answer::RegisterBranch(_))));
        let ended = received(&mut client, Answer::End(v1::EndReply::default()));
        assert!(matches!(ended[0].body, Some(Answer::End(_))));
    }

    #[test]
    fn a_call_of_phase_two_is_answered_under_its_own_id() {
        let mut client = client::ClientSide::default();
        let branch =
            v1::PhaseTwoBranch { xid: "a:1".into(), branch_id: 9, ..v1::PhaseTwoBranch::default() };
        let (resource_id, branches) = ("shop".into(), vec![branch]);
        let mut call = v1::PhaseTwoCall { resource_id, branches, ..v1::PhaseTwoCall::default() };
        call.set_decision(v1::Decision::Commit);
        let calls = received(&mut client, Answer::PhaseTwo(call));
        let [ServerMessage { body: Some(Answer::PhaseTwo(call)), .. }] = &calls[..] else {
            unreachable!("{calls:?}")
        };
        let branches = crate::load::done(call.clone());
        let mut bytes = Vec::new();
        let finished = Ask::Finished(v1::PhaseTwoOutcome { branches });
        let messages = vec![ClientMessage { id: 0, body: Some(finished) }];
        client.write(ClientFrame { messages }, &mut bytes).unwrap();
        let answer = take(&mut BytesMut::from(&bytes[..])).unwrap().unwrap();
        assert_eq!((answer.header.kind, answer.header.id), (MessageKind::Answer, 1));
        assert!(matches!(answer.message, Message::BranchCommitResult(it) if it.branch_id == 9));
    }
}
