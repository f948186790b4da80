//! The cost of one `fdatasync`.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::log::zeroed;
use crate::idle::IdleWatch;
use crate::sample::Sample;
use crate::statistics::Latencies;
use crate::usage::Process;

const FILE_BYTES: u64 = 16 << 20;
const BLOCK: [u8; 4_096] = [7; 4_096];

/// Overwrites a block and syncs it, repeatedly.
pub(super) fn measure(path: &Path, time: Duration) -> Result<(Sample, f64)> {
    let file = zeroed(path, FILE_BYTES)?;
    let (watch, own) = (IdleWatch::start()?, Process::own().cpu()?);
    let mut latencies = Latencies::default();
    let (mut syncs, mut at) = (0_u64, 0);
    let started = Instant::now();
    while started.elapsed() < time {
        let begun = Instant::now();
        file.write_all_at(&BLOCK, at)?;
        file.sync_data()?;
        latencies.record(begun.elapsed());
        at = (at + BLOCK.len() as u64) % FILE_BYTES;
        syncs += 1;
    }
    let per_second = syncs as f64 / started.elapsed().as_secs_f64();
    let foreign = watch.foreign_cores(Process::own().cpu()? - own)?;
    Ok((Sample::new(per_second, latencies), foreign))
}
