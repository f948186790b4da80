//! The program `handfast serve` as a process, known by its command line, its log and its ports
//! alone: this file depends on no code of the coordinator.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::log::ProcessLog;
use crate::process::{LOG_LINES_SHOWN, PROBE_EVERY};

/// How long the start may take, and each message that a test waits for.
const LOGGED_WITHIN: Duration = Duration::from_secs(60);
/// How long the start may take until the coordinator leads.
const READY_WITHIN: Duration = Duration::from_secs(90);
/// How long one request to the admin API may take.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);

/// A coordinator in a process of its own. Dropping it kills it.
#[derive(Debug)]
pub struct CoordinatorProcess {
    child: Child,
    log: Arc<ProcessLog>,
    /// The first line of the log that no wait has passed.
    next_line: usize,
    /// The log lines from before the coordinator listened.
    startup: Vec<Value>,
    grpc: SocketAddr,
    admin: SocketAddr,
    seata: Option<SocketAddr>,
}

impl CoordinatorProcess {
    /// Starts a command that ends in `handfast serve` and its arguments, on these addresses; port 0
    /// takes a free one. Returns when the coordinator has logged where it listens. The log is also
    /// appended to the file, if one is given.
    ///
    /// # Errors
    /// Returns what was logged if the coordinator does not start.
    pub fn start(
        mut command: Command,
        [grpc, admin]: [SocketAddr; 2],
        copy_of_log: Option<&Path>,
    ) -> Result<Self> {
        command.args(["--grpc-listen", &grpc.to_string(), "--admin-listen", &admin.to_string()]);
        command.args(["--log-format", "json"]).stdin(Stdio::null()).stderr(Stdio::piped());
        let copy = copy_of_log.map(|path| File::options().create(true).append(true).open(path));
        let copy = copy.transpose().context("opening the file for the log")?;
        let mut child = command.spawn().with_context(|| format!("{command:?}"))?;
        let pipe = child.stderr.take().context("standard error is piped")?;
        let log = ProcessLog::read(pipe, copy);
        let mut process =
            Self { child, log, next_line: 0, startup: Vec::new(), grpc, admin, seata: None };
        process.wait_until_listening()?;
        Ok(process)
    }

    fn wait_until_listening(&mut self) -> Result<()> {
        let is_listening = |line: &str| message_of(line).is_some_and(|it| it == "listening");
        let Some(at) = self.log.wait_for(0, LOGGED_WITHIN, is_listening) else {
            bail!("the coordinator did not start:\n{}", self.last_lines())
        };
        let lines = self.log.lines_from(0);
        let events = lines[..=at].iter().map(|line| serde_json::from_str(line));
        self.startup = events.collect::<Result<_, _>>().context("the log is JSON, as asked for")?;
        self.next_line = at + 1;
        let listening = self.startup.pop().context("the log has the line that was waited for")?;
        let address = |key: &str| {
            // An optional address is logged as `Some(...)`.
            let shown = listening[key].as_str().map(|shown| shown.trim_start_matches("Some("));
            shown.and_then(|shown| shown.trim_end_matches(')').parse::<SocketAddr>().ok())
        };
        self.grpc = address("grpc_address").context("the log shows the native API's address")?;
        self.admin = address("admin_address").context("the log shows the admin API's address")?;
        self.seata = address("seata_address");
        Ok(())
    }

    /// Returns the address of the native API.
    #[must_use]
    pub fn grpc(&self) -> SocketAddr {
        self.grpc
    }

    /// Returns the address of the admin API.
    #[must_use]
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Returns the address for clients of Seata, if there is one.
    #[must_use]
    pub fn seata(&self) -> Option<SocketAddr> {
        self.seata
    }

    /// Returns the operating system's id of the process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the event of the start whose message begins with `message`.
    #[must_use]
    pub fn startup_event(&self, message: &str) -> Option<&Value> {
        let begins = |event: &&Value| {
            event["message"].as_str().is_some_and(|logged| logged.starts_with(message))
        };
        self.startup.iter().find(begins)
    }

    /// Waits until the coordinator leads.
    ///
    /// # Errors
    /// Returns what was logged if the coordinator ends, or does not lead in time.
    pub fn wait_until_ready(&mut self) -> Result<()> {
        let started = Instant::now();
        while !self.get("/readyz").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200")) {
            if let Some(status) = self.child.try_wait()? {
                bail!("the coordinator ended with {status}:\n{}", self.last_lines());
            }
            ensure!(
                started.elapsed() < READY_WITHIN,
                "the coordinator is not ready:\n{}",
                self.last_lines()
            );
            // The admin API has no request that waits for readiness.
            thread::sleep(PROBE_EVERY);
        }
        Ok(())
    }

    /// Sends one GET request to the admin API and returns the response, head and body.
    ///
    /// # Errors
    /// Returns the error of the connection.
    pub fn get(&self, path: &str) -> Result<String> {
        let mut io = TcpStream::connect(self.admin)?;
        io.set_read_timeout(Some(ANSWERED_WITHIN))?;
        write!(io, "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.admin)?;
        let mut answer = String::new();
        io.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// Waits until a line after those already waited for contains the text.
    ///
    /// # Errors
    /// Returns the text if the log ends without it, or it is not logged in time.
    pub fn wait_for_log(&mut self, text: &str) -> Result<()> {
        let found = self.log.wait_for(self.next_line, LOGGED_WITHIN, |line| line.contains(text));
        self.next_line = found.with_context(|| format!("the log has no {text}"))? + 1;
        Ok(())
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// Returns the system's error, as if the process has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let id = Pid::from_raw(i32::try_from(self.child.id())?);
        kill(id, signal).with_context(|| format!("sending {signal}"))
    }

    /// Kills the process as `kill -9` does and waits until it is gone.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Waits until the process ends by itself. Returns how it ended, and what was logged after the
    /// lines already waited for.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn wait(mut self) -> Result<(ExitStatus, String)> {
        self.log.wait_for_end();
        let status = self.child.wait()?;
        Ok((status, self.log.lines_from(self.next_line).join("\n")))
    }

    /// The end of the log, for the message of a failed test.
    fn last_lines(&self) -> String {
        let lines = self.log.lines_from(0);
        lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
    }
}

impl Drop for CoordinatorProcess {
    fn drop(&mut self) {
        // Fails only if the process has ended.
        let _ = self.kill();
    }
}

fn message_of(line: &str) -> Option<String> {
    let event: Value = serde_json::from_str(line).ok()?;
    Some(event["message"].as_str()?.to_owned())
}
