//! The saga runner, with a saga that stands everything and sagas with one bug each.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use handfast::saga::{Saga, SagaAction, SagaCall, SagaStep, StepError};
use handfast_test::{KitError, SagaEnd, SagaRunError, SagaRunner, SagaRuns, TestKit};
use sqlx::{Sqlite, SqlitePool, Transaction};

/// The bugs that an action can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    /// Its compensation is missing.
    NoCompensation,
    /// Its compensation gives back one unit too few.
    WrongCompensation,
    /// It counts outside of its local transaction, without an idempotency key.
    OutsideOfTheTransaction,
}

/// Takes units from one place, and gives them back.
struct Take {
    bug: Bug,
    mails: Arc<AtomicI64>,
}

impl SagaAction<Sqlite> for Take {
    type Input = i64;
    type Output = ();

    async fn act(
        &self,
        local: &mut Transaction<'_, Sqlite>,
        units: &i64,
        _call: &SagaCall,
    ) -> Result<(), StepError> {
        if self.bug == Bug::OutsideOfTheTransaction {
            self.mails.fetch_add(1, Ordering::SeqCst);
        }
        let take = "UPDATE place SET units = units - ?";
        sqlx::query(take).bind(units).execute(&mut **local).await?;
        Ok(())
    }

    async fn compensate(
        &self,
        local: &mut Transaction<'_, Sqlite>,
        units: &i64,
        _call: &SagaCall,
    ) -> Result<(), StepError> {
        let units = match self.bug {
            Bug::NoCompensation => return Err(StepError::refuse("this has no compensation")),
            Bug::WrongCompensation => units - 1,
            Bug::None | Bug::OutsideOfTheTransaction => *units,
        };
        let give = "UPDATE place SET units = units + ?";
        sqlx::query(give).bind(units).execute(&mut **local).await?;
        Ok(())
    }
}

/// The saga's databases and what it has sent.
struct World {
    pool: SqlitePool,
    mails: Arc<AtomicI64>,
}

const SCHEMA: &str = "CREATE TABLE place (units INTEGER); INSERT INTO place VALUES (100)";

/// Three steps of 1, 10 and 20 units.
fn saga() -> Saga {
    Saga::new("order")
        .step(SagaStep::compensable("reserve", "place", "take").input(&1))
        .step(SagaStep::pivot("pay", "place", "take").input(&10))
        .step(SagaStep::retriable("ship", "place", "take").input(&20))
}

async fn set_up(kit: &TestKit, bug: Bug) -> Result<World, KitError> {
    let pool = kit.sqlite(SCHEMA).await?;
    let mails = Arc::new(AtomicI64::new(0));
    let take = Take { bug, mails: Arc::clone(&mails) };
    kit.handfast().saga_participant("place", pool.clone()).action("take", take).register();
    Ok(World { pool, mails })
}

async fn run(saga: fn() -> Saga, bug: Bug, done: i64) -> Result<SagaRuns, SagaRunError> {
    let check = async |world: &World, end| {
        let read = sqlx::query_scalar("SELECT units FROM place");
        let units: i64 = read.fetch_one(&world.pool).await?;
        let expected = if end == SagaEnd::Completed { 100 - done } else { 100 };
        assert_eq!(units, expected, "units");
        let mails = world.mails.load(Ordering::SeqCst);
        assert!(mails <= 3, "{mails} mails");
        Ok::<_, sqlx::Error>(())
    };
    SagaRunner::new(saga).run(async |kit| set_up(kit, bug).await, check).await
}

#[tokio::test]
async fn a_sound_saga_stands_everything() {
    let begun = std::time::Instant::now();
    let runs = run(saga, Bug::None, 31).await.unwrap();
    println!("{} plays in {:?}", runs.plays(), begun.elapsed());
    let names: Vec<&str> = runs.names().collect();
    for expected in [
        "no fault",
        "step reserve refuses",
        "step pay refuses",
        "action ship is doubled",
        "the COMMIT of action pay fails once",
        "the coordinator dies: BeforeWrite(1)",
        "the coordinator dies: AfterWrite(2)",
        "step pay refuses; compensation reserve is doubled",
        "step pay refuses; the COMMIT of compensation reserve fails once",
        "step pay refuses; the coordinator dies: AfterWrite(1)",
    ] {
        assert!(names.contains(&expected), "{expected}: {names:?}");
    }
    assert!(!names.contains(&"step ship refuses"), "it must be done in the end");
    let vacuous: Vec<&str> = runs.vacuous().collect();
    assert!(vacuous.is_empty(), "{vacuous:?}");
}

#[tokio::test]
async fn a_missing_compensation_is_found() {
    let error = run(saga, Bug::NoCompensation, 31).await.unwrap_err();
    let found = error.failures().iter().find(|it| it.play() == "step pay refuses").unwrap();
    assert!(found.reason().contains("is not compensated: NeedsOperator"), "{error}");
    assert!(found.reason().contains("step reserve: CompensatingStuck"), "{error}");
    assert!(found.reason().contains("this has no compensation"), "{error}");
    let is_forward = |play: &str| !play.contains("refuses");
    assert!(!error.failures().iter().any(|it| is_forward(it.play())), "{error}");
}

#[tokio::test]
async fn a_wrong_compensation_is_found() {
    let error = run(saga, Bug::WrongCompensation, 31).await.unwrap_err();
    let found = error.failures().iter().find(|it| it.play() == "step pay refuses").unwrap();
    assert!(found.reason().starts_with("the saga is compensated, but:"), "{error}");
    assert!(found.reason().contains("left: 99") && found.reason().contains("100"), "{error}");
}

#[tokio::test]
async fn an_action_that_is_not_idempotent_is_found() {
    let error = run(saga, Bug::OutsideOfTheTransaction, 31).await.unwrap_err();
    let plays: Vec<&str> = error.failures().iter().map(|it| it.play()).collect();
    let expected = [
        "the COMMIT of action reserve fails once",
        "the COMMIT of action pay fails once",
        "the COMMIT of action ship fails once",
    ];
    assert_eq!(plays, expected, "{error}");
    assert!(error.to_string().contains("4 mails"), "{error}");
}

/// A step that is said to leave nothing to undo, and leaves something.
fn saga_with_a_harmful_step() -> Saga {
    Saga::new("order")
        .step(SagaStep::harmless("look", "place", "take").input(&1))
        .step(SagaStep::pivot("pay", "place", "take").input(&10))
}

#[tokio::test]
async fn a_harmless_step_that_is_not_is_found() {
    let error = run(saga_with_a_harmful_step, Bug::None, 11).await.unwrap_err();
    let found = error.failures().iter().find(|it| it.play() == "step pay refuses").unwrap();
    assert!(found.reason().contains("left: 99"), "{error}");
}

/// Steps beside each other, a child, and a step that a person ends.
fn saga_of_every_kind() -> Saga {
    let child = Saga::new("billing")
        .step(SagaStep::compensable("quote", "place", "take").input(&2))
        .step(SagaStep::compensable("charge", "place", "take").input(&3));
    Saga::new("order")
        .together([
            SagaStep::compensable("left", "place", "take").input(&1),
            SagaStep::compensable("right", "place", "take").input(&1),
        ])
        .step(SagaStep::signal("approve"))
        .step(SagaStep::child("billing", child))
        .step(SagaStep::pivot("pay", "place", "take").input(&10))
        .step(SagaStep::retriable("ship", "place", "take").input(&20))
}

#[tokio::test]
async fn every_kind_of_step_is_played() {
    let check = async |world: &World, end| {
        let read = sqlx::query_scalar("SELECT units FROM place");
        let units: i64 = read.fetch_one(&world.pool).await?;
        assert_eq!(units, if end == SagaEnd::Completed { 100 - 37 } else { 100 });
        Ok::<_, sqlx::Error>(())
    };
    let runner = SagaRunner::new(saga_of_every_kind).signal("approve", &"yes");
    let runs = runner.run(async |kit| set_up(kit, Bug::None).await, check).await.unwrap();
    let names: Vec<&str> = runs.names().collect();
    for expected in
        ["step billing/charge refuses", "step right refuses", "action billing/quote is doubled"]
    {
        assert!(names.contains(&expected), "{expected}: {names:?}");
    }
    println!("{} plays, {} vacuous", runs.plays(), runs.vacuous().count());
}

#[tokio::test]
async fn a_saga_that_cannot_begin_is_said_to() {
    let none = || Saga::new("order").step(SagaStep::pivot("pay", "place", "take").takes("other"));
    let error = run(none, Bug::None, 0).await.unwrap_err();
    assert_eq!(error.failures().len(), 1);
    assert!(error.to_string().contains("the saga is not started"), "{error}");

    let check = async |_: &World, _| Ok::<_, KitError>(());
    let broken = async |kit: &TestKit| {
        kit.sqlite("CREATE NONSENSE").await?;
        set_up(kit, Bug::None).await
    };
    let error = SagaRunner::new(saga).run(broken, check).await.unwrap_err();
    assert!(error.to_string().contains("setup failed: the database of the test"), "{error}");
}

#[tokio::test]
async fn too_many_plays_are_refused() {
    let check = async |_: &World, _| Ok::<_, KitError>(());
    let runner = SagaRunner::new(saga).plays_max(5);
    let error = runner.run(async |kit| set_up(kit, Bug::None).await, check).await.unwrap_err();
    assert!(error.to_string().contains("raise plays_max"), "{error}");
}
