//! The part of a global's course that no other record of it shows: waits for rows.
//!
//! A request that gets its rows at once, or is refused at once, leaves nothing here.

use super::globals::Globals;
use super::state::Phase;
use crate::contract::{Event, EventKind, Rejection, Xid, display_row_key, display_xid};
use crate::row_lock::waiters::Waiter;

/// The most bytes of the text of a wait. Too few: the row cannot be told from others. Too many: a
/// record with many waits becomes large.
const TEXT_BYTES_MAX: usize = 400;

impl Globals<'_> {
    /// The end of a wait, in words.
    pub(crate) fn wait_event(&self, waiter: &Waiter, end: &str) -> Event {
        let ms = self.on.now.0.saturating_sub(waiter.since.0);
        let behind = display_xid(&self.address_of(waiter.behind), waiter.behind);
        // BOUNDED: the end comes first, since the rest may be cut off.
        let text = format!("{end} after {ms} ms, behind {behind}, for {}", self.rows_of(waiter));
        let what = text[..text.floor_char_boundary(TEXT_BYTES_MAX)].into();
        let kind = EventKind::Waited { ms, behind: waiter.behind };
        Event { at: self.on.now, what, kind }
    }

    /// The row that a request waits for, and how many others.
    fn rows_of(&self, waiter: &Waiter) -> String {
        let Some(row) = waiter.rows.get(waiter.blocked_at).or(waiter.rows.first()) else {
            return String::new();
        };
        let (space, key) = (self.rows.table.space(row.lock), self.rows.table.key(row.lock));
        let more = match waiter.rows.len() {
            0 | 1 => String::new(),
            rows => format!(" and {} more", rows - 1),
        };
        format!("row {}/{} of {}{more}", space.table, display_row_key(key), space.resource)
    }

    /// Notes a wait that has ended with a refusal.
    pub(crate) fn note_refused_wait(&mut self, waiter: &Waiter, rejection: &Rejection) {
        let Some(xid) = waiter.xid else { return };
        // A decision has noted the waits that it ends.
        if self.undecided(xid).is_ok() {
            let event = self.wait_event(waiter, &format!("request refused ({})", rejection.code()));
            self.note_in_course(xid, event);
        }
    }

    /// Notes the waits that a decision is about to end, so that its record tells of them.
    pub(crate) fn note_waits_of(&mut self, xid: Xid) {
        if self.rows.waiters.is_idle() {
            return;
        }
        let waiters = self.rows.waiters.of_global(xid);
        let waiters = waiters.filter_map(|id| self.rows.waiters.get(id));
        let ended: Vec<Event> =
            waiters.map(|waiter| self.wait_event(waiter, "wait ended by the decision")).collect();
        let events_max = self.on.limits.events_per_global_max;
        self.globals.change(xid, |global| {
            ended.into_iter().for_each(|event| global.note(event, events_max));
        });
    }

    /// Adds to the course of an undecided global. One without a record gets none by that: it is
    /// stored with its first branch (decision 0002).
    fn note_in_course(&mut self, xid: Xid, event: Event) {
        let events_max = self.on.limits.events_per_global_max;
        let stored = self.globals.change(xid, |global| {
            global.note(event, events_max);
            global.stored && global.phase == Phase::Active
        });
        if stored == Some(true) {
            self.put_global(xid);
        }
    }
}
