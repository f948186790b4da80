//! The last reports of the relays of outboxes, and what operators ask of them.
//!
//! The tables of an outbox are in a database of the application, which the coordinator does not
//! know. Its relays report over their streams (`grpc/outbox.rs`), again and again. The answer to a
//! report is kept back for as long as the relay has asked, and carries what operators ask of it.
//! Nothing is stored: a coordinator that has just taken the lead knows a relay after its next
//! report. Relays, events and actions are bounded (BOUNDED).

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use handfast_core::Timestamp;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;

use crate::clock::Clock;

/// The most relays whose reports are kept.
const RELAYS_MAX: usize = 128;
/// The most actions that wait for one relay, and the most in one answer to it.
const ACTIONS_MAX: usize = 100;
/// How long after its next report was due a relay counts as silent.
const SILENT_AFTER_MS: u64 = 20_000;
/// How long the report of a silent relay is kept.
const KEPT_MS: u64 = 600_000;
/// How long an operator waits for what a relay has done. Longer: the request itself is over by
/// default, without a word about the relay.
const ANSWERED_WITHIN: Duration = Duration::from_secs(8);

/// The reports of all relays. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct RelayReports {
    clock: Arc<dyn Clock>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    relays: BTreeMap<RelayKey, Relay>,
    /// Actions whose result is awaited, by their numbers.
    asked: BTreeMap<u64, oneshot::Sender<ActionResult>>,
    action_last: u64,
    report_last: u64,
}

/// A relay of an outbox.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RelayKey {
    pub(crate) application: Arc<str>,
    pub(crate) outbox: Arc<str>,
    /// Its own name.
    pub(crate) relay: Arc<str>,
}

#[derive(Debug)]
struct Relay {
    report: Arc<RelayReport>,
    /// The number of the report, by which a task that keeps an answer back sees that it is over.
    number: u64,
    reported_at: Timestamp,
    /// When it counts as silent, if no report comes.
    silent_at: Timestamp,
    actions: VecDeque<OutboxAction>,
    /// Wakes the task that keeps the answer back.
    wake: Arc<Notify>,
}

/// A report of a relay on its lanes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RelayReport {
    /// The network address of the relay's process.
    pub(crate) peer: Arc<str>,
    pub(crate) lanes: Vec<LaneReport>,
    /// Those that were parked last.
    pub(crate) parked: Vec<ParkedEvent>,
    /// Why the outbox could not be read, if so.
    pub(crate) error: Option<Arc<str>>,
}

/// One lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LaneReport {
    pub(crate) lane: u32,
    pub(crate) held: u64,
    pub(crate) new: u64,
    pub(crate) parked: u64,
    /// When the oldest event to be published was emitted, if there is one.
    pub(crate) oldest_new: Option<Timestamp>,
}

/// An event that waits for an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParkedEvent {
    pub(crate) event: Arc<str>,
    pub(crate) topic: Arc<str>,
    pub(crate) key: Arc<str>,
    pub(crate) error: Arc<str>,
    pub(crate) attempts: u64,
    pub(crate) parked_at: Timestamp,
    pub(crate) emitted_at: Timestamp,
    pub(crate) xid: Option<Arc<str>>,
}

/// A request of an operator to a relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutboxAction {
    pub(crate) number: u64,
    pub(crate) verb: OutboxVerb,
    pub(crate) event: Arc<str>,
}

/// The end of a parked event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutboxVerb {
    /// It is published after all.
    Requeue,
    /// It is never published.
    Skip,
}

/// Whether an action was carried out; if not, the code of the relay's error and its text.
pub(crate) type ActionResult = Result<(), RelayRefusal>;

/// The error of a relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RelayRefusal {
    pub(crate) code: String,
    pub(crate) message: String,
}

/// A relay as it is shown.
#[derive(Clone, Debug)]
pub(crate) struct RelayView {
    pub(crate) key: RelayKey,
    pub(crate) report: Arc<RelayReport>,
    pub(crate) reported_at: Timestamp,
    pub(crate) is_silent: bool,
}

/// The numbers of all relays that are not silent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OutboxTotals {
    pub(crate) reporting: usize,
    pub(crate) silent: usize,
    pub(crate) held: u64,
    pub(crate) new: u64,
    pub(crate) parked: u64,
    /// How long the oldest event to be published has waited.
    pub(crate) oldest_new_ms: u64,
}

/// Why an action was not carried out, or not for certain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotCarriedOut {
    /// No relay reports the event as parked.
    UnknownEvent,
    /// The relay does not answer: it may yet carry the action out.
    Silent(RelayKey),
    /// Too many actions wait for the relay.
    Busy(RelayKey),
    /// The relay could not do it.
    Refused(RelayRefusal),
}

/// The limit of relays is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooManyRelays {
    pub(crate) max: usize,
}

impl RelayReports {
    /// Creates an empty collection.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, state: Arc::default() }
    }

    /// Takes a report, and returns its answer when an operator asks something of the relay, the
    /// next report comes, or the time is over.
    pub(crate) async fn report(
        &self,
        key: RelayKey,
        report: RelayReport,
        results: Vec<(u64, ActionResult)>,
        wait_ms: u64,
    ) -> Result<Vec<OutboxAction>, TooManyRelays> {
        let until = self.clock.now().after_ms(wait_ms);
        let (number, wake) = self.take(&key, report, results, until)?;
        loop {
            if let Some(actions) = self.answer(&key, number, until) {
                return Ok(actions);
            }
            tokio::select! {
                biased;
                () = wake.notified() => {}
                () = self.clock.reach(until) => {}
            }
        }
    }

    /// Forgets a relay that stops, after its last results.
    pub(crate) fn leave(&self, key: &RelayKey, results: Vec<(u64, ActionResult)>) {
        let mut state = self.lock();
        state.settle(results);
        if let Some(relay) = state.relays.remove(key) {
            relay.wake.notify_one();
        }
    }

    /// Forgets everything: the relays report to another coordinator from here on.
    pub(crate) fn clear(&self) {
        let mut state = self.lock();
        state.asked.clear();
        let relays = std::mem::take(&mut state.relays);
        relays.values().for_each(|relay| relay.wake.notify_one());
    }

    /// Has the relay that reports a parked event carry an action out, and waits for its result.
    pub(crate) async fn act(
        &self,
        event: &str,
        verb: OutboxVerb,
    ) -> Result<RelayKey, NotCarriedOut> {
        let (key, number, result) = self.ask(event, verb)?;
        let _forget = ForgetOnDrop { reports: self, number };
        match timeout(ANSWERED_WITHIN, result).await {
            Ok(Ok(Ok(()))) => Ok(key),
            Ok(Ok(Err(refusal))) => Err(NotCarriedOut::Refused(refusal)),
            // The lead is lost, or the relay has gone.
            Ok(Err(_)) | Err(_) => Err(NotCarriedOut::Silent(key)),
        }
    }

    /// Returns all relays, in the order of their applications, outboxes and names.
    pub(crate) fn relays(&self) -> Vec<RelayView> {
        let now = self.clock.now();
        let mut state = self.lock();
        state.forget_silent(now);
        let view = |(key, relay): (&RelayKey, &Relay)| RelayView {
            key: key.clone(),
            report: Arc::clone(&relay.report),
            reported_at: relay.reported_at,
            is_silent: relay.is_silent(now),
        };
        state.relays.iter().map(view).collect()
    }

    /// Returns the numbers of all relays together.
    pub(crate) fn totals(&self) -> OutboxTotals {
        let now = self.clock.now();
        let mut totals = OutboxTotals::default();
        for relay in self.relays() {
            if relay.is_silent {
                totals.silent += 1;
                continue;
            }
            totals.reporting += 1;
            for lane in &relay.report.lanes {
                totals.held = totals.held.saturating_add(lane.held);
                totals.new = totals.new.saturating_add(lane.new);
                totals.parked = totals.parked.saturating_add(lane.parked);
                let waited_ms = lane.oldest_new.map_or(0, |at| now.0.saturating_sub(at.0));
                totals.oldest_new_ms = totals.oldest_new_ms.max(waited_ms);
            }
        }
        totals
    }

    /// Puts a report in the place of the one before, and ends the wait for its answer.
    fn take(
        &self,
        key: &RelayKey,
        report: RelayReport,
        results: Vec<(u64, ActionResult)>,
        until: Timestamp,
    ) -> Result<(u64, Arc<Notify>), TooManyRelays> {
        let now = self.clock.now();
        let mut state = self.lock();
        state.settle(results);
        state.forget_silent(now);
        if state.relays.len() >= RELAYS_MAX && !state.relays.contains_key(key) {
            return Err(TooManyRelays { max: RELAYS_MAX });
        }
        state.report_last += 1;
        let (number, wake) = (state.report_last, Arc::new(Notify::new()));
        let before = state.relays.remove(key);
        if let Some(before) = &before {
            before.wake.notify_one();
        }
        let relay = Relay {
            report: Arc::new(report),
            number,
            reported_at: now,
            silent_at: until.after_ms(SILENT_AFTER_MS),
            actions: before.map(|before| before.actions).unwrap_or_default(),
            wake: Arc::clone(&wake),
        };
        state.relays.insert(key.clone(), relay);
        Ok((number, wake))
    }

    /// Returns the answer to a report, if it is time for it.
    fn answer(&self, key: &RelayKey, number: u64, until: Timestamp) -> Option<Vec<OutboxAction>> {
        let now = self.clock.now();
        let mut state = self.lock();
        // A report that another one has followed, or whose relay is forgotten, is answered at once.
        let Some(relay) = state.relays.get_mut(key).filter(|relay| relay.number == number) else {
            return Some(Vec::new());
        };
        let is_due = !relay.actions.is_empty() || now >= until;
        is_due.then(|| relay.actions.drain(..).collect())
    }

    fn ask(
        &self,
        event: &str,
        verb: OutboxVerb,
    ) -> Result<(RelayKey, u64, oneshot::Receiver<ActionResult>), NotCarriedOut> {
        let now = self.clock.now();
        let mut state = self.lock();
        let reports = |relay: &Relay| relay.report.parked.iter().any(|it| *it.event == *event);
        let reporting = state.relays.iter().filter(|(_, relay)| reports(relay));
        // A lane that moves is reported by two relays for a moment.
        let latest = reporting.max_by_key(|(_, relay)| relay.reported_at);
        let (key, relay) = latest.ok_or(NotCarriedOut::UnknownEvent)?;
        let key = key.clone();
        if relay.is_silent(now) {
            return Err(NotCarriedOut::Silent(key));
        }
        if relay.actions.len() >= ACTIONS_MAX || state.asked.len() >= RELAYS_MAX * ACTIONS_MAX {
            return Err(NotCarriedOut::Busy(key));
        }
        state.action_last += 1;
        let (number, (asked, result)) = (state.action_last, oneshot::channel());
        state.asked.insert(number, asked);
        if let Some(relay) = state.relays.get_mut(&key) {
            relay.actions.push_back(OutboxAction { number, verb, event: event.into() });
            relay.wake.notify_one();
        }
        Ok((key, number, result))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No step between lock and unlock leaves the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Forgets an action whose asker waits no more. One that has not left yet is not sent then.
struct ForgetOnDrop<'a> {
    reports: &'a RelayReports,
    number: u64,
}

impl Drop for ForgetOnDrop<'_> {
    fn drop(&mut self) {
        let mut state = self.reports.lock();
        if state.asked.remove(&self.number).is_some() {
            for relay in state.relays.values_mut() {
                relay.actions.retain(|action| action.number != self.number);
            }
        }
    }
}

impl State {
    fn settle(&mut self, results: Vec<(u64, ActionResult)>) {
        for (number, result) in results {
            if let Some(asked) = self.asked.remove(&number) {
                // The operator may have gone.
                drop(asked.send(result));
            }
        }
    }

    fn forget_silent(&mut self, now: Timestamp) {
        self.relays.retain(|_, relay| now < relay.silent_at.after_ms(KEPT_MS));
    }
}

impl Relay {
    fn is_silent(&self, now: Timestamp) -> bool {
        now >= self.silent_at
    }
}

impl RelayReport {
    pub(crate) fn sum(&self, of: impl Fn(&LaneReport) -> u64) -> u64 {
        self.lanes.iter().map(of).fold(0, u64::saturating_add)
    }
}

impl fmt::Display for OutboxVerb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Requeue => "requeue",
            Self::Skip => "skip",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use futures::FutureExt as _;
    use futures::future::{self, BoxFuture};

    use super::*;

    /// A clock that the test moves.
    #[derive(Debug, Default)]
    struct HandClock {
        now_ms: AtomicU64,
    }

    impl Clock for HandClock {
        fn now(&self) -> Timestamp {
            Timestamp(self.now_ms.load(Ordering::Relaxed))
        }

        fn reach(&self, at: Timestamp) -> BoxFuture<'static, ()> {
            if self.now() >= at { future::ready(()).boxed() } else { future::pending().boxed() }
        }
    }

    fn key(relay: &str) -> RelayKey {
        RelayKey { application: "shop".into(), outbox: "orders".into(), relay: relay.into() }
    }

    fn parked(event: &str) -> RelayReport {
        let event = ParkedEvent {
            event: event.into(),
            topic: "orders".into(),
            key: "7".into(),
            error: "no such topic".into(),
            attempts: 10,
            parked_at: Timestamp(5),
            emitted_at: Timestamp(1),
            xid: None,
        };
        let lane = LaneReport { parked: 1, ..LaneReport::default() };
        RelayReport { lanes: vec![lane], parked: vec![event], ..RelayReport::default() }
    }

    fn reports() -> (RelayReports, Arc<HandClock>) {
        let clock = Arc::<HandClock>::default();
        (RelayReports::new(Arc::clone(&clock) as Arc<dyn Clock>), clock)
    }

    #[tokio::test]
    async fn an_action_goes_with_the_answer_and_its_result_comes_with_the_next_report() {
        let (reports, _clock) = reports();
        let mut first = Box::pin(reports.report(key("a"), parked("e1"), Vec::new(), 2_000));
        assert!(first.as_mut().now_or_never().is_none(), "the answer is kept back");
        let mut acting = Box::pin(reports.act("e1", OutboxVerb::Requeue));
        assert!(acting.as_mut().now_or_never().is_none());
        let actions = first.await.unwrap();
        let [OutboxAction { number, verb: OutboxVerb::Requeue, .. }] = &*actions else {
            panic!("{actions:?}")
        };
        let report = RelayReport::default();
        let results = vec![(*number, Ok(()))];
        let mut second = Box::pin(reports.report(key("a"), report, results, 2_000));
        assert!(second.as_mut().now_or_never().is_none());
        assert_eq!(acting.await, Ok(key("a")));
        let unknown = reports.act("e1", OutboxVerb::Skip).await;
        assert_eq!(unknown, Err(NotCarriedOut::UnknownEvent));
    }

    #[tokio::test]
    async fn a_report_is_answered_when_its_time_is_over_or_another_comes() {
        let (reports, clock) = reports();
        let mut first = Box::pin(reports.report(key("a"), parked("e1"), Vec::new(), 2_000));
        assert!(first.as_mut().now_or_never().is_none());
        let mut second = Box::pin(reports.report(key("a"), parked("e1"), Vec::new(), 2_000));
        assert!(second.as_mut().now_or_never().is_none());
        assert_eq!(first.await, Ok(Vec::new()), "another has come");
        clock.now_ms.store(2_000, Ordering::Relaxed);
        let mut third = Box::pin(reports.report(key("a"), parked("e1"), Vec::new(), 0));
        assert_eq!(third.as_mut().now_or_never(), Some(Ok(Vec::new())));
    }

    #[tokio::test]
    async fn a_relay_that_is_silent_is_not_asked_and_in_the_end_forgotten() {
        let (reports, clock) = reports();
        reports.report(key("a"), parked("e1"), Vec::new(), 0).await.unwrap();
        assert_eq!(reports.totals().parked, 1);
        clock.now_ms.store(SILENT_AFTER_MS, Ordering::Relaxed);
        let totals = reports.totals();
        assert_eq!((totals.parked, totals.reporting, totals.silent), (0, 0, 1));
        let silent = reports.act("e1", OutboxVerb::Skip).await;
        assert_eq!(silent, Err(NotCarriedOut::Silent(key("a"))));
        clock.now_ms.store(SILENT_AFTER_MS + KEPT_MS, Ordering::Relaxed);
        assert!(reports.relays().is_empty());
    }

    #[tokio::test]
    async fn relays_are_bounded_and_one_that_leaves_makes_room() {
        let (reports, _clock) = reports();
        for number in 0..RELAYS_MAX {
            let key = key(&number.to_string());
            reports.report(key, RelayReport::default(), Vec::new(), 0).await.unwrap();
        }
        let more = || reports.report(key("more"), RelayReport::default(), Vec::new(), 0);
        assert_eq!(more().await, Err(TooManyRelays { max: RELAYS_MAX }));
        reports.leave(&key("7"), Vec::new());
        assert_eq!(more().await, Ok(Vec::new()));
    }

    #[tokio::test]
    async fn what_its_asker_has_given_up_is_not_sent() {
        let (reports, _clock) = reports();
        reports.report(key("a"), parked("e1"), Vec::new(), 0).await.unwrap();
        let mut acting = Box::pin(reports.act("e1", OutboxVerb::Skip));
        assert!(acting.as_mut().now_or_never().is_none());
        drop(acting);
        let answer = reports.report(key("a"), parked("e1"), Vec::new(), 0).await;
        assert_eq!(answer, Ok(Vec::new()));
    }
}
