//! One run of several coordinators on a store that they share: faults for a time, then a verdict.

pub mod fault;
pub mod lead_watch;
pub mod leads;
pub mod lock_holders;
pub mod saga_run;
pub mod uncommitted;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::time::{Instant, sleep};

use crate::coordinator::Coordinator;
use crate::event::now;
use crate::history::Outcome;
use crate::run::Report;
use crate::service::TimeLimits;
use crate::stage::{Done, RunningSystem, Settings};
use fault::{ClusterFault, ClusterSchedule, Deaths};
use lead_watch::LeadWatch;
use leads::{LeadGap, Leads, median_and_max};
use lock_holders::LockHolders;
use saga_run::SagaRun;
use uncommitted::{UncommittedReason, reason_of};

/// Bits of the counter in an XID's number, below the epoch.
const COUNTER_BITS: u32 = 40;

/// The report of a run.
#[derive(Clone, Debug)]
pub struct ClusterReport {
    /// The report that runs with one coordinator have as well.
    pub common: Report,
    /// The faults that were done.
    pub faults: FaultsDone,
    /// The leads.
    pub leads: Leads,
    /// The number of grants of named locks.
    pub grants: usize,
    /// The number of sagas that ended correctly.
    pub sagas: usize,
    /// The reasons of operations that did not commit.
    pub uncommitted: BTreeMap<UncommittedReason, usize>,
}

/// The faults of coordinators that the report counts.
#[derive(Clone, Debug, Default)]
pub struct FaultsDone {
    /// The coordinators that were killed or died at a point.
    pub deaths: Deaths,
    /// When a coordinator was stopped as planned: from the signal until work went on.
    pub planned: Vec<Range<u64>>,
}

/// A running stage with several coordinators, and the work beside the operations of its services.
#[derive(Debug)]
pub struct ClusterRun {
    /// The stage.
    pub stage: RunningSystem,
    limits: TimeLimits,
    watch: LeadWatch,
    locks: LockHolders,
    sagas: SagaRun,
    faults: FaultsDone,
}

/// Runs faults by a schedule, one after the other, then judges.
///
/// # Errors
/// When a part fails that no fault was done to, or nothing works after a fault.
pub async fn run_cluster(settings: Settings, duration: Duration) -> Result<ClusterReport> {
    let cluster = settings.cluster.as_ref().context("a cluster has several coordinators")?;
    let mut schedule = ClusterSchedule::new(settings.seed, cluster.coordinators);
    let mut run = ClusterRun::start(settings).await?;
    let started = Instant::now();
    while started.elapsed() < duration {
        // The length of the calm is part of the schedule; no event ends it.
        sleep(schedule.calm()).await;
        run.suffer(&schedule.next_fault()).await?;
    }
    Box::pin(run.finish()).await
}

impl ClusterRun {
    /// Starts everything and waits until the services work.
    ///
    /// # Errors
    /// When a part does not start.
    pub async fn start(settings: Settings) -> Result<Self> {
        settings.check()?;
        let (program, limits) = (settings.program.clone(), settings.limits);
        let stage = RunningSystem::start(settings).await?;
        let watch = LeadWatch::start(stage.coordinators.iter().map(|it| it.admin().clone()));
        let locks = LockHolders::start(&stage.endpoints());
        let sagas = SagaRun::start(&program, stage.endpoints()).await?;
        Ok(Self { stage, limits, watch, locks, sagas, faults: FaultsDone::default() })
    }

    /// Does a fault, undoes it, and waits until an operation commits again.
    ///
    /// # Errors
    /// Returns an error if the fault cannot be done, or no operation commits afterwards.
    pub async fn suffer(&mut self, fault: &ClusterFault) -> Result<()> {
        let begun = now();
        self.faults.deaths += self.stage.suffer_in_cluster(fault).await?;
        if let ClusterFault::Stop(_) = fault {
            self.faults.planned.push(begun..now());
        }
        Ok(())
    }

    /// Lets everything come to its end, judges it and stops it.
    ///
    /// # Errors
    /// When a part cannot be asked, or does not stop.
    pub async fn finish(self) -> Result<ClusterReport> {
        let Self { mut stage, limits, watch, locks, sagas, faults } = self;
        let spans = locks.finish().await.context("holding named locks")?;
        let sagas = sagas.finish().await?;
        let mut common = stage.report().await?;
        let operations = stage.record.operations();
        let begun: Vec<(u64, usize)> =
            operations.values().filter_map(|done| begun_by(done, &stage.coordinators)).collect();
        let leads = Leads::judge(&watch.sightings(), &begun);
        let violations = &mut common.verdict.violations;
        violations.extend(leads.violations.iter().cloned());
        violations.extend(lock_holders::judge(&spans));
        let uncommitted = reasons(&operations, limits, violations);
        stage.stop().await?;
        Ok(ClusterReport { common, faults, leads, grants: spans.len(), sagas, uncommitted })
    }
}

/// Counts the reasons of operations that did not commit. One without a reason is a violation.
fn reasons(
    operations: &BTreeMap<u64, Done>,
    limits: TimeLimits,
    violations: &mut Vec<String>,
) -> BTreeMap<UncommittedReason, usize> {
    let mut uncommitted = BTreeMap::new();
    for (operation, done) in operations.iter().filter(|it| it.1.outcome != Outcome::Committed) {
        match reason_of(done, limits) {
            Some(reason) => *uncommitted.entry(reason).or_default() += 1,
            None => violations.push(format!(
                "operation {operation} of {:?} did not commit: {:?}, {}",
                done.xid, done.outcome, done.why
            )),
        }
    }
    uncommitted
}

/// Returns the epoch and the coordinator that an operation's XID names: each coordinator of a stage
/// has an address of its own.
fn begun_by(done: &Done, coordinators: &[Coordinator]) -> Option<(u64, usize)> {
    let (address, number) = done.xid.as_ref()?.rsplit_once(':')?;
    let address: SocketAddr = address.parse().ok()?;
    let node = coordinators.iter().position(|it| it.address() == address)?;
    Some((number.parse::<u64>().ok()? >> COUNTER_BITS, node))
}

impl ClusterReport {
    /// Returns whether every check passed.
    ///
    /// # Errors
    /// With everything that did not.
    pub fn require_sound(&self) -> Result<()> {
        ensure!(self.common.verdict.violations.is_empty(), "{self}");
        Ok(())
    }
}

impl fmt::Display for ClusterReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { common, faults, leads, grants, sagas, uncommitted } = self;
        write!(f, "{common}")?;
        for (reason, times) in uncommitted {
            writeln!(f, "  {times:>6} not committed: {reason}")?;
        }
        writeln!(f, "  {grants:>6} grants of named locks, {sagas} sagas")?;
        let (Deaths { coordinators, leaders }, changes) = (faults.deaths, leads.gaps.len());
        writeln!(
            f,
            "  {coordinators:>6} coordinators dead, {leaders} of them led; {changes} changes of the lead"
        )?;
        let is_planned = |gap: &LeadGap| faults.planned.iter().any(|it| it.contains(&gap.until));
        let (planned, others): (Vec<LeadGap>, _) = leads.gaps.iter().copied().partition(is_planned);
        write_gaps(f, "planned", &planned)?;
        write_gaps(f, "not planned", &others)
    }
}

fn write_gaps(f: &mut fmt::Formatter<'_>, kind: &str, gaps: &[LeadGap]) -> fmt::Result {
    let lasted: Vec<Duration> = gaps.iter().map(|gap| gap.lasted).collect();
    let Some((median, max)) = median_and_max(&lasted) else { return Ok(()) };
    let [median, max] = [median, max].map(|it| it.as_millis());
    let count = gaps.len();
    writeln!(f, "  {median:>6} ms without a leader, {kind}: median of {count}; {max} ms at most")
}
