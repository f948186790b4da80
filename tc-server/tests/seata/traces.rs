//! A client that names its place in a trace in the head map of its frames.

use handfast_proto::v1 as wire;
use handfast_proto::v1::coordinator_client::CoordinatorClient;
use handfast_seata_wire::frame::head_map;
use handfast_seata_wire::message::{GlobalBegin, Message};
use handfast_server::serve::RunningServer;
use tonic::transport::Endpoint;

use crate::client::{Client, end, start};

const TRANSACTION: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-1111111111111111-01";
const DECISION: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-2222222222222222-01";

/// Phase two of a native branch in a global that a client of Seata begins and commits.
async fn call_after(server: &RunningServer, begun: &str, decided: &str) -> wire::PhaseTwoBranch {
    let mut tm = Client::tm(server, "2.3.0").await;
    let begin = GlobalBegin { timeout_ms: 60_000, name: "buy".to_owned() };
    let answer = tm.ask_within(begun, &Message::GlobalBegin(begin)).await;
    let Message::GlobalBeginResult(begun) = answer else { panic!("{answer:?}") };

    let address = format!("http://{}", server.grpc_address);
    let channel = Endpoint::from_shared(address).unwrap().connect().await.unwrap();
    let mut native = CoordinatorClient::new(channel);
    let (id, mode) = ("sqlite:orders".to_owned(), wire::Mode::At.into());
    let resource = wire::Resource { id: id.clone(), mode, label: String::new() };
    let hello = wire::Hello {
        client_id: "a".to_owned(),
        resources: vec![resource],
        ..wire::Hello::default()
    };
    let mut calls = native.subscribe(hello).await.unwrap().into_inner();
    let branch = wire::RegisterBranchRequest {
        xid: begun.xid.clone(),
        branch_id: 7,
        resource_id: id,
        mode,
        ..wire::RegisterBranchRequest::default()
    };
    native.register_branch(branch).await.unwrap();
    let committed = tm.ask_within(decided, &Message::GlobalCommit(end(&begun.xid))).await;
    assert!(matches!(committed, Message::GlobalCommitResult(_)), "{committed:?}");
    calls.message().await.unwrap().unwrap().calls.remove(0).branches.remove(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn phase_two_goes_on_in_the_trace_that_a_head_map_names() {
    for (begun, decided, told) in
        [(TRANSACTION, DECISION, DECISION), (TRANSACTION, "", TRANSACTION), ("", "none", "")]
    {
        let server = start().await;
        let call = call_after(&server, begun, decided).await;
        assert_eq!(call.traceparent, told, "{begun:?} {decided:?}");
        server.shutdown().await.unwrap();
    }
}

impl Client {
    /// Sends a request whose head map has this `traceparent`, unless it is empty.
    async fn ask_within(&mut self, traceparent: &str, request: &Message) -> Message {
        let (id, mut frame) = self.encoded(request);
        if !traceparent.is_empty() {
            let text = |text: &str| Some(text.to_owned());
            let map = head_map::write(&[(text("traceparent"), text(traceparent))]).unwrap();
            let longer = u16::try_from(map.len()).unwrap();
            // Both lengths are in the header, and the map comes behind it.
            let whole = u32::from_be_bytes(frame[3..7].try_into().unwrap()) + u32::from(longer);
            let head = u16::from_be_bytes(frame[7..9].try_into().unwrap()) + longer;
            frame[3..7].copy_from_slice(&whole.to_be_bytes());
            frame[7..9].copy_from_slice(&head.to_be_bytes());
            frame.splice(16..16, map);
        }
        self.send_bytes(&frame).await;
        self.answer_to(id).await
    }
}
