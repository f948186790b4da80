//! Statistics of runs: percentiles of latencies, medians, spreads, slopes.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The longest latency, in nanoseconds: an hour. A longer one counts as an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// Latencies of one run, with three significant digits.
#[derive(Clone, Debug)]
pub(crate) struct Latencies {
    nanoseconds: Histogram<u64>,
}

/// Percentiles in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Percentiles {
    pub(crate) p50_us: f64,
    pub(crate) p90_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    pub(crate) max_us: f64,
}

impl Default for Latencies {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, 3);
        Self { nanoseconds: histogram.expect("the bounds and digits are in hdrhistogram's range") }
    }
}

impl Latencies {
    /// Records a latency.
    pub(crate) fn record(&mut self, latency: Duration) {
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(LONGEST_NS);
        self.nanoseconds.saturating_record(nanoseconds.max(1));
    }

    /// Adds the latencies of another part of the same run.
    pub(crate) fn add(&mut self, other: &Self) {
        let added = self.nanoseconds.add(&other.nanoseconds);
        added.expect("histograms of the same bounds can be added");
    }

    /// Returns the percentiles, or `None` if nothing was measured.
    pub(crate) fn percentiles(&self) -> Option<Percentiles> {
        if self.nanoseconds.is_empty() {
            return None;
        }
        let at = |share: f64| self.nanoseconds.value_at_quantile(share) as f64 / 1e3;
        Some(Percentiles {
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: self.nanoseconds.max() as f64 / 1e3,
        })
    }

    /// Returns the curve for a plot: latency in microseconds at growing shares of the requests.
    pub(crate) fn curve(&self) -> Vec<(f64, f64)> {
        let points = self.nanoseconds.iter_quantiles(4);
        points.map(|it| (it.quantile_iterated_to(), it.value_iterated_to() as f64 / 1e3)).collect()
    }
}

/// The median of several runs, and their spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// Returns the spread of values; zeroes if there are none.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (Some(min), Some(max)) = (values.first(), values.last()) else {
            return Self::default();
        };
        let (lower, upper) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Self { median: f64::midpoint(lower, upper), min: *min, max: *max }
    }
}

/// Returns how much a figure grows over a run: the rise of the least-squares line from end to end,
/// as a share of the mean. Returns 0 for fewer than two points.
pub(crate) fn growth(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return 0.0 };
    let mean_x = points.iter().map(|point| point.0).sum::<f64>() / count;
    let mean_y = points.iter().map(|point| point.1).sum::<f64>() / count;
    let covariance: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let variance: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    if variance == 0.0 || mean_y == 0.0 {
        return 0.0;
    }
    covariance / variance * (last.0 - first.0) / mean_y
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_values() {
        let mut latencies = Latencies::default();
        (1..=1_000).for_each(|us| latencies.record(Duration::from_micros(us)));
        let found = latencies.percentiles().unwrap();
        let near = |a: f64, b: f64| (a - b).abs() / b < 0.002;
        assert!(near(found.p50_us, 500.0), "{found:?}");
        assert!(near(found.p90_us, 900.0), "{found:?}");
        assert!(near(found.p99_us, 990.0), "{found:?}");
        assert!(near(found.p999_us, 999.0), "{found:?}");
        assert!(near(found.max_us, 1_000.0), "{found:?}");
    }

    #[test]
    fn nothing_measured_has_no_percentiles() {
        assert_eq!(Latencies::default().percentiles(), None);
    }

    #[test]
    fn parts_of_a_run_add_up() {
        let (mut one, mut other) = (Latencies::default(), Latencies::default());
        one.record(Duration::from_micros(1));
        other.record(Duration::from_secs(1));
        one.add(&other);
        assert!(one.percentiles().unwrap().max_us > 999_000.0);
    }

    #[test]
    fn longer_than_an_hour_counts_as_an_hour() {
        let mut latencies = Latencies::default();
        latencies.record(Duration::from_secs(86_400));
        assert!(latencies.percentiles().unwrap().max_us >= 3.59e9);
    }

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        assert_eq!(Spread::of([4.0, 1.0]), Spread { median: 2.5, min: 1.0, max: 4.0 });
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(Spread::of([]), Spread::default());
    }

    #[test]
    fn growth_is_the_rise_of_the_line_over_the_mean() {
        let rising = [(0.0, 90.0), (1.0, 100.0), (2.0, 110.0)];
        assert!((growth(&rising) - 0.2).abs() < 1e-9);
        assert!(growth(&[(0.0, 5.0), (1.0, 5.0)]).abs() < 1e-9);
        assert!(growth(&[(0.0, 5.0)]).abs() < 1e-9);
        assert!(growth(&[]).abs() < 1e-9);
    }
}
