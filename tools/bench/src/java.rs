//! Programs with clients in Java: those of `quality/interop`.
//!
//! The clients run by themselves within a window. The program is told when to run them, and what it
//! counted is read afterwards, so that nothing lies between the clients and what is measured.

use std::fs::File;
use std::path::PathBuf;
use std::process::Stdio;
use std::str::SplitWhitespace;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout_at;

use crate::load::Window;
use crate::sample::Sample;
use crate::usage::Process;
use crate::workers::{Counted, cost_within};

/// Flags of every Java program with clients. Some log each operation unless they are told not to.
pub(crate) const FLAGS: [&str; 2] = ["-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"];
/// The lines of a log that are shown if the program ends by itself.
const LOG_LINES: usize = 20;
/// How long a program may take to start, to run each client's first operation, and to end a run
/// and print what it counted.
const ANSWERS_WITHIN: Duration = Duration::from_secs(120);

/// The running program. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct JavaClients {
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    log: PathBuf,
}

/// One run of clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JavaRun<'a> {
    /// The name of the operation.
    pub(crate) operation: &'a str,
    pub(crate) clients: usize,
    /// The warm-up, and the window after it.
    pub(crate) times: (Duration, Duration),
    /// The processes that work for the clients.
    pub(crate) servers: &'a [Process],
    /// The name of a reason for which operations fail as the workload expects.
    pub(crate) expected: fn(&str) -> Option<&'static str>,
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct JavaResult {
    pub(crate) sample: Sample,
    pub(crate) foreign_cores: f64,
    /// The operations that ended well, also outside of the window.
    pub(crate) ended: u64,
}

impl JavaClients {
    /// Starts the program by a command, and waits until it can run clients.
    pub(crate) async fn start(command: std::process::Command, log: PathBuf) -> Result<Self> {
        let mut java = Command::from(command);
        java.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(&log)?);
        let mut child = java.kill_on_drop(true).spawn().context("running java")?;
        let stdin = child.stdin.take().context("standard input is piped")?;
        let stdout = child.stdout.take().context("standard output is piped")?;
        let lines = BufReader::new(stdout).lines();
        let mut clients = Self { child, stdin, lines, log };
        clients.wait_for("ready").await?;
        Ok(clients)
    }

    /// Runs clients for the time of a window.
    pub(crate) async fn run(&mut self, run: &JavaRun<'_>) -> Result<JavaResult> {
        let JavaRun { operation, clients, times, servers, expected } = *run;
        let java = self.process()?;
        let (warm_up, length) = (times.0.as_millis(), times.1.as_millis());
        let line = format!("{operation} {clients} {warm_up} {length}\n");
        self.stdin.write_all(line.as_bytes()).await?;
        self.wait_for("open").await?;
        let window = Window::after(times.0, times.1);
        // The program writes when the window is over.
        let cost = cost_within(window, java, servers).await?;
        let (mut counted, mut ended) = (Counted::new(clients), 0);
        let until = Instant::now() + ANSWERS_WITHIN;
        loop {
            let line = self.next_line(until).await?;
            if line == "done" {
                break;
            }
            ended += read_count(&line, &mut counted, expected).with_context(|| line.clone())?;
        }
        let foreign_cores = cost.foreign_cores;
        Ok(JavaResult { sample: counted.into_sample(window, cost)?, foreign_cores, ended })
    }

    /// Returns the process, to measure its cost.
    pub(crate) fn process(&self) -> Result<Process> {
        Process::of(self.child.id().context("the program in Java has ended")?)
    }

    async fn wait_for(&mut self, word: &str) -> Result<()> {
        let line = self.next_line(Instant::now() + ANSWERS_WITHIN).await?;
        ensure!(line == word, "the program in Java says {line:?} instead of {word:?}");
        Ok(())
    }

    async fn next_line(&mut self, until: Instant) -> Result<String> {
        let next = timeout_at(until.into(), self.lines.next_line()).await;
        let what = match next {
            Ok(line) => match line? {
                Some(line) => return Ok(line),
                None => "has ended".to_owned(),
            },
            Err(_) => format!("does not answer within {ANSWERS_WITHIN:?}"),
        };
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
        bail!("the program in Java {what}: {last}")
    }
}

/// Reads a line of what was counted. Returns the operations in it that ended well.
fn read_count(
    line: &str,
    counted: &mut Counted,
    expected: fn(&str) -> Option<&'static str>,
) -> Result<u64> {
    let mut words = line.split_whitespace();
    match words.next() {
        Some("latency") => {
            let client = usize::try_from(number(&mut words)?)?;
            counted.done(client, Duration::from_nanos(number(&mut words)?));
        }
        Some("failed") => {
            let count = number(&mut words)?;
            let reason = words.next().context("a failure has a reason")?;
            match expected(reason) {
                Some(name) => counted.expected(name, count),
                None => counted.failed(reason.to_owned(), count),
            }
        }
        Some("ended") => return number(&mut words),
        Some(_) | None => bail!("the line is no count"),
    }
    Ok(0)
}

fn number(words: &mut SplitWhitespace<'_>) -> Result<u64> {
    words.next().context("a number is missing")?.parse().context("no number")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_clients_are_added_up() {
        let mut counted = Counted::new(2);
        let expected = |reason: &str| (reason == "purpose").then_some("rolled back on purpose");
        let lines = ["latency 1 2000", "failed 3 purpose", "failed 2 BeginFailure", "ended 7"];
        let ended = lines.map(|line| read_count(line, &mut counted, expected).unwrap());
        assert_eq!(ended, [0, 0, 0, 7]);
        let shown = format!("{counted:?}");
        assert!(shown.contains("by_client: [0, 1]"), "{shown}");
        assert!(shown.contains("\"rolled back on purpose\": 3"), "{shown}");
        assert!(shown.contains("\"BeginFailure\": 2"), "{shown}");
        assert!(read_count("latency 1", &mut counted, expected).is_err());
        assert!(read_count("hello", &mut counted, expected).is_err());
    }

    #[tokio::test]
    async fn a_program_that_ends_by_itself_is_an_error_with_its_last_words() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "echo ready; read line; echo no database >&2"]);
        let log = folder.path().join("log");
        let mut clients = JavaClients::start(command, log).await.unwrap();
        let times = (Duration::ZERO, Duration::ZERO);
        let run = JavaRun { operation: "mix", clients: 1, times, servers: &[], expected: |_| None };
        let error = clients.run(&run).await.unwrap_err();
        assert!(error.to_string().contains("has ended: no database"), "{error:#}");
    }
}
