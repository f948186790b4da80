//! Child processes of a test: the test program, started again in a role.
//!
//! A child reports in lines of JSON on standard output, and ends when its standard input does, so
//! that it never outlives the test. A test program with roles has a module `child` with a test
//! `runs_its_role`, which calls [`run_role`].

use std::io::{Read, Write};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{ChildStdout, Command};
use tokio::time::timeout;

use crate::child::ChildProcess;
use crate::coordinator;

const ROLE: &str = "HANDFAST_TEST_ROLE";
const INPUT: &str = "HANDFAST_TEST_INPUT";
/// The test that runs the role.
const ENTRY: &str = "child::runs_its_role";
/// Marks a report among the lines that the test runner prints.
const MARK: &str = "report: ";
/// A test that waits for longer has failed.
pub const WAIT_LIMIT: Duration = Duration::from_secs(120);

/// The role that this process was started in.
#[derive(Debug)]
pub struct Role {
    name: String,
    input: String,
}

impl Role {
    /// Returns the name of the role.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns what the parent gave to the role.
    ///
    /// # Panics
    /// If it is of another type.
    #[must_use]
    pub fn input<T: DeserializeOwned>(&self) -> T {
        serde_json::from_str(&self.input).expect("the input is of the role's type")
    }
}

/// Runs the role that this process was started in; returns at once if there is none. The role
/// `coordinator` is run here, every other one by `run`.
///
/// # Panics
/// If the runtime cannot be made, or the role panics.
pub fn run_role(run: impl AsyncFnOnce(Role)) {
    let Ok(name) = std::env::var(ROLE) else { return };
    let role = Role { name, input: std::env::var(INPUT).expect("a role has an input") };
    std::thread::spawn(|| {
        // The parent holds the other end of standard input and never writes: the end of file is the
        // end of the parent, by an exit or a kill.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build();
    runtime.expect("a runtime can be made").block_on(async {
        if role.name() == coordinator::ROLE {
            coordinator::run(role.input()).await;
        } else {
            run(role).await;
        }
    });
}

/// Reports to the parent.
///
/// # Panics
/// If the parent does not read.
pub fn report(value: &(impl Serialize + ?Sized)) {
    let json = serde_json::to_string(value).expect("a report is serializable");
    let mut out = std::io::stdout().lock();
    // The runner may have begun a line.
    writeln!(out, "\n{MARK}{json}").and_then(|()| out.flush()).expect("the parent reads");
}

/// A running child. Dropping it kills it.
#[derive(Debug)]
pub struct RoleProcess {
    process: ChildProcess,
    lines: Lines<BufReader<ChildStdout>>,
}

impl RoleProcess {
    /// Starts this test program in a role, with an input and environment variables.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn start(role: &str, input: &impl Serialize, variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
        command.args(["--exact", ENTRY, "--nocapture"]);
        let input = serde_json::to_string(input).expect("an input is serializable");
        command.env(ROLE, role).env(INPUT, input).envs(variables.iter().copied());
        let (process, stdout) = ChildProcess::start(command).expect("the child starts");
        Self { process, lines: BufReader::new(stdout).lines() }
    }

    /// Waits for the next report of the child.
    ///
    /// # Panics
    /// If the child ends, does not report within [`WAIT_LIMIT`], or reports another type.
    pub async fn next_report<T: DeserializeOwned>(&mut self) -> T {
        let json = timeout(WAIT_LIMIT, self.next_json()).await.expect("the child reports");
        read(&json.expect("the child lives until it reports"))
    }

    /// Returns the JSON of the next report, or `None` when the child has ended.
    async fn next_json(&mut self) -> Option<String> {
        while let Some(line) = self.lines.next_line().await.expect("the child prints text") {
            // The runner's own words may stand before the mark on one line.
            if let Some((_, json)) = line.split_once(MARK) {
                return Some(json.to_owned());
            }
        }
        None
    }

    /// Waits until the child has died at a crash point.
    ///
    /// # Panics
    /// If it reports, or ends in another way.
    pub async fn crashed(&mut self) {
        let report = self.crashed_or_report::<serde_json::Value>().await;
        assert_eq!(report, None, "the child reports in place of its crash");
    }

    /// Waits until the child has died at a crash point, or returns what it reports without one.
    ///
    /// # Panics
    /// If the child does neither within [`WAIT_LIMIT`], or ends in another way.
    pub async fn crashed_or_report<T: DeserializeOwned>(&mut self) -> Option<T> {
        let next = timeout(WAIT_LIMIT, self.next_json()).await;
        if let Some(json) = next.expect("the child crashes or reports") {
            return Some(read(&json));
        }
        let crashed = self.process.crashed(WAIT_LIMIT).await.expect("the crash point is reached");
        assert!(crashed, "the child closes its output and goes on");
        None
    }

    /// Waits until the child has stopped at a stop point.
    ///
    /// # Panics
    /// If it does not within [`WAIT_LIMIT`].
    pub async fn stopped(&self) {
        self.process.stopped(WAIT_LIMIT).await.expect("the stop point is reached");
    }

    /// Lets a stopped child go on.
    ///
    /// # Panics
    /// If it has ended.
    pub fn go_on(&self) {
        self.process.go_on().expect("the child has not ended");
    }

    /// Stops the child where it is.
    ///
    /// # Panics
    /// If it has ended.
    pub fn pause(&self) {
        self.process.pause().expect("the child has not ended");
    }

    /// Kills the child as `kill -9` does and waits until it is gone.
    ///
    /// # Panics
    /// If it cannot be killed.
    pub async fn kill(mut self) {
        self.process.kill().await.expect("the child can be killed");
    }
}

fn read<T: DeserializeOwned>(json: &str) -> T {
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{error} in the report {json}"))
}
