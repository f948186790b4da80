//! Transactions for people; what to type where one needs a person.

use std::fmt::Write as _;

use super::{Style, add_row, more, printable, status_words, table, text, word};
use crate::admin::model::{
    Branch, BranchState, DirtyRow, Mode, Refusal, Transaction, TransactionDetail, TransactionPage,
};
use crate::moment;

/// One line a transaction.
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
            &moment::duration(transaction.age_ms),
            &transaction.branch_count.to_string(),
        ];
        add_row(&mut table, cells);
    }
    format!("{}{}", text(&table), more(page.next.as_deref()))
}

/// A transaction with its branches, its timeline and the rows that need a decision.
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
        moment::duration(transaction.age_ms),
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

fn push_refusal(shown: &mut String, xid: &str, branch: &Branch, refusal: &Refusal, style: Style) {
    let title = format!("branch {} needs a decision: {}", branch.id, printable(&refusal.error));
    push(shown, &title, &refusal.rows.iter().map(|row| dirty_row(row, style)).collect::<String>());
    if branch.state == BranchState::Refused {
        push(shown, "to end it", &resolutions(xid, branch));
    }
}

/// What to type. A saga has no images: its step is put right by hand, or retried.
fn resolutions(xid: &str, branch: &Branch) -> String {
    let resolve = format!("handfast tx resolve {xid} {}", branch.id);
    match branch.mode {
        Mode::Saga => format!("{resolve} accept_current   # it has been put right by hand"),
        Mode::At | Mode::Tcc | Mode::Xa | Mode::TwoPhase => format!(
            "{resolve} accept_current   # leave the rows as they are\n\
             {resolve} force_before     # write the before image over them"
        ),
    }
}

fn dirty_row(row: &DirtyRow, style: Style) -> String {
    let mut table = table(style, &["COLUMN", "BEFORE", "AFTER", "CURRENT"]);
    for column in &row.columns {
        let [before, after, current] =
            [&column.before, &column.after, &column.current].map(|cell| value(cell.as_deref()));
        add_row(&mut table, [&column.name, before, after, current]);
    }
    let gone = row.columns.iter().all(|column| column.current.is_none());
    let gone = if gone { " (the row is gone)" } else { "" };
    format!("{} {}{gone}\n{}\n", printable(&row.table), printable(&row.key), text(&table))
}

/// A missing value is told from text by its brackets.
fn value(cell: Option<&str>) -> &str {
    cell.unwrap_or("<null>")
}

fn push(shown: &mut String, title: &str, body: &str) {
    write!(shown, "\n{title}\n{}\n", body.trim_end()).expect("a string takes every write");
}
