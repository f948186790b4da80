//! Limits of one client against all others, as in `tests/server/shares.rs`. Connections of one
//! application, group and machine count as one client.

use handfast_seata_wire::value::ExceptionCode;
use handfast_test_services::until;

use crate::client::{Client, start_as};

#[tokio::test]
async fn a_greedy_seata_client_is_limited_to_its_share() {
    let server = start_as(|config| {
        (config.limits.globals_max, config.limits.client_grace_ms) = (10, 1);
    })
    .await;
    let mut greedy = Client::tm(&server, "1.8.0").await;
    for _ in 0..6 {
        greedy.begin(86_400_000).await;
    }
    for client in [&mut greedy, &mut Client::tm(&server, "1.8.0").await] {
        let refused = client.begin_named("leak", 86_400_000).await.result.unwrap_err();
        assert_eq!(refused.code, ExceptionCode::BeginFailed);
        assert!(refused.message.contains("share reached"), "{}", refused.message);
    }
    let mut honest = Client::connect(&server, "1.8.0").await;
    honest.application = "stock".to_owned();
    honest.register_tm().await.outcome.unwrap();
    for _ in 0..4 {
        honest.begin(86_400_000).await;
    }
    greedy.hang_up().await;
    let begun = async || honest.begin_named("buy", 60_000).await.result.is_ok();
    until("there is room", begun).await;
}
