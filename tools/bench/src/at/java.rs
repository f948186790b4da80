//! The program with Seata's Java client in it: `Contention.java` of `quality/interop`.
//!
//! Its clients run by themselves within a window. It is told when to run, and what it counted is
//! read afterwards, so that nothing lies between the clients and what is measured.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::str::SplitWhitespace;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use handfast_interop::{JavaRelease, JavaSettings};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::contention::{BY_COORDINATOR, BY_DATABASE, ContendedRun, ON_PURPOSE, ROW_LOCKED};
use super::setup::DATABASE_PROGRAMS;
use crate::child::Server;
use crate::load::Window;
use crate::usage::Process;
use crate::workers::{Counted, cost_within};

/// The client logs each global unless it is told otherwise.
const FLAGS: [&str; 2] = ["-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"];
/// The lines of a log that are shown if the program ends by itself.
const LOG_LINES: usize = 20;

/// The address of a database for a program in Java.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct JdbcAddress {
    url: String,
    user: String,
    password: String,
}

impl JdbcAddress {
    /// Returns the address of a database on the server at a URL.
    pub(super) fn new(jdbc: &str, server: &str, database: &str) -> Result<Self> {
        let (_, rest) = server.split_once("://").context("the server's URL has no scheme")?;
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        let (user, address) = authority.rsplit_once('@').context("the URL names no user")?;
        let (user, password) = user.split_once(':').unwrap_or((user, ""));
        let url = format!("{jdbc}://{address}/{database}");
        Ok(Self { url, user: user.to_owned(), password: password.to_owned() })
    }
}

/// The running program. Dropping it kills it.
#[derive(Debug)]
pub(super) struct JavaClients {
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    log: PathBuf,
}

impl JavaClients {
    /// Starts the program, with its files in a folder, and waits until it can run.
    pub(super) async fn start(
        coordinator: SocketAddr,
        database: &JdbcAddress,
        rows: i64,
        folder: &Path,
    ) -> Result<Self> {
        let settings = folder.join("java");
        JavaSettings::at(&coordinator.to_string()).write(&settings)?;
        let log = folder.join("java.log");
        let mut java =
            Command::from(JavaRelease::NEWEST.command(&FLAGS, &settings, "Contention")?);
        java.args([&database.url, &database.user, &database.password, &rows.to_string()]);
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
    pub(super) async fn run(
        &mut self,
        clients: usize,
        times: (Duration, Duration),
        coordinator: &Server,
    ) -> Result<ContendedRun> {
        let java = Process::of(self.child.id().context("the program in Java has ended")?)?;
        let mut servers = Process::named(&DATABASE_PROGRAMS)?;
        servers.push(coordinator.process()?);
        let (warm_up, length) = (times.0.as_millis(), times.1.as_millis());
        self.stdin.write_all(format!("{clients} {warm_up} {length}\n").as_bytes()).await?;
        self.wait_for("open").await?;
        let window = Window::after(times.0, times.1);
        // The program writes when the window is over.
        let cost = cost_within(window, java, &servers).await?;
        let (mut counted, mut commits) = (Counted::new(clients), 0);
        loop {
            let line = self.next_line().await?;
            if line == "done" {
                break;
            }
            commits += read_count(&line, &mut counted).with_context(|| line.clone())?;
        }
        let foreign_cores = cost.foreign_cores;
        Ok(ContendedRun { sample: counted.into_sample(window, cost)?, foreign_cores, commits })
    }

    async fn wait_for(&mut self, word: &str) -> Result<()> {
        let line = self.next_line().await?;
        ensure!(line == word, "the program in Java says {line:?} instead of {word:?}");
        Ok(())
    }

    async fn next_line(&mut self) -> Result<String> {
        if let Some(line) = self.lines.next_line().await? {
            return Ok(line);
        }
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
        bail!("the program in Java has ended: {last}")
    }
}

/// Reads a line of what was counted. Returns the commits in it.
fn read_count(line: &str, counted: &mut Counted) -> Result<u64> {
    let mut words = line.split_whitespace();
    match words.next() {
        Some("latency") => {
            let client = usize::try_from(number(&mut words)?)?;
            counted.done(client, Duration::from_nanos(number(&mut words)?));
        }
        Some("failed") => {
            let count = number(&mut words)?;
            match words.next().context("a failure has a reason")? {
                "purpose" => counted.expected(ON_PURPOSE, count),
                "coordinator" => counted.expected(BY_COORDINATOR, count),
                "row-locked" => counted.expected(ROW_LOCKED, count),
                "database" => counted.expected(BY_DATABASE, count),
                other => counted.failed(other.to_owned(), count),
            }
        }
        Some("commits") => return number(&mut words),
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
    fn a_program_in_java_gets_its_own_kind_of_url() {
        let address = |server| JdbcAddress::new("jdbc:mysql", server, "bench").unwrap();
        let expected = |password: &str| JdbcAddress {
            url: "jdbc:mysql://127.0.0.1:3306/bench".to_owned(),
            user: "root".to_owned(),
            password: password.to_owned(),
        };
        assert_eq!(address("mysql://root:se@cret@127.0.0.1:3306"), expected("se@cret"));
        assert_eq!(address("mysql://root@127.0.0.1:3306/other?ssl-mode=x"), expected(""));
        assert!(JdbcAddress::new("jdbc:mysql", "mysql://127.0.0.1", "bench").is_err());
    }

    #[test]
    fn counts_of_clients_are_added_up() {
        let mut counted = Counted::new(2);
        let lines = ["latency 1 2000", "failed 3 purpose", "failed 2 BeginFailure", "commits 7"];
        let commits = lines.map(|line| read_count(line, &mut counted).unwrap());
        assert_eq!(commits, [0, 0, 0, 7]);
        let shown = format!("{counted:?}");
        assert!(shown.contains("by_client: [0, 1]"), "{shown}");
        assert!(shown.contains("\"rolled back on purpose\": 3"), "{shown}");
        assert!(shown.contains("\"BeginFailure\": 2"), "{shown}");
        assert!(read_count("latency 1", &mut counted).is_err());
        assert!(read_count("hello", &mut counted).is_err());
    }
}
