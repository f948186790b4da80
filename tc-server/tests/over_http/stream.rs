//! A try that is asked for on a stream.

use handfast_proto::v1::client_message::Body as Ask;
use handfast_proto::v1::coordinator_client::CoordinatorClient;
use handfast_proto::v1::server_message::Body as Answer;
use handfast_proto::v1::try_branch_reply::Result as Tried;
use handfast_proto::v1::{BeginRequest, ClientFrame, ClientMessage, Hello, TryBranchRequest};
use handfast_server::embedded::{RunningServer, Server};
use handfast_server::over_http::{Participant, Prefix, Secret, Settings};
use handfast_test_services::until;
use tonic::transport::Endpoint;

use crate::coordinator::SECRET;
use crate::participant::Points;

const CLIENT: &str = "client-1";

async fn start(points: &Points) -> RunningServer {
    let prefix = Prefix::parse(&points.prefix).unwrap();
    let participant = Participant { prefix, secret: Secret::new(SECRET.as_bytes()) };
    let settings = Settings { participants: vec![participant], ..Settings::default() };
    Server::builder().over_http(settings).start().await.unwrap()
}

fn is_connected(server: &RunningServer) -> bool {
    server.dispatcher().processes().iter().any(|it| &*it.process.client_id == CLIENT)
}

/// Regression: the stream of a client that had closed its side ended without the reply to its try.
#[tokio::test(flavor = "multi_thread")]
async fn a_try_is_answered_when_its_client_sends_nothing_more() {
    let mut points = Points::start().await;
    let server = start(&points).await;
    let endpoint = Endpoint::from_shared(format!("http://{}", server.address())).unwrap();
    let mut client = CoordinatorClient::new(endpoint.connect().await.unwrap());
    let xid = client.begin(BeginRequest::default()).await.unwrap().into_inner().xid;
    let hello = Hello {
        client_id: CLIENT.to_owned(),
        application: "shop".to_owned(),
        agent: "test".to_owned(),
        resources: Vec::new(),
    };
    let tried = TryBranchRequest {
        xid,
        branch_id: 7,
        resource_id: points.url(),
        input: b"30".to_vec(),
        timeout_ms: 60_000,
        traceparent: String::new(),
    };
    let bodies = [Ask::Hello(hello), Ask::TryBranch(tried)];
    let messages = (1..).zip(bodies).map(|(id, body)| ClientMessage { id, body: Some(body) });
    let frames = tokio_stream::iter([ClientFrame { messages: messages.collect() }]);
    let mut from = client.connect(frames).await.unwrap().into_inner();
    let waiting = points.carried_out("try").await;
    // It is no longer called once the server has read that it has closed its side.
    until("it has left", async || !is_connected(&server)).await;
    waiting.answer.send(()).unwrap();
    let mut result = None;
    while let Some(frame) = from.message().await.unwrap() {
        for message in frame.messages {
            if let Some(Answer::TryBranch(reply)) = message.body {
                result = reply.result;
            }
        }
    }
    assert!(matches!(result, Some(Tried::Done(_))), "{result:?}");
}
