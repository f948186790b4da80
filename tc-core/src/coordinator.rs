//! The coordinator: all its state, and the one way in.
//!
//! What each request does is in the module of its name; here is what they share: the state, the
//! answers, and the look-ups. Connections, retry pacing and storage are the shell's.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::collections::interner::{Names, Origin};
use crate::contract::{
    Asker, Change, Correlation, Decision, Effect, GlobalStatus, Limits, Outcome, Record, Rejection,
    Reply, Request, SagaRecord, Timestamp, What, Xid,
};
use crate::global::departed::Gone;
use crate::global::history::History;
use crate::global::state::{Global, Phase};
use crate::global::table::Globals;
use crate::global::vote::{Commit, Votings};
use crate::id_generator::Numbers;
use crate::named_lock::table::Leases;
use crate::reply::{Answer, push_reply};
use crate::restart::Restart;
use crate::row_lock::table::{LockTable, Touched};
use crate::row_lock::waiters::{Awaited, Waits};
use crate::saga::table::Sagas;
use crate::shares::{check_limit, check_share};

/// All state of the transaction coordinator, in memory.
///
/// Requests go in through [`decide`](Self::decide); changed records and effects come out. The same
/// requests at the same times give the same outcomes, byte for byte (PURE). A clone goes its own
/// way from the same state, which is how a model explores what could happen next.
#[derive(Clone, Debug)]
pub struct Coordinator {
    pub(crate) address: Arc<str>,
    pub(crate) limits: Limits,
    pub(crate) restart: Restart,
    pub(crate) numbers: Numbers,
    pub(crate) names: Names,
    pub(crate) globals: Globals,
    pub(crate) locks: LockTable,
    pub(crate) waits: Waits,
    pub(crate) votings: Votings,
    pub(crate) history: History,
    pub(crate) sagas: Sagas,
    pub(crate) leases: Leases,
    pub(crate) gone: Gone,
    /// Who asks what is being decided.
    pub(crate) asker: Asker,
}

impl Coordinator {
    /// As [`decide`](Self::decide), of a request whose sender is known: it is kept to its share of
    /// what is limited (BOUNDED).
    pub fn decide_for(
        &mut self,
        asker: Asker,
        now: Timestamp,
        request: Request,
        out: &mut Outcome,
    ) {
        self.asker = asker;
        self.decide(now, request, out);
        self.asker = Asker::default();
    }

    /// Decides one request. Total: it cannot fail, wait, or look outside `self` and its arguments.
    ///
    /// Changes and effects are added to `out`, behind those of earlier calls.
    pub fn decide(&mut self, now: Timestamp, request: Request, out: &mut Outcome) {
        let to = request.reply_to;
        let answer = match request.what {
            What::Begin { application, name, timeout_ms } => {
                self.begin(now, application, name, timeout_ms)
            }
            What::RegisterBranch { xid, branch, wait } => {
                self.register_branch(now, to, xid, branch, wait, out)
            }
            What::ReportBranch { xid, branch, outcome, application_data } => {
                self.report_branch(now, xid, branch, outcome, application_data, out)
            }
            What::CheckLocks { xid, resource, rows, wait } => {
                self.check_locks(now, to, xid, &resource, rows, wait)
            }
            What::End { xid, decision: Decision::Commit, rounds, by, reason, reply_when }
                if self.wants_votes(xid) =>
            {
                self.put_to_the_vote(xid, Commit { to, rounds, by, reason, reply_when }, out)
            }
            What::End { xid, decision, by, reason, reply_when, .. } => self
                .end(now, xid, decision, by, &reason, out)
                .map(|status| self.answer_end(to, xid, status, reply_when)),
            What::GetStatus { xid } => Ok(Some(Reply::Status(self.status(xid)))),
            What::FinishPhaseTwo { xid, branch, decision, outcome } => {
                self.finish_phase_two(now, xid, branch, decision, outcome, out);
                Ok(Some(Reply::Reported))
            }
            What::Vote { xid, branch, question, outcome } => {
                self.vote(now, xid, branch, question, outcome, out);
                Ok(Some(Reply::Reported))
            }
            What::Forget { waiting } => {
                self.forget(now, waiting, out);
                Ok(None)
            }
            What::Tick => {
                self.tick(now, out);
                Ok(None)
            }
            What::ClientGone { client } => self.client_gone(now, client),
            What::ClientCame { client } => self.client_came(client),
            What::StartSaga { application, key, definition } => {
                self.start_saga(now, &application, key, definition, out)
            }
            What::GetSaga { xid, reply_when } => self.get_saga(to, xid, reply_when),
            What::SignalSaga { xid, signal, payload } => {
                self.signal_saga(now, xid, signal, payload, out)
            }
            What::CancelSaga { xid, by, reason } => self.cancel_saga(now, xid, by, &reason, out),
            What::Operate { xid, action, operator } => {
                self.operate(now, xid, action, &operator, out)
            }
            What::AcquireLock(wanted) => self.acquire_lock(now, to, *wanted, out),
            What::RenewLocks { tokens, lease_ms } => self.renew_locks(now, &tokens, lease_ms, out),
            What::ReleaseLock { name, token, is_doubtful } => {
                self.release_lock(now, &name, token, is_doubtful, out)
            }
            What::FindLock { name } => {
                Ok(Some(Reply::LockBusy { holder: self.leases.holder(now, &name) }))
            }
            What::BreakLock { name, token } => self.break_lock(now, &name, token, out),
        };
        if let Some(reply) = answer.unwrap_or_else(|rejection| Some(Reply::Rejected(rejection))) {
            push_reply(out, to, reply);
        }
    }

    /// When the shell should send the next [`What::Tick`]: the earliest deadline of an undecided
    /// global, a waiting request or a lease, or when a finished global is to be forgotten.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let deadlines = [
            self.globals.next_deadline(),
            self.waits.next_deadline(),
            self.forgetting_due(),
            self.sagas.next_timeout().map(|(at, _)| at),
            self.saga_forgetting_due(),
            self.leases.next_deadline(),
            self.gone.next_deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// What phase two owes: every call that is due, for a server that has just taken the lead.
    pub fn owed(&self, out: &mut Outcome) {
        for global in self.globals.iter() {
            out.effects.extend(global.due().map(Effect::PhaseTwo));
        }
        self.owed_by_sagas(out);
    }

    /// How a global stands; a saga as the global would that is where the saga is.
    #[must_use]
    pub fn status(&self, xid: Xid) -> GlobalStatus {
        let of_saga = || self.sagas.get(xid).map(SagaRecord::global_status);
        let finished = || self.history.get(xid).map(|global| global.status()).or_else(of_saga);
        self.globals.get(xid).map(Global::status).or_else(finished).unwrap_or(GlobalStatus::Unknown)
    }

    fn begin(
        &mut self,
        now: Timestamp,
        application: Arc<str>,
        name: Arc<str>,
        timeout_ms: Option<u64>,
    ) -> Answer {
        let limits = &self.limits;
        let what = "unfinished globals";
        check_limit(what, self.globals.len() + 1, limits.globals_max)?;
        let owner = Asker { client: self.asker.client, application: application.clone() };
        check_share(limits, &[self.globals.open()], &owner, what, 1, limits.globals_max)?;
        let timeout_ms = timeout_ms.unwrap_or(limits.timeout_ms_default).min(limits.timeout_ms_max);
        let xid = self.numbers.xid()?;
        let origin = Origin { address: self.address.clone(), application, name };
        self.globals.insert(Global {
            xid,
            origin: self.names.origin(&origin),
            client: owner.client,
            begun_at: now,
            timeout_ms,
            deadline: now.after_ms(timeout_ms),
            phase: Phase::Active,
            paused: false,
            rollback_only: false,
            stored: false,
            unfinished: 0,
            refused: 0,
            branches: SmallVec::new(),
            events: Arc::default(),
        });
        Ok(Some(Reply::Begun { xid, address: self.address.clone(), timeout_ms }))
    }

    /// Gives up the place of a request that nobody waits for any more.
    fn forget(&mut self, now: Timestamp, waiting: Correlation, out: &mut Outcome) {
        match self.waits.awaited(waiting) {
            Some(Awaited::Locks(id)) => {
                let mut touched = Touched::new();
                self.leave_queues(id, &mut touched);
                self.settle(now, touched, out);
            }
            Some(Awaited::End(xid)) => self.waits.forget_end(xid, waiting),
            Some(Awaited::Votes(xid)) => self.forget_asker(xid, waiting),
            None => self.forget_turn(now, waiting, out),
        }
    }

    // ---- shared by the requests ----

    /// The global, if branches can still join it.
    pub(crate) fn undecided(&self, xid: Xid) -> Result<&Global, Rejection> {
        match self.globals.get(xid) {
            Some(global) if global.phase == Phase::Active => Ok(global),
            Some(_) => Err(self.already_decided(xid)),
            None => Err(self.finished_or_unknown(xid)),
        }
    }

    pub(crate) fn already_decided(&self, xid: Xid) -> Rejection {
        Rejection::AlreadyDecided { xid, status: self.status(xid) }
    }

    /// Why a global that is not among the unfinished ones cannot be worked on.
    pub(crate) fn finished_or_unknown(&self, xid: Xid) -> Rejection {
        match self.history.get(xid) {
            Some(_) => self.already_decided(xid),
            None => Rejection::UnknownXid(xid),
        }
    }

    /// The address part of a global's text form.
    pub(crate) fn address_of(&self, xid: Xid) -> Arc<str> {
        let global = self.globals.get(xid);
        global.map_or(&self.address, |global| &global.origin.address).clone()
    }

    /// Whether one more may wait, for whatever it is (BOUNDED).
    pub(crate) fn check_room_to_wait(&self) -> Result<(), Rejection> {
        let (waiting, max) = (self.waits.len() + self.leases.waiting(), self.limits.waiters_max);
        check_limit(Rejection::WAITING_REQUESTS, waiting + 1, max)?;
        let tallies = [self.waits.tally(), self.leases.waiting_tally()];
        check_share(&self.limits, &tallies, &self.asker, Rejection::WAITING_REQUESTS, 1, max)
    }

    pub(crate) fn put_global(&mut self, xid: Xid, out: &mut Outcome) {
        let put = |global: &mut Global| {
            global.stored = true;
            out.changes.push(Change::Put(Record::Global(global.record())));
        };
        self.globals.change(xid, put);
    }
}
