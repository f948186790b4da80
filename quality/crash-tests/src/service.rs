//! A service as a process: it launches globals over two databases, is an RM of both, and reports
//! the outcome of each operation.
//!
//! It ends when its standard input does, so that it never outlives the run, and stops launching
//! when a line comes there.

use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use futures::future::try_join_all;
use handfast::{AtError, Connect, EndError, Global, Handfast};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::database::{DatabaseLocation, Form, Pool, Resource};
use crate::event::{ReadValues, ServiceEvent, emit, now};
use crate::history::Outcome;
use crate::work::{DATABASES, Product, Row, Task, Workload};

/// The time during which a window of lists is in use.
const WINDOW_NANOSECONDS: u64 = 10_000_000_000;
/// Operations of one process have numbers of their own.
const OPERATIONS_PER_PROCESS: u64 = 1_000_000;
const RETRY_AFTER: Duration = Duration::from_millis(50);

/// How long a service waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeLimits {
    /// The time after which a global is rolled back.
    pub global: Duration,
    /// The time within which the coordinator must answer a request.
    pub answer: Duration,
    /// The time that a branch waits for global locks.
    pub lock: Duration,
    /// The wait for a connection of the pool, and for SQLite's writer lock.
    pub database: Duration,
}

impl TimeLimits {
    /// Shorter than the longest outages, so that they show as answers that never came, and short
    /// enough for the globals of a killed service to end soon. An outage of a database shows as an
    /// error, since the wait for it is not longer than a global may take.
    pub const SHORT: Self = Self {
        global: Duration::from_secs(2),
        answer: Duration::from_secs(3),
        lock: Duration::from_secs(1),
        database: Duration::from_secs(2),
    };
    /// Longer than every outage: a global that is rolled back all the same has another reason.
    pub const LONG: Self = Self {
        global: Duration::from_secs(45),
        answer: Duration::from_secs(60),
        lock: Duration::from_secs(3),
        database: Duration::from_secs(30),
    };
}

/// The script of a service process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Script {
    /// The number of the process among all service processes of the run, replacements included.
    pub process: u64,
    /// The coordinators' endpoints.
    pub endpoints: Vec<String>,
    /// The locations of the databases.
    pub databases: [DatabaseLocation; DATABASES],
    /// How long it waits.
    pub limits: TimeLimits,
    /// The number of operations that run at a time.
    pub workers: u64,
    /// The kind of operations.
    pub workload: Workload,
    /// Chooses them.
    pub seed: u64,
}

/// Plays the part until standard input ends.
///
/// # Errors
/// Returns an error if standard output is closed.
pub async fn play(script: Script) -> Result<()> {
    let finishing = Arc::new(AtomicBool::new(false));
    listen(Arc::clone(&finishing));
    let service = Arc::new(Service::start(&script).await?);
    emit(&ServiceEvent::Ready)?;
    let workers = (0..script.workers).map(|worker| {
        let (service, finishing) = (Arc::clone(&service), Arc::clone(&finishing));
        let seed = script.seed.wrapping_add(script.process * 1_000 + worker);
        async move {
            let mut random = StdRng::seed_from_u64(seed);
            while !finishing.load(Ordering::Relaxed) {
                service.operate(script.workload, &mut random).await?;
            }
            anyhow::Ok(())
        }
    });
    Box::pin(try_join_all(workers)).await?;
    emit(&ServiceEvent::Finished)?;
    std::future::pending().await
}

/// A line asks to finish; the end asks to end.
pub(crate) fn listen(finishing: Arc<AtomicBool>) {
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            if line.is_err() {
                break;
            }
            finishing.store(true, Ordering::Relaxed);
        }
        std::process::exit(0);
    });
}

struct Service {
    handfast: Handfast,
    resources: [Resource; DATABASES],
    products: [Product; DATABASES],
    limits: TimeLimits,
    next: AtomicU64,
}

impl Service {
    async fn start(script: &Script) -> Result<Self> {
        let limits = script.limits;
        let handfast = keep_trying(async || {
            let handfast = connect(&script.endpoints).application("service");
            let handfast = handfast.request_deadline(limits.answer);
            let handfast = handfast.rollback_wait(Duration::from_secs(1));
            handfast.back_off(Duration::from_millis(20), Duration::from_millis(500)).await
        });
        let handfast = handfast.await;
        let connections = u32::try_from(script.workers)? + 2;
        let mut resources = Vec::new();
        for place in &script.databases {
            let pool = Pool::new(place, connections, limits.database)?;
            resources.push(keep_trying(async || pool.join(&handfast, limits.lock).await).await);
        }
        let resources = resources.try_into().expect("a resource for each database");
        let products = script.databases.clone().map(|place| place.product);
        let next = AtomicU64::new(script.process * OPERATIONS_PER_PROCESS + 1);
        Ok(Self { handfast, resources, products, limits, next })
    }

    /// Runs one operation from its choice to its end, and tells of it before and after.
    async fn operate(&self, workload: Workload, random: &mut StdRng) -> Result<()> {
        let operation = self.next.fetch_add(1, Ordering::Relaxed);
        let window = i64::try_from(now() / WINDOW_NANOSECONDS)?;
        let task = Task::choose(workload, window, random);
        // Few: a branch in the explicit form that waits holds up all others until a timeout.
        let form = if random.random_bool(0.95) { Form::Closure } else { Form::Explicit };
        let decider = if random.random_bool(0.5) { Decider::LastBranch } else { Decider::Caller };
        emit(&ServiceEvent::Began { operation, at: now(), task: task.clone() })?;
        let Ended { outcome, why, seen } = self.run(operation, &task, (form, decider)).await?;
        emit(&ServiceEvent::Ended { operation, at: now(), outcome, why, seen })
    }

    async fn run(&self, operation: u64, task: &Task, how: (Form, Decider)) -> Result<Ended> {
        let new = self.handfast.transaction("operation").timeout(self.limits.global);
        let new = if task.reads_committed() { new.read_committed() } else { new };
        let global = match new.begin().await {
            Ok(global) => global,
            Err(error) => return Ok(Ended::in_nothing(format!("{}: {error}", error.code()))),
        };
        emit(&ServiceEvent::Begun { operation, xid: global.xid().to_string() })?;
        let work = self.work(operation, task, how);
        match Box::pin(global.scope(work)).await {
            Ok(rows) => {
                let (outcome, why) = outcome_of(task, global.commit().await);
                Ok(Ended { outcome, why, seen: task.seen(&rows) })
            }
            Err(error) => Ok(roll_back(global, error).await),
        }
    }

    async fn work(
        &self,
        operation: u64,
        task: &Task,
        (form, decider): (Form, Decider),
    ) -> Result<Vec<(usize, Row)>, sqlx::Error> {
        let mut read = Vec::new();
        let branches = task.branches(operation, self.products);
        let last = branches.len();
        for (number, branch) in branches.into_iter().enumerate() {
            let resource = &self.resources[branch.database];
            let is_last = number + 1 == last && decider == Decider::LastBranch;
            let rows = if is_last {
                resource.last().run(form, &branch.steps).await?
            } else {
                resource.run(form, &branch.steps).await?
            };
            read.extend(rows.into_iter().map(|row| (branch.database, row)));
        }
        Ok(read)
    }
}

/// The side that commits a global.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decider {
    /// A request of the caller.
    Caller,
    /// The local commit of its last branch, if that may decide.
    LastBranch,
}

/// The coordinator's answer for a global without a branch after its restart.
const UNKNOWN_XID: &str = "HF-TC-UNKNOWN-XID";

struct Ended {
    outcome: Outcome,
    why: String,
    seen: ReadValues,
}

impl Ended {
    fn in_nothing(why: String) -> Self {
        Self { outcome: Outcome::RolledBack, why, seen: ReadValues::default() }
    }
}

/// Rolls the global back. It counts as rolled back however far that comes, since no commit was ever
/// asked for, unless the local commit of a last branch had no answer.
async fn roll_back(global: Global, cause: sqlx::Error) -> Ended {
    let code = code_of(&cause);
    let Err(error) = global.rollback("a branch failed").await else {
        return Ended::in_nothing(format!("{code}: {cause}"));
    };
    let ended = Ended::in_nothing(format!("{code}: {cause}, then {error}"));
    let is_open = matches!(error, EndError::Unknown { .. } | EndError::Committed { .. });
    if is_open { Ended { outcome: Outcome::Unknown, ..ended } } else { ended }
}

fn outcome_of(task: &Task, committed: Result<(), EndError>) -> (Outcome, String) {
    let Err(error) = committed else { return (Outcome::Committed, String::new()) };
    let outcome = match &error {
        // It had no branch that a restart could know of, and nothing to lose.
        EndError::Unknown { source, .. }
            if task.reads_committed() && source.code() == UNKNOWN_XID =>
        {
            Outcome::RolledBack
        }
        EndError::RolledBack { .. }
        | EndError::RollingBack { .. }
        | EndError::NeedsOperator { .. }
        | EndError::Forgotten { .. }
        | EndError::NotBegun(_) => Outcome::RolledBack,
        // Without an operator, a commit has none of these errors but `Unknown`.
        EndError::Unknown { .. } | EndError::Committed { .. } | EndError::Application(_) | _ => {
            Outcome::Unknown
        }
    };
    (outcome, format!("{}: {error}", error.code()))
}

/// Returns the code of Handfast, or of the database; `connection` if there is neither.
fn code_of(error: &sqlx::Error) -> String {
    if let Some(ours) = AtError::of(error) {
        return ours.code().to_owned();
    }
    let code = error.as_database_error().and_then(|error| error.code());
    code.map_or_else(|| "connection".to_owned(), |code| format!("SQL {code}"))
}

/// Describes a client of coordinators of which one leads.
pub(crate) fn connect(endpoints: &[String]) -> Connect {
    let (first, others) = endpoints.split_first().expect("a stage has a coordinator");
    others.iter().fold(Handfast::connect(first), Connect::endpoint)
}

/// Repeats an attempt until it succeeds: a service starts while other parts are down, and none of
/// them tells it when it is up.
pub(crate) async fn keep_trying<T, E>(attempt: impl AsyncFn() -> Result<T, E>) -> T {
    loop {
        if let Ok(done) = attempt().await {
            return done;
        }
        tokio::time::sleep(RETRY_AFTER).await;
    }
}
