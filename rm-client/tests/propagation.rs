//! The XID between real servers: axum and reqwest, tonic and tonic.

mod tc;

use std::net::{Ipv4Addr, SocketAddr};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use handfast::propagation::{CarryXidLayer, XidLayer, XidMiddleware, with_xid};
use handfast::{Error, GlobalStatus, Handfast, TransactionError, current_xid};
use handfast_proto::v1;
use handfast_proto::v1::coordinator_client::CoordinatorClient;
use handfast_proto::v1::coordinator_server::{Coordinator, CoordinatorServer};
use reqwest_middleware::ClientWithMiddleware;
use tc::Tc;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status, Streaming};

/// The answer of a service that is called outside any transaction.
const NONE: &str = "none";

fn seen() -> String {
    current_xid().map_or_else(|| NONE.to_owned(), |xid| xid.to_string())
}

/// The server's reqwest is built with the same features and needs a default crypto provider.
fn plain_client() -> reqwest::Client {
    // Another test of this binary may have installed it before.
    drop(tokio_rustls::rustls::crypto::ring::default_provider().install_default());
    reqwest::Client::new()
}

fn client() -> ClientWithMiddleware {
    reqwest_middleware::ClientBuilder::new(plain_client()).with(XidMiddleware::new()).build()
}

async fn free_port() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port is free");
    let address = listener.local_addr().expect("a bound socket has an address");
    (listener, address)
}

async fn listen(app: Router) -> SocketAddr {
    let (listener, address) = free_port().await;
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// Starts a service that answers with its current global.
async fn account() -> SocketAddr {
    let app = Router::new().route("/seen", get(async || seen())).layer(XidLayer::new());
    listen(app).await
}

async fn ask(client: &ClientWithMiddleware, url: String) -> String {
    let response = client.get(url).send().await.expect("the service answers");
    response.text().await.expect("the answer is text")
}

#[tokio::test]
async fn the_xid_travels_through_two_http_services() {
    let tc = Tc::start().await;
    let handfast = Handfast::connect(tc.endpoint()).await.unwrap();
    let account = account().await;
    let relay = async move || ask(&client(), format!("http://{account}/seen")).await;
    let order = listen(Router::new().route("/", get(relay)).layer(XidLayer::new())).await;

    let global = handfast.transaction("t").begin().await.unwrap();
    let (client, url) = (client(), format!("http://{order}/"));
    let inside = global.scope(ask(&client, url.clone())).await;
    assert_eq!(inside, global.xid().as_str());
    assert_eq!(ask(&client, url).await, NONE);
    global.commit().await.unwrap();
}

#[tokio::test]
async fn an_http_handler_can_launch_a_transaction() {
    let tc = Tc::start().await;
    let handfast = Handfast::connect(tc.endpoint()).await.unwrap();
    let (account, caller) = (account().await, handfast.clone());
    let place_order = async move || {
        let work =
            async |_tx| Ok::<_, Error>(ask(&client(), format!("http://{account}/seen")).await);
        caller.transaction("place-order").run(work).await.map_err(|error| error.to_string())
    };
    let order = listen(Router::new().route("/", get(place_order))).await;
    let xid = ask(&client(), format!("http://{order}/")).await;
    let committed = handfast.outcome(&xid.parse().unwrap()).await.unwrap();
    assert_eq!(committed, GlobalStatus::Committed);
}

#[tokio::test]
async fn a_refusal_of_a_called_service_rolls_back_the_caller() {
    let tc = Tc::start().await;
    let handfast = Handfast::connect(tc.endpoint()).await.unwrap();
    let callee = Handfast::connect(tc.endpoint()).await.unwrap();
    let refuse = async move || {
        let joined = callee.transaction("debit").run(async |_tx| Err::<(), _>("no funds")).await;
        match joined {
            Err(TransactionError::Application(why)) => (StatusCode::CONFLICT, why),
            other => unreachable!("a participant decides nothing: {other:?}"),
        }
    };
    let account = listen(Router::new().route("/", get(refuse)).layer(XidLayer::new())).await;
    let work = async |_tx| {
        let response = client().get(format!("http://{account}/")).send().await.unwrap();
        response.error_for_status().map(drop)
    };
    let error = handfast.transaction("place-order").run(work).await.unwrap_err();
    let TransactionError::RolledBack { .. } = &error else { unreachable!("{error:?}") };
    assert_eq!(error.application().unwrap().status().unwrap(), 409);
}

#[tokio::test]
async fn a_malformed_xid_is_refused_before_the_handler_runs() {
    let account = account().await;
    for header in ["TX_XID", "tx-xid"] {
        let request = plain_client().get(format!("http://{account}/seen"));
        let response = request.header(header, "not an xid").send().await.unwrap();
        assert_eq!(response.status(), 400);
        assert_eq!(response.headers()["handfast-code"], "HF-TM-XID");
        let body: serde_json::Value = response.json().await.unwrap();
        assert_eq!(body["code"], "HF-TM-XID");
        assert_eq!(body["message"], "malformed xid in the TX_XID header");
    }
}

/// Without the header the work was plain local work, committed at once, without any sign.
#[tokio::test]
async fn a_missing_xid_is_refused_where_one_is_required() {
    let app = Router::new().route("/seen", get(async || seen())).layer(XidLayer::required());
    let url = format!("http://{}/seen", listen(app).await);
    let refused = plain_client().get(&url).send().await.unwrap();
    assert_eq!(refused.status(), 400);
    assert_eq!(refused.headers()["handfast-code"], "HF-TM-XID-REQUIRED");
    let body: serde_json::Value = refused.json().await.unwrap();
    assert_eq!(body["code"], "HF-TM-XID-REQUIRED");
    let xid: handfast::Xid = "tc.example:7091:42".parse().unwrap();
    assert_eq!(xid.scope(ask(&client(), url)).await, xid.as_str());
}

/// A gRPC service that answers `GetStatus` if and only if it runs within the requested global.
struct Within;

#[tonic::async_trait]
impl Coordinator for Within {
    type ConnectStream = tokio_stream::Empty<Result<v1::ServerFrame, Status>>;
    type SubscribeStream = tokio_stream::Empty<Result<v1::PhaseTwoFrame, Status>>;

    async fn get_status(
        &self,
        request: Request<v1::GetStatusRequest>,
    ) -> Result<Response<v1::GetStatusReply>, Status> {
        if seen() != request.into_inner().xid {
            return Err(Status::failed_precondition(seen()));
        }
        Ok(Response::new(v1::GetStatusReply::default()))
    }

    async fn connect(
        &self,
        _: Request<Streaming<v1::ClientFrame>>,
    ) -> Result<Response<Self::ConnectStream>, Status> {
        Err(Status::unimplemented("not asked here"))
    }

    async fn begin(
        &self,
        _: Request<v1::BeginRequest>,
    ) -> Result<Response<v1::BeginReply>, Status> {
        Err(Status::unimplemented("not asked here"))
    }

    async fn register_branch(
        &self,
        _: Request<v1::RegisterBranchRequest>,
    ) -> Result<Response<v1::RegisterBranchReply>, Status> {
        Err(Status::unimplemented("not asked here"))
    }

    async fn try_branch(
        &self,
        _: Request<v1::TryBranchRequest>,
    ) -> Result<Response<v1::TryBranchReply>, Status> {
        Err(Status::unimplemented("not asked here"))
    }

    async fn report_branch(
        &self,
        _: Request<v1::ReportBranchRequest>,
    ) -> Result<Response<v1::ReportBranchReply>, Status> {
        Err(Status::unimplemented("not asked here"))
    }

    async fn check_locks(
        &self,
        _: Request<v1::CheckLocksRequest>,
    ) -> Result<Response<v1::CheckLocksReply>, Status> {
        Err(Status::unimplemented("not asked here"))
    }

    async fn report_database_wait(
        &self,
        _: Request<v1::ReportDatabaseWaitRequest>,
    ) -> Result<Response<v1::ReportBranchReply>, Status> {
        Err(Status::unimplemented("not asked here"))
    }

    async fn end(&self, _: Request<v1::EndRequest>) -> Result<Response<v1::EndReply>, Status> {
        Err(Status::unimplemented("not asked here"))
    }

    async fn subscribe(
        &self,
        _: Request<v1::Hello>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        Err(Status::unimplemented("not asked here"))
    }

    async fn finish_phase_two(
        &self,
        _: Request<v1::FinishPhaseTwoRequest>,
    ) -> Result<Response<v1::FinishPhaseTwoReply>, Status> {
        Err(Status::unimplemented("not asked here"))
    }
}

async fn grpc_service() -> Channel {
    let (listener, address) = free_port().await;
    let server = tonic::transport::Server::builder()
        .layer(XidLayer::new())
        .add_service(CoordinatorServer::new(Within));
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    let endpoint = Channel::from_shared(format!("http://{address}")).expect("it is a URL");
    endpoint.connect().await.expect("the service listens")
}

#[tokio::test]
async fn the_xid_travels_through_grpc_by_interceptor_and_by_layer() {
    let channel = grpc_service().await;
    let xid: handfast::Xid = "tc.example:7091:42".parse().unwrap();
    let asked = v1::GetStatusRequest { xid: xid.to_string() };
    let outside = v1::GetStatusRequest { xid: NONE.to_owned() };

    let mut client = CoordinatorClient::with_interceptor(channel.clone(), with_xid);
    xid.scope(client.get_status(asked.clone())).await.unwrap();
    client.get_status(outside.clone()).await.unwrap();

    let layered = tower::ServiceBuilder::new().layer(CarryXidLayer::new()).service(channel);
    let mut client = CoordinatorClient::new(layered);
    xid.scope(client.get_status(asked)).await.unwrap();
    client.get_status(outside).await.unwrap();
}

#[tokio::test]
async fn a_malformed_xid_in_grpc_metadata_is_an_invalid_argument() {
    let mut client = CoordinatorClient::new(grpc_service().await);
    let mut request = Request::new(v1::GetStatusRequest::default());
    request.metadata_mut().insert("tx_xid", "nonsense".parse().unwrap());
    let status = client.get_status(request).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(status.metadata().get("handfast-code").unwrap(), "HF-TM-XID");
}
