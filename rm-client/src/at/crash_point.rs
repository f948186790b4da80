//! Named places at which a test can end or stop the process, to see how other processes recover.
//!
//! Compiled in with the feature `crash-points` only, and inactive unless an environment variable
//! names the place: `HANDFAST_CRASH_POINT` ends the process there, `HANDFAST_STOP_POINT` stops it
//! until it is told to go on. `after-register` means the first pass, `after-register:7` the
//! seventh.
//!
//! | place | what a crash leaves behind there |
//! | --- | --- |
//! | `before-undo-insert` | nothing: the database rolls the local transaction back |
//! | `before-register` | nothing, as above |
//! | `after-register` | a branch with locks and without undo row: its rollback leaves a guard row |
//! | `before-replay` | the same, with no local transaction open |
//! | `before-local-commit` | the same: the database has the undo row, and drops it |
//! | `before-check` | nothing: a globally committed read that its reader has not seen |
//! | `after-local-commit` | a whole branch |
//! | `before-joint-commit` | branches with locks and without undo rows, of several globals |
//! | `after-joint-commit` | whole branches of several globals |
//! | `before-phase-one-report` | a branch that committed or did not, as its undo row shows |
//! | `in-phase-two-before-commit` | an unfinished branch; another process finishes it |
//! | `in-rollback-before-commit` | the same, of rollbacks alone |
//! | `in-settle-before-commit` | an unanswered question whether a last branch has committed |
//! | `before-publish` | claimed events, which another relay publishes when the lease has ended |
//! | `after-publish` | events at the broker that are new in the outbox: published again |
//! | `before-acknowledge` | an effect whose event is delivered again |
//! | `after-phase-two-commit` | a finished branch that the coordinator takes for unfinished |
//! | `tcc-after-register` | a branch that was never tried: its cancel is empty and bars the try |
//! | `tcc-in-try` | the same: the database rolls the local transaction back |
//! | `tcc-after-try` | a whole branch |
//! | `tcc-in-phase-two` | an unfinished branch; another process finishes it |
//! | `tcc-after-phase-two` | a finished branch that the coordinator takes for unfinished |
//! | `before-step`, `in-step-before-commit` | a step of a saga that has not happened |
//! | `after-step-commit` | a step that has happened, and whose fence holds its output |
//! | `in-compensation-before-commit` | a step that is not compensated |
//! | `after-compensation-commit` | a compensated step that the coordinator takes for unfinished |

/// Ends the process here if `HANDFAST_CRASH_POINT` asks for it, as a crash would: nothing is
/// flushed, dropped or closed. If `HANDFAST_STOP_POINT` does, stops all threads until SIGCONT.
#[cfg(feature = "crash-points")]
pub(crate) fn crash_point(name: &str) {
    use std::sync::atomic::{AtomicU64, Ordering};

    static PASSED: AtomicU64 = AtomicU64::new(0);

    let crashes = asked("HANDFAST_CRASH_POINT", name);
    let Some(pass) = crashes.or_else(|| asked("HANDFAST_STOP_POINT", name)) else { return };
    if PASSED.fetch_add(1, Ordering::Relaxed) + 1 != pass {
        return;
    }
    if crashes.is_some() {
        std::process::abort();
    } else {
        let stopped = nix::sys::signal::raise(nix::sys::signal::Signal::SIGSTOP);
        stopped.expect("a process may stop itself");
    }
}

/// Returns the pass that the variable asks for, if it names this place.
#[cfg(feature = "crash-points")]
fn asked(variable: &str, name: &str) -> Option<u64> {
    let asked = std::env::var(variable).ok()?;
    let (place, pass) = asked.split_once(':').unwrap_or((&asked, "1"));
    (place == name).then(|| pass.parse().expect("a pass is a number"))
}

/// Does nothing: the feature `crash-points` is off.
#[cfg(not(feature = "crash-points"))]
#[inline(always)]
pub(crate) fn crash_point(_name: &str) {}
