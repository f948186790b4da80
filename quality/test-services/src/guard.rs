//! Ends the servers even when whoever started them is killed and cannot.
//!
//! A small shell reads which servers run from a pipe that only this process holds open. The end of
//! the pipe is the end of the process, however it came: the shell then stops the servers and
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

/// The waiting shell. Dropping it sends the shell away: by then the servers are stopped.
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
            // A Ctrl-C at the terminal is for the one who stops everything in order.
            .process_group(0)
            .spawn()
            .context("starting sh")?;
        let pipe = shell.stdin.take().context("the shell's input is piped")?;
        Ok(Self { shell, pipe })
    }

    /// Puts a server under guard.
    pub(crate) fn add(&self, id: u32) -> Result<()> {
        writeln!(&self.pipe, "runs {id}").context("the guard is gone")
    }

    /// A server has ended: its id may be somebody else's soon.
    pub(crate) fn remove(&self, id: u32) {
        // Without a guard nobody acts on the id either.
        let _ = writeln!(&self.pipe, "ended {id}");
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Killed before the pipe closes, so that it never acts on ids that others may have by then.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}
