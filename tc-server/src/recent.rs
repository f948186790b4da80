//! The last 15 minutes in memory: rates, durations and sizes, for the console.
//!
//! Durations are counted where the histograms of `/metrics` are recorded, in buckets that are finer
//! than those, and per process as those are. Each server samples the counts at a steady pace and
//! keeps the differences in a ring. Prometheus keeps more, and for longer.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use handfast_core::{Counts, Timestamp};

/// The length of a step. Shorter: more memory and longer answers. Longer: a peak is averaged away.
pub(crate) const STEP: Duration = Duration::from_secs(10);
/// The steps of 15 minutes (BOUNDED).
const STEPS_MAX: usize = 90;
/// Buckets for each doubling of a duration: each is 1/8 of its octave wide.
const PER_OCTAVE: usize = 8;
/// Durations from 2^40 microseconds, 12 days, share the last bucket.
const OCTAVE_MAX: usize = 40;
const BUCKETS: usize = (OCTAVE_MAX - 1) * PER_OCTAVE;

/// Something that takes time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timed {
    Begin,
    Register,
    Commit,
    PhaseTwo,
    LockWait,
    StoreCommit,
}

const KINDS: usize = 6;

/// The counts of this process since its start.
static DURATIONS: [[AtomicU64; BUCKETS]; KINDS] =
    [const { [const { AtomicU64::new(0) }; BUCKETS] }; KINDS];
static COMMITTED: AtomicU64 = AtomicU64::new(0);
static ROLLED_BACK: AtomicU64 = AtomicU64::new(0);

/// Counts a duration.
pub(crate) fn record(what: Timed, took: Duration) {
    let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    // Relaxed: the counts order nothing, and a sample may miss what is being counted.
    DURATIONS[what as usize][bucket(micros)].fetch_add(1, Ordering::Relaxed);
}

/// Counts a transaction that was committed.
pub(crate) fn record_committed() {
    COMMITTED.fetch_add(1, Ordering::Relaxed);
}

/// Counts a transaction that was rolled back.
pub(crate) fn record_rolled_back() {
    ROLLED_BACK.fetch_add(1, Ordering::Relaxed);
}

/// Returns the bucket of a duration. Up to 8 microseconds each has its own.
fn bucket(micros: u64) -> usize {
    if micros < PER_OCTAVE as u64 {
        return usize::try_from(micros).unwrap_or(0);
    }
    let octave = micros.ilog2() as usize;
    let within = usize::try_from(micros >> (octave - 3)).unwrap_or(0) % PER_OCTAVE;
    ((octave - 2) * PER_OCTAVE + within).min(BUCKETS - 1)
}

/// Returns the duration in the middle of a bucket, in microseconds.
fn middle(bucket: usize) -> u64 {
    if bucket < PER_OCTAVE {
        return bucket as u64;
    }
    let (octave, within) = (bucket / PER_OCTAVE + 2, bucket % PER_OCTAVE);
    let width = 1_u64 << (octave - 3);
    (PER_OCTAVE + within) as u64 * width + width / 2
}

/// Durations of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Durations {
    pub(crate) count: u64,
    pub(crate) p50_us: u64,
    pub(crate) p99_us: u64,
}

/// One step.
#[derive(Clone, Debug)]
pub(crate) struct StepCounts {
    pub(crate) at: Timestamp,
    pub(crate) committed: u64,
    pub(crate) rolled_back: u64,
    /// `None` if the coordinator did not lead or answer.
    pub(crate) counts: Option<Counts>,
    durations: [Option<Durations>; KINDS],
}

impl StepCounts {
    /// Returns the durations of a kind; `None` if there were none.
    pub(crate) fn durations(&self, of: Timed) -> Option<Durations> {
        self.durations[of as usize]
    }
}

/// The counts at one time.
#[derive(Debug)]
struct Sample {
    durations: Vec<[u64; BUCKETS]>,
    committed: u64,
    rolled_back: u64,
}

impl Sample {
    fn take() -> Self {
        let read = |counts: &[AtomicU64; BUCKETS]| {
            std::array::from_fn(|at| counts[at].load(Ordering::Relaxed))
        };
        Self {
            durations: DURATIONS.iter().map(read).collect(),
            committed: COMMITTED.load(Ordering::Relaxed),
            rolled_back: ROLLED_BACK.load(Ordering::Relaxed),
        }
    }
}

/// The ring.
#[derive(Debug)]
pub(crate) struct RecentSteps {
    ring: Mutex<Ring>,
}

#[derive(Debug)]
struct Ring {
    last: Sample,
    steps: VecDeque<StepCounts>,
}

impl RecentSteps {
    /// Creates an empty ring, which counts from here on.
    pub(crate) fn new() -> Self {
        let ring = Ring { last: Sample::take(), steps: VecDeque::with_capacity(STEPS_MAX) };
        Self { ring: Mutex::new(ring) }
    }

    /// Ends a step.
    pub(crate) fn end_step(&self, at: Timestamp, counts: Option<Counts>) {
        let sample = Sample::take();
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let last = std::mem::replace(&mut ring.last, sample);
        let since = &ring.last;
        let step = StepCounts {
            at,
            committed: since.committed - last.committed,
            rolled_back: since.rolled_back - last.rolled_back,
            counts,
            durations: std::array::from_fn(|kind| {
                durations(&last.durations[kind], &since.durations[kind])
            }),
        };
        if ring.steps.len() == STEPS_MAX {
            ring.steps.pop_front();
        }
        ring.steps.push_back(step);
    }

    /// Returns the steps, oldest first.
    pub(crate) fn steps(&self) -> Vec<StepCounts> {
        let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        ring.steps.iter().cloned().collect()
    }
}

fn durations(before: &[u64; BUCKETS], after: &[u64; BUCKETS]) -> Option<Durations> {
    let counts: [u64; BUCKETS] = std::array::from_fn(|at| after[at] - before[at]);
    let count: u64 = counts.iter().sum();
    let quantile = |percent: u64| {
        let rank = (count * percent).div_ceil(100);
        let mut seen = 0;
        let found = counts.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        found.map_or(0, middle)
    };
    (count > 0).then(|| Durations { count, p50_us: quantile(50), p99_us: quantile(99) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_found_again_within_seven_percent() {
        for micros in
            (0..40).flat_map(|octave| [1_u64 << octave, (1 << octave) + (1 << octave) / 3])
        {
            let found = middle(bucket(micros));
            let off = found.abs_diff(micros);
            assert!(off * 100 <= micros * 7, "{micros} is shown as {found}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_those_of_the_step_alone() {
        let mut before = [0; BUCKETS];
        before[bucket(9)] = 1_000;
        let mut after = before;
        after[bucket(100)] += 98;
        after[bucket(5_000)] += 2;
        let found = durations(&before, &after).unwrap();
        assert_eq!(found.count, 100);
        assert_eq!(found.p50_us, middle(bucket(100)));
        assert_eq!(found.p99_us, middle(bucket(5_000)));
        assert_eq!(durations(&after, &after), None);
    }

    #[test]
    fn the_ring_keeps_its_length() {
        let recent = RecentSteps::new();
        for at in 0..STEPS_MAX as u64 + 5 {
            recent.end_step(Timestamp(at), None);
        }
        let steps = recent.steps();
        assert_eq!(steps.len(), STEPS_MAX);
        assert_eq!(steps[0].at, Timestamp(5));
    }
}
