//! The bench: a coordinator in the test, the wire before it, and the clock of both.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use handfast::{Handfast, Xid};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::clock::{is_movable, is_paused, jump};
use crate::coordinator::Revivable;
use crate::error::KitError;
use crate::fault::{Fault, Kind};
use crate::faults::Faults;
use crate::traffic::Traffic;
use crate::wire::TestWire;

/// The longest jump of the clock. A longer one would pass over the time within which a coordinator
/// that owes an answer has to give a sign of life.
const STEP_MAX: Duration = Duration::from_secs(1);
/// How long, in real time, to wait for calls that a jump has caused.
const CALLS_WITHIN: Duration = Duration::from_secs(1);
/// How long a client may wait for its last answers.
const CLOSES_WITHIN: Duration = Duration::from_secs(1);
/// How often a round trip is made after a jump: a timer, what it sends, and what that causes.
const ROUND_TRIPS: usize = 2;

/// A coordinator inside of the test, and what the test does to it.
///
/// It is the engine of `handfast serve` with its records in memory, behind a wire that speaks the
/// native API, so a service connects as it does in production. Each kit has its own. Dropping it
/// ends the coordinator and removes the databases of [`sqlite`](Self::sqlite).
///
/// ```
/// use handfast_test::TestKit;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let kit = TestKit::start().await?;
/// let pool = kit.sqlite("CREATE TABLE stock (id INTEGER PRIMARY KEY, units INTEGER)").await?;
/// let stock = kit.handfast().at(pool.clone()).await?;
///
/// let add = kit.handfast().transaction("add").run(async |_tx| {
///     sqlx::query("INSERT INTO stock VALUES (7, 10)").execute(&stock).await
/// });
/// add.await?;
///
/// let xid = kit.last_xid().ok_or("nothing was begun")?;
/// kit.assert_committed(&xid).await;
/// kit.assert_nothing_left(&pool).await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct TestKit {
    pub(crate) coordinator: Arc<Revivable>,
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) faults: Arc<Faults>,
    address: SocketAddr,
    handfast: Handfast,
    tasks: Vec<JoinHandle<()>>,
    #[cfg(feature = "sqlite")]
    pub(crate) files: tempfile::TempDir,
    #[cfg(feature = "sqlite")]
    pub(crate) databases: AtomicUsize,
}

/// A fault that is in force. Dropping this leaves it so.
///
/// ```
/// use std::time::Duration;
///
/// use handfast_test::{Fault, TestKit};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), handfast_test::KitError> {
/// let kit = TestKit::start().await?;
/// let delay = kit.inject(Fault::delayed_phase_two(Duration::from_secs(5)));
/// assert_eq!(delay.struck(), 0);
/// delay.lift();
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct InjectedFault {
    coordinator: Arc<Revivable>,
    faults: Arc<Faults>,
    struck: Arc<AtomicUsize>,
}

impl TestKit {
    /// Starts a coordinator and connects a client to it.
    ///
    /// # Errors
    /// [`KitError`] says what the machine does not let the test do.
    pub async fn start() -> Result<Self, KitError> {
        if is_paused() {
            return Err(KitError::PausedClock);
        }
        let (coordinator, died) = Revivable::start().await?;
        let revived = tokio::spawn(Arc::clone(&coordinator).revive_at_each(died));
        let (faults, traffic) = (Arc::<Faults>::default(), Arc::<Traffic>::default());
        let wire =
            TestWire::open(Arc::clone(&coordinator), Arc::clone(&faults), Arc::clone(&traffic));
        let (address, served) = wire.await.map_err(KitError::Listen)?;
        let handfast = connect(address).await?;
        Ok(Self {
            coordinator,
            traffic,
            faults,
            address,
            handfast,
            tasks: vec![revived, served],
            #[cfg(feature = "sqlite")]
            files: tempfile::tempdir().map_err(KitError::Directory)?,
            #[cfg(feature = "sqlite")]
            databases: AtomicUsize::new(0),
        })
    }

    /// Returns a client that is connected to the coordinator, for the service under test. It
    /// connects again at once after a death of the coordinator, which a client of production does
    /// within seconds.
    ///
    /// ```
    /// # use handfast_test::TestKit;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), handfast_test::KitError> {
    /// let kit = TestKit::start().await?;
    /// assert!(kit.handfast().ready().is_ok());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn handfast(&self) -> &Handfast {
        &self.handfast
    }

    /// Returns the endpoint of the coordinator, for a service that connects by itself.
    ///
    /// ```
    /// # use handfast_test::TestKit;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), handfast_test::KitError> {
    /// let kit = TestKit::start().await?;
    /// let handfast = handfast::Handfast::connect(kit.endpoint()).application("stock").await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the globals and sagas that were begun so far, in their order.
    ///
    /// ```
    /// # use handfast_test::TestKit;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let kit = TestKit::start().await?;
    /// let tx = kit.handfast().transaction("empty").begin().await?;
    /// assert_eq!(kit.xids(), [tx.xid().clone()]);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn xids(&self) -> Vec<Xid> {
        // The coordinator's own answers are well-formed.
        self.traffic.all_begun().iter().filter_map(|xid| Xid::new(xid).ok()).collect()
    }

    /// Returns the global or saga that was begun last: a service behind HTTP does not return it.
    ///
    /// ```
    /// # use handfast_test::TestKit;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), handfast_test::KitError> {
    /// assert_eq!(TestKit::start().await?.last_xid(), None);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn last_xid(&self) -> Option<Xid> {
        self.xids().pop()
    }

    /// Has a fault happen.
    ///
    /// ```
    /// # use handfast_test::{Death, Fault, TestKit};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), handfast_test::KitError> {
    /// let kit = TestKit::start().await?;
    /// let death = kit.inject(Fault::coordinator_dies(Death::AfterDecision));
    /// assert_eq!(death.struck(), 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn inject(&self, fault: Fault) -> InjectedFault {
        let struck = Arc::new(AtomicUsize::new(0));
        if let Kind::CoordinatorDies(death) = fault.kind {
            self.coordinator.gate().plan(death, Arc::clone(&struck));
        }
        self.faults.inject(fault, Arc::clone(&struck));
        let (coordinator, faults) = (Arc::clone(&self.coordinator), Arc::clone(&self.faults));
        InjectedFault { coordinator, faults, struck }
    }

    /// Returns the faults that are in force and have not happened, or could not.
    pub(crate) fn missed_faults(&self) -> Vec<String> {
        self.faults.missed()
    }

    /// Ends the coordinator as a crash does, and starts it again with its records. Returns when it
    /// answers.
    ///
    /// ```
    /// # use handfast_test::TestKit;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let kit = TestKit::start().await?;
    /// kit.crash_coordinator().await;
    /// let tx = kit.handfast().transaction("after").begin().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn crash_coordinator(&self) {
        self.coordinator.die_and_revive().await;
    }

    /// Lets time pass for coordinator, clients and everything else that lives on tokio's clock:
    /// timeouts of globals, waits for locks, pauses between attempts.
    ///
    /// The clock goes in steps of a second, and what falls due in one is under way before the next.
    /// So a minute takes some 40 ms. Between two calls the clock runs as always. The
    /// databases' own clocks are not moved.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use handfast_test::TestKit;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let kit = TestKit::start().await?;
    /// # let pool = kit.sqlite("CREATE TABLE stock (id INTEGER PRIMARY KEY, units)").await?;
    /// # let stock = kit.handfast().at(pool.clone()).await?;
    /// let order = kit.handfast().transaction("order").timeout(Duration::from_secs(30));
    /// let tx = order.begin().await?;
    /// let insert = sqlx::query("INSERT INTO stock VALUES (7, 10)");
    /// tx.xid().scope(async { insert.execute(&stock).await }).await?;
    ///
    /// kit.advance(Duration::from_secs(31)).await;
    /// kit.assert_rolled_back(tx.xid()).await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// On a runtime with several threads, whose clock cannot be moved: use `#[tokio::test]` without
    /// a flavor.
    pub async fn advance(&self, by: Duration) {
        assert!(
            is_movable(),
            "TestKit::advance moves the clock of a current-thread runtime alone: use \
             #[tokio::test] without a flavor"
        );
        let mut left = by;
        while !left.is_zero() {
            let step = left.min(STEP_MAX);
            jump(step);
            left -= step;
            self.let_messages_pass().await;
        }
        self.let_calls_end().await;
    }

    /// Whether the clock can be moved.
    pub(crate) fn can_advance(&self) -> bool {
        is_movable()
    }

    /// Whether neither the coordinator nor a service has anything to do at once.
    pub(crate) fn is_idle(&self) -> bool {
        self.coordinator.is_alive() && self.traffic.calls_open() == 0
    }

    /// Waits until what has been sent has arrived: messages of one stream are read in their order.
    async fn let_messages_pass(&self) {
        let unknown = Xid::new("handfast-test:0").expect("the text is that of an XID");
        for _ in 0..ROUND_TRIPS {
            // A coordinator that is dead has nothing to pass.
            let _ = self.handfast.outcome(&unknown).await;
        }
    }

    /// Waits for calls that are under way, which may take a database some time.
    async fn let_calls_end(&self) {
        let until = Instant::now() + CALLS_WITHIN;
        while !self.is_idle() && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.let_messages_pass().await;
    }
}

impl Drop for TestKit {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        // Without a runtime everything has ended with it.
        let Ok(runtime) = Handle::try_current() else { return };
        let (handfast, coordinator) = (self.handfast.clone(), Arc::clone(&self.coordinator));
        runtime.spawn(async move {
            // The client first: it would go on looking for a coordinator.
            let _ = timeout(CLOSES_WITHIN, handfast.close()).await;
            coordinator.end();
        });
    }
}

impl InjectedFault {
    /// Returns how often the fault has happened.
    #[must_use]
    pub fn struck(&self) -> usize {
        self.struck.load(Ordering::SeqCst)
    }

    /// Ends the fault.
    pub fn lift(self) {
        self.faults.lift(&self.struck);
        self.coordinator.gate().forget(&self.struck);
    }
}

async fn connect(address: SocketAddr) -> Result<Handfast, handfast::Error> {
    let (base, max) = (Duration::from_millis(1), Duration::from_millis(20));
    Handfast::connect(format!("http://{address}")).application("test").back_off(base, max).await
}
