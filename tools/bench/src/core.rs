//! `core`: the cost of deciding and encoding, in this process, without sockets and disks.
//!
//! The window is the number of globals that are open at any time: the oldest is committed when
//! another one has begun. Nothing else runs, so the figures are those of one thread.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use handfast_core::{
    BranchId, Change, Command, Coordinator, Correlation, DecidedBy, Decision, Effect, Epoch,
    Holding, Labels, Limits, LoanTerms, LockMode, LockWait, Mode, NewBranch, Outcome,
    PhaseTwoOutcome, Reply, ReplyWhen, Request, RowLock, Timestamp, VotingRounds, Xid,
};
use handfast_server::store::codec;

use crate::idle::IdleWatch;
use crate::measure::Measure;
use crate::report::{Report, Row};
use crate::sample::{PerOperation, Sample};
use crate::statistics::Latencies;
use crate::usage::Process;

const BRANCHES: u64 = 2;

/// `handfast-bench core`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Globals open at a time; may be given several times.
    #[arg(long, default_values_t = [64, 10_000, 1_000_000])]
    open: Vec<usize>,
    /// Globals remembered after their end, as the coordinator's `limits.history_max`.
    #[arg(long, default_value_t = 100_000)]
    history: usize,
    /// Runs exactly this many globals and measures nothing: for callgrind.
    #[arg(long, value_name = "GLOBALS")]
    count: Option<u64>,
    #[command(flatten)]
    measure: Measure,
}

/// Measures each selected window, the smallest first, so that memory grows only once.
pub(crate) async fn run(options: &Options) -> Result<Report> {
    let mut report = Report::new("core");
    let mut windows = options.open.clone();
    windows.sort_unstable();
    for open in windows {
        if let Some(count) = options.count {
            let mut core = Core::new(open, options.history);
            (0..count).try_for_each(|_| core.global(open))?;
            let bytes = core.bytes as f64 / count.max(1) as f64;
            let figures = [("globals", count as f64), ("bytes encoded a global", bytes)];
            report.push(Row::of_figures(&format!("core, {open} open"), &figures));
            continue;
        }
        let time = options.measure.length();
        let name = format!("core, decide and encode, {open} open");
        // Measured only when first filled: memory that is freed and filled again shows no growth.
        let (mut core, filled) = Core::filled(open, options.history)?;
        let run = async || measure(&mut core, open, filled, time);
        report.push(options.measure.row(&name, run).await?);
    }
    Ok(report)
}

/// Returns this number of changes, as globals with their branches make them.
pub(crate) fn changes(count: usize) -> Result<Vec<Change>> {
    let mut core = Core { kept: Some(Vec::new()), ..Core::new(count, 0) };
    while core.kept.as_ref().is_some_and(|kept| kept.len() < count) {
        core.begin()?;
    }
    let mut changes = core.kept.unwrap_or_default();
    changes.truncate(count);
    Ok(changes)
}

fn measure(core: &mut Core, open: usize, filled: u64, time: Duration) -> Result<(Sample, f64)> {
    let own = Process::own();
    let (watch, cpu_before, bytes_before) = (IdleWatch::start()?, own.cpu()?, core.bytes);
    let started = Instant::now();
    let mut ended = 0_u64;
    // The clock is read once in 256 globals, so that reading it does not count.
    while !ended.is_multiple_of(256) || started.elapsed() < time {
        core.global(open)?;
        ended += 1;
    }
    let (seconds, cpu) = (started.elapsed().as_secs_f64(), own.cpu()? - cpu_before);
    let mut sample = Sample::new(ended as f64 / seconds, Latencies::default());
    let cpu_us = cpu.as_secs_f64() * 1e6 / ended as f64;
    sample.cpu_us = Some(PerOperation { client: 0.0, server: cpu_us });
    sample.resident_bytes = Some(own.resident_bytes()?);
    sample.figure("bytes encoded a global", (core.bytes - bytes_before) as f64 / ended as f64);
    if open >= 10_000 {
        sample.figure("resident MB when filled", filled as f64 / 1e6);
        sample.figure("resident bytes an open global", filled as f64 / open as f64);
    }
    Ok((sample, watch.foreign_cores(cpu)?))
}

/// A coordinator and the globals that are open in it.
struct Core {
    coordinator: Coordinator,
    outcome: Outcome,
    open: VecDeque<Xid>,
    begun: u64,
    /// Bytes of records encoded so far.
    bytes: u64,
    /// The buffer for a request's encoded records, as in the journal.
    encoded: Vec<u8>,
    /// The changes so far, if they are kept.
    kept: Option<Vec<Change>>,
    names: Names,
}

/// The names that every request repeats.
struct Names {
    process: Arc<str>,
    application: Arc<str>,
    transaction: Arc<str>,
    resource: Arc<str>,
    table: Arc<str>,
    nothing: Arc<str>,
}

impl Core {
    fn new(open: usize, history: usize) -> Self {
        let limits = Limits {
            globals_max: open + 1,
            history_max: history,
            share_per_application: 100,
            ..Limits::default()
        };
        let loaded = Coordinator::load(Epoch(1), "127.0.0.1:7091".into(), limits, Vec::new());
        let names = Names {
            process: "5b9f7c1e-1f5c-4a3f-9d0e-2a6b6f0f4c11".into(),
            application: "handfast-bench".into(),
            transaction: "place-order".into(),
            resource: "postgres:7312456789012345678/shop/5f0c9ad2e1b34a6f".into(),
            table: "public.stock_item".into(),
            nothing: "".into(),
        };
        Self {
            coordinator: loaded.expect("no record contradicts another"),
            outcome: Outcome::default(),
            open: VecDeque::new(),
            begun: 0,
            bytes: 0,
            encoded: Vec::new(),
            kept: None,
            names,
        }
    }

    /// Returns a coordinator with a number of open globals, and the memory they occupy.
    fn filled(open: usize, history: usize) -> Result<(Self, u64)> {
        let own = Process::own();
        let resident_before = own.resident_bytes()?;
        let mut core = Self::new(open, history);
        while core.open.len() < open {
            core.begin()?;
        }
        let filled = own.resident_bytes()?.saturating_sub(resident_before);
        Ok((core, filled))
    }

    /// Begins a global and, when there are enough, ends the oldest, phase two included.
    fn global(&mut self, open: usize) -> Result<()> {
        self.begin()?;
        if self.open.len() > open
            && let Some(oldest) = self.open.pop_front()
        {
            self.commit(oldest)?;
        }
        Ok(())
    }

    fn begin(&mut self) -> Result<()> {
        let begin = Command::Begin {
            application: self.names.application.clone(),
            name: self.names.transaction.clone(),
            timeout_ms: None,
            labels: Labels::NONE,
            key: None,
            loan: LoanTerms::default(),
        };
        let Some(Reply::Begun { xid, .. }) = self.decide(begin)? else {
            bail!("a global was not begun");
        };
        for branch in 1..=BRANCHES {
            let branch = self.branch(branch);
            let wait = LockWait { timeout_ms: 0, holding: Holding::Nothing };
            self.decide(Command::RegisterBranch { xid, branch, wait })?;
        }
        self.open.push_back(xid);
        self.begun += 1;
        Ok(())
    }

    fn branch(&self, number: u64) -> NewBranch {
        let key = self.begun * BRANCHES + number;
        // Mixes the bits, so that ids are spread as random ones are.
        let id = (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 1) | 1;
        let row = RowLock {
            table: self.names.table.clone(),
            key: format!("17:{key:017}").into_bytes().into(),
            mode: LockMode::Exclusive,
        };
        NewBranch {
            id: BranchId(id),
            resource: self.names.resource.clone(),
            mode: Mode::At,
            rows: vec![row],
            application_data: Box::default(),
            registered_by: Some(self.names.process.clone()),
        }
    }

    fn commit(&mut self, xid: Xid) -> Result<()> {
        let end = Command::End {
            xid,
            decision: Decision::Commit,
            rounds: VotingRounds::PrepareOnly,
            by: DecidedBy::Client,
            reason: self.names.nothing.clone(),
            reply_when: ReplyWhen::Decided,
        };
        let calls = self.ask(end)?;
        let branches: Vec<BranchId> = calls
            .iter()
            .filter_map(|effect| match effect {
                Effect::PhaseTwo(call) => Some(call.branch),
                Effect::Reply { .. } | Effect::Vote(_) | Effect::Hold { .. } | Effect::Alert(_) => {
                    None
                }
            })
            .collect();
        for branch in branches {
            self.decide(Command::FinishPhaseTwo {
                xid,
                branch,
                decision: Decision::Commit,
                outcome: PhaseTwoOutcome::Done,
            })?;
        }
        Ok(())
    }

    fn decide(&mut self, command: Command) -> Result<Option<Reply>> {
        let reply = self.ask(command)?.into_iter().find_map(|effect| match effect {
            Effect::Reply { reply, .. } => Some(reply),
            Effect::PhaseTwo(_) | Effect::Vote(_) | Effect::Hold { .. } | Effect::Alert(_) => None,
        });
        Ok(reply)
    }

    /// Decides a request, and encodes what would be stored.
    fn ask(&mut self, command: Command) -> Result<Vec<Effect>> {
        let request = Request { reply_to: Some(Correlation(1)), command };
        self.coordinator.decide(Timestamp(1_000_000), request, &mut self.outcome);
        for change in self.outcome.changes.drain(..) {
            encode(&change, &mut self.encoded);
            if let Some(kept) = &mut self.kept {
                kept.push(change);
            }
        }
        self.bytes += self.encoded.len() as u64;
        self.encoded.clear();
        let effects = std::mem::take(&mut self.outcome.effects);
        if let Some(Effect::Reply { reply: Reply::Rejected(rejection), .. }) = effects.last() {
            bail!("refused: {rejection}");
        }
        Ok(effects)
    }
}

fn encode(change: &Change, bytes: &mut Vec<u8>) {
    codec::append_key(change.key(), bytes);
    if let Change::Put(record) = change {
        codec::append(record, bytes);
    }
}
