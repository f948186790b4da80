//! The run of the console in a browser, and the checks of its types and vendored files.

use std::env;
use std::ffi::OsStr;
use std::process::Command;

use anyhow::Result;
use handfast_test_services::ServerKind;

use crate::install::{Installer, Needed, in_path, install_missing};
use crate::interrupt::Interrupts;
use crate::languages::NODE;
use crate::program::Programs;
use crate::services::{self, MYSQL_VARIABLE, POSTGRES_VARIABLE};
use crate::test::cargo;
use crate::tree::root;

/// Names the browser's program where it is not in the path as `chromium`.
const BROWSER_VARIABLE: &str = "HANDFAST_TEST_CHROMIUM";
const FOLDER: &str = "quality/console";

const BROWSER: Needed = Needed {
    name: "Chromium",
    is_installed: || in_path("chromium") || env::var_os(BROWSER_VARIABLE).is_some(),
    packages: |installer| match installer {
        // With fonts: text without any is a row of boxes.
        Installer::Apt => &["chromium", "fonts-dejavu-core"],
        Installer::Dnf | Installer::Apk | Installer::Brew => &["chromium"],
    },
    otherwise: "set HANDFAST_TEST_CHROMIUM to the program",
};

/// Installs browser, Node and servers if need be, checks the console's files, builds, and plays.
pub(crate) fn run_scenes<T: AsRef<OsStr>>(interrupts: &Interrupts, arguments: &[T]) -> Result<()> {
    install_missing(interrupts, &[BROWSER, NODE])?;
    let servers =
        [(ServerKind::Postgres, POSTGRES_VARIABLE), (ServerKind::MariaDb, MYSQL_VARIABLE)];
    let missing = servers.into_iter().filter(|(_, variable)| env::var_os(variable).is_none());
    services::install(interrupts, &missing.map(|(kind, _)| kind).collect::<Vec<_>>())?;
    for step in
        [&["ci", "--silent"][..], &["run", "--silent", "types"], &["run", "--silent", "vendored"]]
    {
        interrupts.run(Command::new("npm").args(step).current_dir(root().join(FOLDER)))?;
    }
    let mut build = cargo();
    // As the tests of the workspace build them: after them there is nothing to build.
    build.args(["build", "--profile", "test", "--quiet", "--workspace"]);
    interrupts.run(build.args(["--bin", "handfast", "--bin", "handfast-console-tests"]))?;
    let mut scenes = Programs::built().command("handfast-console-tests")?;
    interrupts.run(scenes.args(arguments))
}
