//! Locks as text.

use super::{Sheet, Style, flowing, more, more_of, printable, whole, word};
use crate::admin::model::{Lock, LockHolder, LockPage, LockWaiter};
use crate::time_format;

/// Renders one line per locked row.
#[must_use]
pub(crate) fn render_locks(page: &LockPage, style: Style) -> String {
    if page.items.is_empty() {
        return "no locks".to_owned();
    }
    let columns = [
        whole("RESOURCE").left_out(3),
        flowing("TABLE"),
        whole("KEY"),
        whole("HELD BY"),
        flowing("MODE").left_out(1),
        flowing("FOR").left_out(2),
        flowing("WAITING"),
    ];
    let mut sheet = Sheet::new(style, columns);
    for lock in &page.items {
        let holders: Vec<&str> = lock.holders.iter().map(|holder| &*holder.xid).collect();
        let oldest = lock.holders.iter().map(|holder| holder.age_ms).max();
        let cells = [
            &*lock.resource,
            &lock.table,
            &lock.key,
            &format!("{}{}", holders.join(" "), hidden(lock.holding, lock.holders.len())),
            &lock.holders.first().map(|holder| word(&holder.mode)).unwrap_or_default(),
            &oldest.map(time_format::duration).unwrap_or_default(),
            &waiting(lock),
        ];
        sheet.row(cells);
    }
    format!("{}{}", sheet.text(), more(page.next.as_deref()))
}

/// Renders one row with its holders and its queue.
#[must_use]
pub fn render_lock(lock: &Lock, style: Style) -> String {
    let title = printable(&format!("{} {} {}", lock.resource, lock.table, lock.key));
    let columns = [whole(""), whole("XID"), flowing("MODE").left_out(1), flowing("FOR")];
    let mut sheet = Sheet::new(style, columns);
    for LockHolder { xid, mode, age_ms, .. } in &lock.holders {
        sheet.row(["holds", xid, &word(mode), &time_format::duration(*age_ms)]);
    }
    for LockWaiter { xid, mode, age_ms, .. } in &lock.queue {
        let xid = xid.as_deref().unwrap_or("(outside)");
        sheet.row(["waits", xid, &word(mode), &time_format::duration(*age_ms)]);
    }
    let key = printable(&lock.canonical_key);
    let rest = more_of(lock.holding, lock.holders.len(), "hold it");
    let rest = format!("{rest}{}", more_of(lock.waiting, lock.queue.len(), "wait"));
    format!("{title}\ncanonical key {key}\n\n{}{rest}", sheet.text())
}

fn waiting(lock: &Lock) -> String {
    let count = lock.waiting.max(lock.queue.len());
    match lock.queue.first() {
        Some(first) => format!("{count} (for {})", time_format::duration(first.age_ms)),
        None => "-".to_owned(),
    }
}

/// Returns how many holders are not shown, if any.
fn hidden(count: usize, shown: usize) -> String {
    if count > shown { format!(" +{}", count - shown) } else { String::new() }
}
