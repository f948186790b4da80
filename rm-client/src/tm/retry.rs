//! Transactions that are repeated when nothing of them remains and the reason may be gone.
//!
//! Only three outcomes are repeated, and all are certain to have left nothing: a finished rollback,
//! a global that the coordinator has never recorded, and one that it did not begin. A commit
//! without an answer, a rollback that is still under way and a global that an operator has touched
//! are not.

use std::error::Error as StdError;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::error::{RollbackCause, TransactionError};
use super::new_transaction::{NewTransaction, Transaction};
use crate::transient::is_transient;

/// The most attempts that can be asked for (BOUNDED).
const ATTEMPTS_MAX: u32 = 100;
/// A global that went on for longer than this and is not known is not repeated: an operator may
/// have ended it, and the coordinator have forgotten that since.
const FORGOTTEN_WITHIN: Duration = Duration::from_secs(60);

/// How often a transaction is repeated, and after which pauses. See
/// [`NewTransaction::retry`](crate::NewTransaction::retry).
///
/// ```
/// use std::time::Duration;
///
/// use handfast::Retry;
///
/// let patient = Retry::new()
///     .attempts_max(8)
///     .back_off(Duration::from_millis(20), Duration::from_secs(1))
///     .time_max(Duration::from_secs(10));
/// ```
#[derive(Clone, Debug)]
#[must_use = "a policy does nothing before it is given to a transaction"]
pub struct Retry {
    attempts_max: u32,
    pause_base: Duration,
    pause_max: Duration,
    time_max: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self::new()
    }
}

impl Retry {
    /// Returns the default policy: 3 attempts, pauses of 50 ms to 2 s, and no attempt that would
    /// begin more than 30 s after the first.
    pub const fn new() -> Self {
        Self {
            attempts_max: 3,
            pause_base: Duration::from_millis(50),
            pause_max: Duration::from_secs(2),
            time_max: Duration::from_secs(30),
        }
    }

    /// Sets how often the closure runs at most, the first time included: 1 to 100. Too few: callers
    /// see deadlocks. Too many: a row that many want is asked for without end.
    pub fn attempts_max(mut self, attempts: u32) -> Self {
        self.attempts_max = attempts.clamp(1, ATTEMPTS_MAX);
        self
    }

    /// Sets the first and the longest pause between two attempts. The pause doubles with each
    /// attempt, and half of it is random. Too short: what collided collides again. Too long:
    /// callers wait.
    pub fn back_off(mut self, base: Duration, max: Duration) -> Self {
        (self.pause_base, self.pause_max) = (base, max);
        self
    }

    /// Sets the time after which no further attempt begins. The last attempt may still take as long
    /// as its own timeout.
    pub fn time_max(mut self, time: Duration) -> Self {
        self.time_max = time;
        self
    }

    /// Returns the pause after this many attempts, given a random number from 0 to 1.
    fn pause(&self, attempts: u32, random: f64) -> Duration {
        let doubled = 1_u32.checked_shl(attempts.saturating_sub(1)).unwrap_or(u32::MAX);
        let whole = self.pause_base.saturating_mul(doubled).min(self.pause_max);
        whole.mul_f64(0.5 + random.clamp(0.0, 1.0) / 2.0)
    }
}

/// A transaction that is repeated under a policy. Made by
/// [`NewTransaction::retry`](crate::NewTransaction::retry).
#[derive(Clone, Debug)]
#[must_use = "nothing begins before run"]
pub struct RetriedTransaction {
    transaction: NewTransaction,
    retry: Retry,
}

impl RetriedTransaction {
    pub(super) fn new(transaction: NewTransaction, retry: Retry) -> Self {
        Self { transaction, retry }
    }

    /// Runs a closure as a global transaction, as [`NewTransaction::run`] does, and runs it again
    /// as a new global if nothing of the last one remains and [`is_transient`] holds for the
    /// closure's error, or the coordinator has lost the global.
    ///
    /// The closure borrows what it uses: it may run several times. What it does outside of the
    /// global, such as sending a mail, it does each time.
    ///
    /// ```no_run
    /// use handfast::Retry;
    ///
    /// # async fn example(handfast: handfast::Handfast, stock: handfast::AtResource<sqlx::Sqlite>)
    /// # -> Result<(), Box<dyn std::error::Error>> {
    /// let take = "UPDATE stock SET units = units - 1 WHERE product = 7";
    /// let order = handfast.transaction("place-order").retry(Retry::new());
    /// order.run(async |_tx| sqlx::query(take).execute(&stock).await).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The error of the last attempt, as [`NewTransaction::run`].
    pub async fn run<F, R, T, E>(self, work: F) -> Result<T, TransactionError<E>>
    where
        F: FnMut(Transaction) -> R,
        R: Future<Output = Result<T, E>>,
        E: StdError + 'static,
    {
        self.run_when(|error: &E| is_transient(error), work).await
    }

    /// As [`run`](Self::run), with a condition of the caller's own: for errors of remote services,
    /// and for error types that are no `std::error::Error`, such as that of `anyhow`.
    ///
    /// ```no_run
    /// use handfast::{Retry, is_transient};
    ///
    /// # async fn work() -> anyhow::Result<()> { Ok(()) }
    /// # async fn example(handfast: handfast::Handfast) -> anyhow::Result<()> {
    /// let order = handfast.transaction("place-order").retry(Retry::new());
    /// let repeats = |error: &anyhow::Error| is_transient(&**error);
    /// order.run_when(repeats, async |_tx| work().await).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub async fn run_when<F, R, T, E>(
        self,
        repeats: impl Fn(&E) -> bool,
        mut work: F,
    ) -> Result<T, TransactionError<E>>
    where
        F: FnMut(Transaction) -> R,
        R: Future<Output = Result<T, E>>,
    {
        let Self { transaction, retry } = self;
        let (began, mut attempts) = (Instant::now(), 1);
        loop {
            let attempt_began = Instant::now();
            #[expect(
                clippy::redundant_closure,
                reason = "the compiler takes a closure for an AsyncFnOnce, but not this parameter"
            )]
            let ended = transaction.clone().run(|tx| work(tx)).await;
            let failure = match ended {
                Ok(value) => return Ok(value),
                Err(failure) => failure,
            };
            let pause = retry.pause(attempts, rand::random());
            let may_go_on =
                attempts < retry.attempts_max && began.elapsed() + pause <= retry.time_max;
            if !may_go_on || !leaves_nothing(&failure, attempt_began.elapsed(), &repeats) {
                return Err(failure);
            }
            tracing::debug!(
                xid = failure.xid().map(tracing::field::display),
                code = failure.code(),
                attempts,
                "transaction left nothing behind: it is repeated"
            );
            sleep(pause).await;
            attempts += 1;
        }
    }
}

/// Whether nothing of an attempt remains, for a reason that may be gone.
fn leaves_nothing<E>(
    failure: &TransactionError<E>,
    took: Duration,
    repeats: impl Fn(&E) -> bool,
) -> bool {
    match failure {
        TransactionError::RolledBack { by: RollbackCause::Application(error), .. } => {
            repeats(error)
        }
        TransactionError::Forgotten { .. } => took < FORGOTTEN_WITHIN,
        TransactionError::NotBegun(error) => is_transient(error),
        // A joined transaction is repeated by the caller that began it, a rollback for a reason of
        // the coordinator would come again, and of the others something remains, or may remain.
        TransactionError::RolledBack { .. }
        | TransactionError::Application(_)
        | TransactionError::RollingBack { .. }
        | TransactionError::NeedsOperator { .. }
        | TransactionError::Committed { .. }
        | TransactionError::Unknown { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Error, Rejection};
    use crate::xid::Xid;

    const SHORT: Duration = Duration::from_secs(1);

    fn xid() -> Xid {
        Xid::new("tc:1").unwrap()
    }

    fn refused(code: &str) -> Error {
        let rejection =
            handfast_proto::v1::Rejection { code: code.to_owned(), ..Default::default() };
        Rejection::from(rejection).into()
    }

    fn by(error: &'static str) -> RollbackCause<&'static str> {
        RollbackCause::Application(error)
    }

    #[test]
    fn only_outcomes_that_left_nothing_are_repeated() {
        let repeats = |error: &&str| *error == "deadlock";
        let again = |failure| leaves_nothing(&failure, SHORT, repeats);
        assert!(again(TransactionError::RolledBack { xid: xid(), by: by("deadlock") }));
        assert!(!again(TransactionError::RolledBack { xid: xid(), by: by("sold out") }));
        assert!(!again(TransactionError::RolledBack { xid: xid(), by: RollbackCause::Timeout }));
        assert!(again(TransactionError::Forgotten { xid: xid(), by: by("sold out") }));
        // What may have been committed, or is not undone yet.
        let source = Error::Closed;
        assert!(!again(TransactionError::Unknown { xid: xid(), source: source.clone() }));
        assert!(!again(TransactionError::Committed { xid: xid(), by: by("deadlock") }));
        assert!(!again(TransactionError::NeedsOperator { xid: xid(), by: by("deadlock") }));
        let source = Some(source);
        assert!(!again(TransactionError::RollingBack { xid: xid(), by: by("deadlock"), source }));
        // What others decide.
        assert!(!again(TransactionError::Application("deadlock")));
        // What was not begun may begin with another XID, and not without a coordinator.
        assert!(again(TransactionError::NotBegun(refused("HF-TC-XID-NOT-LENT"))));
        assert!(!again(TransactionError::NotBegun(refused("HF-TC-SHARE-REACHED"))));
        assert!(!again(TransactionError::NotBegun(Error::Closed)));
    }

    /// An operator may have committed it, long enough ago to be forgotten.
    #[test]
    fn a_long_attempt_that_is_forgotten_is_not_repeated() {
        let forgotten = TransactionError::Forgotten { xid: xid(), by: by("deadlock") };
        assert!(!leaves_nothing(&forgotten, FORGOTTEN_WITHIN, |_| true));
    }

    #[test]
    fn pauses_double_up_to_their_limit_and_half_of_them_is_random() {
        let retry = Retry::new().back_off(Duration::from_millis(100), Duration::from_millis(300));
        let pauses = |random| [1, 2, 3, 90].map(|n| retry.pause(n, random).as_millis());
        assert_eq!(pauses(0.0), [50, 100, 150, 150]);
        assert_eq!(pauses(1.0), [100, 200, 300, 300]);
    }

    #[test]
    fn attempts_have_limits() {
        assert_eq!(Retry::new().attempts_max(0).attempts_max, 1);
        assert_eq!(Retry::new().attempts_max(u32::MAX).attempts_max, ATTEMPTS_MAX);
    }
}
