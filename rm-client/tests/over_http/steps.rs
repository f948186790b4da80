//! Steps of sagas over HTTP: actions, their outputs, and their compensations.

use std::time::Duration;

use handfast::Handfast;
use handfast::saga::{Saga, SagaStatus, SagaStep};

use crate::service::{ScriptedAnswer, Service, refused};
use crate::{LONG, coordinator};

async fn end(handfast: &Handfast, service: &Service) -> SagaStatus {
    let saga = Saga::new("place-order")
        .step(SagaStep::compensable("reserve", service.url("stock"), "reserve").input(&(7, 2)))
        .step(SagaStep::pivot("pay", service.url("account"), "debit").takes("reserve"));
    let started = handfast.start_saga("order-42", saga).await.unwrap();
    started.ended(LONG).await.unwrap().status()
}

#[tokio::test]
async fn actions_run_in_order_and_pass_on_their_outputs() {
    let service = Service::start().await;
    let (_server, handfast) = coordinator(service.settings()).await;
    service.next("action", ScriptedAnswer::Answer(503, String::new()));
    assert_eq!(end(&handfast, &service).await, SagaStatus::Completed);
    let [_, reserve, pay] = &service.seen()[..] else { panic!("{:?}", service.seen()) };
    assert!(reserve.is_signed && pay.is_signed);
    assert_eq!(reserve.path, "/handfast/stock/reserve/action");
    assert_eq!(
        reserve.body,
        r#"{"action":"reserve","input":[7,2],"key":"order-42","kind":"compensable","outputs":{},"saga":"place-order","step":"reserve"}"#
    );
    assert_eq!(
        pay.body,
        r#"{"action":"debit","input":null,"key":"order-42","kind":"pivot","outputs":{"reserve":{"from":"/handfast/stock/reserve/action"}},"saga":"place-order","step":"pay"}"#
    );
}

#[tokio::test]
async fn a_refused_action_compensates_the_saga() {
    let service = Service::start().await;
    let (_server, handfast) = coordinator(service.settings()).await;
    let first = ScriptedAnswer::DoneBut(200, "[1]".to_owned());
    service.next("action", first);
    service.next("action", refused("no money"));
    service.next("compensation", ScriptedAnswer::Answer(500, String::new()));
    assert_eq!(end(&handfast, &service).await, SagaStatus::Compensated);
    assert_eq!(
        service.effects(),
        [
            "action /handfast/stock/reserve/action",
            "compensation /handfast/stock/reserve/compensation"
        ]
    );
    let last = service.seen().pop().unwrap();
    assert!(last.body.contains(r#""outputs":{"reserve":[1]}"#), "{}", last.body);
}

/// A name that cannot be part of a URL is never used in one: the step waits, and reports why.
#[tokio::test]
async fn an_action_that_is_no_path_segment_is_not_called() {
    let service = Service::start().await;
    let (_server, handfast) = coordinator(service.settings()).await;
    for (key, action) in [("order-1", ".."), ("order-2", "a/b"), ("order-3", "a?b")] {
        let step = SagaStep::compensable("reserve", service.url("stock"), action)
            .attempts(2)
            .pauses(Duration::from_millis(1), 1, Duration::from_millis(1));
        let saga = handfast.start_saga(key, Saga::new("odd").step(step)).await.unwrap();
        // The step is given up, and its compensation has the same name: an operator is called.
        let report = saga.ended(LONG).await.unwrap();
        assert_eq!(report.status(), SagaStatus::NeedsOperator, "{action}");
    }
    assert_eq!(service.seen(), []);
}
