//! `handfast-sim`: runs seeds, reports, and shrinks plans that fail. `cargo xtask sim` runs it.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::Result;
use clap::Parser;
use handfast_sim::{Fault, Faults, ModeCounts, Outcome, Plan, run, run_logged, shrink};

/// The number of failing seeds that are shrunk. The others mostly fail for the same reasons.
const SHRUNK_MAX: usize = 3;

/// Simulates coordinators, services and databases, from seeds.
#[derive(Debug, Parser)]
struct Arguments {
    /// The number of seeds.
    #[arg(long, default_value_t = 2_000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Runs this seed alone, or a plan such as `seed=7 clients=2`.
    #[arg(long)]
    seed: Option<String>,
    /// Changes the plan of every seed, such as `servers=1 modes=xa rows=1`.
    #[arg(long, conflicts_with = "seed", default_value = "")]
    plan: String,
    /// Prints the log of a run with `--seed`.
    #[arg(long)]
    log: bool,
    /// The number of threads.
    #[arg(long, default_value_t = 2)]
    threads: u64,
    /// Stops at the first seed that fails, without shrinking it.
    #[arg(long)]
    until_failure: bool,
    /// Reports failing plans without shrinking them.
    #[arg(long)]
    no_shrink: bool,
}

fn main() -> ExitCode {
    match start(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // If stderr is closed the error cannot be reported.
            drop(writeln!(io::stderr(), "error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Runs what the arguments say. Returns whether every invariant held.
fn start(arguments: &Arguments) -> Result<bool> {
    // A panic of a simulated process is a violation, and reported as one.
    std::panic::set_hook(Box::new(|_| {}));
    match &arguments.seed {
        Some(text) => run_one(arguments, text),
        None => run_many(arguments),
    }
}

fn run_one(arguments: &Arguments, text: &str) -> Result<bool> {
    let text = if text.contains('=') { text.to_owned() } else { format!("seed={text}") };
    let plan: Plan = text.parse()?;
    let mut out = io::stdout().lock();
    writeln!(out, "{plan}")?;
    let outcome = if arguments.log { run_logged(&plan) } else { run(&plan) };
    for line in &outcome.log {
        writeln!(out, "{line}")?;
    }
    let mut totals = Totals::default();
    totals.add(&plan, outcome);
    totals.report(&mut out)?;
    Ok(totals.failed.is_empty())
}

fn run_many(arguments: &Arguments) -> Result<bool> {
    let started = Instant::now();
    let (first, end) = (arguments.from, arguments.from.saturating_add(arguments.seeds));
    let plan_of = |seed| format!("seed={seed} {}", arguments.plan).parse::<Plan>();
    // Looked at before anything runs: the rest of the text is the same for each seed.
    plan_of(first)?;
    let mut out = io::stdout().lock();
    writeln!(out, "seeds {first} to {}", end.saturating_sub(1))?;
    out.flush()?;
    let (next, totals) = (AtomicU64::new(first), Mutex::new(Totals::default()));
    thread::scope(|scope| {
        for _ in 0..arguments.threads.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    let Ok(plan) = plan_of(seed) else { return };
                    let outcome = run(&plan);
                    if arguments.until_failure && !outcome.violations.is_empty() {
                        next.fetch_max(end, Ordering::Relaxed);
                    }
                    if let Ok(mut totals) = totals.lock() {
                        totals.add(&plan, outcome);
                    }
                }
            });
        }
    });
    let mut totals = totals.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    totals.failed.sort_by_key(|(plan, _)| plan.seed);
    totals.report(&mut out)?;
    writeln!(out, "{:.1} s", started.elapsed().as_secs_f64())?;
    if !arguments.no_shrink && !arguments.until_failure {
        for (plan, _) in totals.failed.iter().take(SHRUNK_MAX) {
            writeln!(out, "seed {} shrinks to: {}", plan.seed, shrink(plan))?;
        }
    }
    Ok(totals.failed.is_empty())
}

/// The sums of many runs.
#[derive(Debug, Default)]
struct Totals {
    runs: u64,
    simulated: u64,
    leads: u64,
    globals: u64,
    committed: u64,
    told_ahead: [u64; 2],
    modes: ModeCounts,
    checks: u64,
    violations: u64,
    faults: Faults,
    failed: Vec<(Plan, Outcome)>,
}

impl Totals {
    fn add(&mut self, plan: &Plan, outcome: Outcome) {
        self.runs += 1;
        self.simulated += outcome.simulated;
        self.leads += outcome.leads;
        self.globals += outcome.globals;
        self.committed += outcome.committed;
        for (sum, told) in self.told_ahead.iter_mut().zip(outcome.told_ahead) {
            *sum += told;
        }
        self.modes.add(&outcome.modes);
        self.checks += outcome.checks;
        self.violations += outcome.violations.len() as u64;
        self.faults.add(&outcome.faults);
        if !outcome.violations.is_empty() {
            self.failed.push((plan.clone(), outcome));
        }
    }

    fn report(&self, out: &mut impl Write) -> io::Result<()> {
        for (plan, outcome) in &self.failed {
            writeln!(out, "FAILED {plan}")?;
            for violation in outcome.violations.iter().take(3) {
                let at_ms = violation.at / 1_000;
                writeln!(out, "  at {at_ms} ms: {violation}")?;
            }
        }
        let hours = self.simulated as f64 / 3.6e9;
        writeln!(out, "{:>12} seeds, {} failed", self.runs, self.failed.len())?;
        writeln!(out, "{hours:>12.1} simulated hours")?;
        writeln!(out, "{:>12} times the lead was taken", self.leads)?;
        writeln!(out, "{:>12} globals stored, {} committed", self.globals, self.committed)?;
        let [told, lost] = self.told_ahead;
        writeln!(out, "{told:>12} last branches answered before they were stored, {lost} lost")?;
        let ModeCounts { confirmed, cancelled, barred, completed, compensated, .. } = self.modes;
        let ModeCounts { xa_committed, xa_rolled_back, .. } = self.modes;
        let ModeCounts { events_applied, events_rolled_back, .. } = self.modes;
        let tcc = confirmed + cancelled + barred;
        writeln!(
            out,
            "{tcc:>12} TCC branches: {confirmed} confirmed, {cancelled} cancelled, {barred} barred"
        )?;
        let sagas = completed + compensated;
        writeln!(out, "{sagas:>12} sagas: {completed} completed, {compensated} compensated")?;
        let prepared = xa_committed + xa_rolled_back;
        writeln!(
            out,
            "{prepared:>12} prepared branches: {xa_committed} committed, \
             {xa_rolled_back} rolled back"
        )?;
        let events = events_applied + events_rolled_back;
        writeln!(
            out,
            "{events:>12} events: {events_applied} took effect, {events_rolled_back} rolled back"
        )?;
        let ModeCounts { outside_passed, outside_refused, .. } = self.modes;
        let outside = outside_passed + outside_refused;
        writeln!(
            out,
            "{outside:>12} writes from outside: {outside_passed} passed, {outside_refused} refused"
        )?;
        writeln!(out, "{:>12} faults:", self.faults.total())?;
        for fault in Fault::ALL {
            writeln!(out, "{:>24}  {fault}", self.faults.of(fault))?;
        }
        writeln!(out, "{:>12} invariant checks", self.checks)?;
        writeln!(out, "{:>12} violations", self.violations)
    }
}
