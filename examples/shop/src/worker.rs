//! A part of the services in a process of its own, so that it can be killed.
//!
//! The process is this program again. It reads from its standard input which part it plays, and
//! plays it until that input ends: with the parent, however that ends.

use std::io::{BufRead, Read, Write};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::example::Example;

/// How long a service may take to start.
const TOLD_WITHIN: Duration = Duration::from_secs(30);
/// How long a process may take to end by itself, its last spans included.
const ENDED_WITHIN: Duration = Duration::from_secs(20);

/// A child process that plays a part. It is killed when this is dropped.
#[derive(Debug)]
pub struct Worker {
    process: Child,
    part: String,
}

impl Worker {
    /// Starts the process. What the part is, one line of text, is the example's business.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub async fn start(part: String) -> Result<Self> {
        let process = spawn(own()?, &part).await?;
        Ok(Self { process, part })
    }

    /// Starts a process that is a service under this name, and returns the URL that it tells.
    ///
    /// # Errors
    /// If the process cannot be started, or ends before it tells its URL.
    pub(crate) async fn start_service(part: String, name: &str) -> Result<(Self, String)> {
        let mut command = own()?;
        command.stdout(Stdio::piped()).env("OTEL_SERVICE_NAME", name);
        let mut process = spawn(command, &part).await?;
        let output = process.stdout.take().context("a piped standard output is there")?;
        let mut url = String::new();
        let mut output = BufReader::new(output);
        let told = timeout(TOLD_WITHIN, output.read_line(&mut url));
        told.await.context("a service has not started in time")??;
        if url.is_empty() {
            bail!("a service ended before it was started: RUST_LOG=info tells more");
        }
        Ok((Self { process, part }, url.trim_end().to_owned()))
    }

    /// Lets the process end by itself, and kills it if it does not.
    ///
    /// # Errors
    /// If it ended with an error.
    pub(crate) async fn finish(mut self) -> Result<()> {
        // The end of its input is the end of its part.
        drop(self.process.stdin.take());
        let Ok(ended) = timeout(ENDED_WITHIN, self.process.wait()).await else {
            return self.kill().await;
        };
        let status = ended.context("waiting for the end of a process")?;
        if status.success() { Ok(()) } else { bail!("a process ended with {status}") }
    }

    /// Kills the process by SIGKILL, and starts another one for the same part.
    ///
    /// # Errors
    /// If the other process cannot be started, or the part has ended by itself.
    pub async fn kill_and_restart(&mut self) -> Result<()> {
        if let Some(status) = self.process.try_wait()? {
            bail!("a worker ended by itself, with {status}");
        }
        self.process.kill().await.context("killing a worker")?;
        self.process = spawn(own()?, &self.part).await?;
        Ok(())
    }

    /// Kills the process by SIGKILL, for good.
    ///
    /// # Errors
    /// If it cannot be killed.
    pub async fn kill(&mut self) -> Result<()> {
        self.process.kill().await.context("killing a worker")
    }
}

/// Returns the command that is this program again, as a worker.
fn own() -> Result<Command> {
    let own = std::env::current_exe().context("finding the own executable")?;
    let mut command = Command::new(own);
    command.arg("worker").stdout(Stdio::null());
    Ok(command)
}

/// Tells the parent the URL of the service that this process is.
pub(crate) fn tell_parent(url: &str) -> Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{url}")?;
    output.flush().context("telling the parent a URL")
}

async fn spawn(mut command: Command, part: &str) -> Result<Child> {
    command.stdin(Stdio::piped()).kill_on_drop(true);
    let mut process = command.spawn().context("starting a worker")?;
    let input = process.stdin.as_mut().context("a piped standard input is there")?;
    input.write_all(format!("{part}\n").as_bytes()).await.context("telling a worker its part")?;
    Ok(process)
}

/// The body of the hidden sub-command.
pub(crate) async fn work_as_child(example: &impl Example) -> Result<()> {
    let mut part = String::new();
    std::io::stdin().lock().read_line(&mut part).context("reading the part")?;
    let (gone, parent_gone) = oneshot::channel();
    // A thread of its own: one of the runtime would hold up the end of a part that fails.
    std::thread::spawn(move || gone.send(std::io::stdin().read_to_end(&mut Vec::new())));
    tokio::select! {
        ended = example.work(part.trim()) => ended?,
        read = parent_gone => drop(read?.context("waiting for the end of the parent")?),
    }
    Ok(())
}
