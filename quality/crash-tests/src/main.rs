//! The program that plays every part: the coordinator, a service, and the run as a whole.

use std::ffi::OsString;
use std::io::{Write, stderr, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser, ValueEnum};
use handfast_crash_tests::cluster::run_cluster;
use handfast_crash_tests::program::Program;
use handfast_crash_tests::run::run;
use handfast_crash_tests::service::TimeLimits;
use handfast_crash_tests::shared_store::SharedKind;
use handfast_crash_tests::stage::{ClusterSettings, Settings};
use handfast_crash_tests::work::{Product, Workload};
use handfast_crash_tests::{saga, service};

/// Kills, stops, cuts off and starves a coordinator, services and databases, and judges the rest.
#[derive(Debug, Parser)]
enum Part {
    /// Faults by a schedule from a seed, on PostgreSQL with MariaDB and on two SQLite files in
    /// turn; or faults of several coordinators, with services on PostgreSQL and MariaDB.
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
    /// Coordinators. Several share a store, and the faults are theirs and that store's.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=9))]
    coordinators: u8,
    /// The store that they share: `sql` is PostgreSQL and MariaDB in turn.
    #[arg(long, value_enum, default_value_t = StoreArgument::Sql)]
    store: StoreArgument,
    /// The program of this crate as an earlier commit builds it: every second of several
    /// coordinators runs it.
    #[arg(long)]
    earlier: Option<PathBuf>,
}

/// The store of several coordinators.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum StoreArgument {
    Sql,
    Postgres,
    Mariadb,
    Etcd,
}

impl StoreArgument {
    /// Returns the kind of store in a round.
    fn in_round(self, round: u64) -> SharedKind {
        match self {
            Self::Postgres => SharedKind::Postgres,
            Self::Mariadb => SharedKind::MariaDb,
            Self::Etcd => SharedKind::Etcd,
            Self::Sql if round.is_multiple_of(2) => SharedKind::Postgres,
            Self::Sql => SharedKind::MariaDb,
        }
    }
}

/// The coordinators beside those that are there at a time.
const SPARES: usize = 2;

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
        let round = ROUND.min(left);
        let number = seed - options.seed;
        if options.coordinators > 1 {
            Box::pin(run_cluster_round(&program, options, number, round)).await?;
            (left, seed) = (left - round, seed + 1);
            continue;
        }
        let products = pairs[usize::try_from(number % 2)?];
        let settings = Settings {
            program: program.clone(),
            products,
            services: options.services,
            workers: options.workers,
            workload: Workload::Both,
            seed,
            limits: TimeLimits::SHORT,
            data_dir: None,
            host: None,
            cluster: None,
        };
        writeln!(stdout(), "seed {seed}: {products:?}, {} s", round.as_secs())?;
        let report = Box::pin(run(settings, round)).await?;
        report.require_sound()?;
        write!(stdout(), "{report}")?;
        (left, seed) = (left - round, seed + 1);
    }
    Ok(())
}

async fn run_cluster_round(
    program: &Program,
    options: &Run,
    number: u64,
    lasting: Duration,
) -> Result<()> {
    let (seed, store) = (options.seed + number, options.store.in_round(number));
    let coordinators = usize::from(options.coordinators);
    let earlier = options.earlier.as_ref().map(Program::new);
    let beside = if earlier.is_some() { ", every second one of an earlier commit" } else { "" };
    let settings = Settings {
        program: program.clone(),
        products: [Product::Postgres, Product::MariaDb],
        services: options.services,
        workers: options.workers,
        workload: Workload::Both,
        seed,
        limits: TimeLimits::LONG,
        data_dir: None,
        host: None,
        cluster: Some(ClusterSettings {
            coordinators,
            spares: SPARES,
            store,
            network: None,
            earlier,
        }),
    };
    let seconds = lasting.as_secs();
    let what = format_args!("{coordinators} coordinators on {store:?}{beside}");
    writeln!(stdout(), "seed {seed}: {what}, {seconds} s")?;
    let report = run_cluster(settings, lasting).await?;
    report.require_sound()?;
    write!(stdout(), "{report}")?;
    Ok(())
}
