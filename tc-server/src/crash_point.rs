//! Named places at which a test can end the coordinator, to see what the next one makes of it.
//!
//! Compiled in with the feature `crash-points` only, and then asleep unless the environment
//! variable `TC_CRASH_POINT` names a place: `before-effects` ends the process at the first pass,
//! `before-effects:7` at the seventh.
//!
//! | place | what a crash leaves behind there |
//! | --- | --- |
//! | `after-lead` | a grown epoch; the records as they were |
//! | `after-decide` | nothing of the decisions of this batch, and nobody has heard of them |
//! | `before-write` | the same: the batch has reached the store's thread and no file |
//! | `after-write` | durable decisions of which the engine itself does not know |
//! | `after-seal` | a full segment of the journal, nothing of it carried over |
//! | `mid-checkpoint` | some changes of a segment among the records, and all in the journal |
//! | `after-checkpoint` | a segment that is carried over and not used again |
//! | `before-effects` | durable decisions of which nobody has heard |
//! | `mid-effects` | replies handed over, phase two not |
//! | `after-effects` | everything handed over; the connections may not have sent it |
//! | `mid-dispatch` | the first of several phase-two calls handed over |
//! | `after-outcome` | an answer to phase two, taken off the books and not told to the engine |

/// Ends the process here if the environment asks for it, as a crash would: nothing is flushed,
/// dropped or closed.
#[cfg(feature = "crash-points")]
pub(crate) fn crash_point(name: &str) {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    static ASKED: LazyLock<Option<(String, u64)>> = LazyLock::new(|| {
        let asked = std::env::var("TC_CRASH_POINT").ok()?;
        let (name, pass) = asked.split_once(':').unwrap_or((&asked, "1"));
        Some((name.to_owned(), pass.parse().expect("a pass is a number")))
    });
    static PASSED: AtomicU64 = AtomicU64::new(0);

    if let Some((asked, pass)) = &*ASKED
        && asked == name
        && PASSED.fetch_add(1, Ordering::Relaxed) + 1 == *pass
    {
        // Time for whatever may have left too early to arrive: on the store's thread this is a disk
        // that takes long.
        std::thread::sleep(std::time::Duration::from_millis(50));
        std::process::abort();
    }
}

/// Does nothing: the feature `crash-points` is off.
#[cfg(not(feature = "crash-points"))]
#[inline(always)]
pub(crate) fn crash_point(_name: &str) {}
