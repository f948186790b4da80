//! Breaks the product on purpose, one rule at a time, and shows which check notices.
//!
//! The mutations are data, see [`catalogue`]. Each is applied alone to a copy of the tree. Checks
//! find test servers running, as in `cargo xtask test`.

pub(crate) mod catalogue;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::interrupt::Interrupts;
use crate::libclang;
use crate::say::say;
use crate::services::RunningServers;
use crate::test::cargo;
use crate::tree::{SourceFile, paths, root, source_files};

use self::catalogue::Mutation;

/// How many seeds the simulator may take to notice.
const SEEDS: &str = "2000";
/// How long a check may take, which is some minutes at most where nothing is broken.
const CHECK_MAX: Duration = Duration::from_secs(1_200);
/// Stands in checks that need libclang.
const HOOK: &str = "pre-update-hook";

/// A copy of the tree. It is built into the target directory of the tree, where the dependencies
/// are built already.
struct Copy {
    interrupts: Interrupts,
    folder: TempDir,
    target: PathBuf,
    /// The tree as it was when the copy was made.
    files: Vec<SourceFile>,
    services: Option<RunningServers>,
    /// Further variables for the environment of checks.
    variables: Vec<(&'static str, String)>,
}

/// Applies each mutation whose name or area holds one of `filters`, or each if there are none, and
/// prints what notices it.
///
/// # Errors
///
/// A mutation that nothing notices, that cannot be applied, or that does not build; a check that
/// runs no test. The other mutations are tried out all the same.
pub(crate) fn run_all(interrupts: &Interrupts, filters: &[String]) -> Result<()> {
    let files = source_files()?;
    let wanted = |mutation: &Mutation| {
        let holds = |text: &String| mutation.name.contains(text) || mutation.area.contains(text);
        filters.is_empty() || filters.iter().any(holds)
    };
    let mutations: Vec<Mutation> = catalogue::read(&files)?.into_iter().filter(wanted).collect();
    if mutations.is_empty() {
        bail!("no mutation has {} in its name or area", filters.join(" or "));
    }
    let copy = Copy::make(interrupts, files, &mutations)?;
    let (mut unnoticed, mut figures) = (Vec::new(), BTreeMap::<&str, usize>::new());
    for mutation in &mutations {
        let outcome = copy.try_out(mutation);
        // An interrupt ends the check as well, which is no finding.
        interrupts.check()?;
        let (by, noticed) = match outcome {
            Ok(Some(check)) => (check, true),
            Ok(None) => ("NOT NOTICED".to_owned(), false),
            Err(error) => (format!("NOT TRIED: {error:#}"), false),
        };
        say(format_args!("| {} | {} | {by} |", mutation.name, mutation.breaks));
        if noticed {
            *figures.entry(&mutation.area).or_default() += 1;
        } else {
            unnoticed.push(mutation.name.as_str());
        }
    }
    for (area, noticed) in figures {
        say(format_args!("{area}: {noticed} noticed"));
    }
    if !unnoticed.is_empty() {
        bail!("not noticed: {}", unnoticed.join(", "));
    }
    say(format_args!("{} mutations, each noticed", mutations.len()));
    Ok(())
}

impl Copy {
    /// Copies the tree, and starts the servers that the checks of `mutations` need.
    fn make(
        interrupts: &Interrupts,
        files: Vec<SourceFile>,
        mutations: &[Mutation],
    ) -> Result<Self> {
        let checks: Vec<&String> = mutations.iter().filter_map(|it| it.check.as_ref()).collect();
        let hooked = checks.iter().any(|check| check.contains(HOOK));
        let services =
            (!checks.is_empty()).then(|| RunningServers::start(interrupts)).transpose()?;
        let variables = hooked.then(|| libclang::install(interrupts)).transpose()?;
        let folder = tempfile::Builder::new().prefix("handfast-mutations-").tempdir()?;
        let target = std::env::var_os("CARGO_TARGET_DIR");
        let target = target.map_or_else(|| root().join("target"), PathBuf::from);
        let variables = variables.unwrap_or_default();
        for path in paths()? {
            copy_file(&path, folder.path()).with_context(|| path.clone())?;
        }
        let interrupts = interrupts.clone();
        Ok(Self { interrupts, folder, target, files, services, variables })
    }

    /// Writes one file into the copy. An equal file keeps its time, so that it is not built again.
    fn write(&self, file: &SourceFile) -> Result<()> {
        let path = self.folder.path().join(&file.path);
        if fs::read(&path).is_ok_and(|there| there == file.text.as_bytes()) {
            return Ok(());
        }
        fs::write(&path, &file.text).with_context(|| file.path.clone())
    }

    /// Returns what notices the mutation; `None` if nothing does.
    fn try_out(&self, mutation: &Mutation) -> Result<Option<String>> {
        let changed = mutation.apply(&self.files)?;
        changed.iter().try_for_each(|file| self.write(file))?;
        let noticed = match &mutation.check {
            None => self.simulate(mutation.plan.as_deref().unwrap_or_default()),
            Some(check) => self.run_check(check),
        };
        // The files are restored whatever the check has given, an error included: the next mutation
        // is applied alone.
        let is_changed = |file: &&SourceFile| changed.iter().any(|it| it.path == file.path);
        self.files.iter().filter(is_changed).try_for_each(|file| self.write(file))?;
        noticed
    }

    fn simulate(&self, plan: &str) -> Result<Option<String>> {
        self.must_build(&["build", "--quiet", "-p", "handfast-sim"])?;
        let run = ["run", "--quiet", "-p", "handfast-sim", "--", "--until-failure"];
        let output = self.cargo(&run).args(["--seeds", SEEDS, "--plan", plan]).output()?;
        if output.status.success() {
            return Ok(None);
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let seed = text.lines().find_map(|line| line.strip_prefix("FAILED seed="));
        let seed = seed.and_then(|rest| rest.split(' ').next()).unwrap_or("?");
        let mut invariants: Vec<&str> = text.lines().filter_map(invariant).collect();
        invariants.dedup();
        Ok(Some(format!("{} (seed {seed})", invariants.join(", "))))
    }

    fn run_check(&self, check: &str) -> Result<Option<String>> {
        let arguments: Vec<&str> = check.split_whitespace().skip(1).collect();
        let build: Vec<&str> = arguments.iter().copied().take_while(|word| *word != "--").collect();
        self.must_build(&[&build[..], &["--no-run"]].concat())?;
        let mut check_run = self.cargo(&arguments);
        let Some(output) = self.interrupts.output_within(&mut check_run, CHECK_MAX)? else {
            return Ok(Some(format!("`{check}`, which does not end")));
        };
        if !output.status.success() {
            return Ok(Some(format!("`{check}`")));
        }
        // A filter that names a renamed test finds none, and passes whatever is broken.
        if !ran_a_test(&String::from_utf8_lossy(&output.stdout)) {
            bail!("its check runs no test: {check}");
        }
        Ok(None)
    }

    /// Keeps a mutation that does not build from counting as noticed.
    fn must_build(&self, arguments: &[&str]) -> Result<()> {
        let Output { status, stderr, .. } = self.cargo(arguments).output()?;
        if !status.success() {
            bail!("does not build: {}", String::from_utf8_lossy(&stderr));
        }
        Ok(())
    }

    fn cargo(&self, arguments: &[&str]) -> Command {
        let mut command = cargo();
        command.args(arguments).current_dir(self.folder.path());
        command.env("CARGO_TARGET_DIR", &self.target);
        let variables = self.services.iter().flat_map(RunningServers::variables);
        command.envs(variables.cloned()).envs(self.variables.iter().cloned());
        command
    }
}

/// Copies one file of the tree.
fn copy_file(path: &str, folder: &Path) -> Result<()> {
    let (from, to) = (root().join(path), folder.join(path));
    fs::create_dir_all(to.parent().unwrap_or(folder))?;
    fs::copy(from, to)?;
    Ok(())
}

/// Returns whether a test program said that it ran something, as in `running 3 tests`.
fn ran_a_test(output: &str) -> bool {
    let counts = output.lines().filter_map(|line| line.strip_prefix("running "));
    counts.filter_map(|rest| rest.split(' ').next()).any(|count| count != "0")
}

/// Returns the invariant of a line such as `  at 17 ms: row_lock: ...`.
fn invariant(line: &str) -> Option<&str> {
    line.strip_prefix("  at ")?.split(": ").nth(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_violation_names_its_invariant() {
        assert_eq!(invariant("  at 17 ms: row_lock: 3/7 got token 9"), Some("row_lock"));
        assert_eq!(invariant("FAILED seed=3"), None);
    }

    #[test]
    fn a_filter_without_a_match_is_told_from_a_test_that_passes() {
        assert!(!ran_a_test("\nrunning 0 tests\n\ntest result: ok. 0 passed\n"));
        assert!(ran_a_test("running 0 tests\n\nrunning 1 test\ntest at::undo ... ok\n"));
        assert!(!ran_a_test(""));
    }
}
