//! The long run of faults over real processes.

use anyhow::Result;
use clap::{Args, ValueEnum};
use handfast_test_services::ServerKind;

use crate::interrupt::Interrupts;
use crate::services::install;
use crate::test::cargo;

/// How long, and which.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Minutes of faults.
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// Chooses faults and operations; every further round uses the next one.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Coordinators. Several share a store, and the faults are theirs and that store's.
    #[arg(long, default_value_t = 1)]
    coordinators: u8,
    /// The store that several coordinators share.
    #[arg(long, value_enum, default_value_t = SharedStore::Sql)]
    store: SharedStore,
}

/// A store that coordinators can share.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum SharedStore {
    /// PostgreSQL and MariaDB in turn.
    Sql,
    Postgres,
    Mariadb,
    Etcd,
}

impl SharedStore {
    fn name(self) -> &'static str {
        match self {
            Self::Sql => "sql",
            Self::Postgres => "postgres",
            Self::Mariadb => "mariadb",
            Self::Etcd => "etcd",
        }
    }
}

/// Installs the database servers if need be and runs `handfast-crash-tests`.
pub(crate) fn run_faults(interrupts: &Interrupts, options: &Options) -> Result<()> {
    install(interrupts, &ServerKind::SQL)?;
    if let SharedStore::Etcd = options.store {
        install(interrupts, &[ServerKind::Etcd])?;
    }
    let mut command = cargo();
    command.args(["run", "--quiet", "-p", "handfast-crash-tests", "--features", "crash-points"]);
    command.args(["--", "run", "--minutes", &options.minutes.to_string()]);
    command.args(["--seed", &options.seed.to_string()]);
    command.args(["--coordinators", &options.coordinators.to_string()]);
    command.args(["--store", options.store.name()]);
    interrupts.run(&mut command)
}
