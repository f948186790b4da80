//! Ends what hangs or panics, so that it delays nobody but itself.
//!
//! What is cut off is dropped where it waits. Whether that is safe is not known here: the caller
//! knows.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;

/// Why an attempt gave nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CutOff {
    #[error("panicked")]
    Panicked,
    #[error("took longer than {0:?}")]
    TookLonger(Duration),
}

/// What an attempt comes to within a limit.
///
/// # Errors
/// [`CutOff`] if it comes to nothing.
pub(crate) async fn within<F: Future>(limit: Duration, attempt: F) -> Result<F::Output, CutOff> {
    let attempt = AssertUnwindSafe(attempt).catch_unwind();
    match tokio::time::timeout(limit, attempt).await {
        Ok(Ok(output)) => Ok(output),
        Ok(Err(_panic)) => Err(CutOff::Panicked),
        Err(_elapsed) => Err(CutOff::TookLonger(limit)),
    }
}
