//! Installs what is missing, servers above all, with the system's package manager.
//!
//! It says what it is about to install before it does so.

use std::env;
use std::process::Command;

use anyhow::{Result, bail};
use nix::unistd::Uid;

use crate::interrupt::Interrupts;
use crate::say::say;

/// Something that tests need.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Needed {
    /// Its usual name.
    pub(crate) name: &'static str,
    /// Whether it is on this machine.
    pub(crate) is_installed: fn() -> bool,
    /// The packages, by package manager.
    pub(crate) packages: fn(Installer) -> &'static [&'static str],
    /// Further advice where no package manager is.
    pub(crate) otherwise: &'static str,
}

/// The compiler of Go.
pub(crate) const GO: Needed = Needed {
    name: "Go",
    is_installed: || in_path("go"),
    packages: |installer| match installer {
        Installer::Apt => &["golang-go"],
        Installer::Dnf => &["golang"],
        Installer::Apk | Installer::Brew => &["go"],
    },
    otherwise: "put go into the path",
};

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

    /// Returns the commands that refresh the list of packages, where that is a step of its own, and
    /// install.
    fn steps(self) -> &'static [&'static [&'static str]] {
        match self {
            // Waits for another installation, such as the nightly one, to end.
            Self::Apt => &[
                &["update"],
                &["-o", "DPkg::Lock::Timeout=300", "install", "--yes", "--no-install-recommends"],
            ],
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

/// Makes sure that what is needed is on this machine.
pub(crate) fn install_missing(interrupts: &Interrupts, needed: &[Needed]) -> Result<()> {
    let missing: Vec<&Needed> = needed.iter().filter(|needed| !(needed.is_installed)()).collect();
    let Some(first) = missing.first() else { return Ok(()) };
    let names: Vec<&str> = missing.iter().map(|needed| needed.name).collect();
    let Some(installer) = installer() else {
        bail!(
            "{} missing, and none of apt-get, dnf, apk and brew is here: install it by hand, or {}",
            names.join(" and "),
            first.otherwise
        );
    };
    let packages: Vec<&str> =
        missing.iter().flat_map(|needed| (needed.packages)(installer)).copied().collect();
    say(format_args!(
        "{} missing: installing {} with {}",
        names.join(" and "),
        packages.join(", "),
        installer.program()
    ));
    install(interrupts, installer, &packages)?;
    match missing.iter().find(|needed| !(needed.is_installed)()) {
        Some(needed) => bail!("{} is still missing after the installation", needed.name),
        None => Ok(()),
    }
}

/// Whether a program is in the path.
pub(crate) fn in_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

fn installer() -> Option<Installer> {
    Installer::ALL.into_iter().find(|installer| in_path(installer.program()))
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
        // sudo drops most variables of the environment, so this one is an argument.
        sudo.arg("DEBIAN_FRONTEND=noninteractive").arg(installer.program());
        sudo
    } else {
        Command::new(installer.program())
    };
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}
