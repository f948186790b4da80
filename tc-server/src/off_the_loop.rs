//! Long computations, away from the thread that everything else runs on.

use std::future;
use std::panic;

use tokio::runtime::Handle;

/// Runs `work`, which awaits nothing, on a thread of its own. A coordinator runs on one thread,
/// which must renew the lease meanwhile. Without a runtime, as in the simulation, it runs here.
pub(crate) async fn off_the_loop<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    if Handle::try_current().is_err() {
        return work();
    }
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(reason) => panic::resume_unwind(reason),
            // The runtime ends, and this task with it.
            Err(_cancelled) => future::pending().await,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// Regression: while millions of records were loaded the lease ran out, on each node in turn.
    #[tokio::test]
    async fn other_tasks_go_on_meanwhile() {
        let (sender, receiver) = mpsc::channel();
        tokio::spawn(async move { sender.send(7) });
        let wait = move || receiver.recv_timeout(Duration::from_secs(10));
        assert_eq!(off_the_loop(wait).await, Ok(7));
    }

    #[test]
    fn it_runs_here_without_a_runtime() {
        let here = std::thread::current().id();
        let there = off_the_loop(|| std::thread::current().id());
        assert_eq!(futures::executor::block_on(there), here);
    }

    #[tokio::test]
    #[should_panic(expected = "a broken invariant")]
    async fn a_panic_is_passed_on() {
        off_the_loop(|| panic!("a broken invariant")).await
    }
}
