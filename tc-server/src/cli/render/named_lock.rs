//! Named locks as text.

use super::{Sheet, Style, flowing, more, more_of, printable, whole};
use crate::admin::model::{Lease, NamedLock, NamedLockPage, NamedLockWaiter, ReleaseReply};
use crate::time_format;

/// Renders one line per lease, and one for each lock that is only waited for.
#[must_use]
pub(crate) fn render_named_locks(page: &NamedLockPage, style: Style) -> String {
    if page.items.is_empty() {
        return "no named locks".to_owned();
    }
    let columns = [
        whole("LOCK"),
        whole("HELD BY"),
        flowing("SHARE").left_out(1),
        flowing("FENCE").left_out(4),
        flowing("FOR").left_out(2),
        flowing("LEFT").left_out(3),
        flowing("WAITING"),
    ];
    let mut sheet = Sheet::new(style, columns);
    for lock in &page.items {
        let waiting = lock.waiting.to_string();
        if lock.leases.is_empty() {
            sheet.row([&*lock.name, "-", "", "", "", "", &waiting]);
        }
        for lease in &lock.leases {
            let Lease { label, share, fence, age_ms, .. } = lease;
            let (age, left) = (time_format::duration(*age_ms), left(lease));
            sheet.row([&*lock.name, label, share, fence, &age, &left, &waiting]);
        }
    }
    format!("{}{}", sheet.text(), more(page.next.as_deref()))
}

/// Renders one lock with its leases and its queue.
#[must_use]
pub fn render_named_lock(lock: &NamedLock, style: Style) -> String {
    let columns = [
        whole(""),
        whole("WHO").left_out(5),
        whole("TOKEN"),
        flowing("SHARE").left_out(1),
        flowing("FENCE").left_out(4),
        whole("XID"),
        flowing("FOR").left_out(2),
        flowing("LEFT").left_out(3),
    ];
    let mut sheet = Sheet::new(style, columns);
    for lease in &lock.leases {
        let Lease { label, token, share, fence, xid, age_ms, .. } = lease;
        let (xid, age) = (xid.as_deref().unwrap_or("-"), time_format::duration(*age_ms));
        sheet.row(["holds", label, token, share, fence, xid, &age, &left(lease)]);
    }
    for NamedLockWaiter { label, token, share, xid, age_ms, .. } in &lock.queue {
        let (xid, age) = (xid.as_deref().unwrap_or("-"), time_format::duration(*age_ms));
        sheet.row(["waits", label, token, share, "", xid, &age, ""]);
    }
    let rest = more_of(lock.holding, lock.leases.len(), "hold some of it");
    let rest = format!("{rest}{}", more_of(lock.waiting, lock.queue.len(), "wait"));
    format!("{}\n\n{}{rest}", printable(&lock.name), sheet.text())
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
