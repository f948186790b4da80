//! Runs the test programs of the workspace, a few at a time.
//!
//! `cargo test` runs one after the other, and most of them wait: for servers that start, deadlines
//! that pass, processes that come back. The output of a program is shown in one piece when it has
//! ended.

use std::fs::File;
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::interrupt::Interrupts;
use crate::say::say;
use crate::test::cargo;

/// How many programs run at a time for each core. Too few: the machine is idle while they wait; too
/// many: tests with time limits fail on a machine that is too slow.
const AT_A_TIME: usize = 2;
/// Those that take longest, which begin first: the end of the run does not wait for one alone.
const LONG: [&str; 9] = [
    "locks conformance",
    "bench smoke",
    "order-payment-outbox orders",
    "rm-client outbox",
    "crash-tests processes",
    "rm-client differential",
    "rm-client corpus",
    "order-payment orders",
    "locks line",
];

/// A program with tests.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Program {
    /// Its package's folder and its own name, as `locks line`.
    name: String,
    executable: PathBuf,
    /// Where cargo would run it.
    folder: PathBuf,
}

/// The programs still to be run, and those that failed.
#[derive(Debug, Default)]
struct Progress {
    left: Vec<Program>,
    failed: Vec<String>,
}

/// Builds all tests of the workspace, but those in its documents, and runs them with `variables` in
/// their environment. One failure hides no other.
pub(crate) fn run_all(interrupts: &Interrupts, variables: &[(&'static str, String)]) -> Result<()> {
    let mut left = build(interrupts)?;
    // Taken from the end.
    left.sort_by_key(|program| LONG.iter().rev().position(|name| *name == program.name));
    let outputs = tempfile::tempdir()?;
    let progress = Mutex::new(Progress { left, failed: Vec::new() });
    thread::scope(|scope| {
        let worker = |number: usize| {
            let output = outputs.path().join(number.to_string());
            while let Some(program) = next(&progress) {
                let mut command = Command::new(&program.executable);
                // What cargo would tell it; else it is told the folder of this program's package.
                command.current_dir(&program.folder).env("CARGO_MANIFEST_DIR", &program.folder);
                command.envs(variables.iter().cloned());
                if let Err(error) = run_one(interrupts, &program.name, &mut command, &output) {
                    lock(&progress).failed.push(format!("{}: {error:#}", program.name));
                }
            }
        };
        let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        for number in 0..cores * AT_A_TIME {
            scope.spawn(move || worker(number));
        }
    });
    interrupts.check()?;
    let failed = progress.into_inner().unwrap_or_else(PoisonError::into_inner).failed;
    if !failed.is_empty() {
        bail!("tests failed:\n{}", failed.join("\n"));
    }
    Ok(())
}

/// Runs one and then shows its output.
fn run_one(
    interrupts: &Interrupts,
    name: &str,
    command: &mut Command,
    output: &Path,
) -> Result<()> {
    let said = File::create(output)?;
    command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said);
    let begun = Instant::now();
    let status = interrupts.run_for_status(command);
    let mut out = io::stdout().lock();
    writeln!(out, "\n     {name}, {:.0} s", begun.elapsed().as_secs_f64())?;
    io::copy(&mut File::open(output)?, &mut out)?;
    let status = status?;
    if !status.success() {
        bail!("{status}");
    }
    Ok(())
}

/// The lock is not held while a program runs.
fn next(progress: &Mutex<Progress>) -> Option<Program> {
    lock(progress).left.pop()
}

fn lock(progress: &Mutex<Progress>) -> MutexGuard<'_, Progress> {
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Builds the programs, and says which they are.
fn build(interrupts: &Interrupts) -> Result<Vec<Program>> {
    let mut build = cargo();
    build.args(["test", "--workspace", "--no-run", "--message-format", "json-render-diagnostics"]);
    say("building all tests");
    let told = interrupts.output(&mut build)?;
    let programs = told.lines().filter_map(|line| program_of(line).transpose());
    let programs: Vec<Program> = programs.collect::<Result<_>>()?;
    if programs.is_empty() {
        bail!("cargo has told of no test program");
    }
    Ok(programs)
}

/// Returns the program that a line of cargo's output names, if that has tests.
fn program_of(line: &str) -> Result<Option<Program>> {
    let told: Told = serde_json::from_str(line).with_context(|| line.to_owned())?;
    let (Some(executable), Some(true)) = (told.executable, told.profile.map(|it| it.test)) else {
        return Ok(None);
    };
    let (manifest, target) = told.manifest_path.zip(told.target).context("no package")?;
    let folder = manifest.parent().context("a manifest is in a folder")?.to_owned();
    let package = folder.file_name().context("a package has a folder")?.to_string_lossy();
    Ok(Some(Program { name: format!("{package} {}", target.name), executable, folder }))
}

/// A message of cargo's, as far as it is of interest.
#[derive(Debug, Deserialize)]
struct Told {
    executable: Option<PathBuf>,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
}

#[derive(Debug, Deserialize)]
struct Profile {
    test: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_with_tests_are_found_among_what_cargo_tells() {
        let told = |test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/house/locks/Cargo.toml",
                "target":{{"kind":["test"],"name":"line"}},"profile":{{"opt_level":"0","test":{test}}},
                "executable":{executable}}}"#
            )
        };
        let found = program_of(&told(true, r#""/target/line-1""#)).unwrap().unwrap();
        assert_eq!((&*found.name, &*found.folder), ("locks line", Path::new("/house/locks")));
        assert_eq!(found.executable, Path::new("/target/line-1"));
        for other in [told(false, r#""/target/line""#), told(true, "null")] {
            assert_eq!(program_of(&other).unwrap(), None);
        }
        let ended = r#"{"reason":"build-finished","success":true}"#;
        assert_eq!(program_of(ended).unwrap(), None);
        assert!(program_of("no message").is_err());
    }
}
