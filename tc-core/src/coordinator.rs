//! The coordinator: all its state, and the one way in.
//!
//! A request is decided by the wing that it belongs to: globals with their row locks, named locks,
//! or sagas. Each borrows its own state and the context of the decision (`decision_context`), no
//! more. Connections, retry pacing and storage are the shell's.

use std::sync::Arc;

use crate::contract::{
    Asker, BranchId, ClientId, Command, Correlation, Decided, DecidedBy, Decision, Effect,
    GlobalStatus, LoanTerms, LockToken, OperatorAction, Outcome, PhaseTwoOutcome, Rejection, Reply,
    ReplyWhen, Request, SagaRecord, Timestamp, TracedCommand, Xid,
};
use crate::deadlock_log::DeadlockLog;
use crate::decision_context::{Environment, HandlerResult};
use crate::global::begin_keys::BeginKeys;
use crate::global::departed::DepartedClients;
use crate::global::globals::Globals;
use crate::global::history::History;
use crate::global::label_index::LabelIndex;
use crate::global::loans::LoanTable;
use crate::global::state::Global;
use crate::global::table::GlobalTable;
use crate::global::vote::Commit;
use crate::global::voting::Votings;
use crate::named_lock::table::LeaseTable;
use crate::row_lock::row_locks::RowLocks;
use crate::saga::requests::push_calls;
use crate::saga::sagas::Sagas;
use crate::saga::table::SagaTable;
use crate::waiting::WaitingRequests;

/// All state of the transaction coordinator, in memory.
///
/// Requests go in through [`decide`](Self::decide); changed records and effects come out. The same
/// requests at the same times give the same outcomes, byte for byte (PURE). A clone goes its own
/// way from the same state, which is how a model explores what could happen next.
#[derive(Clone, Debug)]
pub struct Coordinator {
    pub(crate) environment: Environment,
    pub(crate) globals: GlobalTable,
    pub(crate) history: History,
    pub(crate) labels: LabelIndex,
    pub(crate) keys: BeginKeys,
    pub(crate) loans: LoanTable,
    pub(crate) votings: Votings,
    pub(crate) rows: RowLocks,
    pub(crate) leases: LeaseTable,
    pub(crate) sagas: SagaTable,
    pub(crate) waiting: WaitingRequests,
    pub(crate) departed: DepartedClients,
    pub(crate) deadlocks: DeadlockLog,
}

impl Coordinator {
    /// Decides as [`decide`](Self::decide) does a request whose sender is known, and keeps the
    /// sender to its share of what is limited (BOUNDED).
    pub fn decide_for(
        &mut self,
        asker: Asker,
        now: Timestamp,
        request: Request,
        out: &mut Outcome,
    ) -> Decided {
        self.environment.asker = asker;
        let decided = self.decide(now, request, out);
        // What `decide` is given without a sender must not count for this one.
        self.environment.asker = Asker::default();
        decided
    }

    /// Decides one request. Total: it cannot fail, wait, or look outside `self` and its arguments.
    ///
    /// Changes and effects are added to `out`, behind those of earlier calls.
    pub fn decide(&mut self, now: Timestamp, request: Request, out: &mut Outcome) -> Decided {
        let to = request.reply_to;
        let is_begin = matches!(request.command.untraced(), Command::Begin { .. });
        let answer = self.answer(now, to, request.command, out);
        let reply = answer.unwrap_or_else(|rejection| Some(Reply::Rejected(rejection)));
        match (to, reply) {
            (Some(to), Some(reply)) => {
                let when = reply.leaves_after(is_begin);
                out.effects.push(Effect::Reply { to, reply, when });
                Decided::Answered
            }
            (Some(_), None) => Decided::Waits,
            (None, _) => Decided::Answered,
        }
    }

    /// Returns when the shell should send the next [`Command::Tick`]: the earliest deadline of a
    /// global, saga, lease or waiting request, or the time at which a finished global or saga is
    /// forgotten or the grace of a client that has gone is over.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let deadlines = [
            self.globals.next_deadline(),
            self.rows.waiters.next_deadline(),
            self.history.forgetting_due(&self.environment.limits, self.environment.restart),
            self.sagas.next_timeout().map(|(at, _)| at),
            self.saga_forgetting_due(),
            self.leases.next_deadline(),
            self.departed.next_deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// Adds every call that phase two owes, for a server that has just taken the lead.
    pub fn owed(&self, out: &mut Outcome) {
        // Votes are not owed: a voting lives in memory alone. The client asks for its commit again,
        // and a last branch is asked when the global's time is over.
        for global in self.globals.iter() {
            out.effects.extend(global.due().map(Effect::PhaseTwo));
        }
        self.sagas.iter().for_each(|saga| push_calls(saga, out));
    }

    /// Stores every global that is begun and not stored yet, for a coordinator that is about to
    /// stop: the next one then knows the globals that have no branch so far, too (decision 0002).
    pub fn store_begun(&mut self, out: &mut Outcome) {
        let unstored = self.globals.iter().filter(|global| !global.stored);
        let begun: Vec<Xid> = unstored.map(|global| global.xid).collect();
        for xid in begun {
            self.globals.put(xid, out);
        }
    }

    /// Returns the status of a global, or that of a saga as the corresponding status of a global.
    #[must_use]
    pub fn status(&self, xid: Xid) -> GlobalStatus {
        // Globals and sagas draw their XIDs from one counter, so at most one of the tables has it.
        let of_saga = || self.sagas.get(xid).map(SagaRecord::global_status);
        let finished = || self.history.get(xid).map(|global| global.status()).or_else(of_saga);
        self.globals.get(xid).map(Global::status).or_else(finished).unwrap_or(GlobalStatus::Unknown)
    }

    /// Passes the request to the wing that decides it. Inlined, since a request is large to move.
    #[inline(always)]
    fn answer(
        &mut self,
        now: Timestamp,
        to: Option<Correlation>,
        command: Command,
        out: &mut Outcome,
    ) -> HandlerResult {
        match command {
            Command::Begin { application, name, timeout_ms, labels, key, loan } => {
                self.check_lent_to_no_saga(&loan)?;
                self.global_wing(now, out).begin(application, name, timeout_ms, labels, key, loan)
            }
            Command::RegisterBranch { xid, branch, wait } => {
                self.global_wing(now, out).register_branch(to, xid, branch, wait)
            }
            Command::RegisterLastBranch { xid, branch, wait, may_be_lost } => {
                self.global_wing(now, out).register_last_branch(to, xid, branch, wait, may_be_lost)
            }
            Command::ReportBranch { xid, branch, outcome, application_data } => {
                self.global_wing(now, out).report_branch(xid, branch, outcome, application_data)
            }
            Command::CheckLocks { xid, resource, rows, wait } => {
                self.global_wing(now, out).check_locks(to, xid, &resource, rows, wait)
            }
            Command::NoteFailedTry { xid, branch, attempt, error } => {
                self.global_wing(now, out).note_failed_try(xid, branch, attempt, &error)
            }
            Command::ReportDatabaseWait { xid, resource } => {
                self.global_wing(now, out).report_database_wait(xid, &resource)
            }
            Command::End { xid, decision, rounds, by, reason, reply_when } => {
                let request = Commit { to, rounds, by, reason, reply_when };
                self.end(now, xid, decision, request, out)
            }
            Command::GetStatus { xid } => Ok(Some(Reply::Status(self.status(xid)))),
            Command::FinishPhaseTwo { xid, branch, decision, outcome } => {
                self.finish_phase_two(now, xid, branch, decision, outcome, out)
            }
            Command::Vote { xid, branch, question, outcome } => {
                self.global_wing(now, out).vote(xid, branch, question, outcome);
                Ok(Some(Reply::Reported))
            }
            Command::Forget { waiting } => self.global_wing(now, out).forget(waiting),
            Command::Tick => self.tick(now, out),
            Command::ClientGone { client } => self.client_gone(now, client),
            Command::ClientCame { client } => self.client_came(client),
            Command::StartSaga { application, key, definition, labels } => {
                self.saga_wing(now, out).start_saga(&application, key, definition, labels)
            }
            Command::GetSaga { xid, reply_when } => self.get_saga(now, to, xid, reply_when, out),
            Command::SignalSaga { xid, signal, payload, operator } => {
                self.saga_wing(now, out).signal_saga(xid, signal, payload, operator.as_deref())
            }
            Command::CancelSaga { xid, by, reason } => {
                self.saga_wing(now, out).cancel_saga(xid, by, &reason)
            }
            Command::Operate { xid, action, operator } => {
                self.operate(now, xid, action, &operator, out)
            }
            Command::AcquireLock(new) => self.global_wing(now, out).acquire_named_lock(to, *new),
            Command::RenewLocks { tokens, lease_ms } => {
                self.global_wing(now, out).named_locks().renew_locks(&tokens, lease_ms)
            }
            Command::ReleaseLock { name, token, refuses_late } => {
                self.global_wing(now, out).named_locks().release_lock(&name, token, refuses_late)
            }
            Command::FindLock { name } => self.find_lock(now, &name),
            Command::BreakLock { name, token } => self.break_lock(now, &name, token, out),
            Command::Traced(traced) => self.answer_traced(now, to, *traced, out),
        }
    }

    fn get_saga(
        &mut self,
        now: Timestamp,
        to: Option<Correlation>,
        xid: Xid,
        reply_when: ReplyWhen,
        out: &mut Outcome,
    ) -> HandlerResult {
        let room = self.global_wing(now, out).check_room_to_wait();
        self.saga_wing(now, out).get_saga(to, xid, reply_when, room)
    }

    /// Decides a request as it is without a trace, and notes on its global where it stands in one.
    fn answer_traced(
        &mut self,
        now: Timestamp,
        to: Option<Correlation>,
        traced: TracedCommand,
        out: &mut Outcome,
    ) -> HandlerResult {
        let TracedCommand { trace, command } = traced;
        // A second trace around the first would be no different from the inner one.
        if matches!(command, Command::Traced(_)) {
            return self.answer_untraced(now, to, command, out);
        }
        if let Command::End { xid, .. } = command {
            self.globals.change(xid, |global| global.note_decision(trace));
        }
        self.environment.trace = Some(trace);
        let answer = self.answer_untraced(now, to, command, out);
        self.environment.trace = None;
        if let Ok(Some(Reply::Begun { xid, .. })) = answer {
            self.globals.change(xid, |global| global.note_begin(trace));
        }
        answer
    }

    /// Keeps the copy of `answer` for traced requests out of the way of the others.
    #[inline(never)]
    fn answer_untraced(
        &mut self,
        now: Timestamp,
        to: Option<Correlation>,
        command: Command,
        out: &mut Outcome,
    ) -> HandlerResult {
        self.answer(now, to, command, out)
    }

    /// A saga's steps are called in phase two like branches, under XIDs of the same counter.
    fn finish_phase_two(
        &mut self,
        now: Timestamp,
        xid: Xid,
        branch: BranchId,
        decision: Decision,
        outcome: PhaseTwoOutcome,
        out: &mut Outcome,
    ) -> HandlerResult {
        let of_a_saga = self.global_wing(now, out).finish_phase_two(xid, branch, decision, outcome);
        if let Some(outcome) = of_a_saga {
            self.saga_wing(now, out).finish_step(xid, branch, decision, outcome);
        }
        Ok(Some(Reply::Reported))
    }

    fn end(
        &mut self,
        now: Timestamp,
        xid: Xid,
        decision: Decision,
        request: Commit,
        out: &mut Outcome,
    ) -> HandlerResult {
        if request.by == DecidedBy::Operator {
            // Operators see sagas among the globals.
            self.check_is_no_saga(xid)?;
        }
        let mut globals = self.global_wing(now, out);
        match decision {
            Decision::Commit => globals.commit(xid, request),
            Decision::RollBack => {
                let Commit { to, by, reason, reply_when, .. } = request;
                globals.roll_back(to, xid, by, &reason, reply_when)
            }
        }
    }

    fn operate(
        &mut self,
        now: Timestamp,
        xid: Xid,
        action: OperatorAction,
        operator: &str,
        out: &mut Outcome,
    ) -> HandlerResult {
        if self.sagas.get(xid).is_some() {
            return self.saga_wing(now, out).operate_saga(xid, action, operator);
        }
        self.global_wing(now, out).operate(xid, action, operator)
    }

    fn find_lock(&self, now: Timestamp, name: &str) -> HandlerResult {
        Ok(Some(Reply::LockFound { holder: self.leases.holder(now, name) }))
    }

    fn break_lock(
        &mut self,
        now: Timestamp,
        name: &Arc<str>,
        token: Option<LockToken>,
        out: &mut Outcome,
    ) -> HandlerResult {
        self.global_wing(now, out).named_locks().break_lock(name, token)
    }

    /// Globals and sagas draw their XIDs from one counter. That of a saga was never lent.
    fn check_lent_to_no_saga(&self, loan: &LoanTerms) -> Result<(), Rejection> {
        match loan.xid.as_ref().map(|lent| lent.xid) {
            Some(xid) if self.sagas.get(xid).is_some() => Err(Rejection::XidNotLent(xid)),
            Some(_) | None => Ok(()),
        }
    }

    fn client_came(&mut self, client: ClientId) -> HandlerResult {
        self.departed.remove(client);
        Ok(None)
    }

    fn client_gone(&mut self, now: Timestamp, client: ClientId) -> HandlerResult {
        // BOUNDED: a client that leaves nothing behind takes no place in the set.
        if self.globals.first_without_branch(client).is_some() || self.loans.has_any(client) {
            self.departed.add(client, now.after_ms(self.environment.limits.client_grace_ms));
        }
        Ok(None)
    }

    // ---- the wings ----

    #[inline]
    pub(crate) fn global_wing<'a>(
        &'a mut self,
        now: Timestamp,
        out: &'a mut Outcome,
    ) -> Globals<'a> {
        Globals {
            on: self.environment.context(now, out),
            globals: &mut self.globals,
            history: &mut self.history,
            labels: &mut self.labels,
            keys: &mut self.keys,
            loans: &mut self.loans,
            votings: &mut self.votings,
            rows: &mut self.rows,
            leases: &mut self.leases,
            waiting: &mut self.waiting,
            deadlocks: &mut self.deadlocks,
        }
    }

    pub(crate) fn saga_wing<'a>(&'a mut self, now: Timestamp, out: &'a mut Outcome) -> Sagas<'a> {
        Sagas {
            on: self.environment.context(now, out),
            table: &mut self.sagas,
            waiting: &mut self.waiting,
        }
    }
}
