//! The requests that wait for a reply, and the release of effects.
//!
//! Keeps the destination of every unanswered request, sends the effects of a durable batch on their
//! way, and measures how long each request took. BOUNDED by the inbox and by the core's limit on
//! waiters.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use metrics::Histogram;

use handfast_core::{
    Alert, AlertKind, Command, Coordinator, Correlation, Decision, Effect, Rejection, Reply,
    XidText,
};

use super::batch_builder::Outgoing;
use super::handle::{Destination, EngineError, EngineResult, ReplySink};
use crate::crash_point::crash_point;
use crate::dispatch::EffectSink;
use crate::metrics::count_deadlock;
use crate::recent::{self, Timed};
use crate::webhook::Alerts;

/// The destinations of all unanswered requests.
#[derive(Debug)]
pub(crate) struct PendingReplies {
    unanswered: HashMap<Correlation, Unanswered>,
    phase_two: Arc<dyn EffectSink>,
    alerts: Alerts,
    histograms: Histograms,
}

/// The histograms, looked up once: a look-up costs more than recording a value.
#[derive(Debug)]
struct Histograms {
    begin: Histogram,
    register: Histogram,
    commit: Histogram,
    lock_wait: Histogram,
    lock_granted: Histogram,
    lock_not_granted: Histogram,
}

#[derive(Debug)]
struct Unanswered {
    destination: Destination,
    kind: Kind,
    taken_at: Instant,
    waits: bool,
}

/// The kinds of requests that are measured apart.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Begin,
    Register,
    CheckLocks,
    Commit,
    AcquireLock,
    Other,
}

impl PendingReplies {
    pub(crate) fn new(phase_two: Arc<dyn EffectSink>, alerts: Alerts) -> Self {
        Self { unanswered: HashMap::new(), phase_two, alerts, histograms: Histograms::find() }
    }

    /// Remembers where a reply goes.
    pub(crate) fn expect(
        &mut self,
        to: Correlation,
        command: &Command,
        destination: Destination,
        taken_at: Instant,
    ) {
        let unanswered = Unanswered { destination, kind: kind(command), taken_at, waits: false };
        self.unanswered.insert(to, unanswered);
    }

    /// The request waits for a lock, or for phase two.
    pub(crate) fn waits(&mut self, correlation: Correlation) {
        if let Some(unanswered) = self.unanswered.get_mut(&correlation) {
            unanswered.waits = true;
        }
    }

    /// Drops a request whose sender does not wait any more.
    pub(crate) fn forget(&mut self, correlation: Correlation) {
        self.unanswered.remove(&correlation);
    }

    /// Sends effects on their way, in order; wakes each sink of replies once.
    pub(crate) fn release(&mut self, outgoing: Vec<Outgoing>) {
        let mut filled: Vec<Arc<dyn ReplySink>> = Vec::new();
        let mut phase_two = Vec::new();
        let now = Instant::now();
        for leaving in outgoing {
            match leaving {
                Outgoing::Effect(Effect::Reply { to, reply, .. }) => {
                    if let Reply::Rejected(Rejection::Deadlock { .. }) = reply {
                        count_deadlock();
                    }
                    self.answer(to, Ok(reply), now, &mut filled);
                }
                Outgoing::Effect(
                    effect @ (Effect::PhaseTwo(_) | Effect::Vote(_) | Effect::Hold { .. }),
                ) => phase_two.push(effect),
                Outgoing::Effect(Effect::Alert(alert)) => {
                    log_for_operators(&alert);
                    self.alerts.raise(&alert);
                }
                Outgoing::Answer(answer) => answer(),
            }
        }
        filled.iter().for_each(|sink| sink.flush());
        if !phase_two.is_empty() {
            crash_point("mid-effects");
            self.phase_two.take(phase_two);
        }
    }

    /// Answers everything that is unanswered with the reason why no reply will come.
    pub(crate) fn abandon(&mut self, reason: EngineError) {
        let (mut filled, now) = (Vec::new(), Instant::now());
        let mut correlations: Vec<Correlation> = self.unanswered.keys().copied().collect();
        // In the order of arrival, not of hashing: the same run gives the same answers.
        correlations.sort_unstable();
        for correlation in correlations {
            self.answer(correlation, Err(reason), now, &mut filled);
        }
        filled.iter().for_each(|sink| sink.flush());
    }

    /// Forgets the phase two of a state that is dropped; the next leader's `owed` repeats it.
    pub(crate) fn clear_phase_two(&self) {
        self.phase_two.clear();
    }

    fn answer(
        &mut self,
        to: Correlation,
        answered: EngineResult,
        now: Instant,
        filled: &mut Vec<Arc<dyn ReplySink>>,
    ) {
        // Without a destination: the requester went away, which `forget` noted.
        let Some(unanswered) = self.unanswered.remove(&to) else { return };
        self.histograms.record(&unanswered, &answered, now);
        match unanswered.destination {
            // The caller may have gone away a moment ago.
            Destination::Caller { sender, .. } => drop(sender.send(answered)),
            Destination::ReplySink(sink) => {
                sink.put(to, answered);
                if !filled.iter().any(|other| Arc::ptr_eq(other, &sink)) {
                    filled.push(sink);
                }
            }
        }
    }
}

impl Histograms {
    fn find() -> Self {
        Self {
            begin: metrics::histogram!("handfast_begin_seconds"),
            register: metrics::histogram!("handfast_register_seconds"),
            commit: metrics::histogram!("handfast_commit_seconds"),
            lock_wait: metrics::histogram!("handfast_lock_wait_seconds"),
            lock_granted: acquire("granted"),
            lock_not_granted: acquire("not granted"),
        }
    }

    fn record(&self, unanswered: &Unanswered, answered: &EngineResult, now: Instant) {
        let elapsed = now.saturating_duration_since(unanswered.taken_at);
        match unanswered.kind {
            Kind::Begin => note(&self.begin, Timed::Begin, elapsed),
            Kind::Register => note(&self.register, Timed::Register, elapsed),
            Kind::Commit => note(&self.commit, Timed::Commit, elapsed),
            Kind::AcquireLock if matches!(answered, Ok(Reply::LockGranted { .. })) => {
                self.lock_granted.record(elapsed);
            }
            Kind::AcquireLock => self.lock_not_granted.record(elapsed),
            Kind::CheckLocks | Kind::Other => {}
        }
        if unanswered.waits && matches!(unanswered.kind, Kind::Register | Kind::CheckLocks) {
            note(&self.lock_wait, Timed::LockWait, elapsed);
        }
    }
}

/// Records a duration for Prometheus and for the console.
fn note(histogram: &Histogram, what: Timed, took: Duration) {
    histogram.record(took);
    recent::record(what, took);
}

/// Logs the one line that operators' alarms look for, without the error, which may quote rows: `tx
/// show` has it.
fn log_for_operators(alert: &Alert) {
    let Alert { kind, address, xid, branch, resource, step, .. } = alert;
    let xid = XidText { address, xid: *xid };
    match kind {
        AlertKind::NeedsOperator => tracing::warn!(
            %xid, %branch, resource = &**resource,
            "a transaction needs an operator: look at it with `handfast tx show {xid}`"
        ),
        AlertKind::StepGivenUp => tracing::warn!(
            %xid, %branch, resource = &**resource, step = step.as_deref(),
            "a step of a saga is given up: look at it with `handfast saga show {xid}`"
        ),
    }
}

/// Logs at the beginning of a term how many transactions need an operator: a crash may have lost
/// the line of each of them.
pub(super) fn log_globals_in_need(coordinator: &Coordinator) {
    let transactions = coordinator.counts().needs_operator;
    if transactions > 0 {
        tracing::warn!(
            transactions,
            "transactions need an operator: list them with `handfast tx ls --status needs_operator`"
        );
    }
}

fn acquire(result: &'static str) -> Histogram {
    metrics::histogram!("handfast_lock_acquire_seconds", "result" => result)
}

fn kind(command: &Command) -> Kind {
    match command.untraced() {
        Command::Begin { .. } => Kind::Begin,
        Command::AcquireLock(_) => Kind::AcquireLock,
        Command::RegisterBranch { .. } | Command::RegisterLastBranch { .. } => Kind::Register,
        Command::CheckLocks { .. } => Kind::CheckLocks,
        Command::End { decision: Decision::Commit, .. } => Kind::Commit,
        Command::End { decision: Decision::RollBack, .. }
        | Command::ReportBranch { .. }
        | Command::NoteFailedTry { .. }
        | Command::ReportDatabaseWait { .. }
        | Command::GetStatus { .. }
        | Command::FinishPhaseTwo { .. }
        | Command::Vote { .. }
        | Command::Forget { .. }
        | Command::Tick
        | Command::ClientGone { .. }
        | Command::ClientCame { .. }
        | Command::StartSaga { .. }
        | Command::GetSaga { .. }
        | Command::SignalSaga { .. }
        | Command::CancelSaga { .. }
        | Command::Operate { .. }
        | Command::RenewLocks { .. }
        | Command::ReleaseLock { .. }
        | Command::FindLock { .. }
        | Command::BreakLock { .. }
        | Command::Traced(_) => Kind::Other,
    }
}
