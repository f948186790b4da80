//! Runs every client on every database, a few stages at a time, and reports the results.

use std::cmp::Reverse;
use std::fmt;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Result, ensure};
use handfast_test_services::ServerKind;

use crate::Options;
use crate::client::{Client, ClientSetup};
use crate::database::Database;
use crate::scenarios::{self, Rank, Scenario};
use crate::stage::TestBed;

/// One client on one database, with what it plays there.
#[derive(Debug)]
struct Performance {
    client: Client,
    way: ClientSetup,
    database: Arc<Database>,
    scenarios: Vec<Scenario>,
}

/// The counts of a whole run.
#[derive(Debug, Default)]
struct Tally {
    next: AtomicUsize,
    ok: AtomicUsize,
    failed: AtomicUsize,
}

/// Builds the clients, plays everything that the options leave, and fails if anything failed.
pub(crate) fn play_all(options: &Options) -> Result<()> {
    let started = Instant::now();
    let performances = performances(options)?;
    ensure!(!performances.is_empty(), "nothing to play");
    let tally = Tally::default();
    thread::scope(|scope| {
        for _ in 0..options.stages.min(performances.len()) {
            scope.spawn(|| {
                loop {
                    let number = tally.next.fetch_add(1, Ordering::Relaxed);
                    let Some(it) = performances.get(number) else { break };
                    play_one(it, number, &tally);
                }
            });
        }
    });
    let (ok, failed) = (tally.ok.into_inner(), tally.failed.into_inner());
    say(format_args!("{:.0} s", started.elapsed().as_secs_f64()));
    say(format_args!("{ok} passed, {failed} failed"));
    ensure!(failed == 0, "scenarios failed");
    Ok(())
}

fn performances(options: &Options) -> Result<Vec<Performance>> {
    let last = if options.short { Rank::Core } else { Rank::More };
    let scenarios = scenarios::ALL
        .iter()
        .filter(|it| it.rank <= last)
        .filter(|it| fits(options.scenario.as_deref(), &format!("{} {}", it.mode, it.name)));
    let scenarios: Vec<Scenario> = scenarios.copied().collect();
    let basic: Vec<Scenario> =
        scenarios.iter().filter(|it| it.rank == Rank::Basic).copied().collect();
    let clients = if options.short { Client::newest() } else { Client::all() };
    let clients = clients.into_iter();
    let clients = clients.filter(|it| fits(options.client.as_deref(), &it.to_string()));
    let clients: Vec<Client> = clients.collect();
    clients.iter().try_for_each(Client::build)?;
    let mut performances = Vec::new();
    let databases: &[ServerKind] = if options.short {
        &[ServerKind::MariaDb]
    } else {
        &[ServerKind::MariaDb, ServerKind::Postgres]
    };
    for &kind in databases {
        if !fits(options.database.as_deref(), &kind.programs().name.to_lowercase()) {
            continue;
        }
        let database = Arc::new(Database::start(kind)?);
        for client in &clients {
            let on = |way, scenarios: &[Scenario]| Performance {
                client: *client,
                way,
                database: Arc::clone(&database),
                scenarios: scenarios
                    .iter()
                    .filter(|it| client.can_play(kind, it))
                    .copied()
                    .collect(),
            };
            performances.push(on(ClientSetup::DEFAULT, &scenarios));
            // The encoding of frames does not depend on the database.
            let is_once = kind == ServerKind::MariaDb && !options.short;
            let more = if is_once { client.more_ways() } else { Vec::new() };
            performances.extend(more.into_iter().map(|way| on(way, &basic)));
        }
    }
    performances.retain(|it| !it.scenarios.is_empty());
    // The long ones first: the last to be played are short.
    performances.sort_by_key(|it| Reverse(it.scenarios.len()));
    Ok(performances)
}

fn fits(wanted: Option<&str>, name: &str) -> bool {
    wanted.is_none_or(|wanted| name.contains(wanted))
}

/// Plays the scenarios of one stage until one fails: the next might fail for that reason only.
fn play_one(it: &Performance, number: usize, tally: &Tally) {
    let name = format!("interop_{number}");
    let stage = match TestBed::set_up(it.client, it.way, &it.database, &name) {
        Ok(stage) => stage,
        Err(error) => {
            tally.failed.fetch_add(it.scenarios.len(), Ordering::Relaxed);
            say(format_args!("{it} set-up FAILED: {error:#}"));
            return;
        }
    };
    for (at, scenario) in it.scenarios.iter().enumerate() {
        let started = Instant::now();
        let played = (scenario.play)(&stage);
        let took = started.elapsed().as_secs_f64();
        let Scenario { mode, name, .. } = scenario;
        match played {
            Ok(()) => {
                tally.ok.fetch_add(1, Ordering::Relaxed);
                say(format_args!("{it} {mode} {name} ... ok ({took:.1} s)"));
            }
            Err(error) => {
                let left = it.scenarios.len() - at;
                tally.failed.fetch_add(left, Ordering::Relaxed);
                say(format_args!("{it} {mode} {name} ... FAILED ({took:.1} s): {error:#}"));
                let logs = stage.keep_logs();
                say(format_args!("{it}: {} not played; logs in {}", left - 1, logs.display()));
                return;
            }
        }
    }
}

impl fmt::Display for Performance {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let database = self.database.kind().programs().name;
        write!(out, "{} {database} {}", self.client, self.way)
    }
}

/// Prints a line in one piece.
pub(crate) fn say(line: fmt::Arguments<'_>) {
    // Standard output may be closed; the exit code still reports the result.
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}
