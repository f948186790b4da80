//! The audit log as text.

use super::{Sheet, Style, flowing, more, whole};
use crate::admin::model::{AuditLine, AuditPage};

/// Renders one line per action, the latest first. The second line of an action in the log, written
/// when it was carried out, has all of the first.
#[must_use]
pub(crate) fn render_audit(page: &AuditPage, style: Style) -> String {
    if !page.is_kept {
        return "this coordinator keeps no audit file: the lines are in its log".to_owned();
    }
    if page.items.is_empty() {
        return format!("no action is recorded{}", more(page.next.as_deref()));
    }
    let columns = [
        whole("AT"),
        flowing("OPERATOR"),
        flowing("ACTION"),
        whole("ON"),
        flowing("DETAIL").left_out(1),
        whole("OUTCOME"),
    ];
    let mut sheet = Sheet::new(style, columns);
    for (at, line) in page.items.iter().enumerate() {
        if line.outcome.is_none() && page.items[..at].iter().any(|later| later.id == line.id) {
            continue;
        }
        let detail = line.detail.as_deref().unwrap_or_default();
        let outcome = line.outcome.as_deref().unwrap_or("unanswered");
        sheet.row([&*line.at, &line.operator, &line.action, &subject(line), detail, outcome]);
    }
    format!("{}{}", sheet.text(), more(page.next.as_deref()))
}

/// Returns what an action was on.
fn subject(line: &AuditLine) -> String {
    let named = [&line.xid, &line.lock, &line.event, &line.saga].into_iter().flatten().next();
    let named = named.map_or("-", |it| it.as_str());
    let part = line.branch.as_ref().or(line.step.as_ref()).or(line.lease.as_ref());
    part.map_or_else(|| named.to_owned(), |part| format!("{named} {part}"))
}
