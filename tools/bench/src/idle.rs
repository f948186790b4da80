//! Waits for an idle machine, and repeats disturbed runs.
//!
//! Other work on a shared machine can change absolute figures several times over. A run waits for
//! an idle machine, and is repeated if other processes took too much. A wait without success is not
//! an error: the report shows how busy the machine was, and the reader judges.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

/// How long the machine is watched before it counts as idle.
const LOOK: Duration = Duration::from_millis(500);
/// The unit of `/proc/stat`, on every Linux.
const TICK: Duration = Duration::from_millis(10);

/// When a machine counts as idle, and a run as disturbed.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct IdleRule {
    /// Seconds to wait for an idle machine before a run; 0 does not check.
    #[arg(long, default_value_t = 120, value_name = "SECONDS")]
    idle_wait: u64,
    /// The share of all cores that may be busy for the machine to count as idle.
    #[arg(long, default_value_t = 0.12, value_name = "SHARE")]
    busy_max: f64,
    /// Cores that other processes may take during a run before it is repeated.
    #[arg(long, default_value_t = 0.3, value_name = "CORES")]
    foreign_max: f64,
    /// How often a disturbed run is repeated; the least disturbed one counts.
    #[arg(long, default_value_t = 2, value_name = "TIMES")]
    repeat_max: u32,
}

/// How busy the machine was beside a run.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Disturbance {
    /// The share of all cores that was busy just before.
    pub(crate) busy_before: f64,
    /// Cores that other processes took during it.
    pub(crate) foreign_cores: f64,
    /// The number of runs that were discarded for this one.
    pub(crate) repeated: u32,
}

/// A measured period of the machine's time.
#[derive(Debug)]
pub(crate) struct IdleWatch {
    started: Instant,
    busy: Duration,
}

impl IdleWatch {
    /// Starts watching.
    pub(crate) fn start() -> Result<Self> {
        Ok(Self { started: Instant::now(), busy: busy()? })
    }

    /// Returns the cores taken since the start by processes other than those that spent `own`.
    pub(crate) fn foreign_cores(&self, own: Duration) -> Result<f64> {
        let foreign = (busy()? - self.busy).saturating_sub(own);
        Ok(foreign.as_secs_f64() / self.started.elapsed().as_secs_f64())
    }
}

impl IdleRule {
    /// Returns these options as flags for another process.
    pub(crate) fn flags(&self) -> Vec<String> {
        let all = [
            ("--idle-wait", self.idle_wait.to_string()),
            ("--busy-max", self.busy_max.to_string()),
            ("--foreign-max", self.foreign_max.to_string()),
            ("--repeat-max", self.repeat_max.to_string()),
        ];
        all.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect()
    }

    /// Waits for an idle machine within the limit, and returns how busy it is.
    pub(crate) async fn wait(&self) -> Result<f64> {
        let give_up_at = Instant::now() + Duration::from_secs(self.idle_wait);
        if self.idle_wait == 0 {
            return Ok(0.0);
        }
        loop {
            let watch = IdleWatch::start()?;
            sleep(LOOK).await;
            let busy = watch.foreign_cores(Duration::ZERO)? / cores()? as f64;
            if busy <= self.busy_max || Instant::now() >= give_up_at {
                return Ok(busy);
            }
        }
    }

    /// Runs until a run is undisturbed, or the limit is reached. The least disturbed run counts.
    /// `run` returns its result and the cores that others took.
    pub(crate) async fn measure<T>(
        &self,
        mut run: impl AsyncFnMut() -> Result<(T, f64)>,
    ) -> Result<(T, Disturbance)> {
        let mut best: Option<(T, Disturbance)> = None;
        for repeated in 0..=self.repeat_max {
            let busy_before = self.wait().await?;
            let (result, foreign_cores) = run().await?;
            let disturbance = Disturbance { busy_before, foreign_cores, repeated };
            let cleanest = best.as_ref().map_or(f64::INFINITY, |(_, of)| of.foreign_cores);
            best = match best {
                Some((result, of)) if foreign_cores >= cleanest => {
                    Some((result, Disturbance { repeated, ..of }))
                }
                _ => Some((result, disturbance)),
            };
            if foreign_cores <= self.foreign_max {
                break;
            }
        }
        best.context("there is at least one run")
    }
}

/// Returns the number of cores of the machine.
pub(crate) fn cores() -> Result<usize> {
    Ok(std::thread::available_parallelism().context("counting the cores")?.get())
}

/// Returns the time that all cores together have been busy since the machine started.
fn busy() -> Result<Duration> {
    let stat = std::fs::read_to_string("/proc/stat").context("/proc/stat")?;
    let ticks = busy_ticks(&stat).context("/proc/stat has no line for all cores")?;
    Ok(TICK * u32::try_from(ticks).unwrap_or(u32::MAX))
}

/// Sums user, nice, system, interrupts and stolen time; neither idle time nor waits for a disk.
fn busy_ticks(stat: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let counted = [0, 1, 2, 5, 6, 7];
    Some(counted.iter().filter_map(|at| ticks.get(*at)).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(repeat_max: u32) -> IdleRule {
        IdleRule { idle_wait: 0, busy_max: 0.1, foreign_max: 0.3, repeat_max }
    }

    #[test]
    fn waiting_for_a_disk_is_not_busy() {
        let stat = "cpu  100 20 3 5000 600 7 8 9 0 0\ncpu0 1 1 1 1\n";
        assert_eq!(busy_ticks(stat), Some(100 + 20 + 3 + 7 + 8 + 9));
        assert_eq!(busy_ticks("intr 5\n"), None);
    }

    #[tokio::test]
    async fn a_disturbed_run_is_done_again() {
        let mut foreign = [1.0, 0.1, 0.0].into_iter();
        let run = async || Ok(foreign.next().map(|cores| (cores, cores)).unwrap());
        let (result, disturbance) = rule(5).measure(run).await.unwrap();
        assert!((result - 0.1_f64).abs() < 1e-9);
        assert_eq!(disturbance.repeated, 1);
    }

    #[tokio::test]
    async fn of_disturbed_runs_the_least_disturbed_counts() {
        let mut foreign = [0.9, 0.5, 0.7].into_iter();
        let run = async || Ok(foreign.next().map(|cores| (cores, cores)).unwrap());
        let (result, disturbance) = rule(2).measure(run).await.unwrap();
        assert!((result - 0.5_f64).abs() < 1e-9);
        assert!((disturbance.foreign_cores - 0.5).abs() < 1e-9);
        assert_eq!(disturbance.repeated, 2);
    }

    #[tokio::test]
    async fn a_failed_run_is_an_error() {
        let run = async || -> Result<((), f64)> { anyhow::bail!("no") };
        assert!(rule(2).measure(run).await.is_err());
    }
}
