//! The result of one measured run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::statistics::Latencies;

/// Microseconds of processor time for each operation, of both sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct PerOperation {
    pub(crate) client: f64,
    pub(crate) server: f64,
}

/// One run.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// Operations a second. The row's name says what an operation is.
    pub(crate) per_second: f64,
    pub(crate) latencies: Latencies,
    pub(crate) cpu_us: Option<PerOperation>,
    /// The memory of the server, or of this process if there is none.
    pub(crate) resident_bytes: Option<u64>,
    pub(crate) errors: BTreeMap<String, u64>,
    /// All other figures, by name.
    pub(crate) figures: BTreeMap<String, f64>,
}

impl Sample {
    pub(crate) fn new(per_second: f64, latencies: Latencies) -> Self {
        Self {
            per_second,
            latencies,
            cpu_us: None,
            resident_bytes: None,
            errors: BTreeMap::new(),
            figures: BTreeMap::new(),
        }
    }

    /// Adds a figure.
    pub(crate) fn figure(&mut self, name: &str, value: f64) {
        self.figures.insert(name.to_owned(), value);
    }
}
