//! The wire between services and the coordinator: the native API, message by message.
//!
//! A service connects here as it would to `handfast serve`. The wire passes on what it gets, and
//! asks [`Faults`] at each message. It decides nothing about transactions.

mod stream;
mod unary;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use handfast_proto::v1::coordinator_client::CoordinatorClient;
use handfast_proto::v1::coordinator_server::CoordinatorServer;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tonic::Status;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};

use crate::coordinator::Revivable;
use crate::faults::Faults;
use crate::traffic::Traffic;

/// The largest message that passes, as at the coordinator.
const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// A server that stands between services and the coordinator.
#[derive(Clone, Debug)]
pub(crate) struct TestWire {
    coordinator: Arc<Revivable>,
    faults: Arc<Faults>,
    traffic: Arc<Traffic>,
}

impl TestWire {
    /// Lets services connect, at the address that is returned, until the task is aborted.
    pub(crate) async fn open(
        coordinator: Arc<Revivable>,
        faults: Arc<Faults>,
        traffic: Arc<Traffic>,
    ) -> std::io::Result<(SocketAddr, JoinHandle<()>)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let wire = Self { coordinator, faults, traffic };
        let service = CoordinatorServer::new(wire).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        let served = Server::builder().add_service(service).serve_with_incoming(incoming);
        let task = tokio::spawn(async move {
            if let Err(error) = served.await {
                tracing::error!(%error, "the wire of the test has ended");
            }
        });
        Ok((address, task))
    }

    /// Connects to the coordinator. Waits while it is dead.
    async fn client(&self) -> Result<CoordinatorClient<Channel>, Status> {
        let address = self.coordinator.address().await;
        let address = address.map_err(|reason| Status::unavailable(&*reason))?;
        let unreachable = |error: tonic::transport::Error| Status::unavailable(error.to_string());
        let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(unreachable)?;
        let channel = endpoint.connect().await.map_err(unreachable)?;
        Ok(CoordinatorClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX))
    }
}
