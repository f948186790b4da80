//! Actions in TCC mode: the calls that the coordinator makes, and the result for the caller.

use std::time::Duration;

use handfast::{HttpTryError, RollbackCause, TccError, TransactionError};

use crate::service::{ScriptedAnswer, Service, refused};
use crate::{LONG, coordinator};

#[tokio::test]
async fn a_commit_confirms_what_was_tried_and_every_call_is_signed() {
    let service = Service::start().await;
    let (_server, handfast) = coordinator(service.settings()).await;
    let debit = handfast.tcc_over_http(service.url("debit"));
    let buy = handfast.transaction("buy");
    buy.run(async |_tx| debit.try_(&(7, 30)).await).await.unwrap();
    let effects = service.until_effects(2).await;
    assert_eq!(effects, ["try /handfast/debit/try", "confirm /handfast/debit/confirm"]);
    let seen = service.seen();
    assert!(seen.iter().all(|seen| seen.is_signed), "{seen:?}");
    assert!(seen.iter().all(|seen| seen.body == "[7,30]"), "{seen:?}");
    assert_eq!((&seen[0].xid, &seen[0].branch), (&seen[1].xid, &seen[1].branch));
}

#[tokio::test]
async fn a_rollback_cancels_in_the_reverse_order_of_the_tries() {
    let service = Service::start().await;
    let (_server, handfast) = coordinator(service.settings()).await;
    let debit = handfast.tcc_over_http(service.url("debit"));
    let global = handfast.transaction("buy").begin().await.unwrap();
    global.scope(debit.try_(&1)).await.unwrap();
    global.scope(debit.try_(&2)).await.unwrap();
    global.rollback("test").await.unwrap();
    service.until_effects(4).await;
    let bodies: Vec<String> = service.seen().into_iter().map(|seen| seen.body).collect();
    assert_eq!(bodies, ["1", "2", "2", "1"]);
    assert_eq!(service.asked(), ["try", "try", "cancel", "cancel"]);
}

#[tokio::test]
async fn a_refused_try_is_reported_and_its_cancel_is_empty() {
    let service = Service::start().await;
    let (_server, handfast) = coordinator(service.settings()).await;
    service.next("try", refused("too few points"));
    let debit = handfast.tcc_over_http(service.url("debit"));
    let buy = handfast.transaction("buy");
    let error = buy.run(async |_tx| debit.try_(&(7, 30)).await).await.unwrap_err();
    let TransactionError::RolledBack { by: RollbackCause::Application(cause), .. } = error else {
        panic!("{error:?}");
    };
    assert!(
        matches!(&cause, TccError::Action(HttpTryError::Refused { reason, .. })
            if reason == "too few points"),
        "{cause:?}"
    );
    assert_eq!(service.asked(), ["try", "cancel"]);
    assert_eq!(service.effects(), [""; 0]);
}

/// An attempt before the refusal may take effect later, so the global must not commit without the
/// branch.
#[tokio::test]
async fn a_global_with_a_refused_try_cannot_commit() {
    let service = Service::start().await;
    let (_server, handfast) = coordinator(service.settings()).await;
    service.next("try", refused("too few points"));
    let debit = handfast.tcc_over_http(service.url("debit"));
    let global = handfast.transaction("buy").begin().await.unwrap();
    global.scope(debit.try_(&1)).await.unwrap_err();
    global.commit().await.unwrap_err();
    assert_eq!(service.until_asked(2).await, ["try", "cancel"]);
}

#[tokio::test]
async fn a_try_is_repeated_until_answered_with_one_effect() {
    let service = Service::start().await;
    let (_server, handfast) = coordinator(service.settings()).await;
    service.next("try", ScriptedAnswer::Answer(503, "starting".to_owned()));
    service.next("try", ScriptedAnswer::DoneBut(502, "the proxy gave up".to_owned()));
    let debit = handfast.tcc_over_http(service.url("debit")).timeout(LONG);
    let buy = handfast.transaction("buy");
    buy.run(async |_tx| debit.try_(&1).await).await.unwrap();
    service.until_effects(2).await;
    assert_eq!(service.asked(), ["try", "try", "try", "confirm"]);
    assert_eq!(service.effects().len(), 2);
}

#[tokio::test]
async fn an_unanswered_try_rolls_the_global_back() {
    let service = Service::start().await;
    let (_server, handfast) = coordinator(service.settings()).await;
    service.next("try", ScriptedAnswer::DoneBut(500, "?".to_owned()));
    let debit = handfast.tcc_over_http(service.url("debit")).timeout(Duration::ZERO);
    let global = handfast.transaction("buy").begin().await.unwrap();
    let error = global.scope(debit.try_(&1)).await.unwrap_err();
    assert!(
        matches!(&error, TccError::Action(HttpTryError::Unanswered { reason, .. })
            if reason.ends_with("status 500")),
        "{error:?}"
    );
    global.commit().await.unwrap_err();
    assert_eq!(service.until_effects(2).await.len(), 2);
    assert_eq!(service.asked(), ["try", "cancel"]);
}

#[tokio::test]
async fn a_confirm_is_repeated_even_if_it_is_refused() {
    let service = Service::start().await;
    let (_server, handfast) = coordinator(service.settings()).await;
    service.next("confirm", ScriptedAnswer::Answer(500, String::new()));
    service.next("confirm", refused("no"));
    service.next("confirm", ScriptedAnswer::DoneBut(504, String::new()));
    let debit = handfast.tcc_over_http(service.url("debit"));
    let global = handfast.transaction("buy").begin().await.unwrap();
    global.scope(debit.try_(&1)).await.unwrap();
    global.commit().await.unwrap();
    let asked = service.until_asked(5).await;
    assert_eq!(asked, ["try", "confirm", "confirm", "confirm", "confirm"]);
    assert_eq!(service.effects().len(), 2);
}

#[tokio::test]
async fn a_refused_cancel_waits_for_an_operator() {
    let service = Service::start().await;
    let (_server, handfast) = coordinator(service.settings()).await;
    service.next("cancel", refused("already shipped"));
    let debit = handfast.tcc_over_http(service.url("debit"));
    let global = handfast.transaction("buy").begin().await.unwrap();
    global.scope(debit.try_(&1)).await.unwrap();
    let error = global.rollback("test").await.unwrap_err();
    assert_eq!(error.code(), "HF-TM-NEEDS-OPERATOR");
    assert_eq!(service.asked(), ["try", "cancel"]);
}
