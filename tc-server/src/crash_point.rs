//! Named places at which a test can end the coordinator, to see what the next one makes of it, or
//! have it hang.
//!
//! Compiled in with the feature `crash-points` only, and then asleep unless the environment
//! variable `TC_CRASH_POINT` names a place: `before-effects` ends the process at the first pass,
//! `before-effects:7` at the seventh. `TC_HANG_POINT` names a place in the same way, at which the
//! thread stands still for ever: on a thread of the store's that is a disk that hangs. How a test
//! sets the machine's clock is in `clock.rs`.
//!
//! | place | what a crash leaves behind there |
//! | --- | --- |
//! | `after-lead` | a grown epoch; the records as they were |
//! | `after-decide` | nothing of the decisions of this batch, and nobody has heard of them |
//! | `before-write` | the same: the batch has reached the store's thread and no file |
//! | `before-witness` | a durable batch of which the other parts of the directory do not know |
//! | `mid-witness` | one of which some of them know |
//! | `after-write` | durable decisions of which the engine itself does not know |
//! | `after-seal` | a full segment of the journal, nothing of it carried over |
//! | `mid-checkpoint` | nothing of a segment among the records, and all in the journal |
//! | `after-checkpoint` | a segment that is carried over and not used again |
//! | `before-effects` | durable decisions of which nobody has heard |
//! | `mid-effects` | replies handed over, phase two not |
//! | `after-effects` | everything handed over; the connections may not have sent it |
//! | `mid-dispatch` | the first of several phase-two calls handed over |
//! | `after-outcome` | an answer to phase two, taken off the books and not told to the engine |

/// Ends the process here if the environment asks for it, as a crash would: nothing is flushed,
/// dropped or closed. Or hangs, as a disk may.
#[cfg(feature = "crash-points")]
pub(crate) fn crash_point(name: &str) {
    use std::sync::LazyLock;
    use std::thread;
    use std::time::Duration;

    static CRASH: LazyLock<Asked> = LazyLock::new(|| Asked::in_environment("TC_CRASH_POINT"));
    static HANG: LazyLock<Asked> = LazyLock::new(|| Asked::in_environment("TC_HANG_POINT"));

    if CRASH.is_reached(name) {
        // Time for whatever may have left too early to arrive: on the store's thread this is a disk
        // that takes long.
        thread::sleep(Duration::from_millis(50));
        std::process::abort();
    }
    if HANG.is_reached(name) {
        loop {
            thread::park();
        }
    }
}

/// What the environment asks for: a place, and at which pass of it.
#[cfg(feature = "crash-points")]
#[derive(Debug)]
struct Asked {
    place: Option<(String, u64)>,
    passed: std::sync::atomic::AtomicU64,
}

#[cfg(feature = "crash-points")]
impl Asked {
    fn in_environment(variable: &str) -> Self {
        let place = std::env::var(variable).ok().map(|asked| {
            let (name, pass) = asked.split_once(':').unwrap_or((&asked, "1"));
            (name.to_owned(), pass.parse().expect("a pass is a number"))
        });
        Self { place, passed: std::sync::atomic::AtomicU64::new(0) }
    }

    fn is_reached(&self, name: &str) -> bool {
        let Some((_, pass)) = self.place.as_ref().filter(|(asked, _)| asked == name) else {
            return false;
        };
        self.passed.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1 == *pass
    }
}

/// Does nothing: the feature `crash-points` is off.
#[cfg(not(feature = "crash-points"))]
#[inline(always)]
pub(crate) fn crash_point(_name: &str) {}
