//! The counts of a run.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Cost, ServerCost};
use crate::sample::{PerOperation, Sample};
use crate::statistics::Latencies;

/// Counts within the window. Errors and phase two are counted over the whole run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) latencies: Latencies,
    pub(crate) ended: u64,
    /// Refusals by code, and failures of the connection.
    pub(crate) errors: BTreeMap<String, u64>,
    /// Branches of ended globals, each of which phase two must reach.
    pub(crate) owed: u64,
    /// Branches that phase two has reached.
    pub(crate) finished: u64,
    /// The largest number of branches that phase two was behind by.
    pub(crate) behind_max: u64,
}

impl Counters {
    /// Counts a global that has ended, with the time since it was due to begin.
    pub(crate) fn end(&mut self, latency: Duration) {
        self.ended += 1;
        self.latencies.record(latency);
    }

    /// Counts branches whose phase two is owed from here on.
    pub(crate) fn owe(&mut self, branches: u64) {
        self.owed += branches;
        self.behind_max = self.behind_max.max(self.behind());
    }

    /// Returns the number of branches that phase two is behind by.
    pub(crate) fn behind(&self) -> u64 {
        self.owed.saturating_sub(self.finished)
    }

    /// Counts an error.
    pub(crate) fn error(&mut self, code: &str) {
        *self.errors.entry(code.to_owned()).or_default() += 1;
    }

    /// Adds the counts of another connection.
    pub(crate) fn add(&mut self, other: &Self) {
        self.latencies.add(&other.latencies);
        self.ended += other.ended;
        self.owed += other.owed;
        self.finished += other.finished;
        self.behind_max += other.behind_max;
        for (code, count) in &other.errors {
            *self.errors.entry(code.clone()).or_default() += count;
        }
    }

    /// Returns the figures of the report. Branches that phase two did not reach are errors.
    pub(crate) fn into_sample(self, seconds: f64, cost: &Cost) -> Sample {
        let mut errors = self.errors;
        let missing = self.owed.abs_diff(self.finished);
        if missing > 0 {
            errors.insert("phase two missing or doubled".to_owned(), missing);
        }
        let cpu_us = |server: ServerCost| PerOperation {
            client: per_operation(cost.client_cpu, self.ended),
            server: per_operation(server.cpu, self.ended),
        };
        let mut sample = Sample::new(self.ended as f64 / seconds, self.latencies);
        sample.cpu_us = cost.server.map(cpu_us);
        sample.resident_bytes = cost.server.map(|server| server.resident_bytes);
        sample.errors = errors;
        sample.figure("branches behind in phase two, at most", self.behind_max as f64);
        sample
    }
}

fn per_operation(cpu: Duration, operations: u64) -> f64 {
    cpu.as_secs_f64() * 1e6 / operations.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_that_phase_two_did_not_reach_are_errors() {
        let mut counters = Counters::default();
        counters.end(Duration::from_micros(100));
        counters.owe(2);
        counters.finished = 1;
        counters.error("HF-TC-BUSY");
        let mut all = Counters::default();
        all.add(&counters);
        all.add(&counters);
        let (client_cpu, server) = (Duration::from_micros(10), Some(ServerCost::default()));
        let cost = Cost { client_cpu, server, ..Cost::default() };
        let sample = all.into_sample(2.0, &cost);
        assert_eq!(sample.errors.values().sum::<u64>(), 4);
        assert!((sample.per_second - 1.0).abs() < 1e-9);
        assert!((sample.cpu_us.unwrap().client - 5.0).abs() < 1e-9);
    }
}
