//! A violated condition.

use std::fmt;

use crate::scene::Snapshot;
use crate::schema::Schema;

/// A violated condition, with a description.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    what: &'static str,
    details: String,
}

impl Finding {
    pub(crate) fn new(what: &'static str, details: impl fmt::Debug) -> Self {
        Self { what, details: format!("{details:?}").replace("\\n", "\n") }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.details)
    }
}

/// Compares two snapshots, and returns their differences, if any.
pub(crate) fn differences(
    what: &'static str,
    schema: &Schema,
    expected: &Snapshot,
    found: &Snapshot,
) -> Result<(), Finding> {
    if expected == found {
        return Ok(());
    }
    let mut text = String::new();
    for ((table, expected), found) in schema.tables.iter().zip(expected).zip(found) {
        let missing = expected.iter().filter(|row| !found.contains(row));
        text.extend(missing.map(|row| format!("\n  {} lacks {row:?}", table.name)));
        let surplus = found.iter().filter(|row| !expected.contains(row));
        text.extend(surplus.map(|row| format!("\n  {} has {row:?}", table.name)));
    }
    Err(Finding { what, details: text })
}
