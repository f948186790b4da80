//! Named places at which a test can end the coordinator, to check the next start, or can make it
//! hang.
//!
//! They are compiled only with the feature `crash-points`, and are inactive unless the environment
//! variable `TC_CRASH_POINT` names a place: `before-effects` ends the process at the first pass,
//! `before-effects:7` at the seventh. `TC_HANG_POINT` names a place in the same way, at which the
//! thread stops forever: on the store's thread that simulates a disk that hangs. How a test sets
//! the machine's clock is in `clock.rs`.
//!
//! | place | state left by a crash there |
//! | --- | --- |
//! | `after-lead` | a higher epoch; the records unchanged |
//! | `after-decide` | nothing of this batch's decisions, and no effect of them was sent |
//! | `before-write` | the same: the batch has reached the store's thread and no file |
//! | `before-witness` | a durable batch that the other parts of the directory do not know |
//! | `mid-witness` | a durable batch that some of the parts know |
//! | `after-write` | durable decisions that the engine does not know to be durable |
//! | `after-seal` | a full segment of the journal, nothing of it carried over |
//! | `mid-checkpoint` | nothing of a segment among the records, and all of it in the journal |
//! | `after-checkpoint` | a segment that is carried over and not used again |
//! | `before-effects` | durable decisions of which no effect was sent |
//! | `mid-effects` | replies released, phase two not |
//! | `after-effects` | everything released; the connections may not have sent it |
//! | `mid-dispatch` | the first of several phase-two calls passed to a connection |
//! | `mid-copy` | some of the records in a store that is being filled, which is closed |
//! | `after-copy` | all of them there, and the store still closed; the source of a move open |
//! | `after-close` | the same, and the source of the move closed too |
//! | `after-outcome` | a phase-two answer applied to the dispatcher and not sent to the engine |

/// Ends the process here like a crash, if the environment asks for it: nothing is flushed, dropped
/// or closed. Or hangs like a disk.
#[cfg(feature = "crash-points")]
pub(crate) fn crash_point(name: &str) {
    use std::sync::LazyLock;
    use std::thread;
    use std::time::Duration;

    static CRASH: LazyLock<Trigger> = LazyLock::new(|| Trigger::in_environment("TC_CRASH_POINT"));
    static HANG: LazyLock<Trigger> = LazyLock::new(|| Trigger::in_environment("TC_HANG_POINT"));

    if CRASH.is_reached(name) {
        // Gives effects that were wrongly sent too early the time to arrive. On the store's thread
        // this is a slow disk.
        thread::sleep(Duration::from_millis(50));
        std::process::abort();
    }
    if HANG.is_reached(name) {
        loop {
            thread::park();
        }
    }
}

/// The place that the environment names, and the pass at which it triggers.
#[cfg(feature = "crash-points")]
#[derive(Debug)]
struct Trigger {
    place: Option<(String, u64)>,
    passed: std::sync::atomic::AtomicU64,
}

#[cfg(feature = "crash-points")]
impl Trigger {
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
