//! Answers as text. Pure: the text depends only on the answer and the style.

use comfy_table::{ContentArrangement, Table, presets};

use crate::admin::model::{
    ActionReply, ClientProcess, Processes, Resources, RollbackReason, ServerStatus, Status,
};
use crate::time_format;

mod audit;
mod bulk;
mod cluster;
mod event;
mod lock;
mod named_lock;
mod recent;
mod refusal;
mod saga;
mod sheet;
mod transaction;
mod wait;

pub(super) use audit::render_audit;
pub(super) use bulk::render_bulk;
pub(super) use cluster::{render_cluster, render_transfer};
pub(super) use event::{render_event_action, render_events};
pub use lock::render_lock;
pub(super) use lock::render_locks;
pub use named_lock::render_named_lock;
pub(super) use named_lock::{render_named_locks, render_release};
pub use recent::render_recent;
pub use saga::render_saga;
pub(super) use saga::{render_saga_action, render_sagas};
use sheet::{Sheet, flowing, whole};
pub use transaction::render_transaction;
pub(super) use transaction::render_transactions;
pub use wait::{render_deadlocks, render_graph, render_queue};

/// The most resources of one process that the coordinator shows.
const RESOURCES_SHOWN_MAX: usize = 100;

/// The style of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// For reading: a ruled table, fitted to a terminal of this width.
    Terminal {
        /// The width, in characters.
        width: u16,
    },
    /// For reading: a ruled table with all columns, however wide.
    Wide,
    /// For a program such as `awk`: one line per row, columns separated by at least two spaces.
    Plain,
}

impl Style {
    /// Returns the style for the terminal that standard output is; 80 characters wide, if it does
    /// not say.
    pub(super) fn of_terminal() -> Self {
        Self::Terminal { width: Table::new().width().unwrap_or(80) }
    }
}

pub(super) fn render_status(status: &ServerStatus, style: Style) -> String {
    let mut table = table(style, &["handfast", &status.version]);
    let rows = [
        ("address", status.advertised_address.clone()),
        ("store", status.store.clone()),
        ("up for", time_format::duration(status.uptime_ms)),
        ("active", status.active.to_string()),
        ("committing", status.committing.to_string()),
        ("rolling back", status.rolling_back.to_string()),
        ("needs operator", status.needs_operator.to_string()),
        ("remembered", status.remembered.to_string()),
        ("locks", status.locks.to_string()),
        ("waiters", status.waiters.to_string()),
        ("pending branches", status.pending_branches.to_string()),
        ("processes", status.processes.to_string()),
        ("relays", status.relays.to_string()),
        ("parked events", status.parked_events.to_string()),
    ];
    for (name, value) in rows {
        add_row(&mut table, [name, &value]);
    }
    text(&table)
}

pub(super) fn render_resources(resources: &Resources, style: Style) -> String {
    if resources.items.is_empty() {
        return "no resources: no connected process serves any".to_owned();
    }
    let columns = [
        whole("RESOURCE"),
        flowing("MODE").left_out(4),
        flowing("PROCESSES").left_out(2),
        flowing("WAITING"),
        flowing("ASKED").left_out(1),
        flowing("LABEL").left_out(3),
    ];
    let mut sheet = Sheet::new(style, columns);
    for resource in &resources.items {
        let cells = [
            &*resource.id,
            &word(&resource.mode),
            &resource.processes.to_string(),
            &resource.waiting_branches.to_string(),
            &resource.asked_branches.to_string(),
            &resource.label,
        ];
        sheet.row(cells);
    }
    sheet.text()
}

pub(super) fn render_processes(processes: &Processes, style: Style) -> String {
    if processes.items.is_empty() {
        return "no connected processes".to_owned();
    }
    let columns = [
        flowing("APPLICATION"),
        whole("CLIENT"),
        flowing("AGENT").left_out(1),
        whole("PEER").left_out(3),
        flowing("ASKED").left_out(2),
        whole("RESOURCES").left_out(4),
    ];
    let mut sheet = Sheet::new(style, columns);
    for process in &processes.items {
        let hidden = process.resource_count.saturating_sub(RESOURCES_SHOWN_MAX);
        let mut resources = process.resources.clone();
        resources.extend((hidden > 0).then(|| format!("+{hidden}")));
        let ClientProcess { application, client_id, agent, peer, .. } = process;
        let asked = process.asked_branches.to_string();
        sheet.row_with_list([application, client_id, agent, peer, &asked, ""], &resources);
    }
    format!("{}{}", sheet.text(), more_of(processes.count, processes.items.len(), "are connected"))
}

pub(super) fn render_action(reply: &ActionReply, _style: Style) -> String {
    format!("{} is {}", reply.xid, word(&reply.status))
}

/// Formats a status, such as `rolled_back (timeout)` or `active`.
fn status_words(status: Status, reason: Option<RollbackReason>) -> String {
    match reason {
        Some(reason) => format!("{} ({})", word(&status), word(&reason)),
        None => word(&status),
    }
}

/// Returns a value's name in JSON, so that tables and JSON use the same names.
fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        Ok(other) => other.to_string(),
        Err(error) => error.to_string(),
    }
}

fn table(style: Style, header: &[&str]) -> Table {
    ruled(style, header.iter().copied())
}

fn ruled<'h>(style: Style, header: impl IntoIterator<Item = &'h str>) -> Table {
    let mut table = Table::new();
    match style {
        Style::Terminal { width } => table
            .load_style(presets::UTF8_BORDERS_ONLY)
            .set_width(width)
            .set_content_arrangement(ContentArrangement::Dynamic),
        Style::Wide => table
            .load_style(presets::UTF8_BORDERS_ONLY)
            .set_content_arrangement(ContentArrangement::Disabled),
        Style::Plain => {
            table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled)
        }
    };
    table.set_header(header);
    if style == Style::Plain {
        // No padding before the first column, so that a line begins with its first word.
        table.column_iter_mut().for_each(|column| {
            column.set_padding((0, 2));
        });
    }
    table
}

/// Adds a row. Texts of applications and databases may contain control characters. They are escaped
/// and not sent to the terminal.
fn add_row<const N: usize>(table: &mut Table, cells: [&str; N]) {
    table.add_row(cells.map(printable));
}

fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown
}

fn text(table: &Table) -> String {
    table.trim_fmt()
}

/// Returns a line about the items that are not shown, if there are any.
fn more_of(count: usize, shown: usize, what_they_do: &str) -> String {
    if count > shown {
        format!("\nand {} more {what_they_do}", count - shown)
    } else {
        String::new()
    }
}

/// Returns a line with the cursor at which the list continues, if it does.
fn more(next: Option<&str>) -> String {
    next.map(|cursor| format!("\nmore: --cursor {}", printable(cursor))).unwrap_or_default()
}
