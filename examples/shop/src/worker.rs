//! A part of the services in a process of its own, so that it can be killed.
//!
//! The process is this program again. It reads from its standard input which part it plays, and
//! plays it until that input ends: with the parent, however that ends.

use std::io::{BufRead, Read};
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};
use tokio::sync::oneshot;

use crate::example::Example;

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
        let process = spawn(&part).await?;
        Ok(Self { process, part })
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
        self.process = spawn(&self.part).await?;
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

async fn spawn(part: &str) -> Result<Child> {
    let own = std::env::current_exe().context("finding the own executable")?;
    let mut command = Command::new(own);
    command.arg("worker").stdin(Stdio::piped()).stdout(Stdio::null()).kill_on_drop(true);
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
