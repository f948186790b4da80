//! Lists for operators: globals and locks that pass a filter, page by page.
//!
//! A call examines no more records than its bounds allow, however few entries pass and however
//! large they are. A caller that lists rare entries continues where the last call stopped, and
//! other requests are decided in between (BOUNDED).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::page::{Page, PageBounds};
use super::view::{GlobalSummary, LockView};
use crate::collections::interner::Space;
use crate::contract::{
    GlobalStatus, Label, Labels, Mode, SagaRecord, StatusKind, Timestamp, Xid, display_xid,
};
use crate::coordinator::Coordinator;
use crate::global::finished::FinishedGlobal;
use crate::global::label_index::LabelIndex;
use crate::global::state::{Global, Phase};
use crate::row_lock::table::{Holder, LockId, LockTable};

/// The most rows of one global among which one of a table is looked for. A global with more of them
/// may be left out of a list by table.
const ROWS_LOOKED_AT_MAX: usize = 4_096;

/// One position in a list.
pub(super) struct Entry<T, C> {
    pub(super) at: C,
    /// The entry, if it passes.
    pub(super) item: Option<T>,
    /// The number of records that had to be looked at in addition to the entry itself.
    pub(super) besides: usize,
}

/// A filter of globals; `None` passes all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GlobalFilter {
    /// Those with this status.
    pub status: Option<StatusKind>,
    /// Those begun by this application.
    pub application: Option<String>,
    /// Those of this name.
    pub name: Option<String>,
    /// Those begun before this point in time.
    pub begun_before: Option<Timestamp>,
    /// Those begun at this point in time or later.
    pub begun_from: Option<Timestamp>,
    /// Those with this label. They are found by an index.
    pub label: Option<Label>,
    /// Those with a branch on this resource.
    pub resource: Option<String>,
    /// Those that hold a row of a table of this name.
    pub table: Option<String>,
    /// Those with this text in their name, in the text of their XID or in the value of a label.
    /// ASCII letters match in either case.
    pub text: Option<String>,
    /// The order of the list.
    pub order: ListOrder,
    /// Those that have not ended.
    pub is_unfinished: bool,
}

/// The order of a list of globals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListOrder {
    /// The youngest first.
    #[default]
    NewestFirst,
    /// The oldest first.
    OldestFirst,
}

/// A filter of locks; `None` passes all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockFilter {
    /// Those of this resource.
    pub resource: Option<String>,
    /// Those of tables of this name.
    pub table: Option<String>,
    /// Those of this canonical key.
    pub key: Option<Box<[u8]>>,
    /// Those that this global holds.
    pub holder: Option<Xid>,
}

/// A place in the list of locks, which goes on behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockCursor {
    /// A global.
    pub holder: Xid,
    /// The place of one of its branches.
    pub sequence: u32,
    /// How many of that branch's rows come before.
    pub rows: usize,
}

impl Coordinator {
    /// Globals and sagas, unfinished and remembered, newest or oldest first. For the next page pass
    /// this one's `next` as `after`: it stays valid whatever begins or is forgotten meanwhile.
    #[must_use]
    pub fn globals(
        &self,
        filter: &GlobalFilter,
        after: Option<Xid>,
        bounds: PageBounds,
    ) -> Page<GlobalSummary, Xid> {
        page(self.candidates(filter, after), after, bounds, |global| {
            let (at, mut besides) = (global.xid(), 0);
            let passes = global.passes(filter, &self.rows.table, &mut besides);
            let item = Some(global).filter(|_| passes).map(Listed::summary);
            Entry { at, item, besides }
        })
    }

    /// Globals and sagas behind a place, as few as label and status alone let be told apart.
    fn candidates<'a>(
        &'a self,
        filter: &'a GlobalFilter,
        after: Option<Xid>,
    ) -> Box<dyn Iterator<Item = Listed<'a>> + 'a> {
        let range = Behind::new(filter.order, after);
        if let Some(label) = &filter.label {
            let of = |index: &'a LabelIndex| {
                range.of(
                    |before| index.newest_before(label, before),
                    |first| index.oldest_from(label, first),
                )
            };
            let globals = of(&self.labels).filter_map(|xid| self.listed(xid));
            let sagas = of(self.sagas.labels());
            let sagas = sagas.filter_map(|xid| self.sagas.get(xid).map(Listed::Saga));
            return Box::new(merged(range.order, globals, sagas));
        }
        let sagas = range.of(
            |before| self.sagas.newest_before(before).map(Listed::Saga),
            |first| self.sagas.oldest_from(first).map(Listed::Saga),
        );
        let open = || {
            range.of(
                |before| self.globals.newest_before(before).map(Listed::Open),
                |first| self.globals.oldest_from(first).map(Listed::Open),
            )
        };
        let finished = || {
            range.of(
                |before| self.history.newest_before(before).map(Listed::Finished),
                |first| self.history.oldest_from(first).map(Listed::Finished),
            )
        };
        let globals: Box<dyn Iterator<Item = Listed<'a>> + 'a> = match filter.status {
            Some(StatusKind::Active | StatusKind::Committing | StatusKind::RollingBack) => {
                Box::new(open())
            }
            Some(StatusKind::Committed | StatusKind::RolledBack) => Box::new(finished()),
            Some(StatusKind::NeedsOperator) => {
                let needing = range.of(
                    |before| self.globals.needing_before(before),
                    |first| self.globals.needing_from(first),
                );
                Box::new(needing.filter_map(|xid| self.listed(xid)))
            }
            None if filter.is_unfinished => Box::new(open()),
            Some(StatusKind::Unknown) | None => Box::new(merged(range.order, open(), finished())),
        };
        Box::new(merged(range.order, globals, sagas))
    }

    fn listed(&self, xid: Xid) -> Option<Listed<'_>> {
        let finished = || self.history.get(xid).map(Listed::Finished);
        self.globals.get(xid).map(Listed::Open).or_else(finished)
    }

    /// Locked rows in the order of their oldest holder, and as its branches took them. For the next
    /// page pass this one's `next` as `after`. A filter that names resource, table and key shows
    /// the row also if it is only waited for.
    #[must_use]
    pub fn locks(
        &self,
        filter: &LockFilter,
        after: Option<LockCursor>,
        bounds: PageBounds,
    ) -> Page<LockView, LockCursor> {
        if let LockFilter { resource: Some(resource), table: Some(table), key: Some(key), .. } =
            filter
        {
            let found = self.one_lock(resource, table, key, filter.holder);
            let items = found.into_iter().filter(|_| after.is_none()).collect();
            return Page { items, next: None, scanned: 1 };
        }
        let start = after.unwrap_or_default();
        let start = start.max(LockCursor { holder: filter.holder.unwrap_or_default(), ..start });
        let globals = self.globals.oldest_from(start.holder);
        let globals =
            globals.take_while(|global| filter.holder.is_none_or(|xid| xid == global.xid));
        let places = globals.flat_map(|global| places(global, start));
        page(places, after, bounds, |(at, lock)| match lock {
            Some(lock) => self.lock_entry(lock, at, filter),
            None => Entry { at, item: None, besides: 0 },
        })
    }

    /// Returns the resources with unfinished branches of a mode whose globals began before a point
    /// in time and may yet be rolled back. Examines a bounded number of globals from an XID on.
    #[must_use]
    pub fn resources_to_undo(
        &self,
        mode: Mode,
        begun_before: Timestamp,
        from: Xid,
        scanned_max: usize,
    ) -> Page<Arc<str>, Xid> {
        let mut globals = self.globals.oldest_from(from);
        let mut scanned = 0;
        let looked_at = globals.by_ref().take(scanned_max.max(1)).inspect(|_| scanned += 1);
        let may_be_undone = looked_at
            .filter(|global| global.begun_at < begun_before && global.phase != Phase::Committing);
        let branches = may_be_undone.flat_map(|global| &global.branches);
        let to_undo = branches.filter(|branch| branch.mode == mode && !branch.is_finished());
        let resources: BTreeSet<Arc<str>> =
            to_undo.map(|branch| branch.resource().clone()).collect();
        let next = globals.next().map(|global| global.xid);
        Page { items: resources.into_iter().collect(), next, scanned }
    }

    fn one_lock(
        &self,
        resource: &str,
        table: &str,
        key: &[u8],
        holder: Option<Xid>,
    ) -> Option<LockView> {
        let space = Space::new(Arc::from(resource), Arc::from(table));
        let lock = self.rows.table.find(&space, key)?;
        let is_asked_for = holder.is_none() || self.rows.table.holds(lock, holder);
        is_asked_for.then(|| self.lock_view(lock))
    }

    /// A row that many hold is listed once: under the oldest holder that is asked for.
    fn lock_entry(
        &self,
        lock: LockId,
        at: LockCursor,
        filter: &LockFilter,
    ) -> Entry<LockView, LockCursor> {
        if !filter.passes(self.rows.table.space(lock), self.rows.table.key(lock)) {
            return Entry { at, item: None, besides: 0 };
        }
        let mut scanned = 0;
        let asked_for = |holder: &Holder| filter.holder.is_none_or(|xid| xid == holder.xid);
        let is_older = |it: Holder| (it.xid, it.sequence) < (at.holder, at.sequence);
        let holders = self.rows.table.holders(lock).inspect(|_| scanned += 1);
        if holders.filter(asked_for).any(is_older) {
            return Entry { at, item: None, besides: scanned };
        }
        let view = self.lock_view(lock);
        let besides = scanned + view.holders.len() + view.queue.len();
        Entry { at, item: Some(view), besides }
    }
}

/// The places of one global behind a cursor: itself, its branches, and their locks. Globals and
/// branches without a lock are places too, or a call could pass over any number of them.
fn places(
    global: &Global,
    after: LockCursor,
) -> impl Iterator<Item = (LockCursor, Option<LockId>)> + '_ {
    let holder = global.xid;
    let start =
        if after.holder == holder { after } else { LockCursor { holder, ..Default::default() } };
    let first = global.branches.partition_point(|branch| branch.sequence < start.sequence);
    let locks = global.branches[first..].iter().flat_map(move |branch| {
        let sequence = branch.sequence;
        let skipped = if sequence == start.sequence { start.rows } else { 0 };
        let at = move |rows| LockCursor { holder, sequence, rows };
        let locks = branch.locks().iter().enumerate().skip(skipped);
        let locks = locks.map(move |(row, &lock)| (at(row + 1), Some(lock)));
        std::iter::once((at(skipped), None)).chain(locks)
    });
    std::iter::once((start, None)).chain(locks)
}

/// The part of a list behind a place.
#[derive(Clone, Copy)]
struct Behind {
    order: ListOrder,
    after: Option<Xid>,
}

impl Behind {
    fn new(order: ListOrder, after: Option<Xid>) -> Self {
        Self { order, after }
    }

    /// This part of a list that can be read from below an XID down, or from one on.
    fn of<'a, T: 'a, N, O>(
        self,
        newest_before: impl FnOnce(Xid) -> N,
        oldest_from: impl FnOnce(Xid) -> O,
    ) -> Box<dyn Iterator<Item = T> + 'a>
    where
        N: Iterator<Item = T> + 'a,
        O: Iterator<Item = T> + 'a,
    {
        match self.order {
            ListOrder::NewestFirst => Box::new(newest_before(self.after.unwrap_or(Xid(u64::MAX)))),
            ListOrder::OldestFirst => {
                let first = self.after.map_or(0, |after| after.0.saturating_add(1));
                Box::new(oldest_from(Xid(first)))
            }
        }
    }
}

/// Two lists in an order as one that is.
fn merged<'a>(
    order: ListOrder,
    one: impl Iterator<Item = Listed<'a>>,
    other: impl Iterator<Item = Listed<'a>>,
) -> impl Iterator<Item = Listed<'a>> {
    let (mut one, mut other) = (one.peekable(), other.peekable());
    let comes_first = move |first: &Listed<'_>, second: &Listed<'_>| match order {
        ListOrder::NewestFirst => first.xid() > second.xid(),
        ListOrder::OldestFirst => first.xid() < second.xid(),
    };
    std::iter::from_fn(move || match (one.peek(), other.peek()) {
        (Some(first), Some(second)) if comes_first(first, second) => one.next(),
        (_, Some(_)) => other.next(),
        (_, None) => one.next(),
    })
}

/// Looks at places, one after the other, until a bound is reached.
pub(super) fn page<P, T, C: Copy>(
    places: impl Iterator<Item = P>,
    start: Option<C>,
    bounds: PageBounds,
    look: impl Fn(P) -> Entry<T, C>,
) -> Page<T, C> {
    let mut page = Page { items: Vec::new(), next: start, scanned: 0 };
    let mut places = places.peekable();
    // At least one, so that every call makes progress.
    while page.scanned < bounds.scanned_max.max(1) && page.items.len() < bounds.items_max {
        let Some(place) = places.next() else { break };
        let Entry { at, item, besides } = look(place);
        page.next = Some(at);
        page.items.extend(item);
        page.scanned += 1 + besides;
    }
    if places.peek().is_none() {
        page.next = None;
    }
    page
}

impl LockFilter {
    fn passes(&self, space: &Space, key: &[u8]) -> bool {
        self.resource.as_deref().is_none_or(|resource| resource == &*space.resource)
            && self.table.as_deref().is_none_or(|table| table == &*space.table)
            && self.key.as_deref().is_none_or(|wanted| wanted == key)
    }
}

/// Returns whether a text contains another one, whose ASCII letters match in either case.
fn contains(text: &str, part: &str) -> bool {
    let mut windows = text.as_bytes().windows(part.len().max(1));
    part.is_empty() || windows.any(|window| window.eq_ignore_ascii_case(part.as_bytes()))
}

fn has_ended(status: GlobalStatus) -> bool {
    matches!(status.kind(), StatusKind::Committed | StatusKind::RolledBack)
}

enum Listed<'a> {
    Open(&'a Global),
    Finished(&'a FinishedGlobal),
    Saga(&'a SagaRecord),
}

impl Listed<'_> {
    fn xid(&self) -> Xid {
        match self {
            Self::Open(global) => global.xid,
            Self::Finished(global) => global.xid,
            Self::Saga(saga) => saga.xid,
        }
    }

    /// Returns whether it passes. `besides` counts the branches and rows that had to be looked at.
    fn passes(&self, filter: &GlobalFilter, rows: &LockTable, besides: &mut usize) -> bool {
        let (status, application, name, begun_at) = match self {
            Self::Open(global) => {
                let origin = &global.origin;
                (global.status(), &origin.application, &origin.name, global.begun_at)
            }
            Self::Finished(global) => {
                let origin = &global.origin;
                (global.status(), &origin.application, &origin.name, global.begun_at)
            }
            Self::Saga(saga) => {
                (saga.global_status(), &saga.application, &saga.definition.name, saga.begun_at)
            }
        };
        filter.status.is_none_or(|wanted| wanted == status.kind())
            && !(filter.is_unfinished && has_ended(status))
            && filter.application.as_deref().is_none_or(|wanted| wanted == &**application)
            && filter.name.as_deref().is_none_or(|wanted| wanted == &**name)
            && filter.begun_before.is_none_or(|before| begun_at < before)
            && filter.begun_from.is_none_or(|from| begun_at >= from)
            && filter.text.as_deref().is_none_or(|text| self.has_text(text, name))
            && filter.resource.as_deref().is_none_or(|it| self.is_on(it, besides))
            && filter.table.as_deref().is_none_or(|it| self.holds_row_of(it, rows, besides))
    }

    fn has_text(&self, text: &str, name: &str) -> bool {
        let in_label = |label: &Label| contains(&label.value, text);
        // Writing an XID costs more than looking at a name, and few texts can be part of one.
        let in_xid = || {
            let ends_in_digit = text.bytes().next_back().is_some_and(|it| it.is_ascii_digit());
            let may_be = ends_in_digit || text.contains(':');
            may_be && contains(&display_xid(self.address(), self.xid()), text)
        };
        contains(name, text) || self.labels().iter().any(in_label) || in_xid()
    }

    fn address(&self) -> &str {
        match self {
            Self::Open(global) => &global.origin.address,
            Self::Finished(global) => &global.origin.address,
            Self::Saga(saga) => &saga.address,
        }
    }

    fn labels(&self) -> &Labels {
        match self {
            Self::Open(global) => global.labels(),
            Self::Finished(global) => global.labels(),
            Self::Saga(saga) => &saga.labels,
        }
    }

    fn is_on(&self, resource: &str, besides: &mut usize) -> bool {
        match self {
            Self::Open(global) => {
                *besides += global.branches.len();
                global.branches.iter().any(|branch| &**branch.resource() == resource)
            }
            Self::Finished(global) => {
                *besides += global.branches.len();
                global.branches.iter().any(|branch| &*branch.site.resource == resource)
            }
            Self::Saga(saga) => {
                *besides += saga.definition.steps.len();
                saga.definition.steps.iter().any(|step| &*step.resource == resource)
            }
        }
    }

    fn holds_row_of(&self, table: &str, rows: &LockTable, besides: &mut usize) -> bool {
        let Self::Open(global) = self else { return false };
        let mut locks = global.locks().take(ROWS_LOOKED_AT_MAX);
        locks.any(|lock| {
            *besides += 1;
            &*rows.space(lock).table == table
        })
    }

    fn summary(self) -> GlobalSummary {
        match self {
            Self::Open(global) => {
                let (status, branches) = (global.status(), global.branches.len());
                GlobalSummary { record: global.shown(), status, branches }
            }
            Self::Finished(global) => {
                let (status, branches) = (global.status(), global.branches.len());
                GlobalSummary { record: global.record(), status, branches }
            }
            Self::Saga(saga) => saga.summary(),
        }
    }
}
