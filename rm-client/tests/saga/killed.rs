//! The caller, a participant or the coordinator dies in the middle, and the saga ends all the same.

use handfast::Handfast;
use handfast::saga::SagaStatus;

use crate::at::on_every_database;
use crate::child;
use crate::scene::{
    Behaviour, PATIENCE, Writes, assert_all_compensated, assert_all_done, five_steps, scene, start,
    take_part, until_traces,
};

on_every_database!(
    a_participant_killed_going_forward_is_replaced,
    a_participant_killed_going_back_is_replaced,
    a_coordinator_killed_anywhere_goes_on,
);

/// Tries each crash point of an action, in each of the five steps.
async fn a_participant_killed_going_forward_is_replaced<DB: Writes>() {
    let stage = scene::<DB>().await;
    for point in ["before-step", "in-step-before-commit", "after-step-commit"] {
        for pass in 1..=5 {
            let point = format!("{point}:{pass}");
            let mut dying = child::participant(&stage, &point).await;
            let saga = start(&stage, &point, five_steps("", Behaviour::Good)).await;
            dying.crashed().await;
            let rescuer = Handfast::connect(stage.tc.endpoint()).await.unwrap();
            take_part(&rescuer, &stage.pool);
            let report = saga.ended(PATIENCE).await.unwrap();
            assert_eq!(report.status(), SagaStatus::Completed, "{point}");
            assert_all_done(&stage, &point).await;
            rescuer.close().await;
        }
    }
}

/// Tries each crash point of a compensation, in both compensations, after the pivot's refusal.
async fn a_participant_killed_going_back_is_replaced<DB: Writes>() {
    let stage = scene::<DB>().await;
    for point in ["in-compensation-before-commit", "after-compensation-commit"] {
        for pass in 1..=2 {
            let point = format!("{point}:{pass}");
            let mut dying = child::participant(&stage, &point).await;
            let saga = start(&stage, &point, five_steps("pay", Behaviour::Refuses)).await;
            dying.crashed().await;
            let rescuer = Handfast::connect(stage.tc.endpoint()).await.unwrap();
            take_part(&rescuer, &stage.pool);
            let report = saga.ended(PATIENCE).await.unwrap();
            assert_eq!(report.status(), SagaStatus::Compensated, "{point}");
            assert_all_compensated(&stage, &point).await;
            rescuer.close().await;
        }
    }
}

/// Kills the coordinator after each number of actions and compensations, forward and back.
async fn a_coordinator_killed_anywhere_goes_on<DB: Writes>() {
    let mut stage = scene::<DB>().await;
    take_part(&stage.handfast, &stage.pool);
    for behaviour in [Behaviour::Good, Behaviour::Refuses] {
        for traces in 0..=5 {
            let key = format!("{behaviour:?}-{traces}");
            let saga = start(&stage, &key, five_steps("pay", behaviour)).await;
            until_traces(&stage, &key, traces).await;
            stage.tc.kill().await;
            stage.tc.restart().await;
            let report = saga.ended(PATIENCE).await.unwrap();
            if behaviour == Behaviour::Good {
                assert_eq!(report.status(), SagaStatus::Completed, "{key}");
                assert_all_done(&stage, &key).await;
            } else {
                assert_eq!(report.status(), SagaStatus::Compensated, "{key}");
                assert_all_compensated(&stage, &key).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_saga_goes_on_after_its_caller_dies() {
    let stage = scene::<sqlx::Sqlite>().await;
    let mut caller = child::caller(stage.tc.endpoint());
    caller.crashed().await;
    take_part(&stage.handfast, &stage.pool);
    // Starting with the same key finds the saga that the dead caller has started.
    let saga = start(&stage, "orphan", five_steps("", Behaviour::Good)).await;
    assert_eq!(saga.ended(PATIENCE).await.unwrap().status(), SagaStatus::Completed);
    assert_all_done(&stage, "orphan").await;
}
