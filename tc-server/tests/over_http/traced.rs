//! A participant without the library is told where it stands in a trace.

use handfast_proto::v1::Decision;

use crate::coordinator::Coordinator;
use crate::participant::Points;

const BRANCH: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-2222222222222222-01";

#[tokio::test(flavor = "multi_thread")]
async fn each_call_carries_the_trace_of_its_branch() {
    for (traceparent, told) in [(BRANCH, Some(BRANCH)), ("", None)] {
        let mut points = Points::start().await;
        let coordinator = Coordinator::new(&points.prefix);
        let mut application = coordinator.start().await;
        let (xid, url) = (application.begin().await, points.url());
        let (tried, ()) = tokio::join!(application.try_within(&xid, &url, traceparent), async {
            let called = points.carried_out("try").await;
            assert_eq!(called.traceparent.as_deref(), told);
            called.answer.send(()).unwrap();
        });
        tried.unwrap();
        application.end(&xid, Decision::Commit).await.unwrap();
        let called = points.carried_out("confirm").await;
        assert_eq!(called.traceparent.as_deref(), told);
        called.answer.send(()).unwrap();
    }
}
