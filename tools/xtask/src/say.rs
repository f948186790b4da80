//! Progress lines for the person at the terminal.

use std::fmt::Display;
use std::io::Write;

/// Writes a line to standard error, where it mixes in order with what the started programs say.
pub(crate) fn say(line: impl Display) {
    // A closed standard error leaves no reader.
    let _ = writeln!(std::io::stderr(), "xtask: {line}");
}
