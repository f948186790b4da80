//! Finds server programs, and installs what is missing with the system's package manager.
//!
//! Everything it is about to install is said before it is done.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};
use nix::unistd::Uid;

use crate::interrupt::Interrupts;
use crate::say::say;

/// A server that tests need.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Needed {
    /// For people.
    pub(crate) name: &'static str,
    /// The programs that must be there, side by side or not.
    pub(crate) programs: &'static [&'static str],
    /// Where distributions keep them outside the path; `*` stands for one path component's rest.
    pub(crate) folders: &'static [&'static str],
    /// The packages, by package manager.
    pub(crate) packages: fn(Installer) -> &'static [&'static str],
}

/// The package managers that we can drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Installer {
    /// Debian, Ubuntu.
    Apt,
    /// Fedora, RHEL.
    Dnf,
    /// Alpine.
    Apk,
    /// macOS.
    Brew,
}

impl Installer {
    const ALL: [Self; 4] = [Self::Apt, Self::Dnf, Self::Apk, Self::Brew];

    fn program(self) -> &'static str {
        match self {
            Self::Apt => "apt-get",
            Self::Dnf => "dnf",
            Self::Apk => "apk",
            Self::Brew => "brew",
        }
    }

    /// Refreshing the list of packages, where that is a step of its own, then installing.
    fn steps(self) -> &'static [&'static [&'static str]] {
        match self {
            Self::Apt => &[&["update"], &["install", "--yes", "--no-install-recommends"]],
            Self::Dnf => &[&["install", "--assumeyes"]],
            Self::Apk => &[&["add", "--update-cache"]],
            Self::Brew => &[&["install"]],
        }
    }

    /// Homebrew refuses to run as root; the others need it.
    fn needs_root(self) -> bool {
        self != Self::Brew
    }
}

/// Makes sure that the servers' programs are on this machine.
pub(crate) fn install_missing(interrupts: &Interrupts, needed: &[Needed]) -> Result<()> {
    let missing: Vec<&Needed> = needed.iter().filter(|server| !is_installed(server)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = missing.iter().map(|server| server.name).collect();
    let Some(installer) = installer() else {
        bail!(
            "{} missing, and none of apt-get, dnf, apk and brew is here: install it by hand, or \
             set HANDFAST_TEST_POSTGRES and HANDFAST_TEST_MYSQL to servers of your own",
            names.join(" and ")
        );
    };
    let packages: Vec<&str> =
        missing.iter().flat_map(|server| (server.packages)(installer)).copied().collect();
    say(format_args!(
        "{} missing: installing {} with {}",
        names.join(" and "),
        packages.join(", "),
        installer.program()
    ));
    install(interrupts, installer, &packages)?;
    match missing.iter().find(|server| !is_installed(server)) {
        Some(server) => bail!("{} is still missing after the installation", server.name),
        None => Ok(()),
    }
}

/// The full path of one of a server's programs.
pub(crate) fn find_program(server: &Needed, program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    // The distribution's own folder comes first: a wrapper in the path may pick another version.
    let folders = server.folders.iter().flat_map(|pattern| matching_folders(Path::new(pattern)));
    folders.chain(env::split_paths(&path)).map(|dir| dir.join(program)).find(|file| file.is_file())
}

fn is_installed(server: &Needed) -> bool {
    server.programs.iter().all(|program| find_program(server, program).is_some())
}

fn installer() -> Option<Installer> {
    let path = env::var_os("PATH").unwrap_or_default();
    let is_here = |installer: &Installer| {
        env::split_paths(&path).any(|dir| dir.join(installer.program()).is_file())
    };
    Installer::ALL.into_iter().find(is_here)
}

fn install(interrupts: &Interrupts, installer: Installer, packages: &[&str]) -> Result<()> {
    for (at, step) in installer.steps().iter().enumerate() {
        let is_last = at + 1 == installer.steps().len();
        let mut command = privileged(installer);
        command.args(*step).args(if is_last { packages } else { &[] });
        interrupts.run(&mut command)?;
    }
    Ok(())
}

fn privileged(installer: Installer) -> Command {
    let mut command = if installer.needs_root() && !Uid::effective().is_root() {
        let mut sudo = Command::new("sudo");
        sudo.arg("DEBIAN_FRONTEND=noninteractive").arg(installer.program());
        sudo
    } else {
        Command::new(installer.program())
    };
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// The folders that a pattern names, the greatest version first.
fn matching_folders(pattern: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    for component in pattern.components() {
        let part = component.as_os_str().to_string_lossy();
        found = match part.split_once('*') {
            None => found.into_iter().map(|dir| dir.join(component)).collect(),
            Some((start, _rest)) => {
                found.iter().flat_map(|dir| children_starting_with(dir, start)).collect()
            }
        };
    }
    found.retain(|dir| dir.is_dir());
    found.sort_by_key(|dir| std::cmp::Reverse(version_in(dir)));
    found
}

fn children_starting_with(dir: &Path, start: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(start));
    named.map(|entry| entry.path()).collect()
}

/// The numbers in a path, in order: 15 is more than 9, which text order denies.
fn version_in(dir: &Path) -> Vec<u64> {
    let text = dir.to_string_lossy();
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_version_comes_first() {
        let root = tempfile::tempdir().unwrap();
        for version in ["9", "15", "10"] {
            fs::create_dir_all(root.path().join("lib").join(version).join("bin")).unwrap();
        }
        let found = matching_folders(&root.path().join("lib/*/bin"));
        let expected = ["15", "10", "9"].map(|v| root.path().join("lib").join(v).join("bin"));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_pattern_of_nothing_finds_nothing() {
        assert!(matching_folders(Path::new("/nowhere-at-all/*/bin")).is_empty());
    }
}
