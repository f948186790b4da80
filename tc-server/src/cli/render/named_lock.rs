//! Named locks as text.

use super::{Style, add_row, more, more_of, printable, table, text};
use crate::admin::model::{Lease, NamedLock, NamedLockPage, NamedLockWaiter, ReleaseReply};
use crate::time_format;

/// Renders one line per lease, and one for each lock that is only waited for.
#[must_use]
pub(crate) fn render_named_locks(page: &NamedLockPage, style: Style) -> String {
    if page.items.is_empty() {
        return "no named locks".to_owned();
    }
    let header = ["LOCK", "HELD BY", "SHARE", "FENCE", "FOR", "LEFT", "WAITING"];
    let mut table = table(style, &header);
    for lock in &page.items {
        let waiting = lock.waiting.to_string();
        if lock.leases.is_empty() {
            add_row(&mut table, [&*lock.name, "-", "", "", "", "", &waiting]);
        }
        for lease in &lock.leases {
            let Lease { label, share, fence, age_ms, .. } = lease;
            let (age, left) = (time_format::duration(*age_ms), left(lease));
            add_row(&mut table, [&*lock.name, label, share, fence, &age, &left, &waiting]);
        }
    }
    format!("{}{}", text(&table), more(page.next.as_deref()))
}

/// Renders one lock with its leases and its queue.
#[must_use]
pub fn render_named_lock(lock: &NamedLock, style: Style) -> String {
    let header = ["", "WHO", "TOKEN", "SHARE", "FENCE", "XID", "FOR", "LEFT"];
    let mut table = table(style, &header);
    for lease in &lock.leases {
        let Lease { label, token, share, fence, xid, age_ms, .. } = lease;
        let (xid, age) = (xid.as_deref().unwrap_or("-"), time_format::duration(*age_ms));
        add_row(&mut table, ["holds", label, token, share, fence, xid, &age, &left(lease)]);
    }
    for NamedLockWaiter { label, token, share, xid, age_ms, .. } in &lock.queue {
        let (xid, age) = (xid.as_deref().unwrap_or("-"), time_format::duration(*age_ms));
        add_row(&mut table, ["waits", label, token, share, "", xid, &age, ""]);
    }
    let rest = more_of(lock.holding, lock.leases.len(), "hold some of it");
    let rest = format!("{rest}{}", more_of(lock.waiting, lock.queue.len(), "wait"));
    format!("{}\n\n{}{rest}", printable(&lock.name), text(&table))
}

/// Renders the result of ending leases.
#[must_use]
pub(crate) fn render_release(reply: &ReleaseReply, _style: Style) -> String {
    match reply.leases {
        1 => "1 lease ended".to_owned(),
        leases => format!("{leases} leases ended"),
    }
}

fn left(lease: &Lease) -> String {
    match lease.left_ms {
        Some(0) => "over".to_owned(),
        Some(left_ms) => time_format::duration(left_ms),
        None => "its global".to_owned(),
    }
}
