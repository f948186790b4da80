//! Waits for a state, and checks of one.
//!
//! They poll: the clients of Seata report no events, and a database reports no changes.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

const EVERY: Duration = Duration::from_millis(30);

/// Clients try every ten seconds to restore a lost connection; Java begins to do so when a process
/// is a minute old.
const WITHIN: Duration = Duration::from_secs(90);

/// Waits until a condition holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let started = Instant::now();
    while !holds()? {
        ensure!(started.elapsed() < WITHIN, "not within {WITHIN:?}: {what}");
        thread::sleep(EVERY);
    }
    Ok(())
}

/// Waits until a value equals the expected one.
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

/// Returns an error unless two values are equal.
pub(crate) fn same<T: PartialEq + std::fmt::Debug>(
    what: &str,
    seen: &T,
    expected: &T,
) -> Result<()> {
    ensure!(seen == expected, "{what} must be {expected:?}, is {seen:?}");
    Ok(())
}
