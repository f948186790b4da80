//! What a run counted.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Cost, ServerCost};
use crate::sample::{PerOperation, Sample};
use crate::statistics::Latencies;

/// Counts within the window, but for errors and phase two, which count from the first to the last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) latencies: Latencies,
    pub(crate) ended: u64,
    /// Refusals by code, and faults of the connection.
    pub(crate) errors: BTreeMap<String, u64>,
    /// Branches of ended globals, each of which phase two must reach.
    pub(crate) owed: u64,
    /// Branches that phase two has reached.
    pub(crate) finished: u64,
    /// The most branches that phase two was behind by.
    pub(crate) behind_max: u64,
}

impl Tally {
    /// A global ended, so long after it was to begin.
    pub(crate) fn end(&mut self, latency: Duration) {
        self.ended += 1;
        self.latencies.record(latency);
    }

    /// Phase two of so many branches is owed from here on.
    pub(crate) fn owe(&mut self, branches: u64) {
        self.owed += branches;
        self.behind_max = self.behind_max.max(self.behind());
    }

    /// Branches that phase two is behind by.
    pub(crate) fn behind(&self) -> u64 {
        self.owed.saturating_sub(self.finished)
    }

    /// Something went wrong.
    pub(crate) fn error(&mut self, code: &str) {
        *self.errors.entry(code.to_owned()).or_default() += 1;
    }

    /// Takes in another connection's.
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

    /// What the report shows. Branches that phase two did not reach are errors.
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
        let mut tally = Tally::default();
        tally.end(Duration::from_micros(100));
        tally.owe(2);
        tally.finished = 1;
        tally.error("HF-TC-BUSY");
        let mut all = Tally::default();
        all.add(&tally);
        all.add(&tally);
        let (client_cpu, server) = (Duration::from_micros(10), Some(ServerCost::default()));
        let cost = Cost { client_cpu, server, ..Cost::default() };
        let sample = all.into_sample(2.0, &cost);
        assert_eq!(sample.errors.values().sum::<u64>(), 4);
        assert!((sample.per_second - 1.0).abs() < 1e-9);
        assert!((sample.cpu_us.unwrap().client - 5.0).abs() < 1e-9);
    }
}
