//! Patches that break a rule on purpose, and the checks that must notice.
//!
//! Each patch is applied alone to a copy of the tree. Above its first `diff --git` or `---` line it
//! says, in lines of `Name: value`, what it breaks and which check must fail:
//!
//! ```text
//! Breaks: replies leave before the batch is durable
//! Check: cargo test -p handfast-core --test scripts     (without this line: the simulator)
//! ```
//!
//! Checks find test servers running, as in `cargo xtask test`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::interrupt::Interrupts;
use crate::libclang;
use crate::say::say;
use crate::services::Services;
use crate::test::cargo;
use crate::tree::{root, source_files};

/// Where the patches are.
const FOLDER: &str = "mutations";
/// How many seeds the simulator may take to notice.
const SEEDS: &str = "2000";
/// Named by checks that need libclang.
const HOOK: &str = "pre-update-hook";

/// A patch and what it says of itself.
struct Mutation {
    name: String,
    patch: PathBuf,
    breaks: String,
    check: Option<String>,
}

/// A copy of the tree, built into the target directory of this one, so that dependencies are not
/// built again.
struct Copy {
    folder: TempDir,
    target: PathBuf,
    services: Option<Services>,
    /// What checks find in their environment besides.
    variables: Vec<(&'static str, String)>,
}

/// Applies each patch whose name holds `name` and shows what notices; one that nobody notices is an
/// error.
pub(crate) fn run_all(interrupts: &Interrupts, name: Option<&str>) -> Result<()> {
    let wanted = |mutation: &Mutation| name.is_none_or(|name| mutation.name.contains(name));
    let mutations: Vec<Mutation> = mutations()?.into_iter().filter(wanted).collect();
    let checked = mutations.iter().any(|mutation| mutation.check.is_some());
    let hooked =
        |mutation: &Mutation| mutation.check.as_ref().is_some_and(|check| check.contains(HOOK));
    let hooked = mutations.iter().any(hooked);
    let services = checked.then(|| Services::start(interrupts)).transpose()?;
    let variables = hooked.then(|| libclang::install(interrupts)).transpose()?;
    let copy = Copy::make(services, variables.unwrap_or_default())?;
    let mut unnoticed = Vec::new();
    for mutation in &mutations {
        interrupts.check()?;
        let noticed = copy.try_out(mutation).with_context(|| mutation.name.clone())?;
        let by = noticed.as_deref().unwrap_or("NOBODY");
        say(format_args!("| {} | {} | {by} |", mutation.name, mutation.breaks));
        if noticed.is_none() {
            unnoticed.push(mutation.name.as_str());
        }
    }
    if !unnoticed.is_empty() {
        bail!("nobody notices {}", unnoticed.join(", "));
    }
    say(format_args!("{} mutations, each noticed", mutations.len()));
    Ok(())
}

fn mutations() -> Result<Vec<Mutation>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join(FOLDER)).context(FOLDER)? {
        let patch = entry?.path();
        if patch.extension().is_some_and(|extension| extension == "patch") {
            found.push(read(patch)?);
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

fn read(patch: PathBuf) -> Result<Mutation> {
    let text = fs::read_to_string(&patch).with_context(|| patch.display().to_string())?;
    let field = |name: &str| {
        let head = text.lines().take_while(|line| !is_first_of_diff(line));
        let mut values = head.filter_map(|line| line.strip_prefix(name));
        values.next().map(|value| value.trim().to_owned())
    };
    let name = patch.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let breaks = field("Breaks:").with_context(|| format!("{}: no Breaks:", patch.display()))?;
    Ok(Mutation { name: name.unwrap_or_default(), breaks, check: field("Check:"), patch })
}

impl Copy {
    fn make(services: Option<Services>, variables: Vec<(&'static str, String)>) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("handfast-mutations-").tempdir()?;
        let target = std::env::var_os("CARGO_TARGET_DIR");
        let target = target.map_or_else(|| root().join("target"), PathBuf::from);
        let copy = Self { folder, target, services, variables };
        copy.restore()?;
        Ok(copy)
    }

    /// Makes the copy as the tree is; what is so already keeps its time, and is not built again.
    fn restore(&self) -> Result<()> {
        for file in source_files()? {
            let path = self.folder.path().join(&file.path);
            if fs::read(&path).is_ok_and(|there| there == file.text.as_bytes()) {
                continue;
            }
            fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
            fs::write(&path, file.text)?;
        }
        Ok(())
    }

    /// What notices the mutation; `None` if nothing does.
    fn try_out(&self, mutation: &Mutation) -> Result<Option<String>> {
        self.apply(&mutation.patch)?;
        let noticed = match &mutation.check {
            None => self.simulate(),
            Some(check) => self.run_check(check),
        };
        self.restore()?;
        noticed
    }

    fn apply(&self, patch: &Path) -> Result<()> {
        let mut git = Command::new("git");
        // So that it does not look for a repository around the copy.
        git.arg("apply").arg(patch).env("GIT_CEILING_DIRECTORIES", std::env::temp_dir());
        must_apply(git.current_dir(self.folder.path()))
    }

    fn simulate(&self) -> Result<Option<String>> {
        self.must_build(&["build", "--quiet", "-p", "handfast-sim"])?;
        let run = ["run", "--quiet", "-p", "handfast-sim", "--", "--until-failure"];
        let output = self.cargo(&run).args(["--seeds", SEEDS]).output()?;
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
        let mut words = check.split_whitespace().skip(1);
        let arguments: Vec<&str> = words.by_ref().collect();
        let build: Vec<&str> = arguments.iter().copied().take_while(|word| *word != "--").collect();
        self.must_build(&[&build[..], &["--no-run"]].concat())?;
        let output = self.cargo(&arguments).output()?;
        Ok((!output.status.success()).then(|| format!("`{check}`")))
    }

    /// A patch that does not build would be noticed by everything.
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
        let variables = self.services.iter().flat_map(Services::variables);
        command.envs(variables.cloned()).envs(self.variables.iter().cloned());
        command
    }
}

fn must_apply(git: &mut Command) -> Result<()> {
    let output = git.output().context("git apply")?;
    if !output.status.success() {
        bail!("does not apply: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

fn is_first_of_diff(line: &str) -> bool {
    line.starts_with("diff --git") || line.starts_with("--- ")
}

/// The invariant of a line such as `  at 17 ms: row_lock: ...`.
fn invariant(line: &str) -> Option<&str> {
    line.strip_prefix("  at ")?.split(": ").nth(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_patch_says_what_it_breaks_and_applies() {
        let mutations = mutations().unwrap();
        assert!(mutations.len() >= 15);
        for Mutation { name, patch, .. } in mutations {
            let mut git = Command::new("git");
            git.args(["apply", "--check"]).arg(patch).current_dir(root());
            must_apply(&mut git).with_context(|| name).unwrap();
        }
    }

    #[test]
    fn a_violation_names_its_invariant() {
        assert_eq!(invariant("  at 17 ms: row_lock: 3/7 got token 9"), Some("row_lock"));
        assert_eq!(invariant("FAILED seed=3"), None);
    }
}
