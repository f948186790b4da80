//! Named places at which a test can end or stop the process, to see what the others make of it.
//!
//! Compiled in with the feature `crash-points` only, and then asleep unless an environment variable
//! names the place: `HANDFAST_CRASH_POINT` ends the process there, `HANDFAST_STOP_POINT` stops it
//! until it is told to go on.
//!
//! | place | what a crash leaves behind there |
//! | --- | --- |
//! | `before-undo-insert` | nothing: the database rolls the local transaction back |
//! | `before-register` | nothing, as above |
//! | `after-register` | a branch with locks and without undo row: its rollback leaves a guard row |
//! | `before-replay` | the same, with no local transaction open |
//! | `after-local-commit` | a whole branch |
//! | `before-phase-one-report` | a branch that committed or did not: its undo row tells |
//! | `in-phase-two-before-commit` | an unfinished branch; another process finishes it |
//! | `after-phase-two-commit` | a finished branch that the coordinator takes for unfinished |

/// Ends the process here if the environment asks for it, as a crash would: nothing is flushed,
/// dropped or closed. Or stops it with all its threads, until SIGCONT.
#[cfg(feature = "crash-points")]
pub(crate) fn crash_point(name: &str) {
    if std::env::var("HANDFAST_CRASH_POINT").as_deref() == Ok(name) {
        std::process::abort();
    }
    if std::env::var("HANDFAST_STOP_POINT").as_deref() == Ok(name) {
        let stopped = nix::sys::signal::raise(nix::sys::signal::Signal::SIGSTOP);
        stopped.expect("a process may stop itself");
    }
}

/// Does nothing: the feature `crash-points` is off.
#[cfg(not(feature = "crash-points"))]
#[inline(always)]
pub(crate) fn crash_point(_name: &str) {}
