//! The pauses between attempts at a database that is away.

use std::time::Duration;

use super::connection::SqlDatabase;
use super::dialect::CallError;
use crate::dispatch::Backoff;
use crate::store::StoreError;

const PAUSE_MS_MIN: u64 = 20;
const PAUSE_MS_MAX: u64 = 1_000;
/// One in this many consecutive failures is logged, beginning with the first.
const LOG_ONE_IN: u32 = 20;

/// Why an attempt failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// A call failed.
    Call(CallError),
    /// The store cannot be used, or has lost what it had.
    Store(StoreError),
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Attempts at one piece of work.
#[derive(Debug)]
pub(super) struct Retries {
    /// The work, for the log.
    work: &'static str,
    failures: u32,
    backoff: Backoff,
}

impl Retries {
    pub(super) fn of(work: &'static str) -> Self {
        let backoff = Backoff::new(PAUSE_MS_MIN, PAUSE_MS_MAX, rand::random());
        Self { work, failures: 0, backoff }
    }

    /// Pauses after a failed attempt.
    ///
    /// # Errors
    ///
    /// The reason, if another attempt would not help.
    pub(super) async fn pause(
        &mut self,
        database: &SqlDatabase,
        failure: impl Into<Failure>,
    ) -> Result<(), StoreError> {
        let error = match failure.into() {
            Failure::Store(error) => return Err(error),
            Failure::Call(CallError::Lasting(reason)) => return Err(database.unusable(reason)),
            Failure::Call(error) => error,
        };
        if self.failures.is_multiple_of(LOG_ONE_IN) {
            let (store, work, failures) = (&*database.name, self.work, self.failures + 1);
            tracing::warn!(store, work, failures, %error, "the database failed: trying again");
        }
        self.failures = self.failures.saturating_add(1);
        tokio::time::sleep(Duration::from_millis(self.backoff.delay_ms(self.failures))).await;
        Ok(())
    }

    /// Begins to count again, after an attempt that went well.
    pub(super) fn succeeded(&mut self) {
        self.failures = 0;
    }
}
