//! The reflection service, from which tools learn the API without its files.

use handfast_server::embedded::Server;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use crate::common::channel;

#[tokio::test]
async fn the_services_are_listed_and_described() {
    let server = Server::builder().start().await.unwrap();
    let mut client = ServerReflectionClient::new(channel(&server).await);
    let ask =
        |request| ServerReflectionRequest { host: String::new(), message_request: Some(request) };
    let symbol = "handfast.v1.Coordinator".to_owned();
    let asked = [
        ask(MessageRequest::ListServices(String::new())),
        ask(MessageRequest::FileContainingSymbol(symbol.clone())),
    ];
    let asked = tokio_stream::iter(asked);
    let mut told = client.server_reflection_info(asked).await.unwrap().into_inner();
    let first = told.message().await.unwrap().unwrap().message_response.unwrap();
    let MessageResponse::ListServicesResponse(list) = first else { panic!("{first:?}") };
    let names: Vec<&str> = list.service.iter().map(|service| &*service.name).collect();
    assert!(names.contains(&&*symbol) && names.contains(&"grpc.health.v1.Health"), "{names:?}");
    let second = told.message().await.unwrap().unwrap().message_response.unwrap();
    assert!(matches!(second, MessageResponse::FileDescriptorResponse(_)), "{second:?}");
}
