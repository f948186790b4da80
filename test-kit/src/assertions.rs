//! Assertions. Each waits, within a limit of real time, for what is still under way, and says what
//! is there instead.

use std::panic::Location;
use std::time::{Duration, Instant};

use handfast::Xid;
use handfast_core::{StatusKind, XidText};
use sqlx::Pool;

use crate::database::TestDatabase;
use crate::kit::TestKit;
use crate::view::{Lookup, Remains};

/// How long to wait for what is under way. Real time: a database does not follow the test's clock.
const WITHIN: Duration = Duration::from_secs(5);
/// How long a request that the service has just sent may be on its way.
const ARRIVES_WITHIN: Duration = Duration::from_millis(200);
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// The end that a test expects of a global or a saga.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Committed,
    RolledBack,
    NeedsOperator,
}

impl Expected {
    fn text(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::RolledBack => "rolled back",
            Self::NeedsOperator => "in need of an operator",
        }
    }

    fn is(self, status: StatusKind) -> bool {
        status
            == match self {
                Self::Committed => StatusKind::Committed,
                Self::RolledBack => StatusKind::RolledBack,
                Self::NeedsOperator => StatusKind::NeedsOperator,
            }
    }
}

/// Until when an assertion waits.
struct Deadline(Instant);

impl Deadline {
    fn start() -> Self {
        Self(Instant::now())
    }

    /// Returns whether the wait is over. Work of the coordinator may take a database some time;
    /// anything else changes only because of a message that is on its way.
    fn is_over(&self, goes_on: bool) -> bool {
        self.0.elapsed() >= if goes_on { WITHIN } else { ARRIVES_WITHIN }
    }
}

fn is_end(status: StatusKind) -> bool {
    match status {
        StatusKind::Committed | StatusKind::RolledBack | StatusKind::NeedsOperator => true,
        StatusKind::Unknown
        | StatusKind::Active
        | StatusKind::Committing
        | StatusKind::RollingBack => false,
    }
}

impl TestKit {
    /// Asserts that the global is committed and each of its branches has finished; of a saga, that
    /// it is completed. Waits for phase two.
    ///
    /// ```
    /// # use handfast_test::TestKit;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let kit = TestKit::start().await?;
    /// # let pool = kit.sqlite("CREATE TABLE t (id INTEGER PRIMARY KEY)").await?;
    /// # let at = kit.handfast().at(pool).await?;
    /// let work = kit.handfast().transaction("work").run(async |tx| {
    ///     sqlx::query("INSERT INTO t VALUES (1)").execute(&at).await?;
    ///     Ok::<_, sqlx::Error>(tx.xid().cloned())
    /// });
    /// let xid = work.await?.ok_or("outside of a global")?;
    /// kit.assert_committed(&xid).await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// If it has another end. The message shows its branches, and the rows that keep it from its
    /// end.
    #[track_caller]
    pub fn assert_committed(&self, xid: &Xid) -> impl Future<Output = ()> {
        self.assert_ended(xid, Expected::Committed, Location::caller())
    }

    /// Asserts that the global is rolled back and each of its branches has undone its work; of a
    /// saga, that it is compensated. Waits for phase two.
    ///
    /// ```
    /// # use handfast_test::TestKit;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let kit = TestKit::start().await?;
    /// # let pool = kit.sqlite("CREATE TABLE t (id INTEGER PRIMARY KEY)").await?;
    /// # let at = kit.handfast().at(pool).await?;
    /// let work = kit.handfast().transaction("work").run(async |_tx| {
    ///     sqlx::query("INSERT INTO t VALUES (1)").execute(&at).await?;
    ///     Err::<(), _>(sqlx::Error::RowNotFound)
    /// });
    /// assert!(work.await.is_err());
    /// kit.assert_rolled_back(&kit.last_xid().ok_or("nothing was begun")?).await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// As [`assert_committed`](Self::assert_committed).
    #[track_caller]
    pub fn assert_rolled_back(&self, xid: &Xid) -> impl Future<Output = ()> {
        self.assert_ended(xid, Expected::RolledBack, Location::caller())
    }

    /// Asserts that the global or saga cannot end without an operator, as after
    /// [`Fault::dirty_row`](crate::Fault::dirty_row).
    ///
    /// ```
    /// # use handfast_test::{Fault, TestKit};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let kit = TestKit::start().await?;
    /// # let schema = "CREATE TABLE t (id INTEGER PRIMARY KEY, n); INSERT INTO t VALUES (1, 1)";
    /// # let pool = kit.sqlite(schema).await?;
    /// # let at = kit.handfast().at(pool.clone()).await?;
    /// kit.inject(Fault::dirty_row(&pool, "UPDATE t SET n = 99"));
    /// let work = kit.handfast().transaction("work").run(async |_tx| {
    ///     sqlx::query("UPDATE t SET n = 2 WHERE id = 1").execute(&at).await?;
    ///     Err::<(), _>(sqlx::Error::RowNotFound)
    /// });
    /// assert!(work.await.is_err());
    /// kit.assert_needs_operator(&kit.last_xid().ok_or("nothing was begun")?).await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// As [`assert_committed`](Self::assert_committed).
    #[track_caller]
    pub fn assert_needs_operator(&self, xid: &Xid) -> impl Future<Output = ()> {
        self.assert_ended(xid, Expected::NeedsOperator, Location::caller())
    }

    /// Asserts that nothing is left of any global: no undo row in this database, no global lock at
    /// the coordinator, and no global or saga without an end. Waits for phase two.
    ///
    /// Fences stay by design, and so do undo rows that keep a late local transaction out.
    ///
    /// ```
    /// # use handfast_test::TestKit;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), handfast_test::KitError> {
    /// # let kit = TestKit::start().await?;
    /// # let pool = kit.sqlite("CREATE TABLE t (id INTEGER PRIMARY KEY)").await?;
    /// kit.assert_nothing_left(&pool).await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// If something is. The message lists undo rows, locks and globals.
    #[track_caller]
    pub fn assert_nothing_left<DB: TestDatabase>(
        &self,
        pool: &Pool<DB>,
    ) -> impl Future<Output = ()> {
        let caller = Location::caller();
        async move {
            let deadline = Deadline::start();
            loop {
                let undo_rows = DB::undo_rows(pool).await;
                let undo_rows = undo_rows.unwrap_or_else(|error| {
                    panic!("at {caller}: the undo rows cannot be read: {error}")
                });
                let remains = Remains::look(self, undo_rows).await;
                if remains.is_nothing() {
                    return;
                }
                let is_over = deadline.is_over(remains.goes_on());
                assert!(!is_over, "at {caller}: something is left:\n{remains}");
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
    }

    /// Asserts that each injected fault has happened. A test whose fault did not happen has shown
    /// nothing.
    ///
    /// ```
    /// # use handfast_test::TestKit;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), handfast_test::KitError> {
    /// let kit = TestKit::start().await?;
    /// kit.assert_faults_struck();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// If one has not, or if the statement of [`Fault::dirty_row`](crate::Fault::dirty_row) failed.
    #[track_caller]
    pub fn assert_faults_struck(&self) {
        let missed = self.missed_faults();
        assert!(missed.is_empty(), "faults that did not happen:\n  {}", missed.join("\n  "));
    }

    fn assert_ended(
        &self,
        xid: &Xid,
        expected: Expected,
        caller: &'static Location<'static>,
    ) -> impl Future<Output = ()> {
        let xid = xid.clone();
        async move {
            let deadline = Deadline::start();
            let number = XidText::parse(xid.as_str()).map(|text| text.xid);
            let number = number.unwrap_or_else(|error| panic!("at {caller}: {error}"));
            loop {
                let found = Lookup::of(self, number).await;
                if expected.is(found.status) {
                    return;
                }
                let is_over = is_end(found.status) || deadline.is_over(found.goes_on);
                let text = expected.text();
                assert!(!is_over, "at {caller}: xid {xid} is not {text}:\n{found}");
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
    }
}
