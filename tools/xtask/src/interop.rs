//! The run of real Seata clients against the coordinator.

use std::ffi::OsStr;
use std::process::Command;

use anyhow::Result;
use handfast_test_services::ServerKind;

use crate::install::{GO, Installer, Needed, in_path, install_missing};
use crate::interrupt::Interrupts;
use crate::services;
use crate::test::cargo;

/// Further advice about a missing tool.
const OTHERWISE: &str = "put java, javac and mvn into the path";

const JAVA: Needed = Needed {
    name: "Java",
    is_installed: || in_path("javac") && in_path("java"),
    packages: |installer| match installer {
        Installer::Apt => &["default-jdk-headless"],
        Installer::Dnf => &["java-21-openjdk-devel"],
        Installer::Apk => &["openjdk21-jdk"],
        Installer::Brew => &["openjdk"],
    },
    otherwise: OTHERWISE,
};

const MAVEN: Needed = Needed {
    name: "Maven",
    is_installed: || in_path("mvn"),
    packages: |_installer| &["maven"],
    otherwise: OTHERWISE,
};

/// Installs tools and databases if need be, builds the coordinator, and runs `handfast-interop`.
pub(crate) fn run_clients<T: AsRef<OsStr>>(
    interrupts: &Interrupts,
    mut clients: Command,
    arguments: &[T],
) -> Result<()> {
    install_missing(interrupts, &[JAVA, MAVEN, GO])?;
    services::install(interrupts, &ServerKind::SQL)?;
    let mut build = cargo();
    // As the tests of the workspace build it: after them there is nothing to build.
    build.args(["test", "--quiet", "--workspace", "--test", "seata", "--no-run"]);
    interrupts.run(&mut build)?;
    interrupts.run(clients.args(arguments))
}
