//! `soak`: a steady load for a long time, during which nothing may grow.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;

use crate::child::Server;
use crate::load::{self, Load, Pace, Shape, Wire};
use crate::measure::RunDirectory;
use crate::report::{Report, Row, Series};
use crate::statistics::growth;

/// `handfast-bench soak`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The length, in minutes.
    #[arg(long, default_value_t = 60.0)]
    minutes: f64,
    /// Globals a second.
    #[arg(long, default_value_t = 5_000.0)]
    rate: f64,
    #[arg(long, default_value_t = 1)]
    connections: usize,
    /// The number of points in time that are recorded; growth is judged over the second half of
    /// them, when caches and the history of finished globals are full.
    #[arg(long, default_value_t = 60)]
    points: usize,
    #[command(flatten)]
    shape: Shape,
    #[command(flatten)]
    place: RunDirectory,
}

/// The figures of each point.
#[derive(Debug, Default)]
struct Samples {
    resident_mb: Vec<(f64, f64)>,
    disk_mb: Vec<(f64, f64)>,
    p50_us: Vec<(f64, f64)>,
    p99_us: Vec<(f64, f64)>,
    behind: Vec<(f64, f64)>,
}

/// Runs the load, and reports the figures over time.
pub(crate) async fn run(options: &Options) -> Result<Report> {
    if options.points < 2 || options.minutes <= 0.0 {
        bail!("a soak has a length and at least two points");
    }
    let directory = options.place.directory()?;
    let server = Server::coordinator(directory.path(), &[]).await?;
    let interval = Duration::from_secs_f64(options.minutes * 60.0 / options.points as f64);
    let pace = Pace::Open { per_second: options.rate };
    let load = Load {
        wire: Wire::Stream,
        connections: options.connections,
        shape: options.shape,
        pace,
        behind_max: None,
    };
    let (mut report, mut course) = (Report::new("soak"), Samples::default());
    let mut samples = Vec::new();
    let started = Instant::now();
    for _ in 0..options.points {
        let (sample, foreign_cores) =
            load::measure(server.target()?, &load, Duration::ZERO, interval).await?;
        course.note(started.elapsed().as_secs_f64(), &sample, disk_bytes(directory.path()));
        let disturbance = crate::idle::Disturbance { foreign_cores, ..Default::default() };
        samples.push((sample, disturbance));
    }
    let mut row = Row::of(&format!("soak, {pace}, {}", options.shape), samples);
    row.figures.extend(course.growths());
    report.push(row);
    report.series = course.into_series();
    Ok(report)
}

impl Samples {
    fn note(&mut self, at: f64, sample: &crate::sample::Sample, disk_bytes: u64) {
        self.resident_mb.push((at, sample.resident_bytes.unwrap_or(0) as f64 / 1e6));
        self.disk_mb.push((at, disk_bytes as f64 / 1e6));
        let percentiles = sample.latencies.percentiles().unwrap_or_default();
        self.p50_us.push((at, percentiles.p50_us));
        self.p99_us.push((at, percentiles.p99_us));
        let behind = sample.figures.get("branches behind in phase two, at most");
        self.behind.push((at, behind.copied().unwrap_or(0.0)));
    }

    fn all(&self) -> [(&'static str, &Vec<(f64, f64)>); 5] {
        [
            ("resident MB", &self.resident_mb),
            ("disk MB", &self.disk_mb),
            ("p50 µs", &self.p50_us),
            ("p99 µs", &self.p99_us),
            ("branches behind", &self.behind),
        ]
    }

    /// Returns the growth over the second half, in per cent of the mean.
    fn growths(&self) -> Vec<(String, crate::statistics::Spread)> {
        let grown = |(name, points): (&str, &Vec<(f64, f64)>)| {
            let percent = 100.0 * growth(&points[points.len() / 2..]);
            (format!("{name}, growth %"), crate::statistics::Spread::of([percent]))
        };
        self.all().into_iter().map(grown).collect()
    }

    fn into_series(self) -> Vec<Series> {
        let series = |(name, points): (&str, &Vec<(f64, f64)>)| Series {
            name: name.to_owned(),
            points: points.clone(),
        };
        self.all().into_iter().map(series).collect()
    }
}

/// Returns the bytes of all files below a folder. A file that is removed meanwhile counts nothing.
pub(crate) fn disk_bytes(directory: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    let bytes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(file) if file.is_dir() => disk_bytes(&entry.path()),
        Ok(file) => file.len(),
        Err(_gone) => 0,
    });
    bytes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_judged_over_the_second_half() {
        let mut course = Samples::default();
        let filling = [1.0, 50.0, 100.0, 100.0, 100.0, 100.0];
        course.resident_mb = (0_u8..).map(f64::from).zip(filling).collect();
        let (name, grown) = &course.growths()[0];
        assert_eq!(name, "resident MB, growth %");
        assert!(grown.median.abs() < 1e-9, "{grown:?}");
    }

    #[test]
    fn files_in_folders_count() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("a")).unwrap();
        std::fs::write(directory.path().join("a/b"), [0; 7]).unwrap();
        std::fs::write(directory.path().join("c"), [0; 3]).unwrap();
        assert_eq!(disk_bytes(directory.path()), 10);
    }
}
