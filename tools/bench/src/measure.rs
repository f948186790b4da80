//! Length and number of measurements, and the place of files.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use tempfile::TempDir;

use crate::idle::IdleRule;
use crate::report::Row;
use crate::sample::Sample;

/// The length and the number of runs.
#[derive(Clone, Debug, Args)]
pub(crate) struct Measure {
    /// Seconds to measure a run for.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Seconds of warm-up, which do not count.
    #[arg(long, default_value_t = 1.0)]
    warm_up: f64,
    /// The number of runs; the report shows the median and the spread.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    #[command(flatten)]
    idle: IdleRule,
}

/// The place of logs and data directories.
#[derive(Clone, Debug, Args)]
pub(crate) struct RunDirectory {
    /// A folder on the disk that is to be measured; everything in it is removed afterwards.
    /// By default the system's folder for temporary files.
    #[arg(long, value_name = "FOLDER")]
    directory: Option<PathBuf>,
}

impl Measure {
    pub(crate) fn length(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    pub(crate) fn warm_up(&self) -> Duration {
        Duration::from_secs_f64(self.warm_up)
    }

    /// Returns these options as flags for another process.
    pub(crate) fn flags(&self) -> Vec<String> {
        let own = [
            ("--seconds", self.seconds.to_string()),
            ("--warm-up", self.warm_up.to_string()),
            ("--runs", self.runs.to_string()),
        ];
        let own = own.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]);
        own.chain(self.idle.flags()).collect()
    }

    /// Runs as often as the options say, and sums up. `run` returns its sample and the cores that
    /// other processes took meanwhile.
    pub(crate) async fn row(
        &self,
        name: &str,
        mut run: impl AsyncFnMut() -> Result<(Sample, f64)>,
    ) -> Result<Row> {
        let mut runs = Vec::new();
        for _ in 0..self.runs.max(1) {
            runs.push(self.idle.measure(&mut run).await.with_context(|| name.to_owned())?);
        }
        Ok(Row::of(name, runs))
    }
}

impl Measure {
    /// Runs several things in turns, so that a busy moment of the machine does not affect one of
    /// them alone. `run` gets the index of the thing.
    pub(crate) async fn rows(
        &self,
        names: &[String],
        mut run: impl AsyncFnMut(usize) -> Result<(Sample, f64)>,
    ) -> Result<Vec<Row>> {
        let mut runs: Vec<Vec<_>> = names.iter().map(|_| Vec::new()).collect();
        for _ in 0..self.runs.max(1) {
            for (which, name) in names.iter().enumerate() {
                let ran = self.idle.measure(async || run(which).await).await;
                runs[which].push(ran.with_context(|| name.clone())?);
            }
        }
        Ok(names.iter().zip(runs).map(|(name, runs)| Row::of(name, runs)).collect())
    }
}

impl RunDirectory {
    /// Creates a folder that is removed when the value is dropped.
    pub(crate) fn directory(&self) -> Result<TempDir> {
        let parent = self.directory.clone().unwrap_or_else(std::env::temp_dir);
        let made = tempfile::Builder::new().prefix("handfast-bench-").tempdir_in(&parent);
        made.with_context(|| format!("a folder in {}", parent.display()))
    }
}
