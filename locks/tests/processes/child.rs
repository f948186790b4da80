//! Child processes: this test program, started again with a part to play.
//!
//! A child reports what happens in lines on standard output. It ends when its standard input does,
//! so that it never outlives the test.

use std::io::{Read, Write};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{ChildStdout, Command};

use crate::part::{Script, play};

const SCRIPT: &str = "HANDFAST_TEST_SCRIPT";
/// The prefix of a child's reports among the output of the test runner.
const MARK: &str = "report: ";
/// A test that waits for longer than this has failed.
const WAIT_MAX: Duration = Duration::from_secs(120);

/// The entry point of a child. Without a script it does nothing.
#[test]
fn plays_its_part() {
    let Ok(script) = std::env::var(SCRIPT) else { return };
    let script: Script = serde_json::from_str(&script).unwrap();
    std::thread::spawn(|| {
        // The child ends with the parent, in whichever way that ends.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(play(script));
}

/// Reports to the parent.
pub(crate) fn report(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{MARK}{line}").unwrap();
    out.flush().unwrap();
}

/// A running child. Dropped, it is killed.
pub(crate) struct Child {
    process: tokio::process::Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Child {
    pub(crate) fn start(script: &Script) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child::plays_its_part", "--nocapture"]);
        command.env(SCRIPT, serde_json::to_string(script).unwrap());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, lines }
    }

    /// Returns the child's next report.
    pub(crate) async fn reported(&mut self) -> String {
        let line = async {
            loop {
                let line = self.lines.next_line().await.unwrap().expect("the child has ended");
                if let Some(reported) = line.strip_prefix(MARK) {
                    return reported.to_owned();
                }
            }
        };
        tokio::time::timeout(WAIT_MAX, line).await.unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.process.id().unwrap()).unwrap();
        kill(Pid::from_raw(id), signal).unwrap();
    }
}
