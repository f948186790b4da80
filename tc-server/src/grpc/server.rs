//! Serves the routes on a plain socket.

use std::future::Future;
use std::time::Duration;

use tokio::net::TcpListener;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

/// The port could not be served.
#[derive(Debug, thiserror::Error)]
#[error("serving gRPC failed")]
pub struct ServeError(#[from] tonic::transport::Error);

/// How long a silent connection is left alone, and how long it then has to answer a ping. A client
/// that vanished without a word is noticed after both.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves without encryption until `shutdown` completes and every connection has ended.
///
/// # Errors
///
/// When the listener fails.
pub async fn serve(
    listener: TcpListener,
    routes: Routes,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let server = Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .add_routes(routes);
    Ok(server.serve_with_incoming_shutdown(incoming, shutdown).await?)
}
