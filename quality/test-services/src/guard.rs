//! Ends the servers even when the process that started them is killed.
//!
//! A small shell reads which servers run from a pipe that only this process holds open. The end of
//! the pipe is the end of the process, by an exit or a kill: the shell then stops the servers and
//! removes their data.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context, Result};

const SCRIPT: &str = r#"
servers=""
while read -r what server; do
  left=""
  for other in $servers; do [ "$other" = "$server" ] || left="$left $other"; done
  servers="$left"
  [ "$what" = runs ] && servers="$servers $server"
done
for server in $servers; do kill -QUIT "$server"; done
sleep 2
for server in $servers; do kill -KILL "$server"; done
rm -rf -- "$1"
"#;

/// The waiting shell. Dropping it ends the shell: by then the servers are stopped.
#[derive(Debug)]
pub(crate) struct Guard {
    shell: Child,
    pipe: ChildStdin,
}

impl Guard {
    /// Starts the shell, which removes `folder` when it has to act.
    pub(crate) fn start(folder: &Path) -> Result<Self> {
        let mut shell = Command::new("sh")
            .args(["-c", SCRIPT, "handfast-guard"])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A Ctrl-C at the terminal is for this process, which stops the servers in order.
            .process_group(0)
            .spawn()
            .context("starting sh")?;
        let pipe = shell.stdin.take().context("the shell's input is piped")?;
        Ok(Self { shell, pipe })
    }

    /// Adds a running server to those that the shell ends.
    pub(crate) fn add(&self, id: u32) -> Result<()> {
        writeln!(&self.pipe, "runs {id}").context("the guard is gone")
    }

    /// Removes a server that has ended: the system may soon give its id to another process.
    pub(crate) fn remove(&self, id: u32) {
        // Fails only if the shell is gone, and then nothing acts on the id.
        let _ = writeln!(&self.pipe, "ended {id}");
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Killed before the pipe closes, so that it never signals ids that other processes may
        // have by then.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}
