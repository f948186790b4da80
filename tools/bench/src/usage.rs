//! The cost of a process: processor time and resident memory, as the kernel counts them.

use std::time::Duration;

use anyhow::{Context, Result};
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;

/// A process that is watched: this one or a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(Pid);

impl Process {
    /// Returns this process.
    pub(crate) fn own() -> Self {
        Self(Pid::this())
    }

    /// Returns the process with an id.
    pub(crate) fn of(id: u32) -> Result<Self> {
        Ok(Self(Pid::from_raw(i32::try_from(id).context("a process id has 31 bits")?)))
    }

    /// Returns every process of this machine whose program has one of these names.
    pub(crate) fn named(names: &[&str]) -> Result<Vec<Self>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").context("/proc")? {
            let folder = entry.context("/proc")?;
            let Some(id) = folder.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            // A process that has ended meanwhile has no name any more.
            let name = std::fs::read_to_string(folder.path().join("comm")).unwrap_or_default();
            if names.contains(&name.trim_end()) {
                found.push(Self(Pid::from_raw(id)));
            }
        }
        Ok(found)
    }

    /// Returns the user and system time of all its threads so far.
    pub(crate) fn cpu(self) -> Result<Duration> {
        let clock = clock_getcpuclockid(self.0).context("finding a process's clock")?;
        let spent = clock.now().context("reading a process's clock")?;
        Ok(spent.into())
    }

    /// Returns its resident memory.
    pub(crate) fn resident_bytes(self) -> Result<u64> {
        let path = format!("/proc/{}/status", self.0);
        let status = std::fs::read_to_string(&path).with_context(|| path.clone())?;
        resident_in(&status).with_context(|| format!("{path} names no resident memory"))
    }
}

fn resident_in(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read_from_the_status_file() {
        let status = "Name:\tx\nVmHWM:\t  99 kB\nVmRSS:\t    2048 kB\n";
        assert_eq!(resident_in(status), Some(2 << 20));
        assert_eq!(resident_in("Name:\tx\n"), None);
    }

    #[test]
    fn the_own_process_costs_something() {
        let own = Process::own();
        assert!(own.cpu().unwrap() > Duration::ZERO);
        assert!(own.resident_bytes().unwrap() > 0);
    }
}
