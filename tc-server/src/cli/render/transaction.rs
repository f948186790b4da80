//! Transactions as text, with the commands for those that need an operator.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::refusal::push_refusal;
use super::wait::thing;
use super::{
    Sheet, Style, add_row, flowing, more, printable, status_words, table, text, whole, word,
};
use crate::admin::model::{
    Branch, LockWait, Status, Timer, Transaction, TransactionDetail, TransactionPage,
};
use crate::time_format;

pub(super) const INFALLIBLE: &str = "a string takes every write";

/// Renders one line per transaction.
#[must_use]
pub(crate) fn render_transactions(page: &TransactionPage, style: Style) -> String {
    if page.items.is_empty() {
        return "no transactions".to_owned();
    }
    let columns = [
        whole("XID"),
        flowing("STATUS"),
        flowing("APPLICATION").left_out(3),
        flowing("NAME"),
        flowing("AGE").left_out(2),
        flowing("BRANCHES").left_out(1),
        flowing("LABELS").left_out(4),
    ];
    let mut sheet = Sheet::new(style, columns);
    for transaction in &page.items {
        let cells = [
            &*transaction.xid,
            &standing(transaction),
            &transaction.application,
            &transaction.name,
            &time_format::duration(transaction.age_ms),
            &transaction.branch_count.to_string(),
            &labels(&transaction.labels),
        ];
        sheet.row(cells);
    }
    format!("{}{}", sheet.text(), more(page.next.as_deref()))
}

/// Renders a transaction with its branches, its timeline and the rows that need a decision.
#[must_use]
pub fn render_transaction(detail: &TransactionDetail, style: Style) -> String {
    let transaction = &detail.transaction;
    let mut shown = format!(
        "{}  {}\n{} / {}  begun {} ({} ago)  deadline {}\n",
        transaction.xid,
        standing(transaction),
        printable(&transaction.application),
        printable(&transaction.name),
        transaction.begun_at,
        time_format::duration(transaction.age_ms),
        transaction.deadline,
    );
    if !transaction.labels.is_empty() {
        writeln!(shown, "labels {}", labels(&transaction.labels)).expect(INFALLIBLE);
    }
    if !detail.branches.is_empty() {
        push(&mut shown, "branches", &branches(&detail.branches, style));
    }
    push(&mut shown, "timeline", &timeline(detail, style));
    if !detail.waits.is_empty() {
        push(&mut shown, "waits", &waits(&detail.waits, style));
    }
    if !detail.to_come.is_empty() {
        push(&mut shown, "to come", &to_come(&detail.to_come, style));
    }
    for branch in &detail.branches {
        if let Some(refusal) = &branch.refusal {
            push_refusal(&mut shown, &transaction.xid, branch, refusal, style);
        }
    }
    shown
}

fn standing(transaction: &Transaction) -> String {
    // Of one that has ended a pause says nothing any more.
    let has_ended = matches!(transaction.status, Status::Committed | Status::RolledBack);
    let paused = if transaction.paused && !has_ended { ", paused" } else { "" };
    format!("{}{paused}", status_words(transaction.status, transaction.rollback_reason))
}

fn branches(branches: &[Branch], style: Style) -> String {
    let columns = [
        whole("BRANCH"),
        flowing("MODE").left_out(3),
        flowing("STATE"),
        flowing("ATTEMPTS").left_out(2),
        flowing("ROWS").left_out(1),
        whole("RESOURCE").left_out(4),
        flowing("LAST FAILURE"),
    ];
    let mut sheet = Sheet::new(style, columns);
    for branch in branches {
        let resolution = branch.resolution.map(|resolution| format!(" ({})", word(&resolution)));
        let cells = [
            &*branch.id,
            &word(&branch.mode),
            &format!("{}{}", word(&branch.state), resolution.unwrap_or_default()),
            &branch.attempts.to_string(),
            &branch.row_count.max(branch.rows.len()).to_string(),
            &branch.resource,
            branch.last_failure.as_ref().map_or("-", |failure| &failure.error),
        ];
        sheet.row(cells);
    }
    sheet.text()
}

fn timeline(detail: &TransactionDetail, style: Style) -> String {
    let mut table = table(style, &["AT", "WHAT"]);
    for entry in &detail.timeline {
        add_row(&mut table, [&entry.at, &entry.what]);
    }
    text(&table)
}

fn waits(waits: &[LockWait], style: Style) -> String {
    let mut table = table(style, &["FOR", "ROW", "BEHIND", "UNTIL"]);
    for wait in waits {
        let LockWait { target, age_ms, deadline, behind, .. } = wait;
        let (row, age) = (thing(target), time_format::duration(*age_ms));
        add_row(&mut table, [&age, &row, &behind.join(" "), deadline]);
    }
    text(&table)
}

fn to_come(timers: &[Timer], style: Style) -> String {
    let mut table = table(style, &["AT", "WHAT"]);
    for timer in timers {
        add_row(&mut table, [timer.at.as_deref().unwrap_or("-"), &timer.what]);
    }
    text(&table)
}

/// Renders labels as an operator types them: `country=de order=42`.
pub(super) fn labels(labels: &BTreeMap<String, String>) -> String {
    let texts: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    printable(&texts.join(" "))
}

pub(super) fn push(shown: &mut String, title: &str, body: &str) {
    write!(shown, "\n{title}\n{}\n", body.trim_end()).expect(INFALLIBLE);
}
