//! The course of sagas when no process dies.

use std::time::Duration;

use handfast::saga::{Saga, SagaStatus, SagaStep, SagaStepState};
use handfast::{Error, Handfast, Xid};
use handfast_core::{Coordinator, GlobalFilter, Label, PageBounds, SagaFilter};

use crate::at::on_every_database;
use crate::scene::{
    Behaviour, PATIENCE, STEPS, Writes, assert_all_compensated, assert_all_done, five_steps, scene,
    start, take_part, take_part_hanging, traces,
};

on_every_database!(
    a_saga_is_found_by_its_label,
    steps_run_in_order_and_pass_on_their_outputs,
    a_refusal_of_any_step_compensates_the_saga,
    an_output_above_the_limit_compensates_the_saga,
    a_step_that_fails_is_tried_again,
    exhausted_attempts_compensate_the_saga,
    a_refused_compensation_waits_for_an_operator,
    a_hanging_action_is_cut_off_and_called_again,
    an_action_that_always_hangs_compensates_the_saga,
    a_hanging_compensation_is_cut_off_and_called_again,
    a_child_passes_on_its_output,
    a_finished_child_is_compensated_with_its_parent,
);

async fn steps_run_in_order_and_pass_on_their_outputs<DB: Writes>() {
    let stage = scene::<DB>().await;
    take_part(&stage.handfast, &stage.pool);
    let saga = start(&stage, "good", five_steps("", Behaviour::Good)).await;
    let report = saga.ended(PATIENCE).await.unwrap();
    assert_eq!((report.status(), report.cause()), (SagaStatus::Completed, ""));
    let given: Option<String> = report.step("charge").unwrap().output().unwrap();
    assert_eq!(given.as_deref(), Some("good/charge"));
    assert_all_done(&stage, "good").await;
    // The same start returns the existing saga. A different start is refused.
    let again = start(&stage, "good", five_steps("", Behaviour::Good)).await;
    assert_eq!(again.xid(), saga.xid());
    let other = five_steps("pay", Behaviour::Refuses);
    let refused = stage.handfast.start_saga("good", other).await.unwrap_err();
    assert_eq!(refused.code(), "HF-TC-SAGA-MISMATCH");
    assert_all_done(&stage, "good").await;
}

/// Operators find a saga by its labels, and its copy as a transaction too.
async fn a_saga_is_found_by_its_label<DB: Writes>() {
    let stage = scene::<DB>().await;
    take_part(&stage.handfast, &stage.pool);
    let labelled = |value: &str| five_steps("", Behaviour::Good).label("order", value);
    let saga = start(&stage, "good", labelled("42")).await;
    // Started again, it keeps its label.
    assert_eq!(start(&stage, "good", labelled("43")).await.xid(), saga.xid());
    let found = async |value: &str| {
        let label = Some(Label::new("order", value));
        let look = move |coordinator: &Coordinator| {
            let sagas = SagaFilter { label: label.clone(), ..SagaFilter::default() };
            let globals = GlobalFilter { label: label.clone(), ..GlobalFilter::default() };
            let sagas = coordinator.saga_page(&sagas, None, PageBounds::NONE).items.len();
            (sagas, coordinator.globals(&globals, None, PageBounds::NONE).items.len())
        };
        stage.tc.engine().view(look).await.unwrap()
    };
    assert_eq!((found("42").await, found("43").await), ((1, 1), (0, 0)));
    let refused = five_steps("", Behaviour::Good).label("order", "x".repeat(257));
    let refused = stage.handfast.start_saga("other", refused).await.unwrap_err();
    assert_eq!(refused.code(), "HF-TC-TOO-LARGE");
}

async fn a_refusal_of_any_step_compensates_the_saga<DB: Writes>() {
    let stage = scene::<DB>().await;
    take_part(&stage.handfast, &stage.pool);
    for refuses in &STEPS[..4] {
        let saga = start(&stage, refuses, five_steps(refuses, Behaviour::Refuses)).await;
        let report = saga.ended(PATIENCE).await.unwrap();
        assert_eq!(report.status(), SagaStatus::Compensated);
        assert_eq!(report.cause(), format!("step {refuses} refused: on purpose"));
        assert_all_compensated(&stage, refuses).await;
    }
    // After the pivot the saga cannot be compensated: an operator is called.
    let saga = start(&stage, "late", five_steps("ship", Behaviour::Refuses)).await;
    let report = saga.ended(PATIENCE).await.unwrap();
    assert_eq!(report.status(), SagaStatus::NeedsOperator);
    assert_eq!(report.step("ship").unwrap().error(), "on purpose");
    assert_eq!(saga.cancel("no").await.unwrap_err().code(), "HF-TC-PAST-PIVOT");
}

/// The action was tried again without end, although its output would have been as large each time.
async fn an_output_above_the_limit_compensates_the_saga<DB: Writes>() {
    let stage = scene::<DB>().await;
    take_part(&stage.handfast, &stage.pool);
    for gives in ["charge", "pay"] {
        let saga = start(&stage, gives, five_steps(gives, Behaviour::GivesTooMuch)).await;
        let report = saga.ended(PATIENCE).await.unwrap();
        assert_eq!(report.status(), SagaStatus::Compensated);
        assert!(report.cause().contains("70002 bytes"), "{}", report.cause());
        assert_all_compensated(&stage, gives).await;
    }
}

async fn a_step_that_fails_is_tried_again<DB: Writes>() {
    let stage = scene::<DB>().await;
    take_part(&stage.handfast, &stage.pool);
    for fails in STEPS {
        let saga = start(&stage, fails, five_steps(fails, Behaviour::Fails(3))).await;
        let report = saga.ended(PATIENCE).await.unwrap();
        assert_eq!(report.status(), SagaStatus::Completed, "{fails}");
        assert_eq!(report.step(fails).unwrap().attempts(), 3);
        assert_all_done(&stage, fails).await;
    }
}

async fn exhausted_attempts_compensate_the_saga<DB: Writes>() {
    let stage = scene::<DB>().await;
    take_part(&stage.handfast, &stage.pool);
    let ms = Duration::from_millis;
    let charge = SagaStep::compensable("charge", "shop", "charge").attempts(2);
    let saga = Saga::new("place-order")
        .step(SagaStep::compensable("reserve", "shop", "reserve").input(&Behaviour::Good))
        .step(charge.input(&Behaviour::Fails(u32::MAX)).pauses(ms(1), 2, ms(2)));
    let report = start(&stage, "used-up", saga).await.ended(PATIENCE).await.unwrap();
    assert_eq!(report.status(), SagaStatus::Compensated);
    assert_eq!(report.cause(), "step charge failed too often: for a while");
    assert_all_compensated(&stage, "used-up").await;
}

async fn a_refused_compensation_waits_for_an_operator<DB: Writes>() {
    let stage = scene::<DB>().await;
    take_part(&stage.handfast, &stage.pool);
    let saga = Saga::new("place-order")
        .step(SagaStep::compensable("reserve", "shop", "reserve").input(&Behaviour::Sticks))
        .step(SagaStep::compensable("charge", "shop", "charge").input(&Behaviour::Refuses));
    let report = start(&stage, "stuck", saga).await.ended(PATIENCE).await.unwrap();
    assert_eq!(report.status(), SagaStatus::NeedsOperator);
    let stuck = report.step("reserve").unwrap();
    assert_eq!(stuck.state(), SagaStepState::CompensatingStuck);
    assert_eq!(stuck.error(), "a person must look");
}

/// One step, whose action may hang.
fn charging(attempts: u32) -> Saga {
    let ms = Duration::from_millis;
    let charge = SagaStep::compensable("charge", "bank", "charge").attempts(attempts);
    Saga::new("charge").step(charge.pauses(ms(1), 2, ms(20)))
}

async fn a_hanging_action_is_cut_off_and_called_again<DB: Writes>() {
    let stage = scene::<DB>().await;
    take_part_hanging(&stage, 2, 0);
    let saga = start(&stage, "hangs", charging(u32::MAX)).await;
    let report = saga.ended(PATIENCE).await.unwrap();
    assert_eq!(report.status(), SagaStatus::Completed);
    assert!(report.step("charge").unwrap().attempts() >= 2);
    assert_eq!(traces(&stage, "hangs", 1).await, ["charge"]);
}

async fn an_action_that_always_hangs_compensates_the_saga<DB: Writes>() {
    let stage = scene::<DB>().await;
    take_part_hanging(&stage, u32::MAX, 0);
    let report = start(&stage, "hangs", charging(2)).await.ended(PATIENCE).await.unwrap();
    assert_eq!(report.status(), SagaStatus::Compensated);
    // On a slow disk the compensation may be cut off once, too.
    let cause = "step charge failed too often: action: took longer than 200ms";
    assert_eq!(report.cause(), cause);
    assert_eq!(traces(&stage, "hangs", 1).await, [""; 0]);
}

async fn a_hanging_compensation_is_cut_off_and_called_again<DB: Writes>() {
    let stage = scene::<DB>().await;
    take_part_hanging(&stage, 0, 2);
    take_part(&stage.handfast, &stage.pool);
    let pay = SagaStep::pivot("pay", "shop", "pay").input(&Behaviour::Refuses);
    let saga = start(&stage, "hangs", charging(u32::MAX).step(pay)).await;
    let report = saga.ended(PATIENCE).await.unwrap();
    assert_eq!(report.status(), SagaStatus::Compensated);
    assert_eq!(traces(&stage, "hangs", 1).await, ["charge"]);
    assert_eq!(traces(&stage, "hangs", -1).await, ["charge"]);
}

/// The five steps, with the second and third in a child, whose output `pay` takes.
fn with_a_child(other: &str, behaviour: Behaviour) -> Saga {
    let step = |step: SagaStep, name: &str| {
        step.input(if name == other { &behaviour } else { &Behaviour::Good })
    };
    let billing = Saga::new("invoice")
        .step(step(SagaStep::compensable("charge", "shop", "charge").takes("reserve"), "charge"))
        .step(step(SagaStep::harmless("check", "shop", "check").takes("charge"), "check"))
        .output("charge");
    Saga::new("place-order")
        .step(step(SagaStep::compensable("reserve", "shop", "reserve"), "reserve"))
        .step(SagaStep::child("billing", billing).takes("reserve"))
        .step(step(SagaStep::pivot("pay", "shop", "pay").takes("billing"), "pay"))
        .step(step(SagaStep::retriable("ship", "shop", "ship").takes("pay"), "ship"))
}

async fn a_child_passes_on_its_output<DB: Writes>() {
    let stage = scene::<DB>().await;
    take_part(&stage.handfast, &stage.pool);
    let saga = start(&stage, "child", with_a_child("", Behaviour::Good)).await;
    let report = saga.ended(PATIENCE).await.unwrap();
    assert_eq!((report.status(), report.cause()), (SagaStatus::Completed, ""));
    let names: Vec<String> = report.steps().map(|step| step.name().to_owned()).collect();
    let expected = ["reserve", "billing", "billing/charge", "billing/check", "pay", "ship"];
    assert_eq!(names, expected);
    let billing = report.step("billing").unwrap();
    assert_eq!(billing.state(), SagaStepState::Done);
    let given: Option<String> = billing.output().unwrap();
    assert_eq!(given.as_deref(), Some("child/billing/charge"));
    assert_all_done(&stage, "child").await;
}

async fn a_finished_child_is_compensated_with_its_parent<DB: Writes>() {
    let stage = scene::<DB>().await;
    take_part(&stage.handfast, &stage.pool);
    for refuses in ["reserve", "charge", "check", "pay"] {
        let saga = with_a_child(refuses, Behaviour::Refuses);
        let report = start(&stage, refuses, saga).await.ended(PATIENCE).await.unwrap();
        assert_eq!(report.status(), SagaStatus::Compensated);
        assert!(report.cause().ends_with("refused: on purpose"), "{}", report.cause());
        assert_all_compensated(&stage, refuses).await;
        let billing = report.step("billing").unwrap().state();
        let begun = refuses != "reserve";
        let expected = if begun { SagaStepState::Compensated } else { SagaStepState::Waiting };
        assert_eq!(billing, expected, "{refuses}");
    }
}

/// No participant is registered, so only the timeout ends the step.
#[tokio::test]
async fn a_step_out_of_time_compensates_the_saga() {
    let stage = scene::<sqlx::Sqlite>().await;
    let reserve = SagaStep::harmless("reserve", "unregistered", "reserve");
    let saga = Saga::new("late").step(reserve.timeout(Duration::from_millis(50)));
    let report = start(&stage, "late", saga).await.ended(PATIENCE).await.unwrap();
    assert_eq!(report.status(), SagaStatus::Compensated);
    assert_eq!(report.cause(), "step reserve took too long");
}

#[tokio::test]
async fn a_signal_ends_a_step_and_a_cancel_the_saga() {
    let stage = scene::<sqlx::Sqlite>().await;
    take_part(&stage.handfast, &stage.pool);
    let saga = || {
        Saga::new("approve")
            .step(SagaStep::compensable("reserve", "shop", "reserve").input(&Behaviour::Good))
            .step(SagaStep::signal("approval"))
            .together([
                SagaStep::compensable("charge", "shop", "charge").input(&Behaviour::Good),
                SagaStep::harmless("check", "shop", "check").input(&Behaviour::Good),
            ])
    };
    let approved = start(&stage, "approved", saga()).await;
    approved.signal("approval", &"boss").await.unwrap();
    let report = approved.ended(PATIENCE).await.unwrap();
    assert_eq!(report.status(), SagaStatus::Completed);
    let by: Option<String> = report.step("approval").unwrap().output().unwrap();
    assert_eq!(by.as_deref(), Some("boss"));
    let unknown = approved.signal("applause", &()).await.unwrap_err();
    assert_eq!(unknown.code(), "HF-TC-UNKNOWN-SIGNAL");

    let cancelled = start(&stage, "cancelled", saga()).await;
    cancelled.cancel("changed my mind").await.unwrap();
    let report = cancelled.ended(PATIENCE).await.unwrap();
    assert_eq!((report.status(), report.cause()), (SagaStatus::Compensated, "cancelled"));
    assert_all_compensated(&stage, "cancelled").await;
}

/// The wait took longer by a request's deadline.
#[tokio::test]
async fn waiting_for_the_end_respects_its_timeout() {
    let stage = scene::<sqlx::Sqlite>().await;
    let handfast = Handfast::connect(stage.tc.endpoint()).application("patient");
    let handfast = handfast.request_deadline(Duration::from_secs(3600)).await.unwrap();
    let saga = Saga::new("wait").step(SagaStep::signal("approval"));
    let saga = handfast.start_saga("wait", saga).await.unwrap();
    let waited = tokio::time::timeout(PATIENCE, saga.ended(Duration::from_millis(10))).await;
    assert_eq!(waited.expect("it does not wait").unwrap_err().code(), "HF-TM-UNANSWERED");
    saga.signal("approval", &()).await.unwrap();
    assert_eq!(saga.ended(PATIENCE).await.unwrap().status(), SagaStatus::Completed);
}

/// The saga from JSON equals the one of the builder: starting it with the same key finds the
/// existing saga.
#[tokio::test]
async fn a_saga_from_json_is_the_one_of_the_builder() {
    let stage = scene::<sqlx::Sqlite>().await;
    take_part(&stage.handfast, &stage.pool);
    let steps = STEPS.into_iter().enumerate().map(|(place, name)| {
        let kinds = ["compensable", "compensable", "harmless", "pivot", "retriable"];
        let takes: &[&str] = if name == "ship" { &["pay"] } else { &[] };
        serde_json::json!({
            "name": name, "kind": kinds[place], "resource": "shop", "action": name,
            "input": "Good", "takes": takes,
            "retry": {"base_ms": 1, "factor": 2, "cap_ms": 20},
        })
    });
    let json = serde_json::json!({"name": "place-order", "steps": Vec::from_iter(steps)});
    let read = Saga::from_json(&json.to_string()).unwrap();
    let saga = start(&stage, "read", read).await;
    assert_eq!(saga.ended(PATIENCE).await.unwrap().status(), SagaStatus::Completed);
    assert_all_done(&stage, "read").await;
    let built = start(&stage, "read", five_steps("", Behaviour::Good)).await;
    assert_eq!(built.xid(), saga.xid());
}

#[tokio::test]
async fn invalid_sagas_are_refused() {
    let stage = scene::<sqlx::Sqlite>().await;
    let refused = async |saga| stage.handfast.start_saga("k", saga).await.unwrap_err();
    assert_eq!(refused(Saga::new("empty")).await.code(), "HF-TC-SAGA-INVALID");
    let takes = SagaStep::harmless("a", "r", "a").takes("b");
    let error = refused(Saga::new("takes").step(takes)).await;
    assert!(matches!(error, Error::Configuration { setting: "saga", .. }), "{error}");
    let never: Xid = "127.0.0.1:1:7".parse().unwrap();
    assert_eq!(stage.handfast.saga(&never).report().await.unwrap_err().code(), "HF-TC-UNKNOWN-XID");
}
