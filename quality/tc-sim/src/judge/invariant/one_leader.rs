//! One leader at a time. Epochs grow, and each has one coordinator that answers in it; a batch is
//! stored under the newest mark alone, and the numbers that are drawn under an epoch are its own. A
//! request that reaches a coordinator after another one has begun to lead has no answer from it.
//! The records that a leader begins with are those that were stored.

use std::collections::{BTreeMap, BTreeSet};

use handfast_core::{Change, Epoch, Record, Xid, XidText};
use handfast_proto::v1::client_message::Body as ClientBody;
use handfast_proto::v1::server_message::Body as ServerBody;
use handfast_server::store::codec::decode;

use super::Invariant;
use super::refused_registration::UNSURE;
use crate::judge::ledger::Ledger;
use crate::judge::verdict::Verdict;
use crate::model::observation::{Asked, LeadEvent, Observation};

/// The code of a refusal by the front end, such as that of a hello that arrives twice.
const UNREADABLE: &str = "HF-TC-BAD-REQUEST";
/// The bits of a number below its epoch.
const COUNTER_BITS: u32 = 40;

/// The invariant, with the mark of each leader so far.
#[derive(Debug, Default)]
pub(super) struct OneLeader {
    marks: Vec<LaidMark>,
    /// The lent XIDs that clients have sent begins with.
    lent: BTreeSet<Xid>,
}

#[derive(Clone, Copy, Debug)]
struct LaidMark {
    at: u64,
    server: usize,
    epoch: Epoch,
    displaced_until: u64,
}

impl Invariant for OneLeader {
    fn name(&self) -> &'static str {
        "one_leader"
    }

    fn observe(&mut self, ledger: &Ledger, observation: &Observation<'_>, verdict: &mut Verdict) {
        match observation {
            Observation::Lead(LeadEvent::Marked { server, epoch, displaced_until }) => {
                let (server, epoch, displaced_until) = (*server, *epoch, *displaced_until);
                let newest = self.newest_epoch();
                verdict.require(epoch > newest, || {
                    format!("the mark of epoch {} is laid behind that of {}", epoch.0, newest.0)
                });
                self.marks.push(LaidMark { at: ledger.now, server, epoch, displaced_until });
            }
            Observation::Lead(LeadEvent::Read { epoch, records }) => {
                check_records(ledger, *epoch, records, verdict);
            }
            Observation::Stored { epoch, batch } => {
                let newest = self.newest_epoch();
                verdict.require(*epoch == newest, || {
                    format!("a batch of epoch {} is stored under {}", epoch.0, newest.0)
                });
                for change in *batch {
                    self.check_numbers(ledger, *epoch, change, verdict);
                }
            }
            Observation::ReplySent { server, request: Some(request), reply } => {
                self.check_epoch(*server, request.body, reply, verdict);
                self.check_answer(*server, *request, reply, verdict);
            }
            Observation::RequestArrived { request } => self.lent.extend(lent_xid(request)),
            Observation::ReplySent { request: None, .. }
            | Observation::Lead(LeadEvent::Resigned { .. })
            | Observation::Recorded { .. }
            | Observation::LocalCommit { .. }
            | Observation::GuardedWrite(_)
            | Observation::CommittedRead { .. }
            | Observation::Prepared { .. }
            | Observation::PreparedEnded { .. }
            | Observation::OutcomeReported { .. }
            | Observation::Ended { .. } => {}
        }
    }
}

impl OneLeader {
    fn newest_epoch(&self) -> Epoch {
        self.marks.last().map_or(Epoch(0), |mark| mark.epoch)
    }

    /// Checks that a coordinator greets and begins globals in epochs of its own.
    fn check_epoch(
        &self,
        server: usize,
        request: &ClientBody,
        reply: &ServerBody,
        verdict: &mut Verdict,
    ) {
        let Some(epoch) = epoch_in(request, reply) else { return };
        let own = |mark: &LaidMark| mark.epoch == epoch && mark.server == server;
        verdict.require(self.marks.iter().any(own), || {
            format!("server {server} answers in epoch {}, which is not its own", epoch.0)
        });
    }

    fn check_answer(
        &self,
        server: usize,
        asked: Asked<'_>,
        reply: &ServerBody,
        verdict: &mut Verdict,
    ) {
        let Some(latest) = self.marks.iter().rfind(|mark| mark.at < asked.at) else { return };
        // A begin is answered at once while its leader may rely on the lease (decision 0020).
        let is_begin = matches!(asked.body, ClientBody::Begin(_));
        if !is_answer(reply) || is_begin && asked.at < latest.displaced_until {
            return;
        }
        // It has begun to lead since then, and may have answered after that.
        let leads_since = self.marks.iter().any(|it| it.server == server && it.at >= asked.at);
        verdict.require(latest.server == server || leads_since, || {
            let LaidMark { server: leader, epoch, .. } = latest;
            format!("server {server} answers what it was asked under epoch {} of {leader}", epoch.0)
        });
    }

    /// Checks that a record which is stored for the first time has its numbers from the leader that
    /// stores it: no leader continues a global that an earlier one has begun and not stored, unless
    /// its client begins it again with the XID that it was lent.
    fn check_numbers(&self, ledger: &Ledger, epoch: Epoch, change: &Change, verdict: &mut Verdict) {
        let Change::Put(record) = change else { return };
        let (what, number) = match record {
            Record::Global(global) if !ledger.globals.contains_key(&global.xid) => {
                ("global", global.xid.0)
            }
            Record::Saga(saga) if !ledger.sagas.contains_key(&saga.xid) => ("saga", saga.xid.0),
            Record::Branch(branch) if !ledger.registered.contains(&(branch.xid, branch.id)) => {
                // A branch without rows has no token.
                if branch.token.0 == 0 {
                    return;
                }
                ("fencing token", branch.token.0)
            }
            Record::Global(_)
            | Record::Saga(_)
            | Record::Branch(_)
            | Record::Lease(_)
            | Record::Closure(_) => return,
        };
        let is_lent = matches!(record, Record::Global(global) if self.lent.contains(&global.xid));
        let has_epoch = epoch_of(number) == epoch || is_lent && epoch_of(number) < epoch;
        verdict.require(has_epoch, || {
            format!("{what} {number} is not of epoch {}, under which it is stored", epoch.0)
        });
    }
}

/// Returns the epoch that a greeting names, or the XID of a begun global. A lent XID has the epoch
/// of the leader that has lent it.
fn epoch_in(request: &ClientBody, reply: &ServerBody) -> Option<Epoch> {
    if let ServerBody::Hello(hello) = reply {
        return Some(Epoch(hello.epoch));
    }
    let ServerBody::Begin(begun) = reply else { return None };
    if let Some(loan) = &begun.loan {
        return Some(epoch_of(loan.first));
    }
    if lent_xid(request).is_some() {
        return None;
    }
    XidText::parse(&begun.xid).ok().map(|named| epoch_of(named.xid.0))
}

/// Returns whether a message says something of the coordinator's state.
fn is_answer(reply: &ServerBody) -> bool {
    match reply {
        ServerBody::Hello(_)
        | ServerBody::RegisterResources(_)
        | ServerBody::PhaseTwo(_)
        | ServerBody::GoAway(_) => false,
        ServerBody::Rejected(refusal) => {
            let code = refusal.code.as_str();
            code != UNREADABLE && !UNSURE.contains(&code)
        }
        ServerBody::Begin(_)
        | ServerBody::RegisterBranch(_)
        | ServerBody::ReportBranch(_)
        | ServerBody::CheckLocks(_)
        | ServerBody::End(_)
        | ServerBody::GetStatus(_)
        | ServerBody::Saga(_)
        | ServerBody::AcquireLock(_)
        | ServerBody::RenewLocks(_)
        | ServerBody::ReleaseLock(_)
        | ServerBody::FindLock(_)
        | ServerBody::TryBranch(_)
        | ServerBody::ReportOutbox(_) => true,
    }
}

/// Returns the lent XID of a begin.
pub(super) fn lent_xid(request: &ClientBody) -> Option<Xid> {
    let ClientBody::Begin(begin) = request else { return None };
    XidText::parse(&begin.lent_xid).ok().map(|lent| lent.xid)
}

fn epoch_of(number: u64) -> Epoch {
    Epoch(number >> COUNTER_BITS)
}

fn check_records(
    ledger: &Ledger,
    epoch: Epoch,
    records: &BTreeMap<Vec<u8>, Vec<u8>>,
    verdict: &mut Verdict,
) {
    for (key, value) in records {
        // What cannot be read is noticed by the leader.
        let Ok(record) = decode(key, value) else { continue };
        verdict.require(is_in_ledger(ledger, &record), || {
            format!("the leader of epoch {} reads what was not stored: {record:?}", epoch.0)
        });
    }
    // Each was in the ledger, so that equal numbers mean that none is missing.
    let stored = ledger.globals.len() + ledger.branches.len() + ledger.sagas.len();
    let read = records.len();
    verdict.require(read == stored, || {
        format!("the leader of epoch {} reads {read} records of {stored}", epoch.0)
    });
}

fn is_in_ledger(ledger: &Ledger, record: &Record) -> bool {
    match record {
        Record::Global(global) => ledger.globals.get(&global.xid) == Some(global),
        Record::Branch(branch) => ledger.branches.get(&(branch.xid, branch.id)) == Some(branch),
        Record::Saga(saga) => ledger.sagas.get(&saga.xid) == Some(saga),
        // No simulated client takes named locks, and no simulated operator moves records.
        Record::Lease(_) | Record::Closure(_) => false,
    }
}
