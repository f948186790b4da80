//! `cargo xtask dist`: what is installed without a compiler.
//!
//! It builds the program, static, against musl and once more against the C library of this
//! machine; packs it with completions, manual pages, a list of their parts and checksums; makes a
//! Debian package of the static one; and tries these: the package is installed, started, upgraded
//! and removed, and the program runs in the root of the container image. It publishes nothing.

mod archive;
mod build;
mod debian;
mod parts;
mod trial;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::install::{Installer, Needed, install_missing};
use crate::interrupt::Interrupts;
use crate::say::say;
use crate::tree::root;

use self::build::Platform;
use self::debian::Package;

/// The version of everything in the workspace.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The folder of everything that is made, below the root.
const DIST: &str = "target/dist-packages";

/// The parts that can be left out.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Neither install the package nor run the static program; neither needs root then.
    #[arg(long)]
    skip_trial: bool,
    /// Leave out the archive of the program that is linked with this machine's C library.
    #[arg(long)]
    static_only: bool,
}

/// Builds, packs and tries everything.
pub(crate) fn make(interrupts: &Interrupts, options: &Options) -> Result<()> {
    if std::env::consts::OS != "linux" {
        bail!("the packages are made on Linux");
    }
    install_missing(interrupts, &PACKING)?;
    let folder = root().join(DIST);
    if folder.exists() {
        fs::remove_dir_all(&folder).context("removing the last packages")?;
    }
    fs::create_dir_all(&folder)?;
    let date = source_date(interrupts)?;
    let musl = Platform::musl();
    let programs = musl.build(interrupts)?;
    archive::check_static(interrupts, &programs)?;
    let extras = archive::write_extras(interrupts, &programs)?;
    archive::pack(interrupts, &musl, &programs, &extras, &folder, &date)?;
    parts::write(interrupts, &musl, &folder)?;
    if !options.static_only {
        let own = Platform::own()?;
        archive::pack(interrupts, &own, &own.build(interrupts)?, &extras, &folder, &date)?;
        parts::write(interrupts, &own, &folder)?;
    }
    let package = Package { programs: &programs, extras: &extras, date: &date };
    let package_file = package.make(interrupts, "1", &folder)?;
    if !options.skip_trial {
        install_missing(interrupts, &TRYING)?;
        let upgrade = package.make(interrupts, "2", &extras.join("upgrade"))?;
        trial::install_package(interrupts, &package_file, &upgrade)?;
        trial::run_in_image(interrupts, &programs)?;
    }
    archive::write_checksums(interrupts, &folder)?;
    show(&folder)
}

/// The time of the commit, so that the same commit gives the same files.
fn source_date(interrupts: &Interrupts) -> Result<String> {
    let mut git = Command::new("git");
    git.args(["log", "-1", "--format=%ct"]).current_dir(root());
    Ok(interrupts.output(&mut git)?.trim().to_owned())
}

fn show(folder: &Path) -> Result<()> {
    for path in files(folder)? {
        let name = path.file_name().unwrap_or_default().display();
        let kib = fs::metadata(&path)?.len().div_ceil(1024);
        say(format_args!("{DIST}/{name}: {kib} KiB"));
    }
    Ok(())
}

/// The files of a folder, in order.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_file() {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

const PACKING: [Needed; 3] = [
    Needed {
        name: "a C compiler for musl",
        is_installed: || is_program("musl-gcc"),
        packages: |installer| match installer {
            Installer::Apt => &["musl-tools"],
            Installer::Dnf => &["musl-gcc"],
            Installer::Apk => &["musl-dev"],
            Installer::Brew => &[],
        },
        otherwise: "put musl-gcc where PATH finds it",
    },
    Needed {
        name: "dpkg-deb",
        is_installed: || is_program("dpkg-deb"),
        packages: |_| &["dpkg"],
        otherwise: "make the packages on Debian",
    },
    Needed {
        name: "lintian",
        is_installed: || is_program("lintian"),
        packages: |_| &["lintian"],
        otherwise: "make the packages on Debian",
    },
];

const TRYING: [Needed; 1] = [Needed {
    name: "ip and adduser",
    is_installed: || is_program("ip") && is_program("adduser"),
    packages: |_| &["iproute2", "adduser"],
    otherwise: "call it with --skip-trial",
}];

fn is_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Programs of the administrator, which a user's PATH may lack.
    let more = [PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")];
    std::env::split_paths(&path).chain(more).any(|folder| folder.join(name).is_file())
}
