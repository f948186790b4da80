//! `handfast audit`: what operators did on a node, and what came of it.

use std::io::Write;

use clap::Args;

use super::remote::{get, show};
use super::render::render_audit;
use super::{CliFailure, Remote};
use crate::admin::model::{AuditPage, AuditQuery};

/// The options of the command.
#[derive(Debug, Args)]
pub struct AuditCommand {
    /// Only what was done to this transaction or saga.
    #[arg(long)]
    xid: Option<String>,
    /// The least lines to read, if there are as many. Each action has two: before and after.
    #[arg(long, default_value_t = 100)]
    lines: usize,
    /// The cursor at which the previous list ended.
    #[arg(long)]
    cursor: Option<String>,
    #[command(flatten)]
    remote: Remote,
}

/// Reads parts of the log, the latest first, until there are enough lines.
pub(super) fn run(command: AuditCommand, output: &mut dyn Write) -> Result<(), CliFailure> {
    let AuditCommand { xid, lines, cursor, remote } = command;
    let mut query = AuditQuery { xid, cursor };
    let mut read: AuditPage = get(&remote, "/audit", &query)?;
    while read.items.len() < lines && read.next.is_some() {
        query.cursor = read.next.take();
        let earlier: AuditPage = get(&remote, "/audit", &query)?;
        read.items.extend(earlier.items);
        read.next = earlier.next;
    }
    show(&remote, output, &read, render_audit)
}
