//! URLs that are never called, redirects that are not followed, and answers that are not read.

use std::sync::Arc;

use handfast::TccError;
use handfast_core::Mode;
use handfast_server::dispatch::{CallBatch, CallSink, NewProcess, RegisteredResource, ResourceKey};
use handfast_server::over_http::Settings;
use handfast_test_services::until;

use crate::coordinator;
use crate::service::{ScriptedAnswer, Service};

#[tokio::test]
async fn no_url_is_called_without_configuration() {
    let service = Service::start().await;
    let (_server, handfast) = coordinator(Settings::default()).await;
    let debit = handfast.tcc_over_http(service.url("debit"));
    let global = handfast.transaction("buy").begin().await.unwrap();
    let error = global.scope(debit.try_(&1)).await.unwrap_err();
    assert_eq!(error.code(), "HF-TC-URL-NOT-ALLOWED");
    // No branch was registered, so the rest of the global can commit.
    global.commit().await.unwrap();
    assert_eq!(service.seen(), []);
}

#[tokio::test]
async fn a_url_outside_the_prefix_is_never_called() {
    let (service, other) = (Service::start().await, Service::start().await);
    let (_server, handfast) = coordinator(service.settings()).await;
    let outside = [
        other.url("debit"),
        format!("{}../admin", service.base),
        format!("{}%2e%2e/admin", service.base),
        format!("{}debit?to=1", service.base),
        service.base.replace("/handfast/", "/admin"),
    ];
    let global = handfast.transaction("buy").begin().await.unwrap();
    for url in outside {
        let debit = handfast.tcc_over_http(&url);
        let error = global.scope(debit.try_(&1)).await.unwrap_err();
        assert!(
            matches!(&error, TccError::Coordinator(error) if error.code() == "HF-TC-URL-NOT-ALLOWED"),
            "{url}: {error:?}"
        );
    }
    global.rollback("test").await.unwrap();
    assert_eq!(service.seen(), []);
    assert_eq!(other.seen(), []);
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let (service, other) = (Service::start().await, Service::start().await);
    let (_server, handfast) = coordinator(service.settings()).await;
    service.next("confirm", ScriptedAnswer::Redirect(other.url("debit/confirm")));
    let debit = handfast.tcc_over_http(service.url("debit"));
    let global = handfast.transaction("buy").begin().await.unwrap();
    global.scope(debit.try_(&1)).await.unwrap();
    global.commit().await.unwrap();
    assert_eq!(service.until_asked(3).await, ["try", "confirm", "confirm"]);
    assert_eq!(other.seen(), []);
}

#[tokio::test]
async fn an_answer_that_is_too_long_is_no_answer() {
    let service = Service::start().await;
    let (_server, handfast) = coordinator(service.settings()).await;
    service.next("confirm", ScriptedAnswer::DoneBut(200, "x".repeat(1_001)));
    let debit = handfast.tcc_over_http(service.url("debit"));
    let global = handfast.transaction("buy").begin().await.unwrap();
    global.scope(debit.try_(&1)).await.unwrap();
    global.commit().await.unwrap();
    assert_eq!(service.until_asked(3).await, ["try", "confirm", "confirm"]);
    assert_eq!(service.effects().len(), 2);
}

/// A process that tries to receive the calls of a URL itself.
#[derive(Debug)]
struct Impostor;

impl CallSink for Impostor {
    fn put(&self, batch: CallBatch) {
        panic!("a call went to the wrong process: {batch:?}");
    }
}

#[tokio::test]
async fn a_process_cannot_register_a_url_that_is_called() {
    let service = Service::start().await;
    let (server, handfast) = coordinator(service.settings()).await;
    let name: Arc<str> = "thief".into();
    let thief = NewProcess {
        client_id: Arc::clone(&name),
        application: Arc::clone(&name),
        agent: Arc::clone(&name),
        peer: name,
    };
    let seat = server.dispatcher().connect(thief, Arc::new(Impostor));
    let key = ResourceKey { id: service.url("debit").into(), mode: Mode::Tcc };
    seat.register(vec![RegisteredResource { key, label: Some("mine".into()) }]);
    let debit = handfast.tcc_over_http(service.url("debit"));
    for input in 0..4 {
        let global = handfast.transaction("buy").begin().await.unwrap();
        global.scope(debit.try_(&input)).await.unwrap();
        global.commit().await.unwrap();
    }
    assert_eq!(service.until_effects(8).await.len(), 8);
    // A URL without outstanding calls takes no memory, since clients can name any number of URLs.
    let idle = async || server.dispatcher().loads().is_empty();
    until("no call is outstanding", idle).await;
}
