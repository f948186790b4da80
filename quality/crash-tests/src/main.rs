//! The program that plays every part: the coordinator, a service, and the run as a whole.

use std::ffi::OsString;
use std::io::{Write, stderr, stdout};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser};
use handfast_crash_tests::program::Program;
use handfast_crash_tests::run::run;
use handfast_crash_tests::stage::{REQUEST_DEADLINE, Settings};
use handfast_crash_tests::work::{Product, Workload};
use handfast_crash_tests::{saga, service};

/// Kills, stops, cuts off and starves a coordinator, services and databases, and judges the rest.
#[derive(Debug, Parser)]
enum Part {
    /// Faults by a schedule from a seed, on PostgreSQL with MariaDB and on two SQLite files in
    /// turn.
    Run(Run),
    /// A coordinator: `handfast serve` with these arguments.
    #[command(hide = true)]
    Serve {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// A service.
    #[command(hide = true)]
    Service {
        /// Its role and input, as JSON.
        script: String,
    },
    /// A service that takes part in sagas, or a caller that starts one.
    #[command(hide = true)]
    Saga {
        /// Its role and input, as JSON.
        script: String,
    },
}

#[derive(Debug, Args)]
struct Run {
    /// The time during which faults are done.
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// Chooses faults and operations; every further round uses the next one.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Service processes.
    #[arg(long, default_value_t = 3)]
    services: usize,
    /// Operations that each service runs at a time.
    #[arg(long, default_value_t = 4)]
    workers: u64,
}

/// Each round has a fresh stage, so that a long run does not judge one endless history.
const ROUND: Duration = Duration::from_secs(150);

fn main() -> ExitCode {
    match play(Part::parse()) {
        Ok(code) => code,
        Err(error) => {
            // Standard error may be closed; the exit code still reports the failure.
            let _ = writeln!(stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn play(part: Part) -> Result<ExitCode> {
    match part {
        Part::Serve { arguments } => {
            let words = ["handfast", "serve"].map(OsString::from).into_iter().chain(arguments);
            Ok(handfast_server::cli::run(words, &mut stdout(), &mut stderr()).into())
        }
        Part::Service { script } => {
            let script = serde_json::from_str(&script).context("reading the script")?;
            runtime()?.block_on(service::play(script))?;
            Ok(ExitCode::SUCCESS)
        }
        Part::Saga { script } => {
            let script = serde_json::from_str(&script).context("reading the script")?;
            runtime()?.block_on(saga::play(script))?;
            Ok(ExitCode::SUCCESS)
        }
        Part::Run(options) => {
            ensure!(cfg!(feature = "crash-points"), "built without the feature crash-points");
            runtime()?.block_on(run_rounds(&options))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(2).enable_all().build().context("starting a runtime")
}

async fn run_rounds(options: &Run) -> Result<()> {
    let program = Program::new(std::env::current_exe()?);
    let mut left = Duration::from_secs(60 * options.minutes);
    let pairs = [[Product::Postgres, Product::MariaDb], [Product::Sqlite, Product::Sqlite]];
    let mut seed = options.seed;
    while !left.is_zero() {
        let products = pairs[usize::try_from((seed - options.seed) % 2)?];
        let settings = Settings {
            program: program.clone(),
            products,
            services: options.services,
            workers: options.workers,
            workload: Workload::Both,
            seed,
            request_deadline: REQUEST_DEADLINE,
            data_dir: None,
            host: None,
        };
        let round = ROUND.min(left);
        writeln!(stdout(), "seed {seed}: {products:?}, {} s", round.as_secs())?;
        let report = Box::pin(run(settings, round)).await?;
        report.require_sound()?;
        write!(stdout(), "{report}")?;
        (left, seed) = (left - round, seed + 1);
    }
    Ok(())
}
