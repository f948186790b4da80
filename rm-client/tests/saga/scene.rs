//! A participant whose five actions leave traces, and sagas made of them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use handfast::Handfast;
use handfast::saga::{Saga, SagaAction, SagaCall, SagaStep, StartedSaga, StepError};
use handfast_test_services::until;
use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, Executor, MySql, Pool, Postgres, Sqlite, Transaction};

use crate::at::{Stage, TestDatabase};

pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The table of traces. Actions and compensations insert rows in the fenced local transaction.
pub(crate) const EFFECT: &str =
    "CREATE TABLE effect (n INT NOT NULL, saga VARCHAR(64) NOT NULL, step VARCHAR(16) NOT NULL)";

/// The steps in order. Of those before the pivot, `pay`, the first two can be compensated.
pub(crate) const STEPS: [&str; 5] = ["reserve", "charge", "check", "pay", "ship"];
const COMPENSABLE: usize = 2;

/// A database in whose plain local transactions a test can write.
pub(crate) trait Writes: TestDatabase {
    fn write<'l>(
        local: &'l mut Transaction<'_, Self>,
        sql: String,
    ) -> BoxFuture<'l, Result<(), sqlx::Error>>;
}

macro_rules! writes {
    ($($database:ty),*) => {
        $(impl Writes for $database {
            fn write<'l>(
                local: &'l mut Transaction<'_, Self>,
                sql: String,
            ) -> BoxFuture<'l, Result<(), sqlx::Error>> {
                async move { local.execute(AssertSqlSafe(sql)).await.map(drop) }.boxed()
            }
        })*
    };
}

writes!(Postgres, MySql, Sqlite);

/// The behaviour of a step in addition to its trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Behaviour {
    #[default]
    Good,
    /// The action refuses, after it has written.
    Refuses,
    /// The action fails this many times, over all sagas.
    Fails(u32),
    /// The output of the action is above the limit.
    GivesTooMuch,
    /// The compensation refuses.
    Sticks,
}

/// Leaves `1` for an action and `-1` for a compensation, and returns the saga's key and the step.
#[derive(Default)]
pub(crate) struct Trace {
    failed: AtomicU32,
}

impl<DB: Writes> SagaAction<DB> for Trace {
    type Input = Behaviour;
    type Output = String;

    async fn act(
        &self,
        local: &mut Transaction<'_, DB>,
        input: &Behaviour,
        call: &SagaCall,
    ) -> Result<String, StepError> {
        DB::write(local, trace(1, call)).await?;
        match *input {
            Behaviour::Refuses => return Err(StepError::refuse("on purpose")),
            Behaviour::Fails(times) if self.failed.fetch_add(1, Ordering::SeqCst) < times => {
                return Err(StepError::fail("for a while"));
            }
            Behaviour::GivesTooMuch => return Ok("x".repeat(70_000)),
            Behaviour::Good | Behaviour::Fails(_) | Behaviour::Sticks => {}
        }
        if call.step() == "ship" {
            let paid: Option<String> = call.output_of("pay")?;
            assert_eq!(paid.unwrap(), format!("{}/pay", call.key()));
        }
        if call.step() == "billing/charge" {
            let reserved: Option<String> = call.output_of("reserve")?;
            assert_eq!(reserved.unwrap(), format!("{}/reserve", call.key()));
        }
        Ok(format!("{}/{}", call.key(), call.step()))
    }

    async fn compensate(
        &self,
        local: &mut Transaction<'_, DB>,
        input: &Behaviour,
        call: &SagaCall,
    ) -> Result<(), StepError> {
        if *input == Behaviour::Sticks {
            return Err(StepError::refuse("a person must look"));
        }
        Ok(DB::write(local, trace(-1, call)).await?)
    }
}

/// Leaves the same rows under a short time limit. The given numbers of its calls then never end.
pub(crate) struct Hanging {
    pub(crate) actions: AtomicU32,
    pub(crate) compensations: AtomicU32,
}

impl<DB: Writes> SagaAction<DB> for Hanging {
    type Input = ();
    type Output = ();

    const TIME_LIMIT: Duration = Duration::from_millis(200);

    async fn act(
        &self,
        local: &mut Transaction<'_, DB>,
        (): &(),
        call: &SagaCall,
    ) -> Result<(), StepError> {
        DB::write(local, trace(1, call)).await?;
        hang(&self.actions).await;
        Ok(())
    }

    async fn compensate(
        &self,
        local: &mut Transaction<'_, DB>,
        (): &(),
        call: &SagaCall,
    ) -> Result<(), StepError> {
        DB::write(local, trace(-1, call)).await?;
        hang(&self.compensations).await;
        Ok(())
    }
}

/// Never ends while the number is above zero, and counts it down.
async fn hang(left: &AtomicU32) {
    let less = |left: u32| left.checked_sub(1);
    if left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
        std::future::pending().await
    }
}

fn trace(n: i32, call: &SagaCall) -> String {
    let step = call.step().trim_start_matches("billing/");
    format!("INSERT INTO effect (n, saga, step) VALUES ({n}, '{}', '{step}')", call.key())
}

/// Registers a participant with all five actions.
pub(crate) fn take_part<DB: Writes>(handfast: &Handfast, pool: &Pool<DB>) {
    let participant = handfast.saga_participant("shop", pool.clone());
    let add = |participant: handfast::saga::Participant<DB>, step: &&str| {
        participant.action(*step, Trace::default())
    };
    STEPS.iter().fold(participant, add).register();
}

/// Registers a participant with one action that hangs.
pub(crate) fn take_part_hanging<DB: Writes>(stage: &Stage<DB>, actions: u32, compensations: u32) {
    let participant = stage.handfast.saga_participant("bank", stage.pool.clone());
    let (actions, compensations) = (AtomicU32::new(actions), AtomicU32::new(compensations));
    participant.action("charge", Hanging { actions, compensations }).register();
}

/// Returns a saga of five steps, one of which behaves as given.
pub(crate) fn five_steps(other: &str, behaviour: Behaviour) -> Saga {
    let steps = STEPS.iter().enumerate().map(|(place, &name)| {
        let step = match place {
            0 | 1 => SagaStep::compensable(name, "shop", name),
            2 => SagaStep::harmless(name, "shop", name),
            3 => SagaStep::pivot(name, "shop", name),
            _ => SagaStep::retriable(name, "shop", name).takes("pay"),
        };
        let behaviour = if name == other { behaviour } else { Behaviour::Good };
        let ms = Duration::from_millis;
        step.input(&behaviour).pauses(ms(1), 2, ms(20))
    });
    steps.fold(Saga::new("place-order"), Saga::step)
}

/// Returns a coordinator and a database without a participant.
pub(crate) async fn scene<DB: Writes>() -> Stage<DB> {
    Stage::<DB>::new(&[EFFECT]).await
}

pub(crate) async fn start<DB: Writes>(stage: &Stage<DB>, key: &str, saga: Saga) -> StartedSaga {
    stage.handfast.start_saga(key, saga).await.unwrap()
}

/// Returns the steps with traces of an action (`n` is 1) or a compensation (-1), one entry a trace.
pub(crate) async fn traces<DB: Writes>(stage: &Stage<DB>, key: &str, n: i32) -> Vec<String> {
    let sql = format!("SELECT step FROM effect WHERE saga = '{key}' AND n = {n} ORDER BY step");
    let rows = DB::raw_rows(&stage.pool, &sql).await.unwrap();
    rows.into_iter().map(|mut row| row.remove(0).unwrap()).collect()
}

/// Checks that every action took effect once and no compensation did.
pub(crate) async fn assert_all_done<DB: Writes>(stage: &Stage<DB>, key: &str) {
    let mut all = STEPS.map(str::to_owned).to_vec();
    all.sort();
    assert_eq!(traces(stage, key, 1).await, all, "{key}");
    assert_eq!(traces(stage, key, -1).await, Vec::<String>::new(), "{key}");
}

/// Checks that each done step that can be compensated was compensated once, and that the pivot was
/// not done.
pub(crate) async fn assert_all_compensated<DB: Writes>(stage: &Stage<DB>, key: &str) {
    let done = traces(stage, key, 1).await;
    let compensable = |step: &&String| STEPS[..COMPENSABLE].contains(&step.as_str());
    let expected: Vec<String> = done.iter().filter(compensable).cloned().collect();
    assert_eq!(traces(stage, key, -1).await, expected, "{key}");
    let late = |step: &&String| step.as_str() == "pay" || step.as_str() == "ship";
    assert_eq!(done.iter().find(late), None, "{key}");
}

/// Waits until this many actions and compensations have taken effect.
pub(crate) async fn until_traces<DB: Writes>(stage: &Stage<DB>, key: &str, count: usize) {
    until("the saga gets there", async || {
        traces(stage, key, 1).await.len() + traces(stage, key, -1).await.len() >= count
    })
    .await;
}
