//! Waits for a state that no event reports: that of a server, of another process, or of a library
//! that only answers questions.
//!
//! A test that can await an event (a channel, a `watch`, the loss of a lock) awaits that instead.

use std::time::Duration;

use tokio::time::{sleep, timeout};

/// The pause between two questions.
pub const ASK_EVERY: Duration = Duration::from_millis(5);
const WITHIN: Duration = Duration::from_secs(60);

/// Waits until a condition holds.
///
/// # Panics
/// If it does not hold within a minute. The message says what was waited for.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    until_some(what, async || holds().await.then_some(())).await;
}

/// Waits until there is a value, and returns it.
///
/// # Panics
/// If there is none within a minute. The message says what was waited for.
pub async fn until_some<T>(what: &str, mut seen: impl AsyncFnMut() -> Option<T>) -> T {
    let found = async {
        loop {
            if let Some(value) = seen().await {
                return value;
            }
            // Without an event the only way is to ask again, and questions without a pause would
            // take the processor from what they wait for.
            sleep(ASK_EVERY).await;
        }
    };
    match timeout(WITHIN, found).await {
        Ok(value) => value,
        Err(_elapsed) => panic!("not within {WITHIN:?}: {what}"),
    }
}
