//! Waiting for what must come to be, and looking at what must not.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

const EVERY: Duration = Duration::from_millis(30);

/// Clients look every ten seconds whether a lost connection can be made again; Java begins with
/// that when a process is a minute old.
const WITHIN: Duration = Duration::from_secs(90);

/// Waits until it holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let started = Instant::now();
    while !holds()? {
        ensure!(started.elapsed() < WITHIN, "not within {WITHIN:?}: {what}");
        thread::sleep(EVERY);
    }
    Ok(())
}

/// Waits until two things are the same.
pub(crate) fn until_same<T: PartialEq + std::fmt::Debug>(
    what: &str,
    expected: &T,
    mut seen: impl FnMut() -> Result<T>,
) -> Result<()> {
    let mut last = seen()?;
    let started = Instant::now();
    while last != *expected {
        if started.elapsed() > WITHIN {
            bail!("{what} must become {expected:?}, is {last:?} after {WITHIN:?}");
        }
        thread::sleep(EVERY);
        last = seen()?;
    }
    Ok(())
}

/// Fails unless two things are the same.
pub(crate) fn same<T: PartialEq + std::fmt::Debug>(
    what: &str,
    seen: &T,
    expected: &T,
) -> Result<()> {
    ensure!(seen == expected, "{what} must be {expected:?}, is {seen:?}");
    Ok(())
}
