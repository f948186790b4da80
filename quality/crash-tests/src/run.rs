//! One run: a stage, faults for a time, then a verdict.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::time::{Instant, sleep};

use crate::fault::Schedule;
use crate::stage::{RunningSystem, Settings};
use crate::verdict::Verdict;

/// The report of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// Chose the faults and the operations.
    pub seed: u64,
    /// The time during which faults were done.
    pub lasted: Duration,
    /// The number of times each fault was done.
    pub faults: BTreeMap<String, u64>,
    /// The result of the checks.
    pub verdict: Verdict,
}

/// Runs faults by a schedule, one after the other, then judges.
///
/// # Errors
/// When a part fails that no fault was done to, or nothing works after a fault.
pub async fn run(settings: Settings, duration: Duration) -> Result<Report> {
    settings.check()?;
    let seed = settings.seed;
    let mut stage = RunningSystem::start(settings).await?;
    let mut schedule = Schedule::new(seed, stage.service_count(), stage.server_numbers());
    let started = Instant::now();
    while started.elapsed() < duration {
        // The length of the calm is part of the schedule; no event ends it.
        sleep(schedule.calm()).await;
        stage.suffer(&schedule.next_fault()).await?;
    }
    let report = stage.report().await?;
    stage.stop().await?;
    Ok(report)
}

impl RunningSystem {
    /// Lets everything come to its end and judges it.
    ///
    /// # Errors
    /// When a part cannot be asked.
    pub async fn report(&mut self) -> Result<Report> {
        let lasted = self.lasted();
        let verdict = self.judge().await?;
        Ok(Report { seed: self.seed(), lasted, faults: self.faults.clone(), verdict })
    }
}

impl Report {
    /// Returns whether every check passed.
    ///
    /// # Errors
    /// With everything that did not.
    pub fn require_sound(&self) -> Result<()> {
        ensure!(self.verdict.violations.is_empty(), "{self}");
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Verdict { outcomes, reasons, .. } = &self.verdict;
        let Verdict { totals, list_reads, elements, guards, lost, violations, .. } = &self.verdict;
        writeln!(f, "seed {}: {} s of faults", self.seed, self.lasted.as_secs())?;
        for (fault, times) in &self.faults {
            writeln!(f, "  {times:>6} x {fault}")?;
        }
        for (outcome, times) in outcomes {
            writeln!(f, "  {times:>6} operations {outcome}")?;
        }
        for (reason, times) in reasons {
            writeln!(f, "  {times:>6} failed with {reason}")?;
        }
        writeln!(f, "  {totals:>6} totals and {list_reads} lists read, {elements} elements")?;
        writeln!(f, "  {guards:>6} guard rows left to the daily sweep")?;
        writeln!(f, "  {lost:>6} committed globals lost by killed coordinators")?;
        writeln!(f, "  {:>6} violations", violations.len())?;
        violations.iter().take(20).try_for_each(|violation| writeln!(f, "    {violation}"))
    }
}
