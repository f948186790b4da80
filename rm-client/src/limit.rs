//! Ends a future that hangs or panics, so that it delays no other work.
//!
//! A future that is cut off is dropped at its current await. The caller is responsible for this
//! being safe.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;

/// The reason why an attempt gave no output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CutOff {
    #[error("panicked")]
    Panicked,
    #[error("took longer than {0:?}")]
    TookLonger(Duration),
}

/// Runs an attempt within a time limit and returns its output.
///
/// # Errors
/// [`CutOff`] if the attempt panics or takes longer.
pub(crate) async fn within<F: Future>(limit: Duration, attempt: F) -> Result<F::Output, CutOff> {
    let attempt = AssertUnwindSafe(attempt).catch_unwind();
    match tokio::time::timeout(limit, attempt).await {
        Ok(Ok(output)) => Ok(output),
        Ok(Err(_panic)) => Err(CutOff::Panicked),
        Err(_elapsed) => Err(CutOff::TookLonger(limit)),
    }
}
