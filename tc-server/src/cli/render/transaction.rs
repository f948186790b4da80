//! Transactions as text, with the commands for those that need an operator.

use std::fmt::Write as _;

use super::refusal::push_refusal;
use super::{Style, add_row, more, printable, status_words, table, text, word};
use crate::admin::model::{Branch, Transaction, TransactionDetail, TransactionPage};
use crate::time_format;

/// Renders one line per transaction.
#[must_use]
pub(crate) fn render_transactions(page: &TransactionPage, style: Style) -> String {
    if page.items.is_empty() {
        return "no transactions".to_owned();
    }
    let mut table = table(style, &["XID", "STATUS", "APPLICATION", "NAME", "AGE", "BRANCHES"]);
    for transaction in &page.items {
        let cells = [
            &*transaction.xid,
            &standing(transaction),
            &transaction.application,
            &transaction.name,
            &time_format::duration(transaction.age_ms),
            &transaction.branch_count.to_string(),
        ];
        add_row(&mut table, cells);
    }
    format!("{}{}", text(&table), more(page.next.as_deref()))
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
    if !detail.branches.is_empty() {
        push(&mut shown, "branches", &branches(&detail.branches, style));
    }
    push(&mut shown, "timeline", &timeline(detail, style));
    for branch in &detail.branches {
        if let Some(refusal) = &branch.refusal {
            push_refusal(&mut shown, &transaction.xid, branch, refusal, style);
        }
    }
    shown
}

fn standing(transaction: &Transaction) -> String {
    let paused = if transaction.paused { ", paused" } else { "" };
    format!("{}{paused}", status_words(transaction.status, transaction.rollback_reason))
}

fn branches(branches: &[Branch], style: Style) -> String {
    let header = ["BRANCH", "MODE", "STATE", "ATTEMPTS", "ROWS", "RESOURCE", "LAST FAILURE"];
    let mut table = table(style, &header);
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
        add_row(&mut table, cells);
    }
    text(&table)
}

fn timeline(detail: &TransactionDetail, style: Style) -> String {
    let mut table = table(style, &["AT", "WHAT"]);
    for entry in &detail.timeline {
        add_row(&mut table, [&entry.at, &entry.what]);
    }
    text(&table)
}

pub(super) fn push(shown: &mut String, title: &str, body: &str) {
    write!(shown, "\n{title}\n{}\n", body.trim_end()).expect("a string takes every write");
}
