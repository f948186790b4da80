//! Named places at which a test can end the process, to see what the restart finds.
//!
//! Compiled in with the feature `crash-points` only, and then asleep unless the environment
//! variable `HANDFAST_CRASH_POINT` names the place. `docs/at.md` says what each leaves behind.

/// Ends the process here if the environment asks for it, as a crash would: nothing is flushed,
/// dropped or closed.
#[cfg(feature = "crash-points")]
pub(crate) fn crash_point(name: &str) {
    if std::env::var("HANDFAST_CRASH_POINT").as_deref() == Ok(name) {
        std::process::abort();
    }
}

/// Does nothing: the feature `crash-points` is off.
#[cfg(not(feature = "crash-points"))]
#[inline(always)]
pub(crate) fn crash_point(_name: &str) {}
