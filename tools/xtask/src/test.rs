//! The test run: servers up, the tests, servers down.

use std::env;
use std::io::Write;
use std::process::Command;

use anyhow::Result;
use handfast_test_services::ServerKind;

use crate::install::{GO, install_missing};
use crate::interrupt::Interrupts;
use crate::say::say;
use crate::services::{RunningServers, install};
use crate::test_programs;

/// Packages whose tests use no server.
const WITHOUT_SERVERS: [&str; 7] = [
    "handfast-core",
    "handfast-macros",
    "handfast-migrations",
    "handfast-proto",
    "handfast-rm-core",
    "handfast-seata-wire",
    "handfast-sim",
];

/// Runs the tests of the workspace, or what `arguments` narrow them to.
pub(crate) fn run_tests(interrupts: &Interrupts, arguments: &[String]) -> Result<()> {
    if needs_no_server(arguments) {
        return interrupts.run(cargo().args(["test", "--no-fail-fast"]).args(arguments));
    }
    let services = RunningServers::start(interrupts)?;
    if arguments.is_empty() {
        // Tests that kill a server start their own.
        install(interrupts, &ServerKind::ALL)?;
        // For the collector of traces.
        install_missing(interrupts, &[GO])?;
        test_programs::run_all(interrupts, services.variables())?;
        let mut documents = cargo();
        documents.args(["test", "--workspace", "--doc"]);
        return interrupts.run(documents.envs(services.variables().iter().cloned()));
    }
    let mut command = cargo();
    // One failure hides no other.
    command.args(["test", "--no-fail-fast"]);
    if !names_a_package(arguments) {
        install(interrupts, &ServerKind::ALL)?;
        install_missing(interrupts, &[GO])?;
        command.arg("--workspace");
    }
    command.args(arguments).envs(services.variables().iter().cloned());
    interrupts.run(&mut command)
}

/// Keeps the servers running for tests that are started by hand with `cargo test`.
pub(crate) fn run_services(interrupts: &Interrupts) -> Result<()> {
    let services = RunningServers::start(interrupts)?;
    let mut out = std::io::stdout().lock();
    for (name, url) in services.variables() {
        writeln!(out, "export {name}='{url}'")?;
    }
    out.flush()?;
    say("Ctrl-C stops the servers and removes their data");
    interrupts.wait();
    Ok(())
}

/// Variables that cargo sets for a program that it runs. A build script that looks at one of these
/// (ring's does) would run again for each change between `cargo xtask` and cargo called by hand,
/// and everything that depends on it would be built again.
const TOLD_BY_CARGO: [&str; 7] = [
    "CARGO_MANIFEST_DIR",
    "CARGO_MANIFEST_LINKS",
    "CARGO_PKG_NAME",
    "CARGO_PKG_VERSION_MAJOR",
    "CARGO_PKG_VERSION_MINOR",
    "CARGO_PKG_VERSION_PATCH",
    "CARGO_PKG_VERSION_PRE",
];

/// The cargo that runs this program, as if called by hand.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for name in TOLD_BY_CARGO {
        command.env_remove(name);
    }
    command
}

fn names_a_package(arguments: &[String]) -> bool {
    !packages(arguments).is_empty()
}

/// Returns whether the arguments name packages, and only such as use no server.
fn needs_no_server(arguments: &[String]) -> bool {
    let packages = packages(arguments);
    !packages.is_empty() && packages.iter().all(|name| WITHOUT_SERVERS.contains(name))
}

/// Returns the packages that cargo's own arguments name.
fn packages(arguments: &[String]) -> Vec<&str> {
    let mut ours = arguments.iter().take_while(|argument| *argument != "--").map(String::as_str);
    let mut packages = Vec::new();
    while let Some(argument) = ours.next() {
        let rest = argument.strip_prefix("--package").or_else(|| argument.strip_prefix("-p"));
        match rest.map(|rest| rest.trim_start_matches('=')) {
            Some("") => packages.push(ours.next().unwrap_or_default()),
            Some(name) => packages.push(name),
            None => {}
        }
    }
    packages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_cargos_own_arguments_name_a_package() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(names_a_package(&words("-p handfast-core")));
        assert!(names_a_package(&words("--package=handfast-core")));
        assert!(!names_a_package(&words("--release commit -- -p x")));
    }

    #[test]
    fn servers_are_started_unless_no_named_package_uses_one() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for without in
            ["-p handfast-core", "-phandfast-core", "--package=handfast-migrations --lib"]
        {
            assert!(needs_no_server(&words(without)), "{without}");
        }
        for with in ["--test sql", "-p handfast", "-p handfast-core -p handfast", "--lib -- -p x"] {
            assert!(!needs_no_server(&words(with)), "{with}");
        }
        assert!(!needs_no_server(&[]));
    }
}
