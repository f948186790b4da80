//! Waiting requests as text: the queue of a row, the wait-for graph, and refused deadlocks.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::transaction::{INFALLIBLE, labels};
use super::{Sheet, Style, flowing, more, printable, whole, word};
use crate::admin::model::{
    Deadlock, DeadlockMember, Deadlocks, LockQueuePage, WaitEdge, WaitGraph, WaitTarget,
};
use crate::time_format;

/// Renders one line per waiting request.
#[must_use]
pub fn render_queue(queue: &LockQueuePage, style: Style) -> String {
    if queue.items.is_empty() {
        return "no request waits for the row".to_owned();
    }
    let columns = [whole("XID"), flowing("MODE").left_out(1), flowing("FOR"), whole("UNTIL")];
    let mut sheet = Sheet::new(style, columns);
    for waiter in &queue.items {
        let takes = if waiter.takes { "" } else { " (check)" };
        let cells = [
            waiter.xid.as_deref().unwrap_or("(outside)"),
            &format!("{}{takes}", word(&waiter.mode)),
            &time_format::duration(waiter.age_ms),
            &waiter.deadline,
        ];
        sheet.row(cells);
    }
    let shown = queue.items.len();
    let count = if shown < queue.waiting {
        format!("\n{shown} of {} are shown", queue.waiting)
    } else {
        String::new()
    };
    format!("{}{count}{}", sheet.text(), more(queue.next.as_deref()))
}

/// Renders one line per edge.
#[must_use]
pub fn render_graph(graph: &WaitGraph, style: Style) -> String {
    if graph.edges.is_empty() {
        return format!("no transaction waits{}", more(graph.next.as_deref()));
    }
    let columns = [
        whole("XID"),
        flowing("NAME").left_out(2),
        flowing("FOR"),
        whole("WAITS FOR"),
        flowing("WHICH").left_out(1),
        flowing("ROW OR LOCK"),
    ];
    let names: BTreeMap<&str, &str> =
        graph.nodes.iter().map(|node| (&*node.xid, &*node.name)).collect();
    let mut sheet = Sheet::new(style, columns);
    for edge in &graph.edges {
        let WaitEdge { from, to, holds, target, age_ms, .. } = edge;
        let cells = [
            &**from,
            names.get(&**from).copied().unwrap_or_default(),
            &time_format::duration(*age_ms),
            to,
            if *holds { "holds it" } else { "is before it" },
            &thing(target),
        ];
        sheet.row(cells);
    }
    format!("{}{}", sheet.text(), more(graph.next.as_deref()))
}

/// Renders each deadlock as its cycle.
#[must_use]
pub fn render_deadlocks(deadlocks: &Deadlocks, _style: Style) -> String {
    if deadlocks.items.is_empty() {
        return "no deadlock was refused since this coordinator has led".to_owned();
    }
    let shown: Vec<String> = deadlocks.items.iter().map(deadlock).collect();
    shown.join("\n")
}

fn deadlock(deadlock: &Deadlock) -> String {
    let Deadlock { at, age_ms, xid, length, cycle } = deadlock;
    let ago = time_format::duration(*age_ms);
    let mut shown = format!("{at} ({ago} ago)  {} was refused\n", printable(xid));
    for member in cycle {
        let DeadlockMember { xid, application, name, labels: given, target } = member;
        let who = printable(&format!("{xid} {application} / {name}"));
        let thing = printable(&thing(target));
        let labels = labels(given);
        let labels = if labels.is_empty() { labels } else { format!(" ({labels})") };
        writeln!(shown, "  {who}{labels} waits for {thing} of the next").expect(INFALLIBLE);
    }
    let hidden = length.saturating_sub(cycle.len());
    if hidden > 0 {
        writeln!(shown, "  and {hidden} more").expect(INFALLIBLE);
    }
    shown
}

/// Names a row, or a named lock.
pub(super) fn thing(target: &WaitTarget) -> String {
    let WaitTarget { resource, table, key, lock, .. } = target;
    match (resource, table, key, lock) {
        (_, _, _, Some(lock)) => format!("lock {lock}"),
        (Some(resource), Some(table), Some(key), None) => format!("{table}/{key} of {resource}"),
        _ => "?".to_owned(),
    }
}
