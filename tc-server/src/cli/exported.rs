//! A transaction that was exported elsewhere, shown without a coordinator.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use super::{CliFailure, Exit};
use crate::admin::model::TransactionDetail;

/// The longest file that is read (BOUNDED): some hundred thousand branches.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// Reads an exported transaction.
pub(super) fn read(path: &Path) -> Result<TransactionDetail, CliFailure> {
    let failure = |what: &dyn std::fmt::Display| {
        let message = format!("{}: {what}", path.display());
        CliFailure::new(Exit::Usage, "HF-CLI-EXPORT-FILE", message)
            .advise("export one in the console, or with `handfast tx show XID --json > FILE`")
    };
    let file = File::open(path).map_err(|error| failure(&error))?;
    let mut text = String::new();
    let mut bounded = file.take(FILE_BYTES_MAX + 1);
    bounded.read_to_string(&mut text).map_err(|error| failure(&error))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(failure(&"it is longer than 256 MiB, and no exported transaction"));
    }
    let read = serde_json::from_str(&text);
    read.map_err(|error| failure(&format_args!("no exported transaction: {error}")))
}
