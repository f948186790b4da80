//! The run of the examples in other languages against the coordinator.

use std::ffi::OsStr;

use anyhow::Result;
use handfast_test_services::ServerKind;

use crate::install::{Installer, Needed, in_path, install_missing};
use crate::interrupt::Interrupts;
use crate::program::Programs;
use crate::services;
use crate::test::cargo;

/// Further advice about a missing tool.
const OTHERWISE: &str = "put python3, node and npm into the path";

const PYTHON: Needed = Needed {
    name: "Python",
    is_installed: || in_path("python3"),
    packages: |installer| match installer {
        Installer::Apt => &["python3-venv"],
        Installer::Dnf | Installer::Apk => &["python3"],
        Installer::Brew => &["python"],
    },
    otherwise: OTHERWISE,
};

pub(crate) const NODE: Needed = Needed {
    name: "Node",
    is_installed: || in_path("node") && in_path("npm"),
    packages: |installer| match installer {
        Installer::Apt | Installer::Apk => &["nodejs", "npm"],
        Installer::Dnf => &["nodejs"],
        Installer::Brew => &["node"],
    },
    otherwise: OTHERWISE,
};

/// Installs tools and PostgreSQL if need be, builds the coordinator and the service in Rust, and
/// runs `handfast-languages`.
pub(crate) fn run_programs<T: AsRef<OsStr>>(
    interrupts: &Interrupts,
    arguments: &[T],
) -> Result<()> {
    install_missing(interrupts, &[PYTHON, NODE])?;
    services::install(interrupts, &[ServerKind::Postgres])?;
    let mut build = cargo();
    // As the tests of the workspace build them: after them there is nothing to build.
    build.args(["build", "--profile", "test", "--quiet", "--workspace"]);
    build.args(["--bin", "handfast", "--bin", "handfast-languages"]);
    interrupts.run(build.args(["--example", "orders_service"]))?;
    let mut programs = Programs::built().command("handfast-languages")?;
    interrupts.run(programs.args(arguments))
}
