//! Plays a saga with everything that can happen to it, one thing at a time.
//!
//! Each play has a coordinator, databases and participants of its own. The first has no fault, and
//! shows which steps and which writes of the coordinator there are; the others follow from it.

mod plan;
mod play;

use std::fmt::{self, Display};

use handfast::saga::Saga;
use serde::Serialize;
use serde_json::Value;

use crate::error::KitError;
use crate::kit::TestKit;
use plan::{PlannedPlay, Plays};
use play::{Played, play};

/// The plays of one saga, unless set.
const PLAYS_MAX: usize = 1_000;
/// The failures that are described. After that many the run ends.
const FAILURES_MAX: usize = 20;

/// The end of a saga, which a check compares with the databases.
///
/// ```
/// use handfast_test::SagaEnd;
///
/// fn units_expected(end: SagaEnd) -> i64 {
///     if end == SagaEnd::Completed { 7 } else { 10 }
/// }
/// # assert_eq!(units_expected(SagaEnd::Compensated), 10);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SagaEnd {
    /// Every step is done.
    Completed,
    /// Every step that was done is compensated.
    Compensated,
}

/// Plays a saga with everything that can happen to it.
///
/// - **Each step refuses** that may refuse: one that can be compensated, a harmless one, the pivot.
/// - **Each action and each compensation is called twice**, since its first answer is lost, and
///   once more since the first COMMIT fails. (COMMITs fail in databases of [`TestKit::sqlite`].)
/// - **The coordinator dies** before and after each of its writes, while the saga goes forward and
///   while it is compensated, and comes back with its records.
///
/// Each play must end as it has to, and `check` must agree with what the databases then hold.
///
/// ```
/// use handfast::saga::{Saga, SagaAction, SagaCall, SagaStep, StepError};
/// use handfast_test::{SagaEnd, SagaRunner};
/// use sqlx::{Sqlite, SqlitePool, Transaction};
///
/// struct Reserve;
///
/// impl SagaAction<Sqlite> for Reserve {
///     type Input = i64;
///     type Output = ();
///
///     async fn act(
///         &self,
///         local: &mut Transaction<'_, Sqlite>,
///         units: &i64,
///         _call: &SagaCall,
///     ) -> Result<(), StepError> {
///         let reserve = "UPDATE stock SET units = units - ?";
///         sqlx::query(reserve).bind(units).execute(&mut **local).await?;
///         Ok(())
///     }
///
///     async fn compensate(
///         &self,
///         local: &mut Transaction<'_, Sqlite>,
///         units: &i64,
///         _call: &SagaCall,
///     ) -> Result<(), StepError> {
///         let put_back = "UPDATE stock SET units = units + ?";
///         sqlx::query(put_back).bind(units).execute(&mut **local).await?;
///         Ok(())
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runner = SagaRunner::new(|| {
///     let reserve = |name: &str| SagaStep::compensable(name, "stock", "reserve").input(&1);
///     Saga::new("two-units").step(reserve("one")).step(reserve("another"))
/// });
/// let runs = runner
///     .run(
///         async |kit| {
///             let stock = kit.sqlite("CREATE TABLE stock (units); INSERT INTO stock VALUES (10)");
///             let stock = stock.await?;
///             let participant = kit.handfast().saga_participant("stock", stock.clone());
///             participant.action("reserve", Reserve).register();
///             Ok::<_, handfast_test::KitError>(stock)
///         },
///         async |stock: &SqlitePool, end| {
///             let units: i64 =
///                 sqlx::query_scalar("SELECT units FROM stock").fetch_one(stock).await?;
///             assert_eq!(units, if end == SagaEnd::Completed { 8 } else { 10 });
///             Ok::<_, sqlx::Error>(())
///         },
///     )
///     .await?;
/// assert!(runs.plays() > 10);
/// # Ok(())
/// # }
/// ```
pub struct SagaRunner {
    saga: Box<dyn Fn() -> Saga>,
    signals: Vec<(String, Value)>,
    plays_max: usize,
}

/// A run without a failure.
///
/// ```
/// use handfast_test::SagaRuns;
///
/// /// Each fault of each play has happened.
/// fn is_complete(runs: &SagaRuns) -> bool {
///     runs.plays() > 1 && runs.vacuous().count() == 0
/// }
/// # assert!(!is_complete(&SagaRuns::default()));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SagaRuns {
    plays: Vec<String>,
    vacuous: Vec<String>,
}

/// A play that did not end as it had to. See [`SagaRunError::failures`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlayFailure {
    play: String,
    reason: String,
}

/// A saga that does not stand what can happen to it.
///
/// ```
/// use handfast_test::SagaRunError;
///
/// fn show(error: &SagaRunError) -> Vec<String> {
///     let failures = error.failures().iter();
///     failures.map(|it| format!("{} => {}", it.play(), it.reason())).collect()
/// }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct SagaRunError {
    plays: usize,
    failures: Vec<PlayFailure>,
}

impl SagaRunner {
    /// Makes a runner for the saga that `saga` returns, each time the same.
    ///
    /// ```
    /// # use handfast::saga::{Saga, SagaStep};
    /// # use handfast_test::SagaRunner;
    /// let runner = SagaRunner::new(|| {
    ///     Saga::new("order").step(SagaStep::pivot("pay", "account", "debit").input(&30))
    /// });
    /// # drop(runner);
    /// ```
    #[must_use]
    pub fn new(saga: impl Fn() -> Saga + 'static) -> Self {
        Self { saga: Box::new(saga), signals: Vec::new(), plays_max: PLAYS_MAX }
    }

    /// Sends a signal to a step that waits for it, in each play. A payload that is no JSON is sent
    /// as null.
    ///
    /// ```
    /// # use handfast::saga::{Saga, SagaStep};
    /// # use handfast_test::SagaRunner;
    /// let runner = SagaRunner::new(|| Saga::new("order").step(SagaStep::signal("approve")));
    /// let runner = runner.signal("approve", &"by the chief");
    /// # drop(runner);
    /// ```
    #[must_use]
    pub fn signal(mut self, step: impl Into<String>, payload: &impl Serialize) -> Self {
        self.signals.push((step.into(), serde_json::to_value(payload).unwrap_or_default()));
        self
    }

    /// Sets how many plays there may be, 1,000 unless set. A saga that has more is refused: too few
    /// leave things out, and each play takes some milliseconds.
    ///
    /// ```
    /// # use handfast::saga::Saga;
    /// # use handfast_test::SagaRunner;
    /// let runner = SagaRunner::new(|| Saga::new("long")).plays_max(10_000);
    /// # drop(runner);
    /// ```
    #[must_use]
    pub fn plays_max(mut self, max: usize) -> Self {
        self.plays_max = max;
        self
    }

    /// Runs all plays.
    ///
    /// `setup` makes the databases and registers the participants, for each play anew; what it
    /// returns lives as long as the play. `check` compares the databases with the saga's end; it
    /// may return an error or panic.
    ///
    /// # Errors
    /// [`SagaRunError`] names each play that did not end as it had to, and says what was there
    /// instead.
    pub async fn run<W, E, F>(
        self,
        setup: impl AsyncFn(&TestKit) -> Result<W, E>,
        check: impl AsyncFn(&W, SagaEnd) -> Result<(), F>,
    ) -> Result<SagaRuns, SagaRunError>
    where
        E: Display,
        F: Display,
    {
        let (mut plays, mut runs) = (Plays::first(), SagaRuns::default());
        let mut failures = Vec::new();
        while let Some(planned) = plays.next() {
            let name = planned.name();
            let played = play(&self.saga, &self.signals, &planned, &setup, &check).await;
            let played = played.and_then(|played| self.follow(&mut plays, &planned, played));
            runs.plays.push(name.clone());
            match played {
                Ok(played) if played.is_vacuous => runs.vacuous.push(name),
                Ok(_) => {}
                Err(reason) => failures.push(PlayFailure { play: name, reason }),
            }
            if failures.len() >= FAILURES_MAX {
                break;
            }
        }
        let plays = runs.plays();
        if failures.is_empty() { Ok(runs) } else { Err(SagaRunError { plays, failures }) }
    }

    fn follow(
        &self,
        plays: &mut Plays,
        planned: &PlannedPlay,
        played: Played,
    ) -> Result<Played, String> {
        plays.follow(planned, &played);
        let count = plays.count();
        if count <= self.plays_max {
            return Ok(played);
        }
        plays.end();
        Err(format!("{count} plays would follow: raise plays_max, or split the saga"))
    }
}

impl fmt::Debug for SagaRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SagaRunner").field("plays_max", &self.plays_max).finish_non_exhaustive()
    }
}

impl SagaRuns {
    /// Returns how many plays there were.
    #[must_use]
    pub fn plays(&self) -> usize {
        self.plays.len()
    }

    /// Returns the names of the plays, in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.plays.iter().map(String::as_str)
    }
}

impl SagaRuns {
    /// Returns the plays in which a fault did not happen, so that they have shown no more than a
    /// play without it: a COMMIT outside of [`TestKit::sqlite`], or a write of the coordinator that
    /// steps beside each other have shared with another one.
    pub fn vacuous(&self) -> impl Iterator<Item = &str> {
        self.vacuous.iter().map(String::as_str)
    }
}

impl PlayFailure {
    /// Returns which play it was, as in `step pay refuses; the coordinator dies: AfterWrite(3)`.
    #[must_use]
    pub fn play(&self) -> &str {
        &self.play
    }

    /// Returns what was there instead.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl SagaRunError {
    /// Returns the plays that failed, at most 20.
    #[must_use]
    pub fn failures(&self) -> &[PlayFailure] {
        &self.failures
    }
}

impl Display for SagaRunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} plays failed:", self.failures.len(), self.plays)?;
        for PlayFailure { play, reason } in &self.failures {
            write!(f, "\n- {play}:\n  {}", reason.trim_end().replace('\n', "\n  "))?;
        }
        Ok(())
    }
}

/// As the text for readers: a test that returns it shows it.
impl fmt::Debug for SagaRunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

impl std::error::Error for SagaRunError {}

/// Describes why the kit of a play does not start.
fn cannot_begin(error: &KitError) -> String {
    format!("the play cannot begin: {error} ({})", error.code())
}
