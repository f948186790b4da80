//! `cargo xtask`: sets up test services, runs the tests, and checks what CI checks.
//!
//! It starts other programs and reads the source tree; it knows nothing of the crates it tests.

mod alerts;
mod ci;
mod console_test;
mod corpus;
mod crash;
mod deploy;
mod differential;
mod dist;
mod docs;
mod driver_features;
mod fuzz;
mod install;
mod interop;
mod interrupt;
mod languages;
mod libclang;
mod mutations;
mod optimize;
mod pauses;
mod program;
mod promises;
mod release;
mod say;
mod semver;
mod services;
mod sim;
mod test;
mod test_programs;
mod tidy;
mod tree;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use crate::interrupt::Interrupts;
use crate::say::say;

/// Set-up of test services, test run, CI and tidy checks.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask")]
enum Task {
    /// Install the test servers that are missing, start private ones, run every test.
    Test {
        /// Passed on to `cargo test`; `-p NAME` narrows the run to a package. Without any, all test
        /// programs run, several at a time.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Start the test servers, print their addresses, and keep them until Ctrl-C.
    Services,
    /// Run the tests and everything else that a change must pass.
    Ci {
        /// Leave the workspace's tests out; everything else runs.
        #[arg(long)]
        skip_tests: bool,
    },
    /// Check lengths, forbidden imports and words, licences, stray files.
    Tidy,
    /// Check the pages, and build them as a book with mdBook.
    Docs(docs::Options),
    /// Kill, stop, cut off and starve coordinator, services and databases, and judge the rest.
    Crash(crash::Options),
    /// Simulate coordinators, services and databases from seeds, with faults.
    #[command(disable_help_flag = true)]
    Sim {
        /// `--seeds N`, `--from S`, `--seed S --log`, `--help`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Run the statements of applications through AT mode and beside it, and show which it takes.
    Corpus(corpus::Options),
    /// Run generated statements through AT mode and beside it, on every database.
    Differential(differential::Options),
    /// Run unmodified Seata clients in Java and Go against the coordinator, on real databases.
    #[command(disable_help_flag = true)]
    Interop {
        /// `--short`, `--client NAME`, `--database NAME`, `--scenario NAME`, `--help`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Run the examples in Python and TypeScript against the coordinator.
    #[command(disable_help_flag = true)]
    Languages {
        /// `--language NAME`, `--scenario NAME`, `--help`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Drive the console in a browser, at a coordinator with real databases.
    #[command(disable_help_flag = true)]
    ConsoleTest {
        /// `--scene NAME`, `--pictures FOLDER`, `--help`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Break the code on purpose, one mutation at a time, and show which check notices.
    Mutations {
        /// Only mutations whose name or area (a file of `quality/mutations/`) holds one of these.
        names: Vec<String>,
    },
    /// Stop holders of locks for longer than their lease, by the thousand; look for lost updates.
    Pauses(pauses::Options),
    /// Build `handfast` and `handfast-bench` for the work they do: twice, with a run between that
    /// is recorded.
    Optimize,
    /// Build the programs as they are shipped, pack them, and try the packages.
    Dist(dist::Options),
    /// Check the Helm chart, the Dockerfiles and the compose file.
    DeployCheck,
    /// Check the alert rules for Prometheus, and run their tests.
    AlertsCheck,
    /// Prepare a release up to publishing: version, changelog, comparison, packages.
    Release(release::Options),
    /// Compare the public items of the crates with those of the last release.
    Semver(semver::Options),
    /// Run each fuzz target for a bounded time.
    Fuzz {
        /// Seconds per target: a few find a broken decoder, an hour finds a rare one.
        #[arg(long, default_value_t = 30)]
        seconds: u32,
    },
}

fn main() -> ExitCode {
    match run(Task::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(format_args!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<()> {
    let interrupts = Interrupts::watch()?;
    match task {
        Task::Test { arguments } => test::run_tests(&interrupts, &arguments),
        Task::Services => test::run_services(&interrupts),
        Task::Ci { skip_tests } => ci::run_checks(&interrupts, skip_tests),
        Task::Tidy => tidy::check_tree(),
        Task::Docs(options) => docs::build(&interrupts, &options),
        Task::Crash(options) => crash::run_faults(&interrupts, &options),
        Task::Sim { arguments } => {
            sim::run_seeds(&interrupts, program::package("handfast-sim"), &arguments)
        }
        Task::Corpus(options) => corpus::run_statements(&interrupts, &options),
        Task::Differential(options) => differential::run_statements(&interrupts, &options),
        Task::Interop { arguments } => {
            interop::run_clients(&interrupts, program::package("handfast-interop"), &arguments)
        }
        Task::Languages { arguments } => languages::run_programs(&interrupts, &arguments),
        Task::ConsoleTest { arguments } => console_test::run_scenes(&interrupts, &arguments),
        Task::Mutations { names } => mutations::run_all(&interrupts, &names),
        Task::Pauses(options) => pauses::run_pauses(&interrupts, &options),
        Task::Optimize => optimize::build(&interrupts),
        Task::Dist(options) => dist::make(&interrupts, &options),
        Task::DeployCheck => deploy::check(&interrupts),
        Task::AlertsCheck => alerts::check(&interrupts),
        Task::Release(options) => release::prepare(&interrupts, &options),
        Task::Semver(options) => semver::check(&interrupts, &options),
        Task::Fuzz { seconds } => fuzz::run_targets(&interrupts, seconds),
    }
}
