//! Child processes: this test program, started again with a part to play.
//!
//! A child says what happens in lines on standard output, and ends when its standard input does, so
//! that it never outlives the test.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{ChildStdin, ChildStdout, Command};

use crate::client::{self, ClientPart};
use crate::coordinator::{self, CoordinatorPart};

/// Which part, and how to play it.
const PART: &str = "HANDFAST_TEST_PART";
const SCRIPT: &str = "HANDFAST_TEST_SCRIPT";
/// Before what a child tells, among what the test runner prints.
const MARK: &str = "told: ";
/// After this long a test that waits has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Timeouts of a global that only its timeout ends.
const TIMEOUTS: [Duration; 3] =
    [Duration::from_secs(5), Duration::from_secs(15), Duration::from_secs(45)];
/// What a client is told whose global has timed out.
pub(crate) const TIMED_OUT: &str = "HF-TC-ALREADY-DECIDED";

/// Does `work` in a global that ends by its timeout.
///
/// The work must be done before the timeout, however busy the machine is: where it returns `None`,
/// because the global was decided first, it is done again in another global with a longer timeout.
pub(crate) async fn before_the_timeout<T>(work: impl AsyncFn(Duration) -> Option<T>) -> T {
    for timeout in TIMEOUTS {
        if let Some(done) = work(timeout).await {
            return done;
        }
    }
    panic!("the work is not done within any of {TIMEOUTS:?}");
}

/// The door of a child. Without a part there is nothing to do.
#[test]
fn plays_its_part() {
    let Ok(part) = std::env::var(PART) else { return };
    std::thread::spawn(|| {
        // Ends with the parent, whichever way that ends.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
    match part.as_str() {
        "client" => runtime.block_on(client::play(script::<ClientPart>())),
        "coordinator" => runtime.block_on(coordinator::play(script::<CoordinatorPart>())),
        other => unreachable!("no part is called {other}"),
    }
}

fn script<S: DeserializeOwned>() -> S {
    serde_json::from_str(&std::env::var(SCRIPT).unwrap()).unwrap()
}

/// Tells the parent.
pub(crate) fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{MARK}{line}").unwrap();
    out.flush().unwrap();
}

/// A running child. Dropped, it is killed.
pub(crate) struct Child {
    process: tokio::process::Child,
    /// Kept apart, for waiting for a process closes its standard input.
    _stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Child {
    pub(crate) fn start(part: &str, script: &impl Serialize, variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child::plays_its_part", "--nocapture"]);
        command.env(PART, part).env(SCRIPT, serde_json::to_string(script).unwrap());
        command.envs(variables.iter().copied()).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { _stdin: process.stdin.take(), process, lines }
    }

    /// The next thing that the child tells.
    pub(crate) async fn told(&mut self) -> String {
        let told = tokio::time::timeout(PATIENCE, self.next_told()).await;
        told.expect("the child tells something").expect("the child lives until then")
    }

    /// The next thing that the child tells, or none when it has ended.
    async fn next_told(&mut self) -> Option<String> {
        while let Some(line) = self.lines.next_line().await.unwrap() {
            // The runner's own words may stand before the mark on one line.
            if let Some((_, told)) = line.split_once(MARK) {
                return Some(told.to_owned());
            }
        }
        None
    }

    /// Waits until the child has died, as a crash point makes it.
    pub(crate) async fn crashed(&mut self) {
        let passed = self.crashed_or_told().await;
        assert_eq!(passed, None, "the child tells something in place of its crash");
    }

    /// Waits until the child has died at a crash point, or returns what it tells without one.
    pub(crate) async fn crashed_or_told(&mut self) -> Option<String> {
        let ended = tokio::time::timeout(PATIENCE, self.next_told()).await;
        if let Some(told) = ended.expect("the child crashes or tells something") {
            return Some(told);
        }
        let status = self.process.wait().await.unwrap();
        assert_eq!(status.signal(), Some(Signal::SIGABRT as i32), "the crash point is reached");
        None
    }

    /// Waits until the child has stopped, as a stop point makes it.
    pub(crate) async fn stopped(&self) {
        let id = Id::Pid(self.pid());
        let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        let waited = tokio::task::spawn_blocking(move || waitid(id, flags));
        let status = tokio::time::timeout(PATIENCE, waited).await.expect("the child stops");
        let status = status.unwrap().unwrap();
        assert!(
            matches!(status, WaitStatus::Stopped(_, Signal::SIGSTOP)),
            "the stop point is reached: {status:?}"
        );
    }

    /// Lets a stopped child go on.
    pub(crate) fn go_on(&self) {
        kill(self.pid(), Signal::SIGCONT).unwrap();
    }

    /// Kills the child; it gets no chance to tidy up.
    pub(crate) async fn kill(mut self) {
        self.process.kill().await.unwrap();
    }

    fn pid(&self) -> Pid {
        let id = self.process.id().expect("the child has not ended");
        Pid::from_raw(i32::try_from(id).unwrap())
    }
}
