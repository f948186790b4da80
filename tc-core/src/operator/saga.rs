//! Views of sagas as sagas, with their keys and the names of their steps. As globals they are shown
//! too (`crate::saga`), in one list with all others.

use std::sync::Arc;

use super::list::{Entry, page};
use super::page::{Page, PageBounds};
use crate::contract::{
    Label, Labels, SagaPart, SagaRecord, SagaStatus, StepDefinition, StepKind, StepRecord,
    StepState, Timestamp, TurnCause, Xid,
};
use crate::coordinator::Coordinator;

/// The most steps that are named in a list, of each saga (BOUNDED).
const NAMED_MAX: usize = 10;

/// A filter of sagas; `None` passes all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SagaFilter {
    /// Those with this status.
    pub status: Option<SagaStatus>,
    /// Those started by this application.
    pub application: Option<String>,
    /// Those of this name.
    pub name: Option<String>,
    /// The one with this key.
    pub key: Option<String>,
    /// Those that await this signal.
    pub awaits: Option<String>,
    /// Those begun before this point in time.
    pub begun_before: Option<Timestamp>,
    /// Those with this label. They are found by an index.
    pub label: Option<Label>,
}

/// A saga in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SagaSummary {
    /// Its id.
    pub xid: Xid,
    /// The address part of its text form.
    pub address: Arc<str>,
    /// Its key.
    pub key: Arc<str>,
    /// The application that started it.
    pub application: Arc<str>,
    /// The application's name for this kind of saga.
    pub name: Arc<str>,
    /// Where it stands.
    pub status: SagaStatus,
    /// Why it is or was compensated.
    pub cause: Option<String>,
    /// Whether calls are held back by an operator.
    pub paused: bool,
    /// When it began.
    pub begun_at: Timestamp,
    /// When it is compensated if its pivot has not begun.
    pub deadline: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// How many steps it has, with those of its children.
    pub steps: usize,
    /// How many of them are done.
    pub steps_done: usize,
    /// The steps whose action or compensation is due: at most ten.
    pub under_way: Vec<Arc<str>>,
    /// The signals that it awaits: at most ten.
    pub awaits: Vec<Arc<str>>,
    /// The labels that it was started with.
    pub labels: Labels,
}

/// A saga with everything that is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SagaView {
    /// The saga.
    pub record: SagaRecord,
    /// When it, its children and its steps under way are given up; each may be missing.
    pub timeouts: Vec<(Timestamp, TurnCause)>,
}

impl Coordinator {
    /// Returns sagas, unfinished and remembered, newest first. For the next page pass this one's
    /// `next` as `before`. A filter that names a key looks at the saga of that key alone.
    #[must_use]
    pub fn saga_page(
        &self,
        filter: &SagaFilter,
        before: Option<Xid>,
        bounds: PageBounds,
    ) -> Page<SagaSummary, Xid> {
        if let Some(key) = filter.key.as_deref() {
            let found = self.sagas.of_key(key).filter(|_| before.is_none());
            let items = found.filter(|saga| filter.passes(saga)).map(SagaSummary::of);
            return Page { items: items.into_iter().collect(), next: None, scanned: 1 };
        }
        let entry = |saga: &SagaRecord| {
            let item = filter.passes(saga).then(|| SagaSummary::of(saga));
            // A saga that passes is gone through step by step.
            let besides = if item.is_some() { saga.steps.len() } else { 0 };
            Entry { at: saga.xid, item, besides }
        };
        let Some(label) = &filter.label else {
            return page(self.sagas(before), before, bounds, entry);
        };
        let labelled = self.sagas.labels().newest_before(label, before.unwrap_or(Xid(u64::MAX)));
        let labelled = labelled.filter_map(|xid| self.sagas.get(xid));
        page(labelled, before, bounds, entry)
    }

    /// Returns a saga, unfinished or remembered, with the timeouts that count.
    #[must_use]
    pub fn saga_view(&self, xid: Xid) -> Option<SagaView> {
        self.sagas.view(xid)
    }
}

impl SagaFilter {
    fn passes(&self, saga: &SagaRecord) -> bool {
        let is =
            |wanted: &Option<String>, text: &str| wanted.as_deref().is_none_or(|it| it == text);
        is(&self.application, &saga.application)
            && is(&self.name, &saga.definition.name)
            && self.label.as_ref().is_none_or(|it| saga.labels.iter().any(|label| label == it))
            && self.begun_before.is_none_or(|before| saga.begun_at < before)
            && self.status.is_none_or(|wanted| wanted == saga.status())
            && self.awaits.as_deref().is_none_or(|it| saga.awaited().any(|name| &*name == it))
    }
}

impl SagaSummary {
    fn of(saga: &SagaRecord) -> Self {
        let owes = |(_, definition, record): &(_, &StepDefinition, &StepRecord)| {
            definition.kind != StepKind::Signal && record.state.owes().is_some()
        };
        let under_way = saga.each().filter(owes).take(NAMED_MAX);
        let is_done = |step: &&StepRecord| step.state == StepState::Done;
        Self {
            xid: saga.xid,
            address: Arc::clone(&saga.address),
            key: Arc::clone(&saga.key),
            application: Arc::clone(&saga.application),
            name: Arc::clone(&saga.definition.name),
            status: saga.status(),
            cause: saga.cause(),
            paused: saga.paused,
            begun_at: saga.begun_at,
            deadline: saga.deadline,
            ended_at: saga.ended_at(),
            steps: saga.steps.len(),
            steps_done: saga.steps.iter().filter(is_done).count(),
            under_way: under_way
                .map(|(step, ..)| saga.definition.path(SagaPart::Step(step)))
                .collect(),
            awaits: saga.awaited().take(NAMED_MAX).collect(),
            labels: saga.labels.clone(),
        }
    }
}

impl SagaView {
    /// Returns the saga without its steps, as it stands in a list.
    #[must_use]
    pub fn summary(&self) -> SagaSummary {
        SagaSummary::of(&self.record)
    }
}

impl SagaRecord {
    /// The signals that are awaited at present.
    fn awaited(&self) -> impl Iterator<Item = Arc<str>> + '_ {
        let awaits = |(_, definition, record): &(_, &StepDefinition, &StepRecord)| {
            definition.kind == StepKind::Signal && record.state == StepState::Running
        };
        self.each().filter(awaits).map(|(step, ..)| self.definition.path(SagaPart::Step(step)))
    }
}
