//! One action on several transactions as text.

use std::fmt::Write as _;

use super::transaction::{INFALLIBLE, labels};
use super::{Sheet, Style, flowing, more, whole, word};
use crate::admin::model::{BulkItem, BulkReply};

/// Renders one line for each transaction or branch, and what came of them all.
#[must_use]
pub(in crate::cli) fn render_bulk(reply: &BulkReply, style: Style) -> String {
    if reply.items.is_empty() {
        return format!("no transactions{}", more(reply.next.as_deref()));
    }
    let columns = [
        whole("TARGET"),
        flowing("STATUS").left_out(3),
        flowing("NAME").left_out(1),
        flowing("LABELS").left_out(2),
        flowing("OUTCOME"),
        flowing("WHAT"),
    ];
    let mut sheet = Sheet::new(style, columns);
    for item in &reply.items {
        let cells = [
            &*item.target,
            &item.status.as_ref().map_or("-".to_owned(), word),
            item.name.as_deref().unwrap_or("-"),
            &labels(&item.labels),
            &word(&item.outcome),
            &what(item),
        ];
        sheet.row(cells);
    }
    let mut shown = sheet.text();
    let (action, changes, refusals) = (word(&reply.action), reply.changes, reply.refusals);
    if reply.dry_run {
        write!(shown, "\n\n{action} would change {changes} and be refused by {refusals}")
            .expect(INFALLIBLE);
        if changes > 0 {
            shown.push_str("\nnothing is changed yet: the same command with --yes carries it out");
        }
    } else {
        write!(shown, "\n\n{action}: {changes} done, {refusals} refused").expect(INFALLIBLE);
    }
    shown.push_str(&more(reply.next.as_deref()));
    shown
}

/// Returns what changes, or why it does not.
fn what(item: &BulkItem) -> String {
    match (&item.code, &item.message) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        _ => item.effect.clone().unwrap_or_else(|| "-".to_owned()),
    }
}
