//! The faults that a test can have, by name.
//!
//! A fault acts on a message between a service and the coordinator, on the coordinator's store, or
//! on a row. What follows from it is decided by the real coordinator and the real service.

use std::fmt;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use handfast_proto::v1::{BranchOutcome, Decision, PhaseTwoCall, Question};
use sqlx::Pool;

use crate::database::TestDatabase;
use crate::gate::Death;

/// A thing that goes wrong, once it is [injected](crate::TestKit::inject).
///
/// ```
/// use std::time::Duration;
///
/// use handfast_test::{Death, Fault, TestKit};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), handfast_test::KitError> {
/// let kit = TestKit::start().await?;
/// kit.inject(Fault::refused_registration(2));
/// kit.inject(Fault::coordinator_dies(Death::AfterDecision));
/// kit.inject(Fault::delayed_phase_two(Duration::from_secs(30)));
/// # Ok(())
/// # }
/// ```
#[must_use = "a fault does nothing until it is injected"]
pub struct Fault {
    pub(crate) name: String,
    pub(crate) kind: Kind,
}

/// The work that runs between phase one and the rollback.
pub(crate) type ForeignWork = Box<dyn FnOnce() -> BoxFuture<'static, Result<(), String>> + Send>;

pub(crate) enum Kind {
    RefuseRegistration { nth: usize },
    CoordinatorDies(Death),
    DelayPhaseTwo { by: Duration },
    DoublePhaseTwo { only: Option<(String, Decision)> },
    RefuseStep { step: String },
    FailCommit { nth: usize },
    FailCommitOf { step: String, decision: Decision },
    BeforeRollback(ForeignWork),
}

impl Fault {
    /// The coordinator refuses the n-th registration of a branch from now on, counted from 1.
    ///
    /// The registration arrives damaged (its branch id is 0), which the coordinator refuses with
    /// `HF-TC-BAD-REQUEST`. The service gets that refusal, and rolls its local transaction back.
    /// Shows a service that goes on after a branch has failed.
    ///
    /// ```
    /// # use handfast_test::Fault;
    /// let fault = Fault::refused_registration(2);
    /// assert_eq!(fault.to_string(), "registration 2 is refused");
    /// ```
    pub fn refused_registration(nth: usize) -> Self {
        let name = format!("registration {nth} is refused");
        Self { name, kind: Kind::RefuseRegistration { nth } }
    }

    /// The coordinator dies at this moment, and comes back with its records.
    ///
    /// Services see their connection break. They connect again and repeat what was not answered.
    /// Shows a service that takes an unanswered request for a failed one.
    ///
    /// ```
    /// # use handfast_test::{Death, Fault};
    /// let fault = Fault::coordinator_dies(Death::AfterDecision);
    /// assert_eq!(fault.to_string(), "the coordinator dies: AfterDecision");
    /// ```
    pub fn coordinator_dies(death: Death) -> Self {
        let name = format!("the coordinator dies: {death:?}");
        Self { name, kind: Kind::CoordinatorDies(death) }
    }

    /// Each call of phase two is on its way for this time, as are the calls of sagas. Time passes
    /// by itself, or by [`TestKit::advance`](crate::TestKit::advance).
    ///
    /// Shows a service that relies on phase two having ended when the commit is answered.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use handfast_test::Fault;
    /// let fault = Fault::delayed_phase_two(Duration::from_secs(5));
    /// assert_eq!(fault.to_string(), "phase two is delayed by 5s");
    /// ```
    pub fn delayed_phase_two(by: Duration) -> Self {
        let name = format!("phase two is delayed by {by:?}");
        Self { name, kind: Kind::DelayPhaseTwo { by } }
    }

    /// Each call of phase two is made twice: the first answer is lost, as when a service dies after
    /// its work and before its answer.
    ///
    /// Shows a [participant](handfast::participant) whose commit or rollback is not idempotent.
    /// What runs behind the library's fence (TCC, sagas) is not run again once it is committed; for
    /// what it does outside of its local transaction see
    /// [`uncommitted_action`](Self::uncommitted_action) and [`failed_commit`](Self::failed_commit).
    ///
    /// ```
    /// # use handfast_test::Fault;
    /// assert_eq!(Fault::doubled_phase_two().to_string(), "phase two is doubled");
    /// ```
    pub fn doubled_phase_two() -> Self {
        let kind = Kind::DoublePhaseTwo { only: None };
        Self { name: "phase two is doubled".to_owned(), kind }
    }

    /// The action of this step of a saga is called twice, as by
    /// [`doubled_phase_two`](Self::doubled_phase_two).
    ///
    /// ```
    /// # use handfast_test::Fault;
    /// assert_eq!(Fault::doubled_action("pay").to_string(), "action pay is doubled");
    /// ```
    pub fn doubled_action(step: impl Into<String>) -> Self {
        let step = step.into();
        let name = format!("action {step} is doubled");
        Self { name, kind: Kind::DoublePhaseTwo { only: Some((step, Decision::Commit)) } }
    }

    /// The compensation of this step of a saga is called twice, as by
    /// [`doubled_phase_two`](Self::doubled_phase_two).
    ///
    /// ```
    /// # use handfast_test::Fault;
    /// let fault = Fault::doubled_compensation("pay");
    /// assert_eq!(fault.to_string(), "compensation pay is doubled");
    /// ```
    pub fn doubled_compensation(step: impl Into<String>) -> Self {
        let step = step.into();
        let name = format!("compensation {step} is doubled");
        Self { name, kind: Kind::DoublePhaseTwo { only: Some((step, Decision::RollBack)) } }
    }

    /// The action of this step of a saga refuses, however often it is called.
    ///
    /// Its input arrives damaged, so that the participant itself refuses and rolls its local
    /// transaction back. Shows steps before it whose compensation is missing or wrong.
    ///
    /// ```
    /// # use handfast_test::Fault;
    /// assert_eq!(Fault::refused_step("pay").to_string(), "step pay refuses");
    /// ```
    pub fn refused_step(step: impl Into<String>) -> Self {
        let step = step.into();
        let name = format!("step {step} refuses");
        Self { name, kind: Kind::RefuseStep { step } }
    }

    /// The n-th COMMIT from now on, counted from 1 over all databases of
    /// [`TestKit::sqlite`](crate::TestKit::sqlite), fails: SQLite rolls the transaction back. Only
    /// transactions count that have changed a row of the service, phase two included; tables
    /// WITHOUT ROWID are not seen.
    ///
    /// Shows work of a local transaction that is also done outside of it, and is therefore done
    /// twice when the transaction is repeated.
    ///
    /// ```
    /// # use handfast_test::Fault;
    /// assert_eq!(Fault::failed_commit(1).to_string(), "COMMIT 1 fails");
    /// ```
    pub fn failed_commit(nth: usize) -> Self {
        Self { name: format!("COMMIT {nth} fails"), kind: Kind::FailCommit { nth } }
    }

    /// The first COMMIT of this step's action fails, as when the service dies before it, and the
    /// action is called again. Only in databases of [`TestKit::sqlite`](crate::TestKit::sqlite).
    ///
    /// Shows an action that does something outside of its local transaction, such as sending a
    /// mail, without the [idempotency key](handfast::saga::SagaCall::idempotency_key).
    ///
    /// ```
    /// # use handfast_test::Fault;
    /// let fault = Fault::uncommitted_action("pay");
    /// assert_eq!(fault.to_string(), "the COMMIT of action pay fails once");
    /// ```
    pub fn uncommitted_action(step: impl Into<String>) -> Self {
        let step = step.into();
        let name = format!("the COMMIT of action {step} fails once");
        Self { name, kind: Kind::FailCommitOf { step, decision: Decision::Commit } }
    }

    /// The first COMMIT of this step's compensation fails, as that of
    /// [`uncommitted_action`](Self::uncommitted_action).
    ///
    /// ```
    /// # use handfast_test::Fault;
    /// let fault = Fault::uncommitted_compensation("pay");
    /// assert_eq!(fault.to_string(), "the COMMIT of compensation pay fails once");
    /// ```
    pub fn uncommitted_compensation(step: impl Into<String>) -> Self {
        let step = step.into();
        let name = format!("the COMMIT of compensation {step} fails once");
        Self { name, kind: Kind::FailCommitOf { step, decision: Decision::RollBack } }
    }

    /// A row becomes dirty: `sql` is run on `pool`, by a connection that knows no global, after
    /// phase one and before the next rollback reaches its service.
    ///
    /// The rollback then finds a row that is not as the branch left it, and asks for an operator.
    /// Shows whether the service notices, and says so, that its work is neither done nor undone.
    ///
    /// ```
    /// # use handfast_test::{Fault, TestKit};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), handfast_test::KitError> {
    /// # let kit = TestKit::start().await?;
    /// let pool = kit.sqlite("CREATE TABLE stock (id INTEGER PRIMARY KEY, units INTEGER)").await?;
    /// kit.inject(Fault::dirty_row(&pool, "UPDATE stock SET units = 99 WHERE id = 7"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn dirty_row<DB: TestDatabase>(pool: &Pool<DB>, sql: impl Into<String>) -> Self {
        let (pool, sql) = (pool.clone(), sql.into());
        let name = format!("a row becomes dirty: {sql}");
        let work = async move || DB::run(&pool, sql).await.map_err(|error| error.to_string());
        Self { name, kind: Kind::BeforeRollback(Box::new(move || work().boxed())) }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Fault").field(&self.name).finish()
    }
}

impl Kind {
    /// Whether the answer to this call is to be lost the first time.
    pub(crate) fn doubles(&self, call: &PhaseTwoCall, outcome: &BranchOutcome) -> bool {
        use handfast_proto::v1::branch_outcome::Result as Ended;

        let Self::DoublePhaseTwo { only } = self else { return false };
        let is_done = matches!(outcome.result, Some(Ended::Done(_) | Ended::Given(_)));
        let is_meant =
            only.as_ref().is_none_or(|(step, decision)| is_of_step(call, step, *decision));
        call.question() == Question::None && is_done && is_meant
    }

    /// Whether the call is the action of a step that is to refuse.
    pub(crate) fn refuses(&self, call: &PhaseTwoCall) -> bool {
        let Self::RefuseStep { step } = self else { return false };
        is_of_step(call, step, Decision::Commit)
    }

    /// Whether the next COMMIT is that of this call, and is to fail.
    pub(crate) fn fails_commit_of(&self, call: &PhaseTwoCall) -> bool {
        let Self::FailCommitOf { step, decision } = self else { return false };
        is_of_step(call, step, *decision)
    }
}

fn is_of_step(call: &PhaseTwoCall, step: &str, decision: Decision) -> bool {
    let called = call.branches.first().and_then(|branch| branch.step.as_ref());
    call.decision() == decision && called.is_some_and(|called| called.step == step)
}
