//! One action on several transactions: the dry run, and with `--yes` what it has named.

use std::io::Write;

use super::remote::{block_on, show};
use super::render::render_bulk;
use super::{BulkCommand, CliFailure, Client, Exit};
use crate::admin::model::{BulkOutcome, BulkReply, BulkRequest, TransactionQuery};

/// Runs the command.
pub(super) fn run(command: BulkCommand, output: &mut dyn Write) -> Result<(), CliFailure> {
    let BulkCommand { action, filter, xid, limit, cursor, resolution, yes, reason, remote } =
        command;
    let search = filter.query();
    let all = TransactionQuery { order: search.order, ..TransactionQuery::default() };
    if xid.is_empty() && search == all {
        let message = "no transactions are named";
        return Err(CliFailure::new(Exit::Usage, "HF-CLI-ARGUMENT", message)
            .advise("search for them, as with --label order=42, or give --xid"));
    }
    let query = TransactionQuery { cursor, limit: Some(limit), ..search };
    let request = BulkRequest {
        action,
        filter: xid.is_empty().then_some(query),
        targets: xid,
        dry_run: true,
        confirmation: None,
        resolution,
        reason,
    };
    let client = Client::new(&remote)?;
    let ask = |request: &BulkRequest| -> Result<BulkReply, CliFailure> {
        block_on(client.post("/transactions/bulk", request))?
    };
    let dry = ask(&request)?;
    let result = if yes && dry.confirmation.is_some() {
        let named = dry.items.iter().filter(|item| item.outcome == BulkOutcome::WouldChange);
        let done = ask(&BulkRequest {
            filter: None,
            targets: named.map(|item| item.target.clone()).collect(),
            dry_run: false,
            confirmation: dry.confirmation.clone(),
            ..request
        })?;
        with_unchanged(done, dry)
    } else {
        dry
    };
    show(&remote, output, &result, render_bulk)?;
    if !yes || result.refusals == 0 {
        return Ok(());
    }
    let message = format!("{} of {} were refused", result.refusals, result.items.len());
    Err(CliFailure::new(Exit::Refused, "HF-CLI-BULK-REFUSED", message)
        .advise("the list says why, and which were changed"))
}

/// Adds what the dry run has named and not let be changed.
fn with_unchanged(done: BulkReply, dry: BulkReply) -> BulkReply {
    let unchanged = dry.items.into_iter().filter(|item| item.outcome != BulkOutcome::WouldChange);
    BulkReply {
        refusals: done.refusals + dry.refusals,
        items: done.items.into_iter().chain(unchanged).collect(),
        next: dry.next,
        ..done
    }
}
