//! The client's side: TM and RM in one, as an application of Seata is.

use std::collections::VecDeque;

use anyhow::{Context, Result, bail, ensure};
use bytes::BytesMut;
use handfast_proto::v1::client_message::Body as Ask;
use handfast_proto::v1::server_message::Body as Answer;
use handfast_proto::v1::{self, ClientFrame, ClientMessage, Decision, ServerFrame, ServerMessage};
use handfast_seata_wire::frame::MessageKind;
use handfast_seata_wire::message::{
    BranchEnd, BranchEnded, BranchRegister, GlobalBegin, GlobalEnd, Message, Register,
    RegisterResources, RequestFailure,
};
use handfast_seata_wire::value::{BranchStatus, BranchType};

use super::{VERSION, take, write};

const TIMEOUT_MS: i32 = 60_000;
/// The ids of the two registrations, which no other request has.
const REGISTRATIONS: [i32; 2] = [0, 1];

/// The state of one connection.
#[derive(Debug, Default)]
pub(crate) struct ClientSide {
    /// The ids of the calls without an outcome, in order.
    calls: VecDeque<i32>,
    registrations: usize,
}

impl ClientSide {
    /// Appends the registrations of TM and RM.
    ///
    /// # Errors
    /// If the resource cannot be encoded in a frame.
    pub(crate) fn register_process(&self, resource: &str, out: &mut Vec<u8>) -> Result<()> {
        let client = Register {
            version: VERSION.to_owned(),
            application_id: "handfast-bench".to_owned(),
            transaction_service_group: "default_tx_group".to_owned(),
            extra_data: String::new(),
        };
        let [tm, rm] = REGISTRATIONS;
        write(&Message::RegisterTm(client.clone()), MessageKind::Request, tm, out)?;
        let resources = RegisterResources { client, resource_list: resource.to_owned() };
        write(&Message::RegisterRm(resources), MessageKind::Request, rm, out)
    }

    /// Returns whether both registrations have a reply.
    pub(crate) fn is_registered(&self) -> bool {
        self.registrations == REGISTRATIONS.len()
    }

    /// Appends the frames of a client's messages.
    ///
    /// # Errors
    /// If Seata's protocol has no frame for a message.
    pub(crate) fn write(&mut self, frame: ClientFrame, out: &mut Vec<u8>) -> Result<()> {
        for ClientMessage { id, body } in frame.messages {
            let id = i32::try_from(id).context("an id of a request has 31 bits")?;
            let request = match body {
                Some(Ask::Begin(it)) => begin(it),
                Some(Ask::RegisterBranch(it)) => register(it)?,
                Some(Ask::End(it)) => end(it),
                Some(Ask::Finished(it)) => {
                    self.finished(it, out)?;
                    continue;
                }
                other => bail!("Seata's protocol has nothing for {other:?}"),
            };
            write(&request, MessageKind::Request, id, out)?;
        }
        Ok(())
    }

    /// Takes all complete frames from a stream's bytes.
    ///
    /// # Errors
    /// If the stream is damaged, a registration was refused, or a message is not a server's.
    #[expect(clippy::wildcard_enum_match_arm, reason = "all others are answers to requests")]
    pub(crate) fn read(&mut self, bytes: &mut BytesMut) -> Result<ServerFrame> {
        let mut messages = Vec::new();
        while let Some(received) = take(bytes)? {
            let id = received.header.id;
            let body = match received.message {
                Message::RegisterTmResult(it) | Message::RegisterRmResult(it) => {
                    ensure!(it.outcome.is_ok(), "not registered: {}", it.version);
                    self.registrations += 1;
                    continue;
                }
                Message::Pong => continue,
                Message::BranchCommit(it) => self.call(id, it, Decision::Commit),
                Message::BranchRollback(it) => self.call(id, it, Decision::RollBack),
                message => answer(message)?,
            };
            // A reply has the id of its request; a call has none.
            let id = if matches!(body, Answer::PhaseTwo(_)) { 0 } else { u64::try_from(id)? };
            messages.push(ServerMessage { id, body: Some(body) });
        }
        Ok(ServerFrame { messages })
    }

    fn call(&mut self, id: i32, branch: BranchEnd, decision: Decision) -> Answer {
        self.calls.push_back(id);
        let BranchEnd { xid, branch_id, resource_id, .. } = branch;
        let branch_id = branch_id.cast_unsigned();
        let branches = vec![v1::PhaseTwoBranch { xid, branch_id, ..Default::default() }];
        let decision = decision.into();
        Answer::PhaseTwo(v1::PhaseTwoCall { resource_id, decision, branches, ..Default::default() })
    }

    /// Appends the outcomes of calls, which come in the order of the calls.
    fn finished(&mut self, outcome: v1::PhaseTwoOutcome, out: &mut Vec<u8>) -> Result<()> {
        for branch in outcome.branches {
            let id = self.calls.pop_front().context("an outcome without a call")?;
            let commits = branch.decision() == Decision::Commit;
            let status = match commits {
                true => BranchStatus::PhaseTwoCommitted,
                false => BranchStatus::PhaseTwoRollbacked,
            };
            let branch_id = branch.branch_id.cast_signed();
            let ended = BranchEnded { result: Ok(()), xid: branch.xid, branch_id, status };
            let message = match commits {
                true => Message::BranchCommitResult(ended),
                false => Message::BranchRollbackResult(ended),
            };
            write(&message, MessageKind::Answer, id, out)?;
        }
        Ok(())
    }
}

fn begin(request: v1::BeginRequest) -> Message {
    Message::GlobalBegin(GlobalBegin { timeout_ms: TIMEOUT_MS, name: request.name })
}

/// Encodes a registration. Seata's lock key is `table:key,key`.
fn register(request: v1::RegisterBranchRequest) -> Result<Message> {
    let mut lock_key = String::new();
    for rows in &request.rows {
        if !lock_key.is_empty() {
            lock_key.push(';');
        }
        let table = rows.table.rsplit('.').next().unwrap_or_default();
        lock_key.push_str(table);
        for (position, key) in rows.keys.iter().enumerate() {
            lock_key.push(if position == 0 { ':' } else { ',' });
            let text = std::str::from_utf8(key).context("a key is text")?;
            // A canonical key begins with its length, which is left out here.
            lock_key.push_str(text.split_once(':').map_or(text, |(_, key)| key));
        }
    }
    Ok(Message::BranchRegister(BranchRegister {
        xid: request.xid,
        branch_type: BranchType::At,
        resource_id: request.resource_id,
        lock_key,
        application_data: String::new(),
    }))
}

fn end(request: v1::EndRequest) -> Message {
    let decision = request.decision();
    let global = GlobalEnd { xid: request.xid, extra_data: String::new() };
    match decision {
        Decision::RollBack => Message::GlobalRollback(global),
        Decision::Commit | Decision::Unspecified => Message::GlobalCommit(global),
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "all others are refused alike")]
fn answer(message: Message) -> Result<Answer> {
    Ok(match message {
        Message::GlobalBeginResult(it) => match it.result {
            Ok(()) => Answer::Begin(v1::BeginReply {
                xid: it.xid,
                timeout_ms: 0,
                ..v1::BeginReply::default()
            }),
            Err(failure) => refused(failure),
        },
        Message::BranchRegisterResult(it) => match it.result {
            Ok(()) => Answer::RegisterBranch(v1::RegisterBranchReply::default()),
            Err(failure) => refused(failure),
        },
        Message::GlobalCommitResult(it) | Message::GlobalRollbackResult(it) => match it.result {
            Ok(()) => Answer::End(v1::EndReply::default()),
            Err(failure) => refused(failure),
        },
        other => bail!("no server sends {other:?}"),
    })
}

fn refused(failure: RequestFailure) -> Answer {
    let RequestFailure { message, code } = failure;
    Answer::Rejected(v1::Rejection { code: format!("{code:?}"), message, ..Default::default() })
}
