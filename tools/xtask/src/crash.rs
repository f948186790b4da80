//! The long run of faults over real processes.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use clap::{Args, ValueEnum};
use handfast_test_services::ServerKind;

use crate::interrupt::Interrupts;
use crate::services::install;
use crate::test::cargo;
use crate::tree::root;

const CRATE: [&str; 4] = ["-p", "handfast-crash-tests", "--features", "crash-points"];

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
    /// A commit, whose program every second of several coordinators runs, as in the middle of an
    /// upgrade.
    #[arg(long)]
    earlier: Option<String>,
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
    let earlier = options.earlier.as_deref();
    let earlier = earlier.map(|commit| build_earlier(interrupts, commit)).transpose()?;
    let mut command = cargo();
    command.args(["run", "--quiet"]).args(CRATE);
    command.args(["--", "run", "--minutes", &options.minutes.to_string()]);
    command.args(["--seed", &options.seed.to_string()]);
    command.args(["--coordinators", &options.coordinators.to_string()]);
    command.args(["--store", options.store.name()]);
    if let Some(program) = earlier {
        command.arg("--earlier").arg(program);
    }
    interrupts.run(&mut command)
}

/// Builds the program of a commit, in a work tree and a target directory of its own, which stay for
/// the next time.
fn build_earlier(interrupts: &Interrupts, commit: &str) -> Result<PathBuf> {
    let folder = root().join("target/earlier");
    let tree = folder.join("tree");
    if !tree.exists() {
        interrupts.run(git(&root()).args(["worktree", "add", "--detach"]).arg(&tree))?;
    }
    interrupts.run(git(&tree).args(["checkout", "--quiet", "--detach", commit]))?;
    let mut build = cargo();
    // A commit before its crate asked for them builds with them, too.
    build.args(["build", "--quiet"]).args(CRATE).args(["--features", "handfast/locks"]);
    build.current_dir(&tree);
    interrupts.run(build.env("CARGO_TARGET_DIR", folder.join("target")))?;
    Ok(folder.join("target/debug/handfast-crash-tests"))
}

fn git(folder: &Path) -> Command {
    let mut command = Command::new("git");
    command.arg("-C").arg(folder);
    command
}
