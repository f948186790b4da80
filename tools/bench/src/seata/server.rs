//! The echo's side: requests of clients as the coordinator's messages, and its replies as frames.

use anyhow::{Context, Result, bail};
use bytes::{Buf, Bytes, BytesMut};
use handfast_proto::v1::client_message::Body as Ask;
use handfast_proto::v1::server_message::Body as Answer;
use handfast_proto::v1::{self, ClientMessage, Decision, ServerMessage};
use handfast_seata_wire::frame::{Header, MessageKind};
use handfast_seata_wire::message::{
    BranchEnd, BranchRegister, BranchRegistered, GlobalBegun, GlobalStatusAnswer, Message,
    Registered,
};
use handfast_seata_wire::value::{BranchType, GlobalStatus};

use super::{VERSION, read, write};

/// The state of one connection.
#[derive(Debug, Default)]
pub(crate) struct ServerSide {
    last_branch: u64,
    last_call: i32,
}

/// A frame of a client.
#[derive(Debug)]
pub(crate) struct ReceivedFrame {
    /// Its request, unless the reply is already here.
    pub(crate) message: Option<ClientMessage>,
    /// The reply to a registration or a heartbeat.
    pub(crate) answer: Vec<u8>,
    /// The frame as it arrived.
    pub(crate) bytes: Bytes,
}

impl ServerSide {
    /// Takes the next complete frame from a stream's bytes.
    ///
    /// # Errors
    /// If the stream is damaged, or the load does not send such a message.
    pub(crate) fn read(&mut self, bytes: &mut BytesMut) -> Result<Option<ReceivedFrame>> {
        let Some((received, length)) = read(bytes)? else { return Ok(None) };
        let bytes = bytes.copy_to_bytes(length);
        let mut answer = Vec::new();
        let message = self.message(&received.header, received.message, &mut answer)?;
        Ok(Some(ReceivedFrame { message, answer, bytes }))
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "all others are refused alike")]
    fn message(
        &mut self,
        header: &Header,
        message: Message,
        answer: &mut Vec<u8>,
    ) -> Result<Option<ClientMessage>> {
        let body = match message {
            Message::Ping => {
                write(&Message::Pong, MessageKind::Pong, header.id, answer)?;
                return Ok(None);
            }
            Message::RegisterTm(_) => {
                let accepted = Message::RegisterTmResult(Registered::accepted(VERSION));
                write(&accepted, MessageKind::Answer, header.id, answer)?;
                return Ok(None);
            }
            Message::RegisterRm(_) => {
                let accepted = Message::RegisterRmResult(Registered::accepted(VERSION));
                write(&accepted, MessageKind::Answer, header.id, answer)?;
                return Ok(None);
            }
            Message::GlobalBegin(it) => {
                Ask::Begin(v1::BeginRequest { name: it.name, ..Default::default() })
            }
            Message::BranchRegister(it) => Ask::RegisterBranch(self.registration(it)),
            Message::GlobalCommit(it) => Ask::End(end(it.xid, Decision::Commit)),
            Message::GlobalRollback(it) => Ask::End(end(it.xid, Decision::RollBack)),
            Message::BranchCommitResult(_) | Message::BranchRollbackResult(_) => {
                Ask::Finished(v1::PhaseTwoOutcome::default())
            }
            other => bail!("the load does not send {other:?}"),
        };
        let id = u64::try_from(header.id).context("ids of the load are positive")?;
        Ok(Some(ClientMessage { id, body: Some(body) }))
    }

    /// Converts a registration. The server chooses the branch's id.
    fn registration(&mut self, request: BranchRegister) -> v1::RegisterBranchRequest {
        self.last_branch += 1;
        let BranchRegister { xid, resource_id, .. } = request;
        let (branch_id, mode) = (self.last_branch, v1::Mode::At.into());
        v1::RegisterBranchRequest { xid, branch_id, resource_id, mode, ..Default::default() }
    }

    /// Appends the frames of a reply or a call.
    ///
    /// # Errors
    /// If Seata's protocol has no frame for the reply.
    pub(crate) fn write(&mut self, answer: ServerMessage, out: &mut Vec<u8>) -> Result<()> {
        let id = i32::try_from(answer.id).context("an id of a request has 31 bits")?;
        let standing = |status| GlobalStatusAnswer { result: Ok(()), status };
        let message = match answer.body {
            Some(Answer::PhaseTwo(call)) => return self.call(call, out),
            Some(Answer::Begin(it)) => Message::GlobalBeginResult(GlobalBegun {
                result: Ok(()),
                xid: it.xid,
                extra_data: String::new(),
            }),
            Some(Answer::RegisterBranch(it)) => Message::BranchRegisterResult(BranchRegistered {
                result: Ok(()),
                branch_id: it.fencing_token.cast_signed(),
            }),
            Some(Answer::End(_)) => Message::GlobalCommitResult(standing(GlobalStatus::Committed)),
            other => bail!("Seata's protocol has nothing for {other:?}"),
        };
        write(&message, MessageKind::Answer, id, out)
    }

    fn call(&mut self, call: v1::PhaseTwoCall, out: &mut Vec<u8>) -> Result<()> {
        let decision = call.decision();
        for branch in call.branches {
            let end = BranchEnd {
                xid: branch.xid,
                branch_id: branch.branch_id.cast_signed(),
                branch_type: BranchType::At,
                resource_id: call.resource_id.clone(),
                application_data: String::new(),
            };
            let message = match decision {
                Decision::RollBack => Message::BranchRollback(end),
                Decision::Commit | Decision::Unspecified => Message::BranchCommit(end),
            };
            self.last_call += 1;
            write(&message, MessageKind::Request, self.last_call, out)?;
        }
        Ok(())
    }
}

fn end(xid: String, decision: Decision) -> v1::EndRequest {
    v1::EndRequest { xid, decision: decision.into(), ..Default::default() }
}
