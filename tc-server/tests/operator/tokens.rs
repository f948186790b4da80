//! Tokens that change while the coordinator runs.

use std::time::Duration;

use handfast_proto::v1::coordinator_client::CoordinatorClient;
use handfast_proto::v1::server_message::Body;
use handfast_proto::v1::{
    BeginRequest, CheckLocksRequest, ClientFrame, ClientMessage, Decision, EndRequest, Hello,
    ServerFrame, client_message,
};
use handfast_server::admin::model::ServerStatus;
use handfast_server::security::{NewToken, Role};
use handfast_server::serve::{RunningServer, Server};
use handfast_test_services::until;
use http::Method;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};

use crate::application::registration;
use crate::port::{Admin, TokensFile, roomy};
use crate::serving::Coordinator;

#[tokio::test(flavor = "multi_thread")]
async fn a_hangup_reloads_the_tokens_unless_the_file_is_bad() {
    let tokens = TokensFile::draw();
    let path = tokens.path();
    let arguments = ["--store", "memory", "--tokens", path.to_str().unwrap()];
    let mut coordinator = Coordinator::start(&arguments);
    let base = format!("http://{}", coordinator.admin);
    let asks = async |token: &str| {
        let admin = Admin::new(&base, Some(token.to_owned()));
        admin.send(Method::GET, "/api/v1/status", None).await.0.as_u16()
    };
    let bob = NewToken::draw("bob", Role::Viewer).unwrap();
    std::fs::write(&path, &bob.line).unwrap();
    assert_eq!((asks(&tokens.viewer).await, asks(&bob.token).await), (200, 401));
    coordinator.signal("-HUP");
    coordinator.read_until("tokens reloaded");
    assert_eq!((asks(&tokens.viewer).await, asks(&bob.token).await), (401, 200));
    std::fs::write(&path, "bob viewer and more").unwrap();
    coordinator.signal("-HUP");
    coordinator.read_until("tokens not reloaded");
    assert_eq!(asks(&bob.token).await, 200);
    coordinator.signal("-TERM");
    let (code, log) = coordinator.wait();
    assert_eq!(code, Some(0), "{log}");
}

/// The client's half of a stream, which must be kept, and the server's.
type Stream = (mpsc::Sender<ClientFrame>, Streaming<ServerFrame>);

type Client = CoordinatorClient<Channel>;

async fn client_of(server: &RunningServer) -> Client {
    let endpoint = Endpoint::from_shared(format!("http://{}", server.grpc_address)).unwrap();
    CoordinatorClient::new(endpoint.connect().await.unwrap())
}

/// Returns a request with this token.
fn shown<T>(token: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let bearer = format!("Bearer {token}").parse().unwrap();
    request.metadata_mut().insert("authorization", bearer);
    request
}

async fn open(server: &RunningServer, token: &str) -> Result<Stream, Status> {
    let mut client = client_of(server).await;
    let hello = Hello { client_id: token.to_owned(), ..Hello::default() };
    let body = Some(client_message::Body::Hello(hello));
    let (frames, sent) = mpsc::channel(1);
    frames.send(ClientFrame { messages: vec![ClientMessage { id: 1, body }] }).await.unwrap();
    let request = shown(token, ReceiverStream::new(sent));
    let mut received = client.connect(request).await?.into_inner();
    let greeting = received.message().await?.unwrap();
    assert!(matches!(greeting.messages[0].body, Some(Body::Hello(_))), "{greeting:?}");
    Ok((frames, received))
}

// Regression: a stream opened with a stolen token continued.
#[tokio::test]
async fn a_token_that_is_shut_out_loses_its_streams() {
    let tokens = TokensFile::draw();
    let mut config = roomy();
    config.security.tokens = Some(tokens.path());
    let server = Server::start(config).await.unwrap();
    let (_frames, mut stream) = open(&server, &tokens.client).await.unwrap();

    let carol = NewToken::draw("carol", Role::Client).unwrap();
    let more = std::fs::read_to_string(tokens.path()).unwrap() + "\n" + &carol.line;
    std::fs::write(tokens.path(), more).unwrap();
    let reloaded = server.reload_tokens().unwrap().unwrap();
    assert_eq!((reloaded.tokens, reloaded.shut_out), (4, 0));
    let (_frames, _carols) = open(&server, &carol.token).await.unwrap();

    std::fs::write(tokens.path(), &carol.line).unwrap();
    let reloaded = server.reload_tokens().unwrap().unwrap();
    assert_eq!((reloaded.tokens, reloaded.shut_out), (1, 3));
    // The first event on this stream: adding tokens has not ended it.
    let last = stream.message().await.unwrap().unwrap();
    assert!(matches!(last.messages[0].body, Some(Body::GoAway(_))), "{last:?}");
    assert_eq!(stream.message().await.unwrap(), None);
    let refused = open(&server, &tokens.client).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    open(&server, &carol.token).await.unwrap();
}

/// Waits for the row of stock, for as long as a request may.
async fn wait(mut client: Client, token: String) -> Result<(), Status> {
    let registration = registration("", 0, "7", 3_600_000);
    let request = CheckLocksRequest {
        resource_id: registration.resource_id,
        rows: registration.rows,
        wait: registration.wait,
        ..CheckLocksRequest::default()
    };
    client.check_locks(shown(&token, request)).await.map(drop)
}

/// Waits until this many requests wait for rows.
async fn until_waiting(admin: &Admin, waiters: usize) {
    let waiting = async || admin.get::<ServerStatus>("/api/v1/status").await.waiters;
    until("this many wait", async || waiting().await == waiters).await;
}

// Regression: streams ended with their token, but a waiting call continued for up to an hour.
#[tokio::test]
async fn a_token_that_is_shut_out_loses_its_waiting_calls() {
    let tokens = TokensFile::draw();
    let others = std::fs::read_to_string(tokens.path()).unwrap();
    let carol = NewToken::draw("carol", Role::Client).unwrap();
    std::fs::write(tokens.path(), format!("{others}\n{}", carol.line)).unwrap();
    let mut config = roomy();
    config.security.tokens = Some(tokens.path());
    let server = Server::start(config).await.unwrap();
    let base = format!("http://{}", server.admin_address);
    let admin = Admin::new(&base, Some(tokens.viewer.clone()));
    let mut client = client_of(&server).await;
    let begun = client.begin(shown(&tokens.client, BeginRequest::default())).await.unwrap();
    let xid = begun.into_inner().xid;
    let branch = registration(&xid, 7, "7", 0);
    client.register_branch(shown(&tokens.client, branch)).await.unwrap();
    let stays = tokio::spawn(wait(client.clone(), tokens.client.clone()));
    let goes = tokio::spawn(wait(client.clone(), carol.token.clone()));
    until_waiting(&admin, 2).await;

    std::fs::write(tokens.path(), others).unwrap();
    server.reload_tokens().unwrap().unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(60), goes).await.unwrap().unwrap();
    assert_eq!(ended.unwrap_err().code(), Code::Unauthenticated);
    // Its place is given up; the call of a token that is still valid keeps its own.
    until_waiting(&admin, 1).await;
    assert!(!stays.is_finished());
    let decision = Decision::Commit.into();
    let end = EndRequest { xid, decision, ..EndRequest::default() };
    client.end(shown(&tokens.client, end)).await.unwrap();
    stays.await.unwrap().unwrap();
}
